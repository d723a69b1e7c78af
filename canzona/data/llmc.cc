#include "canzona/data/llmc.h"

#include <array>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/data/bytes.h"

namespace canzona {
namespace {

constexpr size_t kHeaderBytes = 1024;

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

[[noreturn]] void refuse(const std::string& file, std::string_view place,
                         const std::string& expected,
                         const std::string& found) {
  throw UsageError(
      cat(file, ": ", place, ": expected ", expected, ", found ", found));
}

}  // namespace

bool looks_like_llmc(std::span<const std::byte> bytes) {
  return kind_of(bytes) != nullptr;
}

PackedTokens llmc_tokens(std::span<const std::byte> bytes,
                         const std::string& file) {
  const Kind* kind = kind_of(bytes);
  if (kind == nullptr)
    refuse(file, "byte 0", "llm.c's 20240520 or 20240801", "another number");
  if (bytes.size() < kHeaderBytes)
    refuse(file, "llm.c's header", cat(kHeaderBytes, " bytes"),
           cat("a file of ", bytes.size()));
  const auto version = number_at<int32_t>(bytes, 4);
  if (version != kind->version)
    refuse(file, "byte 4", cat("llm.c's version ", kind->version),
           cat(version));
  const int64_t count = number_at<int32_t>(bytes, 8);
  const auto rest = bytes.subspan(kHeaderBytes);
  const int64_t wanted = count * packed_width(kind->type);
  if (count < 0 || wanted != static_cast<int64_t>(rest.size()))
    refuse(file, "byte 8",
           cat("as many tokens as lie behind the header, ",
               static_cast<int64_t>(rest.size()) / packed_width(kind->type)),
           cat(count, " (", rest.size(), " bytes for tokens of ",
               packed_width(kind->type), ")"));
  return {rest, kind->type};
}

}  // namespace canzona
