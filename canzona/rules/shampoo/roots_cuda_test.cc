// Inverse roots on a GPU against matrices whose roots are known, by plain fp32
// products and by split products of three bf16 numbers each.
#include <gtest/gtest.h>

#include <cmath>

#include "canzona/linalg/engine.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/shampoo/roots.h"
#include "canzona/rules/test_device.h"
#include "canzona/rules/test_matrices.h"

namespace canzona::rules::roots_cuda_test {
namespace {

constexpr int64_t kSide = 576;  // products of this size are split

// Q·diag(condition^(-exponent·j/(n-1)))·Qᵀ: known eigenvalues to a power.
PlainMatrix with_spectrum(const PlainMatrix& q, double condition,
                          double exponent) {
  PlainMatrix scaled = q;
  for (int64_t i = 0; i < q.rows; ++i)
    for (int64_t j = 0; j < q.cols; ++j)
      scaled(i, j) *= std::pow(condition, -exponent * static_cast<double>(j) /
                                              static_cast<double>(q.cols - 1));
  return scaled * transposed(q);
}

double error_of_root(Engine& engine, const PlainMatrix& a,
                     const PlainMatrix& root, Products products) {
  const std::vector<float> in(a.values.begin(), a.values.end());
  EngineMemory device(engine);
  const Run from = device.put(in);
  const Run to = device.put(std::vector<float>(in.size()));
  RootOptions options;
  options.method = RootMethod::kNewton;
  options.tolerance = 1e-6;
  options.max_iterations = 30;
  std::vector<RootStatus> statuses(1);
  engine.set_products(products);
  inverse_roots(engine, as_matrices(to, kSide, kSide, 1),
                as_matrices(ConstRun(from), kSide, kSide, 1), {4, 1}, options,
                statuses);
  engine.set_products(Products::kPlain);
  EXPECT_TRUE(statuses[0].succeeded) << statuses[0].reason;
  const auto found = device.get<float>(to.data, std::ssize(in));
  double off = 0, all = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    off += std::pow(found[i] - root.values[i], 2);
    all += std::pow(root.values[i], 2);
  }
  return std::sqrt(off / all);
}

// Tensor cores truncate sums where fp32 rounds them, so that errors accumulate:
// to at most ten times those of fp32.
TEST(CudaInverseRoot, LosesADigitAtMostBySplitProducts) {
  CANZONA_NEEDS_GPU();
  const auto engine = make_cuda_engine();
  Stream stream(11);
  const PlainMatrix q = orthonormal(kSide, kSide, stream);
  for (const double condition : {1e2, 1e4, 1e5}) {
    const PlainMatrix a = with_spectrum(q, condition, 1);
    const PlainMatrix root = with_spectrum(q, condition, -0.25);
    EXPECT_LE(error_of_root(*engine, a, root, Products::kPlain),
              3e-8 * condition + 1e-5)
        << condition;
    EXPECT_LE(error_of_root(*engine, a, root, Products::kBf16x6),
              3e-7 * condition + 1e-5)
        << condition;
  }
}

}  // namespace
}  // namespace canzona::rules::roots_cuda_test
