// How JSON that holds mostly numbers is mutated. Included by one source of a
// fuzzer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

// Numbers at which something may end, begin or overflow.
constexpr std::array<const char*, 20> kNumbers{"-1",
                                               "0",
                                               "1",
                                               "2",
                                               "3",
                                               "4",
                                               "5",
                                               "8",
                                               "16",
                                               "64",
                                               "1000",
                                               "10000",
                                               "1048576",
                                               "1048577",
                                               "2147483647",
                                               "0.999",
                                               "1e-300",
                                               "1e300",
                                               "1099511627776",
                                               "2305843009213693952"};

// Puts another number in the place of one that follows `start`.
std::string with_other_number(std::string text, size_t start, uint32_t choice) {
  const size_t at = text.find_first_of("0123456789", start);
  if (at == std::string::npos) return text;
  const size_t end = text.find_first_not_of("0123456789", at);
  text.replace(at, std::min(end, text.size()) - at,
               kNumbers[choice % kNumbers.size()]);
  return text;
}

}  // namespace

// Most mutations of bytes are not even JSON; every second one is of numbers.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  if (seed % 2 == 0 || size == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data), size);
  for (uint32_t random = seed; random % 4 != 0; random = random / 4) {
    const uint32_t mixed = random * 2654435761u;
    text = with_other_number(std::move(text), mixed % size, mixed >> 20);
  }
  size = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), size);
  return size;
}
