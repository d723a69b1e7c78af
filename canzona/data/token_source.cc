// Token sources: one open file (text, llm.c, Megatron), the built-in language,
// and open_tokens(), which chooses among all of them.
#include "canzona/data/token_source.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"

namespace canzona::data {
namespace {

template <class Number>
[[noreturn]] void refuse(Number found, int64_t place,
                         const Vocabulary& vocabulary) {
  throw UsageError(cat(vocabulary.file, ": token ", place, " is ", +found,
                       ", expected 0 to ", vocabulary.size - 1,
                       ": the vocabulary has ", vocabulary.size, " tokens"));
}

template <class Number>
void unpack(const std::byte* from, std::span<int32_t> to, int64_t place,
            const Vocabulary& vocabulary) {
  for (size_t i = 0; i < to.size(); ++i) {
    Number number;
    std::memcpy(&number, from + i * sizeof number, sizeof number);
    if (std::cmp_less(number, 0) ||
        std::cmp_greater_equal(number, vocabulary.size))
      refuse(number, place + static_cast<int64_t>(i), vocabulary);
    to[i] =
        static_cast<int32_t>(static_cast<std::make_unsigned_t<Number>>(number));
  }
}

}  // namespace

int64_t packed_width(PackedType type) {
  switch (type) {
    case PackedType::kU8:
    case PackedType::kI8:
      return 1;
    case PackedType::kU16:
    case PackedType::kI16:
      return 2;
    case PackedType::kU32:
    case PackedType::kI32:
      return 4;
    case PackedType::kI64:
      return 8;
  }
  throw InternalError("no such type of tokens");
}

void PackedTokens::read(int64_t first, std::span<int32_t> to,
                        const Vocabulary& vocabulary, int64_t offset) const {
  const auto count = static_cast<int64_t>(to.size());
  CANZONA_CHECK(first >= 0 && count <= size() && first <= size() - count,
                "tokens ", first, " + ", count, " of ", size());
  const std::byte* from = bytes.data() + first * packed_width(type);
  const int64_t place = offset + first;
  switch (type) {
    case PackedType::kU8:
      return unpack<uint8_t>(from, to, place, vocabulary);
    case PackedType::kI8:
      return unpack<int8_t>(from, to, place, vocabulary);
    case PackedType::kU16:
      return unpack<uint16_t>(from, to, place, vocabulary);
    case PackedType::kI16:
      return unpack<int16_t>(from, to, place, vocabulary);
    case PackedType::kU32:
      return unpack<uint32_t>(from, to, place, vocabulary);
    case PackedType::kI32:
      return unpack<int32_t>(from, to, place, vocabulary);
    case PackedType::kI64:
      return unpack<int64_t>(from, to, place, vocabulary);
  }
}

namespace {

// Reads a number at any alignment, checked to be in range.
template <class Number>
Number number_at(std::span<const std::byte> bytes, size_t offset) {
  CANZONA_CHECK(
      offset <= bytes.size() && bytes.size() - offset >= sizeof(Number),
      "byte ", offset, " of ", bytes.size());
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

struct Kind {
  int32_t magic;
  int32_t version;
  PackedType type;
};
constexpr std::array<Kind, 2> kKinds = {
    {{20240520, 1, PackedType::kU16}, {20240801, 7, PackedType::kU32}}};

const Kind* kind_of(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(int32_t)) return nullptr;
  const auto magic = number_at<int32_t>(bytes, 0);
  for (const Kind& kind : kKinds)
    if (kind.magic == magic) return &kind;
  return nullptr;
}

[[noreturn]] void refuse_header(const std::string& file, std::string_view place,
                                const std::string& expected,
                                const std::string& found) {
  throw UsageError(
      cat(file, ": ", place, ": expected ", expected, ", found ", found));
}

}  // namespace

bool looks_like_llmc(std::span<const std::byte> bytes) {
  return kind_of(bytes) != nullptr;
}

PackedRegion llmc_tokens(std::span<const std::byte> head, int64_t file_bytes,
                         const std::string& file) {
  const Kind* kind = kind_of(head);
  if (kind == nullptr)
    refuse_header(file, "byte 0", "llm.c's 20240520 or 20240801",
                  "another number");
  if (head.size() < kLlmcHeaderBytes)
    refuse_header(file, "llm.c's header", cat(kLlmcHeaderBytes, " bytes"),
                  cat("a file of ", file_bytes));
  const auto version = number_at<int32_t>(head, 4);
  if (version != kind->version)
    refuse_header(file, "byte 4", cat("llm.c's version ", kind->version),
                  cat(version));
  const int64_t count = number_at<int32_t>(head, 8);
  constexpr auto kBegin = static_cast<int64_t>(kLlmcHeaderBytes);
  const int64_t rest = file_bytes - kBegin;
  const int64_t width = packed_width(kind->type);
  if (count < 0 || count * width != rest)
    refuse_header(
        file, "byte 8",
        cat("as many tokens as lie behind the header, ", rest / width),
        cat(count, " (", rest, " bytes for tokens of ", width, ")"));
  return {kBegin, rest, kind->type};
}

namespace {

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr size_t kVersionAt = 9;
constexpr size_t kTypeAt = 17;
constexpr size_t kSequencesAt = 18;
constexpr size_t kDocumentsAt = 26;
constexpr size_t kMegatronHeaderBytes = 34;

PackedType type_of(uint8_t code, const std::string& file) {
  switch (code) {
    case 1:
      return PackedType::kU8;
    case 2:
      return PackedType::kI8;
    case 3:
      return PackedType::kI16;
    case 4:
      return PackedType::kI32;
    case 5:
      return PackedType::kI64;
    case 8:
      return PackedType::kU16;
    default:
      refuse_header(file, cat("type of tokens, byte ", kTypeAt),
                    "1, 2, 3, 4, 5 or 8 (integers)", cat(int{code}));
  }
}

// The tables of an index, with access by position.
struct Tables {
  std::span<const std::byte> bytes;
  int64_t num_sequences;

  size_t length_at(int64_t i) const {
    return kMegatronHeaderBytes + static_cast<size_t>(i) * sizeof(int32_t);
  }
  size_t pointer_at(int64_t i) const {
    return length_at(num_sequences) + static_cast<size_t>(i) * sizeof(int64_t);
  }
  int64_t length(int64_t i) const {
    return number_at<int32_t>(bytes, length_at(i));
  }
  int64_t pointer(int64_t i) const {
    return number_at<int64_t>(bytes, pointer_at(i));
  }
};

void check_header(std::span<const std::byte> bytes, const std::string& file) {
  if (!looks_like_megatron_index(bytes))
    refuse_header(file, "byte 0", "Megatron's MMIDIDX", "other bytes");
  if (bytes.size() < kMegatronHeaderBytes)
    refuse_header(file, "Megatron's header",
                  cat(kMegatronHeaderBytes, " bytes"),
                  cat("a file of ", bytes.size()));
  const auto version = number_at<uint64_t>(bytes, kVersionAt);
  if (version != 1)
    refuse_header(file, cat("version, byte ", kVersionAt), "1", cat(version));
}

// Both counts are checked against the file before anything is multiplied.
Tables tables_of(std::span<const std::byte> bytes, const std::string& file) {
  const uint64_t rest = bytes.size() - kMegatronHeaderBytes;
  const auto sequences = number_at<uint64_t>(bytes, kSequencesAt);
  constexpr uint64_t kPerSequence = sizeof(int32_t) + sizeof(int64_t);
  if (sequences > rest / kPerSequence)
    refuse_header(file, cat("number of sequences, byte ", kSequencesAt),
                  cat("at most ", rest / kPerSequence, " in a file of ",
                      bytes.size(), " bytes"),
                  cat(sequences));
  const uint64_t left = rest - sequences * kPerSequence;
  const auto documents = number_at<uint64_t>(bytes, kDocumentsAt);
  if (documents > left / sizeof(int64_t))
    refuse_header(file, cat("number of documents, byte ", kDocumentsAt),
                  cat("at most ", left / sizeof(int64_t), " in a file of ",
                      bytes.size(), " bytes"),
                  cat(documents));
  return {bytes, static_cast<int64_t>(sequences)};
}

void check_sequence(const Tables& tables, int64_t i, int64_t width,
                    int64_t bin_bytes, const std::string& file) {
  const int64_t length = tables.length(i);
  const int64_t pointer = tables.pointer(i);
  if (length < 0)
    refuse_header(file,
                  cat("length of sequence ", i, ", byte ", tables.length_at(i)),
                  "0 or more", cat(length));
  if (pointer < 0 || pointer > bin_bytes ||
      length > (bin_bytes - pointer) / width)
    refuse_header(file,
                  cat("start of sequence ", i, ", byte ", tables.pointer_at(i)),
                  cat("one that leaves room for ", length, " tokens of ", width,
                      " bytes in the ", bin_bytes, " of the .bin"),
                  cat(pointer));
}

void append(MegatronIndex& index, int64_t pointer, int64_t length,
            const std::string& file) {
  const int64_t width = packed_width(index.type);
  if (length == 0) return;
  const bool follows =
      !index.runs.empty() &&
      pointer == index.runs.back().byte +
                     (index.num_tokens - index.runs.back().first) * width;
  if (!follows) index.runs.push_back({index.num_tokens, pointer});
  // Sequences may overlap, so the file does not bound their sum.
  if (index.num_tokens > std::numeric_limits<int64_t>::max() / 16 - length)
    refuse_header(file, "lengths", "a sum below 2^59", "more");
  index.num_tokens += length;
}

}  // namespace

bool looks_like_megatron_index(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

MegatronIndex megatron_index(std::span<const std::byte> bytes,
                             int64_t bin_bytes, const std::string& file) {
  check_header(bytes, file);
  MegatronIndex index;
  index.type = type_of(number_at<uint8_t>(bytes, kTypeAt), file);
  const Tables tables = tables_of(bytes, file);
  index.num_sequences = tables.num_sequences;
  for (int64_t i = 0; i < tables.num_sequences; ++i) {
    check_sequence(tables, i, packed_width(index.type), bin_bytes, file);
    append(index, tables.pointer(i), tables.length(i), file);
  }
  return index;
}

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
    return cat("Megatron, ", counted_text(index_.num_sequences, "sequence"),
               ", ", human_count(static_cast<double>(size())), " tokens");
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

}  // namespace canzona::data
