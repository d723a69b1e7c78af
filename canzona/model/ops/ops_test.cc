// Compares every loop, for every instruction set of this CPU, with plain ones
// in fp64; and all sets with each other, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/model/ops/table.h"

namespace canzona::model::ops_test {
namespace {

template <class Real>
const Ops<Real>& ops_of(const OpTable& table) {
  if constexpr (sizeof(Real) == 4)
    return table.fp32;
  else
    return table.fp64;
}

template <class Real>
std::vector<Real> numbers(uint64_t seed, int64_t count, double scale = 1) {
  std::vector<Real> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(
        static_cast<Real>(scale * normal_at(seed, static_cast<uint64_t>(i))));
  return values;
}

template <class Real>
constexpr double kTolerance = sizeof(Real) == 4 ? 3e-6 : 1e-13;

// Runs `work` with each set; the results must agree, and the best set's are
// returned.
template <class Real>
std::vector<Real> by_all(
    const std::function<std::vector<Real>(const Ops<Real>&)>& work) {
  const std::vector<Real> best = work(ops_of<Real>(*usable_ops().front()));
  for (const OpTable* table : usable_ops())
    EXPECT_EQ(work(ops_of<Real>(*table)), best) << table->name;
  return best;
}

template <class Real>
void expect_close(const std::vector<Real>& got,
                  const std::vector<double>& right, const std::string& what) {
  ASSERT_EQ(got.size(), right.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(static_cast<double>(got[i]), right[i],
                kTolerance<Real> * (1 + std::abs(right[i])))
        << what << " element " << i;
}

template <class Real>
std::vector<double> wide(const std::vector<Real>& values) {
  return {values.begin(), values.end()};
}

template <class Real>
class OpsTest : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(OpsTest, Reals);

// Sides that are not a multiple of a vector, smaller than one, and whole ones.
constexpr int64_t kSides[] = {1, 6, 16, 37, 64};

TYPED_TEST(OpsTest, NormAndItsSum) {
  using Real = TypeParam;
  for (const int64_t cols : kSides) {
    const auto x = numbers<Real>(1, 3 * cols), y = numbers<Real>(2, 3 * cols);
    const auto w = numbers<Real>(3, cols);
    const auto got = by_all<Real>([&](const Ops<Real>& ops) {
      std::vector<Real> out(x.size()), sum(x.size());
      ops.add_norm(out.data(), sum.data(), x.data(), y.data(), w.data(), 3,
                   cols, static_cast<Real>(0.1));
      std::vector<Real> alone(x.size()), plain(x.size());
      ops.norm(alone.data(), sum.data(), w.data(), 3, cols,
               static_cast<Real>(0.1));
      EXPECT_EQ(alone, out);
      ops.add(plain.data(), x.data(), y.data(), 3 * cols);
      EXPECT_EQ(plain, sum);
      return out;
    });
    std::vector<double> right;
    for (int64_t row = 0; row < 3; ++row) {
      double mean = 0;
      const auto at = [&](int64_t i) {
        const auto k = static_cast<size_t>(row * cols + i);
        return static_cast<double>(x[k]) + static_cast<double>(y[k]);
      };
      for (int64_t i = 0; i < cols; ++i)
        mean += at(i) * at(i) / static_cast<double>(cols);
      for (int64_t i = 0; i < cols; ++i)
        right.push_back(at(i) / std::sqrt(mean + 0.1) *
                        static_cast<double>(w[static_cast<size_t>(i)]));
    }
    expect_close(got, right, "norm");
  }
}

// Σ out·gradient by plain loops, for finite differences.
double norm_dot(const std::vector<double>& x, const std::vector<double>& w,
                const std::vector<double>& gradient) {
  const size_t cols = w.size();
  double sum = 0;
  for (size_t row = 0; row * cols < x.size(); ++row) {
    double mean = 0;
    for (size_t i = 0; i < cols; ++i)
      mean += x[row * cols + i] * x[row * cols + i] / static_cast<double>(cols);
    for (size_t i = 0; i < cols; ++i)
      sum += x[row * cols + i] / std::sqrt(mean + 0.1) * w[i] *
             gradient[row * cols + i];
  }
  return sum;
}

std::vector<double> differences(const std::function<double()>& value,
                                std::vector<double>& at) {
  std::vector<double> slopes;
  for (double& x : at) {
    const double kept = x, step = 1e-3;
    const auto moved = [&](double by) {
      x = kept + by;
      return value();
    };
    const double near = moved(step) - moved(-step);
    const double far = moved(2 * step) - moved(-2 * step);
    slopes.push_back((8 * near - far) / (12 * step));
    x = kept;
  }
  return slopes;
}

TEST(Ops, NormBackwardIsTheSlope) {
  for (const int64_t cols : kSides) {
    auto x = numbers<double>(1, 3 * cols), w = numbers<double>(2, cols);
    const auto gradient = numbers<double>(3, 3 * cols);
    const auto got = by_all<double>([&](const Ops<double>& ops) {
      std::vector<double> dx(x.size(), 0.5), dw(w.size(), 0.25);
      ops.norm_backward(dx.data(), dw.data(), x.data(), w.data(),
                        gradient.data(), 3, cols, 0.1);
      dx.insert(dx.end(), dw.begin(), dw.end());
      return dx;
    });
    const auto value = [&] { return norm_dot(x, w, gradient); };
    std::vector<double> right = differences(value, x);
    for (double& slope : right) slope += 0.5;
    for (const double slope : differences(value, w))
      right.push_back(slope + 0.25);
    ASSERT_EQ(got.size(), right.size());
    for (size_t i = 0; i < right.size(); ++i)
      EXPECT_NEAR(got[i], right[i], 1e-8) << i;
  }
}

TYPED_TEST(OpsTest, Swiglu) {
  using Real = TypeParam;
  for (const int64_t ffn : kSides) {
    const auto both = numbers<Real>(4, 2 * 2 * ffn, 20);
    const auto gradient = numbers<Real>(5, 2 * ffn);
    const auto act = by_all<Real>([&](const Ops<Real>& ops) {
      std::vector<Real> out(static_cast<size_t>(2 * ffn));
      ops.swiglu(out.data(), both.data(), 2, ffn);
      return out;
    });
    const auto slopes = by_all<Real>([&](const Ops<Real>& ops) {
      std::vector<Real> again = gradient, changed = both;
      ops.swiglu_backward(again.data(), changed.data(), 2, ffn);
      EXPECT_EQ(again, act);
      return changed;
    });
    std::vector<double> right_act, right(both.size());
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t i = 0; i < ffn; ++i) {
        const auto at = static_cast<size_t>(row * 2 * ffn + i);
        const auto gate = static_cast<double>(both[at]);
        const auto up =
            static_cast<double>(both[at + static_cast<size_t>(ffn)]);
        const auto d =
            static_cast<double>(gradient[static_cast<size_t>(row * ffn + i)]);
        const double s = 1 / (1 + std::exp(-gate));
        right_act.push_back(gate * s * up);
        right[at] = d * up * (s + gate * s * (1 - s));
        right[at + static_cast<size_t>(ffn)] = d * gate * s;
      }
    }
    expect_close(act, right_act, "act");
    expect_close(slopes, right, "slope");
  }
}

// Exponentials over the whole range, through rows of one logit.
TEST(Ops, ExponentialsAreAccurate) {
  std::vector<float> x;
  for (int i = -103'000; i <= 88'000; ++i)
    x.push_back(static_cast<float>(i) * 1e-3F);
  const auto got = by_all<float>([&](const Ops<float>& ops) {
    std::vector<float> row = x;
    float sum = 0, largest = 0;
    ops.row_exponents(row.data(), &sum, &largest, 1,
                      static_cast<int64_t>(row.size()));
    return row;
  });
  for (size_t i = 0; i < x.size(); ++i) {
    const double right = std::exp(static_cast<double>(x[i]));
    const auto e = static_cast<double>(got[i]);
    if (x[i] < -87.3F)
      ASSERT_EQ(e, 0) << x[i];
    else
      ASSERT_NEAR(e, right, 2e-7 * right) << x[i];
  }
}

TEST(Ops, ExponentialsOfWhatIsNotFinite) {
  by_all<float>([&](const Ops<float>& ops) {
    std::vector<float> row = {-INFINITY, NAN, 0, 1000};
    float sum = 0, largest = 0;
    ops.row_exponents(row.data(), &sum, &largest, 1, 4);
    EXPECT_EQ(row[0], 0);
    EXPECT_TRUE(std::isnan(row[1]));
    EXPECT_EQ(row[2], 1);
    EXPECT_GT(row[3], 1e38F);
    EXPECT_TRUE(std::isnan(sum));
    row[1] = 0;
    return row;
  });
}

TYPED_TEST(OpsTest, CrossEntropy) {
  using Real = TypeParam;
  for (const int64_t cols : kSides) {
    const auto logits = numbers<Real>(6, 2 * cols, 5);
    const auto got = by_all<Real>([&](const Ops<Real>& ops) {
      std::vector<Real> row = logits;
      std::vector<Real> largest(2), sums(2);
      ops.row_largest(largest.data(), row.data(), 2, cols);
      const auto half = logits.begin() + cols;
      EXPECT_EQ(largest[0], *std::max_element(logits.begin(), half));
      EXPECT_EQ(largest[1], *std::max_element(half, logits.end()));
      ops.row_exponents(row.data(), sums.data(), largest.data(), 2, cols);
      ops.row_shares(row.data(), sums.data(), Real{0.5}, 2, cols);
      return row;
    });
    std::vector<double> right;
    for (int64_t row = 0; row < 2; ++row) {
      double total = 0;
      const auto e = [&](int64_t i) {
        return std::exp(
            static_cast<double>(logits[static_cast<size_t>(row * cols + i)]));
      };
      for (int64_t i = 0; i < cols; ++i) total += e(i);
      for (int64_t i = 0; i < cols; ++i) right.push_back(0.5 * e(i) / total);
    }
    expect_close(got, right, "share");
  }
}

}  // namespace
}  // namespace canzona::model::ops_test
