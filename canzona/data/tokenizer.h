// Text as tokens of a Hugging Face tokenizer.json, and back: byte-level BPE as
// Qwen 2, Qwen 3 and Llama 3 have it.
//
//   const Tokenizer tokenizer = load_tokenizer("Qwen3-0.6B");
//   std::vector<int32_t> tokens = tokenizer.encode("Hello");
//   std::string text = tokenizer.decode(tokens);
//
// Tokens are those that the tokenizers library gives with add_special_tokens
// off: names of special tokens in the text become these tokens. Bytes that are
// no UTF-8, which it cannot be given, are encoded one by one, as characters
// that are neither letter nor number nor space. Without a normalizer decode()
// gives the text that was encoded, byte for byte; with NFC, its normal form.
//
// Files are untrusted: sizes are bounded, and UsageError names the file, the
// place, what was expected and what came. Whatever would give other tokens
// (other models, normalizers, pre-tokenizers) is refused by name. A tokenizer
// is immutable; any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace canzona {

struct TokenizerData;  // what the file says (tokenizer_file.h)

class Tokenizer {
 public:
  explicit Tokenizer(std::shared_ptr<const TokenizerData> data);

  // The largest token and one; there may be gaps.
  int64_t vocab() const;
  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const int32_t> tokens) const;
  // The bytes of a token; none of one that there is not.
  std::string_view bytes_of(int32_t token) const;
  // Bytes of all tokens that `text` is encoded as: those of its normal form.
  int64_t encoded_bytes(std::string_view text) const;
  // True if tokens may have other bytes than the text.
  bool normalizes() const;
  // The tokens that begin a text of their own, such as a prompt.
  std::span<const int32_t> prefix() const;
  // True if this token only marks something, such as the end of a text.
  bool is_special(int32_t token) const;
  // The most bytes at the beginning of `text`, at least `least`, whose tokens
  // do not depend on the rest; 0 if there is no such place.
  size_t separable(std::string_view text, size_t least = 1) const;

 private:
  friend class TokenEncoder;

  std::shared_ptr<const TokenizerData> data_;
};

// The same tokens, faster from call to call: words are remembered.
//
//   TokenEncoder encoder(tokenizer);
//   encoder.encode(part, tokens);
//
// One thread.
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

// `path`: a tokenizer.json, or a folder that has one.
Tokenizer load_tokenizer(const std::string& path);
// The file of such a path, whole.
std::string read_tokenizer_file(const std::string& path);

}  // namespace canzona
