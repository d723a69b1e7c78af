/* The header is plain C: this is compiled as C99, pedantically, and run. */
#include <stdio.h>
#include <string.h>

#include "canzona/c/canzona.h"

int main(void) {
  if (canzona_abi() != CANZONA_ABI) return 1;
  printf("canzona %s: %s\n", canzona_version(), canzona_describe("cpu"));
  if (canzona_rules() == NULL || strstr(canzona_rules(), "muon") == NULL)
    return 2;
  if (canzona_describe("tpu") != NULL) return 3;
  if (canzona_error_kind() != CANZONA_USAGE_ERROR) return 4;
  return strstr(canzona_error(), "tpu") == NULL ? 5 : 0;
}
