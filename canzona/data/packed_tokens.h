// Tokens as they lie in files: numbers of some width, one after the other, at
// any address. Reading them checks that each is one of the vocabulary.
//
//   PackedTokens tokens{bytes, PackedType::kU16, {"corpus.bin", 50257}};
//   tokens.read(first, to);
//
// A view: the bytes outlive it. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace canzona {

enum class PackedType { kU8, kI8, kU16, kI16, kU32, kI32, kI64 };
int64_t packed_width(PackedType type);  // bytes

// What tokens are held against, and the name that an error gives them.
struct Vocabulary {
  std::string file;
  int64_t size = 256;
};

// Where tokens lie in a file.
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

}  // namespace canzona
