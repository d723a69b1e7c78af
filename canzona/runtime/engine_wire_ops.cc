#include "canzona/runtime/engine_wire_ops.h"

#include <array>

#include "canzona/base/check.h"

namespace canzona {
namespace {

template <class T>
T* as(std::byte* data) {
  return reinterpret_cast<T*>(data);
}
template <class T>
const T* as(const std::byte* data) {
  return reinterpret_cast<const T*>(data);
}

}  // namespace

void EngineWireOps::add(Reduction reduction, std::byte* sum, const std::byte* a,
                        const std::byte* b, int64_t count) const {
  switch (reduction) {
    case Reduction::kFp32Sum:
    case Reduction::kFp32SumOfBf16:
      return memory_.add_fp32(as<float>(sum), as<float>(a), as<float>(b),
                              count);
    case Reduction::kInt64Sum:
      return memory_.add_int64(as<int64_t>(sum), as<int64_t>(a), as<int64_t>(b),
                               count);
    case Reduction::kInt64Max:
      return memory_.max_int64(as<int64_t>(sum), as<int64_t>(a), as<int64_t>(b),
                               count);
    case Reduction::kInt128Sum:
      return memory_.add_int128(as<uint64_t>(sum), as<uint64_t>(a),
                                as<uint64_t>(b), count);
  }
}

void EngineWireOps::narrow(Reduction reduction, std::byte* wire,
                           const std::byte* from, int64_t count) const {
  CANZONA_CHECK(is_narrowed(reduction), to_string(reduction));
  memory_.to_bf16(as<uint16_t>(wire), as<float>(from), count);
}

void EngineWireOps::widen(Reduction reduction, std::byte* to,
                          const std::byte* wire, int64_t count) const {
  CANZONA_CHECK(is_narrowed(reduction), to_string(reduction));
  memory_.from_bf16(as<float>(to), as<uint16_t>(wire), count);
}

// Pointers to pieces of one kind.
bool EngineWireOps::sum_at_once(Reduction reduction,
                                std::span<const std::byte* const> pieces,
                                int64_t count, std::byte* sum) const {
  constexpr size_t kMost = 64;
  const auto add = [&]<class T>(std::array<const T*, kMost>& typed) {
    for (size_t i = 0; i < pieces.size(); ++i) typed[i] = as<T>(pieces[i]);
    return memory_.add_tree(
        as<float>(sum), std::span<const T* const>(typed).first(pieces.size()),
        count);
  };
  if (pieces.size() > kMost) return false;
  std::array<const float*, kMost> wide{};
  std::array<const uint16_t*, kMost> narrow{};
  if (reduction == Reduction::kFp32Sum) return add(wide);
  return reduction == Reduction::kFp32SumOfBf16 && add(narrow);
}

}  // namespace canzona
