// Tokens as they lie in files: numbers of some width, one after the other, at
// any address. Reading them checks that each is one of the vocabulary.
//
//   PackedTokens tokens{bytes, PackedType::kU16, {"corpus.bin", 50257}};
//   tokens.read(first, to);
//
// A view: the bytes outlive it. Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace canzona {

enum class PackedType { kU8, kI8, kU16, kI16, kU32, kI32, kI64 };
int64_t packed_width(PackedType type);  // bytes

// Tokens are held against a Vocabulary; `name` is for errors.
struct Vocabulary {
  std::string file;
  int64_t size = 256;
};

// A region of a file in which tokens lie.
struct PackedRegion {
  int64_t begin = 0;  // byte
  int64_t bytes = 0;
  PackedType type = PackedType::kU8;

  int64_t size() const { return bytes / packed_width(type); }  // tokens
};

struct PackedTokens {
  std::span<const std::byte> bytes;
  PackedType type = PackedType::kU8;

  int64_t size() const {
    return static_cast<int64_t>(bytes.size()) / packed_width(type);
  }
  // Tokens [first, first + to.size()). UsageError names one that is not below
  // the vocabulary's size, its place counted from `offset`.
  void read(int64_t first, std::span<int32_t> to, const Vocabulary& vocabulary,
            int64_t offset = 0) const;
};

// The .bin files of llm.c: 256 numbers of 32 bits, then the tokens.
//
//   header[0]  20240520 (GPT-2) or 20240801 (Llama 3)
//   header[1]  1: tokens of 16 bits; 7: of 32 bits
//   header[2]  how many tokens follow
//
// All numbers are little-endian.

// True if these bytes begin as such a file does.
bool looks_like_llmc(std::span<const std::byte> bytes);

// The number of bytes at a file's beginning that are looked at.
inline constexpr size_t kLlmcHeaderBytes = 1024;

// Returns where the tokens of a file of `file_bytes` lie, by its first bytes:
// the header, or all there are. UsageError names `file`, the place, what was
// expected and what came.
PackedRegion llmc_tokens(std::span<const std::byte> head, int64_t file_bytes,
                         const std::string& file);

// Megatron's pairs of files: x.bin holds tokens, x.idx where sequences lie.
//
//   x.idx: "MMIDIDX\0\0", version 1 (u64), type of the tokens (u8), number of
//   sequences (u64), number of documents (u64), lengths (i32 each), first
//   bytes (i64 each), first sequence of each document (i64 each, and the end)
//
// All numbers are little-endian. Modes may follow and are ignored.

// A MegatronIndex says where the tokens of a .bin lie. Sequences that lie side
// by side, which is how they are written, are one run.
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

// A file without a NUL among its first 64 KiB counts as text.

inline constexpr size_t kLookedAt = 64 << 10;

// The place of the first NUL among the bytes that are looked at.
inline std::optional<size_t> find_nul(std::span<const std::byte> bytes) {
  const auto head = bytes.first(std::min(bytes.size(), kLookedAt));
  const auto nul = std::ranges::find(head, std::byte{0});
  if (nul == head.end()) return std::nullopt;
  return static_cast<size_t>(nul - head.begin());
}

}  // namespace canzona
