// The inner loops of SHA-256 and CRC-32C, portable and by the processor's own
// instructions. For digest.cc, checksum.cc and their tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace canzona {

// Adds `count` blocks of 64 bytes to a state of eight words.
using Sha256Blocks = void (*)(uint32_t* state, const unsigned char* blocks,
                              size_t count);
void sha256_blocks_portable(uint32_t* state, const unsigned char* blocks,
                            size_t count);
// Null where this processor has no instructions for it.
Sha256Blocks sha256_blocks_hardware();

// Adds `count` groups of four little-endian words of 8 bytes to four CRC-32C
// (Castagnoli, reflected), one word to each.
using Crc32cGroups = void (*)(uint32_t* lanes, const unsigned char* groups,
                              size_t count);
void crc32c_groups_portable(uint32_t* lanes, const unsigned char* groups,
                            size_t count);
Crc32cGroups crc32c_groups_hardware();

}  // namespace canzona
