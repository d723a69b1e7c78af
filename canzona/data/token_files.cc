#include "canzona/data/token_files.h"

#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
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

}  // namespace canzona
