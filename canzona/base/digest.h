// SHA-256 (FIPS 180-4) of a run of bytes. Used to name plans: equal digests
// mean equal plans on all ranks and machines.
//
//   std::string name = sha256_hex("abc");   // "ba7816bf…15ad"
#pragma once

#include <string>
#include <string_view>

namespace canzona {

// 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace canzona
