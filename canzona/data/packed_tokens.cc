#include "canzona/data/packed_tokens.h"

#include <cstring>
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

}  // namespace canzona
