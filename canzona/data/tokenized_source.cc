// A text as tokens of a tokenizer, all of them in memory: four bytes for each.
#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/data/sources.h"

namespace canzona {
namespace {

constexpr int64_t kTextBlock = 1 << 20;  // bytes read at once

// Parts whose tokens do not depend on each other are encoded one after the
// other, so that the whole text is never in memory unless it is one line.
std::vector<int32_t> encode_source(const TokenSource& text,
                                   const Tokenizer& tokenizer) {
  TokenEncoder encoder(tokenizer);
  std::vector<int32_t> tokens, block(kTextBlock);
  std::string waiting;
  size_t searched = 0;  // bytes of it that have no place to cut at
  for (int64_t first = 0; first < text.size(); first += kTextBlock) {
    const auto length = std::min(kTextBlock, text.size() - first);
    const auto part = std::span(block).first(static_cast<size_t>(length));
    text.read(first, part);
    for (const int32_t byte : part) waiting += static_cast<char>(byte);
    const size_t ready = tokenizer.separable(waiting, searched);
    encoder.encode(std::string_view(waiting).substr(0, ready), tokens);
    waiting.erase(0, ready);
    searched = waiting.size();
  }
  encoder.encode(waiting, tokens);
  return tokens;
}

class TokenizedSource : public TokenSource {
 public:
  TokenizedSource(std::unique_ptr<TokenSource> text, const Tokenizer& tokenizer)
      : text_(std::move(text)), tokens_(encode_source(*text_, tokenizer)) {}

  int64_t size() const override { return std::ssize(tokens_); }
  void read(int64_t first, std::span<int32_t> to) const override {
    const auto count = static_cast<int64_t>(to.size());
    CANZONA_CHECK(first >= 0 && count <= size() && first <= size() - count,
                  "tokens ", first, " + ", count, " of ", size());
    std::copy_n(tokens_.begin() + first, count, to.begin());
  }
  std::string describe() const override {
    return cat(text_->describe(), " as bytes, ",
               human_count(static_cast<double>(size())), " of the tokenizer");
  }
  std::string digest() const override { return digest_of(*this); }

 private:
  std::unique_ptr<TokenSource> text_;
  std::vector<int32_t> tokens_;
};

}  // namespace

std::unique_ptr<TokenSource> tokenize(std::unique_ptr<TokenSource> text,
                                      const Tokenizer& tokenizer) {
  return std::make_unique<TokenizedSource>(std::move(text), tokenizer);
}

}  // namespace canzona
