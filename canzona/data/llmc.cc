#include "canzona/data/llmc.h"

#include <array>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/data/bytes.h"

namespace canzona {
namespace {

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

[[noreturn]] void refuse_llmc(const std::string& file, std::string_view place,
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
    refuse_llmc(file, "byte 0", "llm.c's 20240520 or 20240801",
                "another number");
  if (head.size() < kLlmcHeaderBytes)
    refuse_llmc(file, "llm.c's header", cat(kLlmcHeaderBytes, " bytes"),
                cat("a file of ", file_bytes));
  const auto version = number_at<int32_t>(head, 4);
  if (version != kind->version)
    refuse_llmc(file, "byte 4", cat("llm.c's version ", kind->version),
                cat(version));
  const int64_t count = number_at<int32_t>(head, 8);
  constexpr auto kBegin = static_cast<int64_t>(kLlmcHeaderBytes);
  const int64_t rest = file_bytes - kBegin;
  const int64_t width = packed_width(kind->type);
  if (count < 0 || count * width != rest)
    refuse_llmc(file, "byte 8",
                cat("as many tokens as lie behind the header, ", rest / width),
                cat(count, " (", rest, " bytes for tokens of ", width, ")"));
  return {kBegin, rest, kind->type};
}

}  // namespace canzona
