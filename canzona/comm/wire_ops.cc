#include "canzona/comm/wire_ops.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <new>

#include "canzona/base/check.h"
#include "canzona/base/float16.h"
#include "canzona/base/sum_order.h"
#include "canzona/base/units.h"

namespace canzona {
namespace {

constexpr std::align_val_t kAlignment{64};

// Wire pieces have any alignment, so elements are copied in and out; the
// compiler turns this into plain vector loads.
template <class T>
T load(const std::byte* from, int64_t i) {
  T value;
  std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, int64_t i, T value) {
  std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <class T, class Join>
void join_all(std::byte* sum, const std::byte* a, const std::byte* b,
              int64_t count, Join join) {
  for (int64_t i = 0; i < count; ++i)
    store<T>(sum, i, join(load<T>(a, i), load<T>(b, i)));
}

constexpr auto kPlus = [](auto a, auto b) { return a + b; };

class CpuWireOps final : public WireOps {
 public:
  std::byte* allocate(int64_t bytes) const override {
    return static_cast<std::byte*>(
        ::operator new(static_cast<size_t>(bytes), kAlignment));
  }
  void release(std::byte* memory) const override {
    ::operator delete(memory, kAlignment);
  }

  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  void add(Reduction reduction, std::byte* sum, const std::byte* a,
           const std::byte* b, int64_t count) const override {
    switch (reduction) {
      case Reduction::kFp32Sum:
      case Reduction::kFp32SumOfBf16:
        return join_all<float>(sum, a, b, count, kPlus);
      case Reduction::kInt64Sum:
        return join_all<uint64_t>(sum, a, b, count, kPlus);
      case Reduction::kInt64Max:
        return join_all<int64_t>(sum, a, b, count,
                                 [](auto x, auto y) { return std::max(x, y); });
    }
  }

  void narrow(Reduction reduction, std::byte* wire, const std::byte* from,
              int64_t count) const override {
    CANZONA_CHECK(is_narrowed(reduction), to_string(reduction));
    for (int64_t i = 0; i < count; ++i)
      store<uint16_t>(wire, i, bf16_from_float(load<float>(from, i)));
  }

  void widen(Reduction reduction, std::byte* to, const std::byte* wire,
             int64_t count) const override {
    CANZONA_CHECK(is_narrowed(reduction), to_string(reduction));
    for (int64_t i = 0; i < count; ++i)
      store(to, i, float_from_bf16(load<uint16_t>(wire, i)));
  }
};

}  // namespace

void WireOps::sum_in_place(Reduction reduction,
                           std::span<const std::byte* const> /*pieces*/,
                           int64_t /*count*/, std::byte* /*sum*/) const {
  CANZONA_CHECK(false, "no sums in place of ", to_string(reduction));
}

const WireOps& cpu_wire_ops() {
  static const CpuWireOps ops;
  return ops;
}

int64_t tree_scratch_bytes(Reduction reduction, int num_pieces, int64_t count) {
  const int depth = std::bit_width(static_cast<unsigned>(num_pieces));
  return depth * count * element_bytes(reduction);
}

void tree_sum(const WireOps& ops, Reduction reduction,
              std::span<const std::byte* const> pieces, int64_t count,
              std::byte* sum, std::byte* scratch) {
  CANZONA_CHECK(!pieces.empty(), "a sum of no pieces");
  if (ops.sum_at_once(reduction, pieces, count, sum)) return;
  const int64_t bytes = count * element_bytes(reduction);
  const auto slot = [&](int i) {
    return i == 0 ? sum : scratch + (i - 1) * bytes;
  };
  // A piece that is not narrowed is read where it lies.
  std::array<const std::byte*, TreeOrder::num_sums(INT_MAX)> at{};
  const auto sum_at = [&](int i) -> const std::byte*& {
    return at[static_cast<size_t>(i)];
  };
  TreeOrder::add(
      static_cast<int>(pieces.size()),
      [&](int term, int i) {
        sum_at(i) = pieces[static_cast<size_t>(term)];
        if (!is_narrowed(reduction)) return;
        ops.widen(reduction, slot(i), sum_at(i), count);
        sum_at(i) = slot(i);
      },
      [&](int to, int from) {
        ops.add(reduction, slot(to), sum_at(to), sum_at(from), count);
        sum_at(to) = slot(to);
      });
  if (at[0] != sum) ops.copy(sum, at[0], bytes);
}

}  // namespace canzona
