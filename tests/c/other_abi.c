/* A library of another release: its interface has another version. */
#include <stdint.h>

int32_t canzona_abi(void) { return 1000; }
