// Megatron's pairs of files: x.bin holds tokens, x.idx where sequences lie.
//
//   x.idx: "MMIDIDX\0\0", version 1 (u64), type of the tokens (u8), number of
//   sequences (u64), number of documents (u64), lengths (i32 each), first
//   bytes (i64 each), first sequence of each document (i64 each, and the end)
//
// All numbers are little-endian. What may follow (modes) is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/data/packed_tokens.h"

namespace canzona {

// Where the tokens of a .bin lie. Sequences that lie side by side, which is
// how they are written, are one run.
struct MegatronIndex {
  PackedType type = PackedType::kU8;
  struct Run {
    int64_t first = 0;  // token, counted over all runs
    int64_t byte = 0;   // of its first token in the .bin
  };
  std::vector<Run> runs;
  int64_t num_tokens = 0;
  int64_t num_sequences = 0;
};

bool looks_like_megatron_index(std::span<const std::byte> bytes);

// Reads x.idx for a x.bin of `bin_bytes`. UsageError names `file`, the place,
// what was expected and what came.
MegatronIndex megatron_index(std::span<const std::byte> bytes,
                             int64_t bin_bytes, const std::string& file);

}  // namespace canzona
