// A tokenized text, with all tokens in memory at four bytes each.
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

// Calls `use` with successive chunks whose tokens do not depend on each other,
// so that the whole text is never in memory unless it is one line.
template <class Use>
void for_each_part(const TokenSource& text, const Tokenizer& tokenizer,
                   const Use& use) {
  std::vector<int32_t> block(kTextBlock);
  std::string waiting;
  size_t searched = 0;  // bytes known to have no place to cut
  for (int64_t first = 0; first < text.size(); first += kTextBlock) {
    const auto length = std::min(kTextBlock, text.size() - first);
    const auto part = std::span(block).first(static_cast<size_t>(length));
    text.read(first, part);
    for (const int32_t byte : part) waiting += static_cast<char>(byte);
    const size_t ready = tokenizer.separable(waiting, searched);
    use(std::string_view(waiting).substr(0, ready));
    waiting.erase(0, ready);
    searched = waiting.size();
  }
  use(std::string_view(waiting));
}

std::vector<int32_t> encode_source(const TokenSource& text,
                                   const Tokenizer& tokenizer) {
  TokenEncoder encoder(tokenizer);
  std::vector<int32_t> tokens;
  for_each_part(text, tokenizer,
                [&](std::string_view part) { encoder.encode(part, tokens); });
  return tokens;
}

// Finds where a byte of the encoded text lies in the original, using pieces
// that are normalized independently. Inside a piece that normalization changes,
// positions are interpolated.
class OriginalPlaces {
 public:
  explicit OriginalPlaces(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Adds a number of encoded bytes whose position is wanted; calls must be in
  // ascending order.
  void look_for(int64_t encoded) { wanted_.push_back(encoded); }
  const std::vector<int64_t>& found() const { return found_; }

  void add_part(std::string_view part) {
    const int64_t encoded = tokenizer_.encoded_bytes(part);
    if (!is_inside(encoded)) return pass(std::ssize(part), encoded);
    const int64_t end = encoded_ + encoded;
    add_pieces(part);
    encoded_ = end;  // a piece may have ended inside an added token
  }
  // No text is left, so positions not found are at the end.
  void finish() { found_.resize(wanted_.size(), original_); }

 private:
  bool is_inside(int64_t encoded) const {
    return found_.size() < wanted_.size() &&
           wanted_[found_.size()] < encoded_ + encoded;
  }

  // Cutting before ASCII characters is safe: they do not compose with what
  // precedes them.
  void add_pieces(std::string_view part) {
    for (size_t begin = 0; begin < part.size();) {
      size_t end = begin + 1;
      while (end < part.size() && static_cast<unsigned char>(part[end]) >= 0x80)
        ++end;
      const std::string_view piece = part.substr(begin, end - begin);
      pass(std::ssize(piece), tokenizer_.encoded_bytes(piece));
      begin = end;
    }
  }

  void pass(int64_t original, int64_t encoded) {
    while (found_.size() < wanted_.size() &&
           wanted_[found_.size()] <= encoded_ + encoded) {
      const int64_t within =
          std::max<int64_t>(wanted_[found_.size()] - encoded_, 0);
      found_.push_back(original_ +
                       (encoded == 0 ? 0 : within * original / encoded));
    }
    original_ += original;
    encoded_ += encoded;
  }

  const Tokenizer& tokenizer_;
  std::vector<int64_t> wanted_, found_;
  int64_t original_ = 0;  // bytes passed
  int64_t encoded_ = 0;
};

class TokenizedSource : public TokenSource {
 public:
  TokenizedSource(std::unique_ptr<TokenSource> text, const Tokenizer& tokenizer)
      : text_(std::move(text)),
        tokenizer_(tokenizer),
        tokens_(encode_source(*text_, tokenizer)) {}

  int64_t size() const override { return std::ssize(tokens_); }
  void read(int64_t first, std::span<int32_t> to) const override {
    const auto count = static_cast<int64_t>(to.size());
    CANZONA_CHECK(first >= 0 && count <= size() && first <= size() - count,
                  "tokens ", first, " + ", count, " of ", size());
    std::copy_n(tokens_.begin() + first, count, to.begin());
  }
  int64_t text_bytes(int64_t first, int64_t count) const override {
    const int64_t before = encoded_bytes(0, first);
    const int64_t own = encoded_bytes(first, count);
    if (!tokenizer_.normalizes()) return own;
    OriginalPlaces places(tokenizer_);
    places.look_for(before);
    places.look_for(before + own);
    for_each_part(*text_, tokenizer_,
                  [&](std::string_view part) { places.add_part(part); });
    places.finish();
    return places.found()[1] - places.found()[0];
  }
  std::string describe() const override {
    return cat(text_->describe(), " (bytes), encoded as ",
               human_count(static_cast<double>(size())));
  }
  std::string digest() const override { return digest_of(*this); }

 private:
  int64_t encoded_bytes(int64_t first, int64_t count) const {
    int64_t bytes = 0;
    for (int64_t i = first; i < first + count; ++i)
      bytes +=
          std::ssize(tokenizer_.bytes_of(tokens_.at(static_cast<size_t>(i))));
    return bytes;
  }

  std::unique_ptr<TokenSource> text_;
  Tokenizer tokenizer_;
  std::vector<int32_t> tokens_;
};

}  // namespace

std::unique_ptr<TokenSource> tokenize(std::unique_ptr<TokenSource> text,
                                      const Tokenizer& tokenizer) {
  return std::make_unique<TokenizedSource>(std::move(text), tokenizer);
}

}  // namespace canzona
