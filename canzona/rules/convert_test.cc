#include "canzona/rules/convert.h"

#include <gmock/gmock.h>

#include "canzona/linalg/engine.h"

namespace canzona {
namespace {

using ::testing::ElementsAre;

TEST(Convert, WidensAndRounds) {
  const std::vector<float> narrow = {1.5F, -0.1F};
  std::vector<double> wide(2);
  convert(matrices(wide.data(), 1, 2), matrices(narrow.data(), 1, 2));
  EXPECT_THAT(wide, ElementsAre(1.5, static_cast<double>(-0.1F)));
  wide[0] = 1 + 0x1p-30;
  std::vector<float> back(2);
  convert(matrices(back.data(), 1, 2),
          matrices(std::as_const(wide).data(), 1, 2));
  EXPECT_THAT(back, ElementsAre(1.0F, -0.1F));
}

TEST(Convert, WalksOverStridesAndMatrices) {
  const std::vector<float> from = {1, 2, 0, 3, 4, 0, 5, 6, 0, 7, 8, 0};
  ConstMatrices source = matrices(from.data(), 2, 2, 2);
  source.row_stride = 3;
  source.matrix_stride = 6;
  std::vector<double> to(8);
  convert(matrices(to.data(), 2, 2, 2), source);
  EXPECT_THAT(to, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(Converted, CopiesOnlyIntoAnotherType) {
  const auto engine = make_cpu_engine();
  Arena& arena = engine->arena();
  const Arena::Scope scope(arena);
  const std::vector<float> from = {1, 2, 3, 4};
  const ConstMatrices source = matrices(from.data(), 2, 2);
  EXPECT_EQ(converted(arena, source, DType::kFp32).data, source.data);
  const ConstMatrices wide = converted(arena, source, DType::kFp64);
  EXPECT_EQ(wide.dtype, DType::kFp64);
  EXPECT_EQ(wide.as<double>()[3], 4);
}

}  // namespace
}  // namespace canzona
