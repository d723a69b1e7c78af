// Converts text to tokens of a Hugging Face tokenizer.json and back: byte-level
// BPE as in Qwen 2, Qwen 3 and Llama 3.
//
//   const Tokenizer tokenizer = load_tokenizer("Qwen3-0.6B");
//   std::vector<int32_t> tokens = tokenizer.encode("Hello");
//   std::string text = tokenizer.decode(tokens);
//
// Tokens are those of the tokenizers library with add_special_tokens off: names
// of special tokens in the text become these tokens. Bytes that are not UTF-8,
// which that library does not accept, are encoded one by one, as characters
// that are neither letter nor number nor space. Without a normalizer decode()
// returns the text that was encoded, byte for byte; with NFC, its normal form.
//
// Files are untrusted: sizes are bounded, and UsageError names the file, the
// position, what was expected and what came. Anything that would give other
// tokens (other models, normalizers, pre-tokenizers) is refused by name. A
// tokenizer is immutable; any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/rooms.h"

namespace canzona::data {

struct TokenizerData;  // the contents of the file (tokenizer_file.h)

class Tokenizer {
 public:
  explicit Tokenizer(std::shared_ptr<const TokenizerData> data);

  // The largest token plus one; there may be gaps.
  int64_t vocab() const;
  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const int32_t> tokens) const;
  // Returns the bytes of a token, or nothing if there is no such token.
  std::string_view bytes_of(int32_t token) const;
  // Returns the bytes of all tokens of `text`, that is, of its normal form.
  int64_t encoded_bytes(std::string_view text) const;
  // True if the bytes of the tokens may differ from the text.
  bool normalizes() const;
  // The tokens at the beginning of an independent text, such as a prompt.
  std::span<const int32_t> prefix() const;
  // True if this token is only a marker, such as the end of a text.
  bool is_special(int32_t token) const;
  // Returns the length of the longest prefix of `text`, of at least `least`
  // bytes, whose tokens do not depend on the rest; 0 if there is none.
  size_t separable(std::string_view text, size_t least = 1) const;

 private:
  friend class TokenEncoder;

  std::shared_ptr<const TokenizerData> data_;
};

// Encodes faster over many calls, because it caches words.
//
//   TokenEncoder encoder(tokenizer);
//   encoder.encode(part, tokens);
//
// One thread at a time.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer& tokenizer);
  ~TokenEncoder();

  // Appends the tokens of `text`.
  void encode(std::string_view text, std::vector<int32_t>& tokens);

 private:
  class Words;

  std::shared_ptr<const TokenizerData> data_;
  std::unique_ptr<Words> words_;
};

// Reads the text of a tokenizer.json; `file` is for messages.
Tokenizer parse_tokenizer(std::string_view json, const std::string& file);

// `path` is a tokenizer.json or a folder that has one.
Tokenizer load_tokenizer(const std::string& path);
// Reads the whole file that such a path names.
std::string read_tokenizer_file(const std::string& path);

}  // namespace canzona::data
