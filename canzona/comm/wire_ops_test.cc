#include "canzona/comm/wire_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "canzona/base/units.h"
#include "canzona/comm/test_pieces.h"

namespace canzona::comm::wire_ops_test {
namespace {

template <class T>
std::vector<T> added(Reduction reduction, std::vector<T> a,
                     const std::vector<T>& b) {
  const auto count = static_cast<int64_t>(a.size());
  cpu_wire_ops().add(reduction, bytes_of(a).data(), bytes_of(a).data(),
                     bytes_of(b).data(), count);
  return a;
}

TEST(WireOps, AddsEveryKindOfNumber) {
  EXPECT_EQ(added<float>(Reduction::kFp32Sum, {1, 2.5F}, {3, -0.5F}),
            (std::vector<float>{4, 2}));
  EXPECT_EQ(added<int64_t>(Reduction::kInt64Sum, {-7, 5}, {3, 6}),
            (std::vector<int64_t>{-4, 11}));
  EXPECT_EQ(added<int64_t>(Reduction::kInt64Max, {-7, 5}, {-9, 6}),
            (std::vector<int64_t>{-7, 6}));
}

float through_bf16(float value) {
  const std::vector<float> from = {value};
  std::vector<uint16_t> wire(1);
  std::vector<float> to(1);
  const auto reduction = Reduction::kFp32SumOfBf16;
  cpu_wire_ops().narrow(reduction, bytes_of(wire).data(), bytes_of(from).data(),
                        1);
  cpu_wire_ops().widen(reduction, bytes_of(to).data(), bytes_of(wire).data(),
                       1);
  return to.front();
}

TEST(WireOps, RoundToTheNearestBf16TiesToEven) {
  EXPECT_EQ(through_bf16(1.00390625F), 1.0F);       // a tie, down
  EXPECT_EQ(through_bf16(1.01171875F), 1.015625F);  // a tie, up
  EXPECT_EQ(through_bf16(1.00390637F), 1.0078125F);
  for (int64_t i = 0; i < 2000; ++i) {
    const float value = test_value(3, i);
    EXPECT_TRUE(same_bits(through_bf16(value), oracle_bf16(value))) << value;
  }
}

TEST(WireOps, KeepWhatIsNotFinite) {
  EXPECT_TRUE(std::isnan(through_bf16(std::nanf(""))));
  EXPECT_TRUE(std::isnan(through_bf16(std::bit_cast<float>(0x7F800001U))));
  EXPECT_EQ(through_bf16(INFINITY), INFINITY);
  EXPECT_EQ(through_bf16(std::numeric_limits<float>::max()), INFINITY);
  EXPECT_TRUE(same_bits(through_bf16(-0.0F), -0.0F));
}

}  // namespace
}  // namespace canzona::comm::wire_ops_test
