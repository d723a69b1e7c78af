// Training tokens as one long list, whatever format they are stored in.
//
//   auto tokens = open_tokens("corpus.txt", {.vocab = 256});
//   tokens->read(0, first_tokens);
//
// Reading is thread-safe. Files are untrusted: UsageError names the file, the
// position, what was expected and what came.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "canzona/data/tokenizer.h"

namespace canzona::data {

// Tokens as stored in files: consecutive integers of some width, at any
// alignment. Reading checks each of them against the vocabulary.
//
//   PackedTokens tokens{bytes, PackedType::kU16, {"corpus.bin", 50257}};
//   tokens.read(first, to);
//
// This is a view: the bytes must outlive it. Thread-safe.

enum class PackedType { kU8, kI8, kU16, kI16, kU32, kI32, kI64 };
int64_t packed_width(PackedType type);  // bytes

// Tokens are checked against a Vocabulary; `file` is for errors.
struct Vocabulary {
  std::string file;
  int64_t size = 256;
};

// A region of a file that holds tokens.
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
  // Reads tokens [first, first + to.size()). Throws UsageError naming a token
  // that is not below the vocabulary's size, with its position counted from
  // `offset`.
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

// Returns true if these bytes begin like such a file.
bool looks_like_llmc(std::span<const std::byte> bytes);

// The number of bytes of a file's beginning that are examined.
inline constexpr size_t kLlmcHeaderBytes = 1024;

// Returns where the tokens of a file of `file_bytes` lie, given its first
// bytes: the header, or all there are. Throws UsageError with `file`, the
// position, what was expected and what came.
PackedRegion llmc_tokens(std::span<const std::byte> head, int64_t file_bytes,
                         const std::string& file);

// Megatron's pairs of files: x.bin holds the tokens, x.idx the sequences.
//
//   x.idx: "MMIDIDX\0\0", version 1 (u64), type of the tokens (u8), number of
//   sequences (u64), number of documents (u64), lengths (i32 each), first
//   bytes (i64 each), first sequence of each document (i64 each, and the end)
//
// All numbers are little-endian. Modes may follow and are ignored.

// A MegatronIndex says where the tokens of a .bin lie. Consecutive sequences,
// which is how they are written, form one run.
struct MegatronIndex {
  PackedType type = PackedType::kU8;
  struct Run {
    int64_t first = 0;  // token number over all runs
    int64_t byte = 0;   // offset of its first token in the .bin
  };
  std::vector<Run> runs;
  int64_t num_tokens = 0;
  int64_t num_sequences = 0;
};

bool looks_like_megatron_index(std::span<const std::byte> bytes);

// Reads x.idx for an x.bin of `bin_bytes`. Throws UsageError with `file`, the
// position, what was expected and what came.
MegatronIndex megatron_index(std::span<const std::byte> bytes,
                             int64_t bin_bytes, const std::string& file);

// A file without a NUL among its first 64 KiB counts as text.

inline constexpr size_t kLookedAt = 64 << 10;

// Returns the position of the first NUL among the bytes that are examined.
inline std::optional<size_t> find_nul(std::span<const std::byte> bytes) {
  const auto head = bytes.first(std::min(bytes.size(), kLookedAt));
  const auto nul = std::ranges::find(head, std::byte{0});
  if (nul == head.end()) return std::nullopt;
  return static_cast<size_t>(nul - head.begin());
}

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual int64_t size() const = 0;
  // Reads tokens [first, first + to.size()), which must be in range.
  virtual void read(int64_t first, std::span<int32_t> to) const = 0;
  // Returns the bytes of text that tokens [first, first + count) stand for,
  // before a tokenizer normalized it; -1 if the source has no text.
  virtual int64_t text_bytes(int64_t /*first*/, int64_t /*count*/) const {
    return -1;
  }
  // Returns a description for people, such as "text, 3 files".
  virtual std::string describe() const = 0;
  // Returns the same digest for the same tokens, wherever they are stored.
  virtual std::string digest() const = 0;
};

struct TokenOptions {
  int64_t vocab = 256;  // larger tokens are an error
  uint64_t seed = 0;    // for the built-in language
  // The tokenizer for text; without one, bytes are tokens. Files of tokens do
  // not use it.
  std::optional<Tokenizer> tokenizer = std::nullopt;
  bool allows_bytes = true;  // false: text without a tokenizer is refused
};

// `path` is a text file, a folder of text files, Megatron's .bin/.idx, llm.c's
// .bin, or "synthetic" for the built-in language. Text is read as bytes or
// tokenized; the tokenizer may not have more tokens than the vocabulary.
std::unique_ptr<TokenSource> open_tokens(const std::string& path,
                                         const TokenOptions& options);

// Functions that token sources share.

// The built-in language: generated text with structure at every distance for a
// model to learn.
//
//   std::string text = synthetic_text(seed, 4 << 20);
//
// It consists of stories of some twenty sentences each. A story has a topic, to
// which most of its nouns belong, and two people, whose names recur. Sentences:
//
//   the small rako that the velus see keeps a torim.   verbs agree with their
//                                                      subject, over a clause
//   Mira counts 4, 5, 6, 7.        17 plus 5 is 22.    numbers
//   Tovin says "lom rako sen" and Mira repeats "lom rako sen".   copying
//   ( rako [ lom { sen } ] )                           brackets are closed
//
// It uses only ASCII and integer arithmetic, so the bytes are the same on every
// machine.

std::string synthetic_text(uint64_t seed, int64_t size);

// Opens all text files below `path`.
std::unique_ptr<TokenSource> open_folder(const std::string& path,
                                         const TokenOptions& options);

// Tokenizes the bytes of `text`.
std::unique_ptr<TokenSource> tokenize(std::unique_ptr<TokenSource> text,
                                      const Tokenizer& tokenizer);

// Computes TokenSource::digest() for any source.
std::string digest_of(const TokenSource& tokens);

}  // namespace canzona::data
