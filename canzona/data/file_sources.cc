// Sources that are one mapped file: text, llm.c, Megatron.
#include <algorithm>
#include <cstring>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/data/llmc.h"
#include "canzona/data/mapped_file.h"
#include "canzona/data/megatron.h"
#include "canzona/data/packed_tokens.h"
#include "canzona/data/sources.h"
#include "canzona/data/text_bytes.h"

namespace canzona {
namespace {

// Tokens that lie side by side in one file.
class FileSource : public TokenSource {
 public:
  using Find = PackedTokens (*)(std::span<const std::byte>, const std::string&);
  FileSource(const std::string& path, const TokenOptions& options,
             const char* kind, Find find)
      : file_(path),
        vocabulary_{path, options.vocab},
        kind_(kind),
        tokens_(find(file_.bytes(), path)) {}

  int64_t size() const override { return tokens_.size(); }
  void read(int64_t first, std::span<int32_t> to) const override {
    tokens_.read(first, to, vocabulary_);
  }
  std::string describe() const override {
    return cat(kind_, ", ", human_count(static_cast<double>(size())),
               " tokens");
  }
  std::string digest() const override { return digest_of(*this); }

 private:
  MappedFile file_;
  Vocabulary vocabulary_;
  const char* kind_;
  PackedTokens tokens_;
};

class MegatronSource : public TokenSource {
 public:
  MegatronSource(const std::string& stem, const TokenOptions& options)
      : bin_(stem + ".bin"), vocabulary_{stem + ".bin", options.vocab} {
    const MappedFile idx(stem + ".idx");
    index_ = megatron_index(idx.bytes(), bin_.size(), stem + ".idx");
  }

  int64_t size() const override { return index_.num_tokens; }
  void read(int64_t first, std::span<int32_t> to) const override;
  std::string describe() const override {
    return cat("Megatron, ", index_.num_sequences, " sequences, ",
               human_count(static_cast<double>(size())), " tokens");
  }
  std::string digest() const override { return digest_of(*this); }

 private:
  int64_t end_of(size_t run) const {
    return run + 1 < index_.runs.size() ? index_.runs[run + 1].first
                                        : index_.num_tokens;
  }

  MappedFile bin_;
  Vocabulary vocabulary_;
  MegatronIndex index_;
};

void MegatronSource::read(int64_t first, std::span<int32_t> to) const {
  const auto& runs = index_.runs;
  auto run = static_cast<size_t>(
      std::ranges::upper_bound(runs, first, {}, &MegatronIndex::Run::first) -
      runs.begin());
  CANZONA_CHECK(first >= 0 && (run > 0 || to.empty()), "token ", first, " of ",
                size());
  for (; !to.empty(); ++run) {
    const MegatronIndex::Run& from = runs.at(run - 1);
    const int64_t there = end_of(run - 1) - first;
    const auto count = std::min(static_cast<int64_t>(to.size()), there);
    CANZONA_CHECK(count > 0, "token ", first, " of ", size());
    const PackedTokens tokens{
        bin_.bytes().subspan(static_cast<size_t>(from.byte)), index_.type};
    tokens.read(first - from.first, to.first(static_cast<size_t>(count)),
                vocabulary_, from.first);
    to = to.subspan(static_cast<size_t>(count));
    first += count;
  }
}

PackedTokens text_tokens(std::span<const std::byte> bytes,
                         const std::string& file) {
  const auto nul = find_nul(bytes);
  if (nul)
    throw UsageError(
        cat(file, ": byte ", *nul,
            ": expected text, llm.c's .bin (20240520 or 20240801 at byte 0) or "
            "Megatron's .bin with its .idx beside it, found a NUL in a file "
            "that is neither"));
  return {bytes, PackedType::kU8};
}

}  // namespace

std::unique_ptr<TokenSource> open_text_file(const std::string& path,
                                            const TokenOptions& options) {
  return std::make_unique<FileSource>(path, options, "text", text_tokens);
}

std::unique_ptr<TokenSource> open_llmc(const std::string& path,
                                       const TokenOptions& options) {
  return std::make_unique<FileSource>(path, options, "llm.c", llmc_tokens);
}

std::unique_ptr<TokenSource> open_megatron(const std::string& stem,
                                           const TokenOptions& options) {
  return std::make_unique<MegatronSource>(stem, options);
}

}  // namespace canzona
