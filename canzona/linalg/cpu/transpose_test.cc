#include "canzona/linalg/cpu/transpose.h"

#include <gtest/gtest.h>

#include <utility>

#include "canzona/linalg/cpu/features.h"
#include "canzona/linalg/cpu/test_support.h"

namespace canzona::linalg::transpose_test {
namespace {

constexpr int64_t kSides[] = {0, 1, 2, 15, 16, 17, 31, 33, 64, 83};

template <class Real>
class Transpose : public testing::Test {};
TYPED_TEST_SUITE(Transpose, RealTypes);

template <class Real, class Mirror>
void expect_mirrors(const Mirror& mirror) {
  for (int64_t side : kSides) {
    for (int64_t gap : {0, 3}) {
      Batch<Real> a(side, side, 1, gap);
      a.randomise(7);
      const Plain before = plain(a);
      mirror(view_of<Real>(a.view()));
      for (int64_t i = 0; i < side; ++i)
        for (int64_t j = 0; j < side; ++j)
          ASSERT_EQ(a.at(0, i, j), before.at(std::max(i, j), std::min(i, j)))
              << side << " at " << i << "," << j;
      EXPECT_TRUE(a.marks_untouched()) << side;
    }
  }
}

template <class Real, class Turn>
void expect_transposes(const Turn& turn) {
  for (int64_t rows : kSides) {
    for (int64_t cols : kSides) {
      Batch<Real> from(rows, cols, 1, 2);
      Batch<Real> to(cols, rows, 1, 5);
      from.randomise(3);
      turn(view_of<Real>(to.view()), view_of<Real>(std::as_const(from).view()));
      EXPECT_EQ(plain(to).values, transposed(plain(from)).values)
          << rows << "x" << cols;
      EXPECT_TRUE(to.marks_untouched()) << rows << "x" << cols;
    }
  }
}

TYPED_TEST(Transpose, MirrorsTheLowerTriangle) {
  expect_mirrors<TypeParam>(mirror_lower<TypeParam>);
  expect_mirrors<TypeParam>(mirror_lower_portable<TypeParam>);
}

TYPED_TEST(Transpose, CopiesEveryElementToItsPlace) {
  expect_transposes<TypeParam>(transpose<TypeParam>);
  expect_transposes<TypeParam>(transpose_portable<TypeParam>);
}

TEST(TransposeAvx512, DoesWhatThePortableFormDoes) {
#if defined(__x86_64__)
  if (!cpu_features().avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  expect_mirrors<float>(
      [](View<float> a) { mirror_lower_avx512(a.data, a.rows, a.stride); });
  expect_transposes<float>([](View<float> to, ConstView<float> from) {
    transpose_avx512(to.data, to.stride, from.data, from.stride, from.rows,
                     from.cols);
  });
#else
  GTEST_SKIP() << "only for x86_64";
#endif
}

}  // namespace
}  // namespace canzona::linalg::transpose_test
