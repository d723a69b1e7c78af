// Calls the installed library as a user's program would.
#include <iostream>

#include "canzona/base/digest.h"

int main() {
  const std::string got = canzona::sha256_hex("abc");
  if (got.substr(0, 8) != "ba7816bf") {
    std::cerr << "sha256_hex(\"abc\") is " << got << '\n';
    return 1;
  }
  std::cout << "canzona was found, linked and called\n";
}
