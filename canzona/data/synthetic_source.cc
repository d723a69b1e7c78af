#include "canzona/base/text.h"
#include "canzona/data/packed_tokens.h"
#include "canzona/data/sources.h"
#include "canzona/data/synthetic.h"

namespace canzona {
namespace {

constexpr int64_t kSize = 4 << 20;

class SyntheticSource : public TokenSource {
 public:
  explicit SyntheticSource(const TokenOptions& options)
      : text_(synthetic_text(options.seed, kSize)),
        vocabulary_{"synthetic", options.vocab} {}

  int64_t size() const override { return kSize; }
  void read(int64_t first, std::span<int32_t> to) const override {
    const PackedTokens tokens{std::as_bytes(std::span(text_)), PackedType::kU8};
    tokens.read(first, to, vocabulary_);
  }
  std::string describe() const override {
    return cat("the built-in language, ",
               human_count(static_cast<double>(kSize)), " tokens");
  }
  std::string digest() const override { return digest_of(*this); }

 private:
  std::string text_;
  Vocabulary vocabulary_;
};

}  // namespace

std::unique_ptr<TokenSource> open_synthetic(const TokenOptions& options) {
  return std::make_unique<SyntheticSource>(options);
}

}  // namespace canzona
