#include "canzona/data/megatron.h"

#include <array>
#include <cstring>
#include <limits>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/data/bytes.h"

namespace canzona {
namespace {

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr size_t kVersionAt = 9;
constexpr size_t kTypeAt = 17;
constexpr size_t kSequencesAt = 18;
constexpr size_t kDocumentsAt = 26;
constexpr size_t kMegatronHeaderBytes = 34;

[[noreturn]] void refuse_megatron(const std::string& file,
                                  const std::string& place,
                                  const std::string& expected,
                                  const std::string& found) {
  throw UsageError(
      cat(file, ": ", place, ": expected ", expected, ", found ", found));
}

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
      refuse_megatron(file, cat("type of tokens, byte ", kTypeAt),
                      "1, 2, 3, 4, 5 or 8 (integers)", cat(int{code}));
  }
}

// The numbers of an index, each at its place.
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
    refuse_megatron(file, "byte 0", "Megatron's MMIDIDX", "other bytes");
  if (bytes.size() < kMegatronHeaderBytes)
    refuse_megatron(file, "Megatron's header",
                    cat(kMegatronHeaderBytes, " bytes"),
                    cat("a file of ", bytes.size()));
  const auto version = number_at<uint64_t>(bytes, kVersionAt);
  if (version != 1)
    refuse_megatron(file, cat("version, byte ", kVersionAt), "1", cat(version));
}

// Both counts are held against the file before anything is multiplied.
Tables tables_of(std::span<const std::byte> bytes, const std::string& file) {
  const uint64_t rest = bytes.size() - kMegatronHeaderBytes;
  const auto sequences = number_at<uint64_t>(bytes, kSequencesAt);
  constexpr uint64_t kPerSequence = sizeof(int32_t) + sizeof(int64_t);
  if (sequences > rest / kPerSequence)
    refuse_megatron(file, cat("number of sequences, byte ", kSequencesAt),
                    cat("at most ", rest / kPerSequence, " in a file of ",
                        bytes.size(), " bytes"),
                    cat(sequences));
  const uint64_t left = rest - sequences * kPerSequence;
  const auto documents = number_at<uint64_t>(bytes, kDocumentsAt);
  if (documents > left / sizeof(int64_t))
    refuse_megatron(file, cat("number of documents, byte ", kDocumentsAt),
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
    refuse_megatron(
        file, cat("length of sequence ", i, ", byte ", tables.length_at(i)),
        "0 or more", cat(length));
  if (pointer < 0 || pointer > bin_bytes ||
      length > (bin_bytes - pointer) / width)
    refuse_megatron(
        file, cat("start of sequence ", i, ", byte ", tables.pointer_at(i)),
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
  // Sequences may overlap: their sum is not bounded by the file.
  if (index.num_tokens > std::numeric_limits<int64_t>::max() / 16 - length)
    refuse_megatron(file, "lengths", "a sum below 2^59", "more");
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
