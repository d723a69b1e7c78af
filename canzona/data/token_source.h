// Training tokens as one long list, whatever format they are stored in.
//
//   auto tokens = open_tokens("corpus.txt", {.vocab = 256});
//   tokens->read(0, first_tokens);
//
// Reading is thread-safe. Files are untrusted: UsageError names the file, the
// position, what was expected and what came.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "canzona/data/tokenizer.h"

namespace canzona {

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

}  // namespace canzona
