// Tokens to learn from, as one long list, whatever they are kept in.
//
//   auto tokens = open_tokens("corpus.txt", {.vocab = 256});
//   tokens->read(0, first_tokens);
//
// Reading is thread-safe. Files are untrusted: UsageError names the file, the
// place, what was expected and what came.
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
  // Tokens [first, first + to.size()), which lie inside.
  virtual void read(int64_t first, std::span<int32_t> to) const = 0;
  // Bytes of the text that tokens [first, first + count) stand for, as it was
  // before a tokenizer normalized it; -1 if the source has no such text.
  virtual int64_t text_bytes(int64_t /*first*/, int64_t /*count*/) const {
    return -1;
  }
  // "text, 3 files", for people.
  virtual std::string describe() const = 0;
  // The same for the same tokens, wherever they lie.
  virtual std::string digest() const = 0;
};

struct TokenOptions {
  int64_t vocab = 256;  // a token that is not below it is an error
  uint64_t seed = 0;    // of the built-in language
  // The tokenizer of text; without one its bytes are tokens. Files of tokens
  // have theirs.
  std::optional<Tokenizer> tokenizer = std::nullopt;
  bool allows_bytes = true;  // false: text without a tokenizer is refused
};

// `path`: a text file or a folder of such, Megatron's .bin/.idx, llm.c's .bin,
// or "synthetic": the built-in language. Text is read as bytes, or as tokens
// of the tokenizer, which may not have more of them than the vocabulary.
std::unique_ptr<TokenSource> open_tokens(const std::string& path,
                                         const TokenOptions& options);

}  // namespace canzona
