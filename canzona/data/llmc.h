// The .bin files of llm.c: 256 numbers of 32 bits, then the tokens.
//
//   header[0]  20240520 (GPT-2) or 20240801 (Llama 3)
//   header[1]  1: tokens of 16 bits; 7: of 32 bits
//   header[2]  how many tokens follow
//
// All numbers are little-endian.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "canzona/data/packed_tokens.h"

namespace canzona {

// Whether these bytes begin as such a file does.
bool looks_like_llmc(std::span<const std::byte> bytes);

// How much of a file is looked at.
inline constexpr size_t kLlmcHeaderBytes = 1024;

// Where the tokens of a file of `file_bytes` lie, by its first bytes: the
// header, or all there are. UsageError names `file`, the place, what was
// expected and what came.
PackedRegion llmc_tokens(std::span<const std::byte> head, int64_t file_bytes,
                         const std::string& file);

}  // namespace canzona
