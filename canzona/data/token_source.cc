// Token sources: one open file (text, llm.c, Megatron), the built-in language,
// and open_tokens(), which chooses among all of them.
#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <span>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/data/sources.h"
#include "canzona/data/synthetic.h"
#include "canzona/data/token_files.h"

namespace canzona {
namespace {

// Returns the first bytes of a file, at most `most`.
std::vector<std::byte> head_of(const FileReader& file, size_t most) {
  std::vector<std::byte> head(std::min(most, static_cast<size_t>(file.size())));
  file.read(0, head);
  return head;
}

// Reads tokens from byte `byte` on, the first of which has number `place`. Uses
// pread instead of mmap, because access to a mapped file that somebody
// truncates raises SIGBUS.
void read_stored(const FileReader& file, int64_t byte, PackedType type,
                 std::span<int32_t> to, const Vocabulary& vocabulary,
                 int64_t place) {
  std::array<std::byte, 16 << 10> piece;
  const auto width = static_cast<size_t>(packed_width(type));
  while (!to.empty()) {
    const size_t count = std::min(to.size(), piece.size() / width);
    const auto bytes = std::span(piece).first(count * width);
    file.read(byte, bytes);
    PackedTokens{bytes, type}.read(0, to.first(count), vocabulary, place);
    to = to.subspan(count);
    byte += static_cast<int64_t>(count * width);
    place += static_cast<int64_t>(count);
  }
}

// Consecutive tokens in one file.
class FileSource : public TokenSource {
 public:
  using Find = PackedRegion (*)(const FileReader&);
  FileSource(const std::string& path, const TokenOptions& options,
             const char* kind, Find find)
      : file_(path, "the tokens"),
        vocabulary_{path, options.vocab},
        kind_(kind),
        tokens_(find(file_)) {}

  int64_t size() const override { return tokens_.size(); }
  void read(int64_t first, std::span<int32_t> to) const override {
    const auto count = static_cast<int64_t>(to.size());
    CANZONA_CHECK(first >= 0 && count <= size() && first <= size() - count,
                  "tokens ", first, " + ", count, " of ", size());
    read_stored(file_, tokens_.begin + first * packed_width(tokens_.type),
                tokens_.type, to, vocabulary_, first);
  }
  std::string describe() const override {
    return cat(kind_, ", ", human_count(static_cast<double>(size())),
               " tokens");
  }
  std::string digest() const override { return digest_of(*this); }

 private:
  FileReader file_;
  Vocabulary vocabulary_;
  const char* kind_;
  PackedRegion tokens_;
};

class MegatronSource : public TokenSource {
 public:
  MegatronSource(const std::string& stem, const TokenOptions& options)
      : bin_(stem + ".bin", "the tokens"),
        vocabulary_{stem + ".bin", options.vocab} {
    const FileReader idx(stem + ".idx", "the index of tokens");
    const auto bytes = head_of(idx, static_cast<size_t>(idx.size()));
    index_ = megatron_index(bytes, bin_.size(), stem + ".idx");
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

  FileReader bin_;
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
    read_stored(
        bin_, from.byte + (first - from.first) * packed_width(index_.type),
        index_.type, to.first(static_cast<size_t>(count)), vocabulary_, first);
    to = to.subspan(static_cast<size_t>(count));
    first += count;
  }
}

PackedRegion text_region(const FileReader& file) {
  if (const auto nul = find_nul(head_of(file, kLookedAt)))
    throw UsageError(
        cat(file.path(), ": byte ", *nul,
            ": expected text, llm.c's .bin (20240520 or 20240801 at byte 0) or "
            "Megatron's .bin with its .idx beside it, found a NUL in a file "
            "that is neither"));
  return {0, file.size(), PackedType::kU8};
}

PackedRegion llmc_region(const FileReader& file) {
  return llmc_tokens(head_of(file, kLlmcHeaderBytes), file.size(), file.path());
}

std::unique_ptr<TokenSource> open_text_file(const std::string& path,
                                            const TokenOptions& options) {
  return std::make_unique<FileSource>(path, options, "text", text_region);
}

std::unique_ptr<TokenSource> open_llmc(const std::string& path,
                                       const TokenOptions& options) {
  return std::make_unique<FileSource>(path, options, "llm.c", llmc_region);
}

std::unique_ptr<TokenSource> open_megatron(const std::string& stem,
                                           const TokenOptions& options) {
  return std::make_unique<MegatronSource>(stem, options);
}

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

std::unique_ptr<TokenSource> open_synthetic(const TokenOptions& options) {
  return std::make_unique<SyntheticSource>(options);
}

constexpr const char* kSynthetic = "synthetic";
constexpr int64_t kBlock = 1 << 16;  // tokens read at once
// This many tokens are checked against the vocabulary when a source is opened;
// the rest of longer sources is checked as it is read.
constexpr int64_t kCheckedAtOnce = 1 << 24;
constexpr int64_t kDigestBlocks = 64;

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

std::string first_bytes(const std::string& path) {
  return read_file_range(path, 0, 16, "the tokens");
}

// The path without .bin or .idx.
std::string stem_of(const std::string& path) {
  for (const char* suffix : {".bin", ".idx"})
    if (path.ends_with(suffix)) return path.substr(0, path.size() - 4);
  return path;
}

bool is_megatron(const std::string& stem) {
  if (!is_file(stem + ".idx")) return false;
  const std::string head = first_bytes(stem + ".idx");
  return looks_like_megatron_index(std::as_bytes(std::span(head)));
}

constexpr int64_t kBytes = 256;

// Returns text that `open` reads as bytes, tokenized if there is a tokenizer.
template <class Open>
std::unique_ptr<TokenSource> open_text(const TokenOptions& options,
                                       const Open& open) {
  if (!options.tokenizer && !options.allows_bytes)
    throw UsageError(cat("the data is text, but the model has a vocabulary of ",
                         options.vocab,
                         " tokens, which is not one of bytes; give its "
                         "tokenizer.json (data.tokenizer)"));
  if (!options.tokenizer) return open(options);
  const int64_t vocab = options.tokenizer->vocab();
  if (vocab > options.vocab)
    throw UsageError(cat("the tokenizer has ", vocab,
                         " tokens, expected at most ", options.vocab,
                         ", the vocabulary of the model (model.vocab)"));
  return tokenize(open(TokenOptions{.vocab = kBytes, .seed = options.seed}),
                  *options.tokenizer);
}

std::unique_ptr<TokenSource> open_path(const std::string& path,
                                       const TokenOptions& options) {
  if (path == kSynthetic) return open_text(options, open_synthetic);
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return open_text(options,
                     [&](const auto& o) { return open_folder(path, o); });
  const bool exists = std::filesystem::exists(path, error);
  if ((!exists || stem_of(path) != path) && is_megatron(stem_of(path)))
    return open_megatron(stem_of(path), options);
  const std::string head = first_bytes(path);
  if (looks_like_llmc(std::as_bytes(std::span(head))))
    return open_llmc(path, options);
  return open_text(options,
                   [&](const auto& o) { return open_text_file(path, o); });
}

void check_tokens(const TokenSource& tokens) {
  std::vector<int32_t> block(kBlock);
  const int64_t count = std::min(tokens.size(), kCheckedAtOnce);
  for (int64_t first = 0; first < count; first += kBlock) {
    const auto length = std::min(kBlock, count - first);
    tokens.read(first, std::span(block).first(static_cast<size_t>(length)));
  }
}

}  // namespace

std::unique_ptr<TokenSource> open_tokens(const std::string& path,
                                         const TokenOptions& options) {
  if (options.vocab < 1 || options.vocab > std::numeric_limits<int32_t>::max())
    throw UsageError(cat("a vocabulary of ", options.vocab,
                         " tokens, expected 1 to 2147483647"));
  std::unique_ptr<TokenSource> tokens = open_path(path, options);
  if (tokens->size() == 0)
    throw UsageError(cat(quoted(path), ": expected tokens, found none (",
                         tokens->describe(), ")"));
  check_tokens(*tokens);
  return tokens;
}

// Evenly spaced blocks represent a source that would take hours to read. Short
// sources are covered completely.
std::string digest_of(const TokenSource& tokens) {
  std::vector<int32_t> block(kBlock);
  std::string parts = cat(tokens.size());
  const int64_t last = std::max(tokens.size() - kBlock, int64_t{0});
  const int64_t blocks =
      std::min(kDigestBlocks, (tokens.size() + kBlock - 1) / kBlock);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first =
        blocks == 1
            ? 0
            : last / (blocks - 1) * i + last % (blocks - 1) * i / (blocks - 1);
    const auto length = std::min(kBlock, tokens.size() - first);
    const auto part = std::span(block).first(static_cast<size_t>(length));
    tokens.read(first, part);
    const auto bytes = std::as_bytes(part);
    parts +=
        sha256_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return sha256_hex(parts);
}

}  // namespace canzona
