#include "canzona/rules/runs.h"

#include <gmock/gmock.h>

#include "canzona/rules/test_matrices.h"

namespace canzona::rules::axes_test {
namespace {

using Values = std::vector<double>;

// A tensor with three axes, and plain sums over its elements.
struct Cube {
  int64_t dims[3];
  Values values;

  Cube(int64_t a, int64_t b, int64_t c, uint64_t seed)
      : dims{a, b, c}, values(static_cast<size_t>(a * b * c)) {
    Stream stream(seed);
    for (double& x : values) x = stream.uniform();
  }
  static size_t at(const int64_t (&dims)[3], int64_t (&index)[3]) {
    return static_cast<size_t>((index[0] * dims[1] + index[1]) * dims[2] +
                               index[2]);
  }
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (int64_t i = 0; i < dims[0]; ++i)
      for (int64_t j = 0; j < dims[1]; ++j)
        for (int64_t k = 0; k < dims[2]; ++k) {
          int64_t index[3] = {i, j, k};
          visit(index);
        }
  }
};

Values random_values(int64_t count, uint64_t seed) {
  Stream stream(seed);
  Values values(static_cast<size_t>(count));
  for (double& x : values) x = stream.uniform();
  return values;
}

class Axes : public ::testing::TestWithParam<int> {
 protected:
  Axes() : axis_(GetParam()), n_(cube_.dims[axis_]) {}

  void expect_near(const Values& got, const Values& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], 1e-14) << "element " << i;
  }

  std::unique_ptr<Engine> engine_ = make_cpu_engine();
  const Cube cube_{3, 4, 2, 1};
  int axis_;
  int64_t n_;
};

TEST_P(Axes, SeesAStackOfMatrices) {
  const AxisView view = view_along(cube_.dims, axis_);
  EXPECT_EQ(view.length, n_);
  EXPECT_EQ(view.outer * view.length * view.inner, 24);
}

TEST_P(Axes, AddsStatisticsOverAllOtherAxes) {
  Values f(static_cast<size_t>(n_ * n_), 1.0);
  Values expected(f.size(), 0.75);
  cube_.for_each([&](int64_t(&index)[3]) {
    const double x = cube_.values[Cube::at(cube_.dims, index)];
    const int64_t row = index[axis_];
    for (int64_t col = 0; col < n_; ++col) {
      int64_t other[3] = {index[0], index[1], index[2]};
      other[axis_] = col;
      expected[static_cast<size_t>(row * n_ + col)] +=
          0.5 * x * cube_.values[Cube::at(cube_.dims, other)];
    }
  });
  add_statistics(*engine_, matrices(f.data(), n_, n_), 0.75, 0.5,
                 run_of(cube_.values.data()), cube_.dims, axis_);
  expect_near(f, expected);
  for (int64_t i = 0; i < n_; ++i)
    for (int64_t j = 0; j < n_; ++j)
      EXPECT_EQ(f[static_cast<size_t>(i * n_ + j)],
                f[static_cast<size_t>(j * n_ + i)]);
}

TEST_P(Axes, RotatesEveryFibre) {
  const Values q = random_values(n_ * n_, 2);
  for (Op op : {Op::kNone, Op::kTranspose}) {
    Values expected(cube_.values.size());
    cube_.for_each([&](int64_t(&index)[3]) {
      double& sum = expected[Cube::at(cube_.dims, index)];
      const int64_t row = index[axis_];
      for (int64_t k = 0; k < n_; ++k) {
        int64_t other[3] = {index[0], index[1], index[2]};
        other[axis_] = k;
        const int64_t at = op == Op::kNone ? row * n_ + k : k * n_ + row;
        sum += q[static_cast<size_t>(at)] *
               cube_.values[Cube::at(cube_.dims, other)];
      }
    });
    Values got(cube_.values.size());
    rotate(*engine_, run_of(got.data()), run_of(cube_.values.data()),
           cube_.dims, axis_, matrices(q.data(), n_, n_), op);
    expect_near(got, expected);
  }
}

TEST_P(Axes, PermutesSlices) {
  std::vector<int64_t> order(static_cast<size_t>(n_));
  for (int64_t i = 0; i < n_; ++i) order[static_cast<size_t>(i)] = (i + 1) % n_;
  Values got(cube_.values.size());
  permute(*engine_, run_of(got.data()), run_of(cube_.values.data()), cube_.dims,
          axis_, order);
  cube_.for_each([&](int64_t(&index)[3]) {
    int64_t source[3] = {index[0], index[1], index[2]};
    source[axis_] = (index[axis_] + 1) % n_;
    EXPECT_EQ(got[Cube::at(cube_.dims, index)],
              cube_.values[Cube::at(cube_.dims, source)]);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Axes, ::testing::Values(0, 1, 2));

TEST(AxesOfAVector, AreOneFactor) {
  const auto engine = make_cpu_engine();
  const Values g = {1, 2, 3};
  Values f(9);
  const int64_t dims[] = {3};
  add_statistics(*engine, matrices(f.data(), 3, 3), 0.0, 1.0, run_of(g.data()),
                 dims, 0);
  EXPECT_THAT(f, ::testing::ElementsAre(1, 2, 3, 2, 4, 6, 3, 6, 9));
}

}  // namespace
}  // namespace canzona::rules::axes_test
