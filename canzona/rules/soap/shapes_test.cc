// Tensors of every kind: empty, thin, of rank one, of many axes, merged, cut.
#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::shapes_test {
namespace {

using ::testing::ElementsAre;

constexpr double kRate = 0.01;
using Values = std::vector<double>;

Values random_values(const Dims& dims, uint64_t seed) {
  Stream stream(seed);
  Values values(static_cast<size_t>(num_elements(dims)));
  for (double& x : values) x = stream.uniform();
  return values;
}

TestTensor<double> make(const RuleOptions& options, const Dims& dims) {
  return {make_rule("soap", options, DType::kFp64), dims,
          random_values(dims, 1000)};
}

double orthogonality_error(const Values& basis) {
  const auto n = static_cast<int64_t>(
      std::llround(std::sqrt(static_cast<double>(basis.size()))));
  PlainMatrix q(n, n);
  q.values = basis;
  PlainMatrix identity(n, n);
  for (int64_t i = 0; i < n; ++i) identity(i, i) = 1;
  return distance(transposed(q) * q, identity);
}

TEST(SoapShapes, D6AZeroGradientGivesTheReversedIdentity) {
  const auto engine = make_cpu_engine();
  TestTensor<double> soap = make({}, {3, 2});
  const Values start = soap.weights;
  soap.step(*engine, Values(6), kRate);
  EXPECT_EQ(soap.weights, start);
  EXPECT_THAT(soap.state("Q_L"), ElementsAre(0, 0, 1, 0, 1, 0, 1, 0, 0));
  EXPECT_THAT(soap.state("Q_R"), ElementsAre(0, 1, 1, 0));
  soap.step(*engine, Values(6), kRate);  // 0/(0 + epsilon)
  for (size_t i = 0; i < 6; ++i)
    EXPECT_DOUBLE_EQ(soap.weights[i], start[i] * (1 - kRate * 0.01));
}

TEST(SoapShapes, AZeroGradientLaterChangesLittle) {
  const auto engine = make_cpu_engine();
  TestTensor<double> soap = make({{"precondition_frequency", "1"}}, {3, 3});
  for (uint64_t t = 1; t <= 3; ++t)
    soap.step(*engine, random_values({3, 3}, t), kRate);
  soap.step(*engine, Values(9), kRate);
  soap.step(*engine, Values(9), kRate);
  for (double x : soap.weights) EXPECT_TRUE(std::isfinite(x));
  EXPECT_LT(orthogonality_error(soap.state("Q_L")), 1e-13);
}

TEST(SoapShapes, D6AnEmptyTensorIsNoWork) {
  const auto engine = make_cpu_engine();
  for (const Dims& dims : {Dims{0, 3}, Dims{3, 0}, Dims{0}, Dims{2, 0, 4}}) {
    for (const char* preset : {"canzona", "nvidia", "meta"}) {
      TestTensor<double> soap = make({{"preset", preset}}, dims);
      for (int t = 0; t < 3; ++t) soap.step(*engine, {}, kRate);
      EXPECT_TRUE(soap.weights.empty());
    }
  }
}

// A side of one has a 1x1 factor whose basis is a sign: using only the other
// side's basis changes nothing.
TEST(SoapShapes, D6ASideOfOneIsASide) {
  const auto engine = make_cpu_engine();
  for (const Dims& dims : {Dims{1, 5}, Dims{5, 1}, Dims{1, 1}}) {
    TestTensor<double> soap = make({{"precondition_frequency", "2"}}, dims);
    for (uint64_t t = 1; t <= 5; ++t)
      soap.step(*engine, random_values(dims, t), kRate);
    for (double x : soap.weights) EXPECT_TRUE(std::isfinite(x));
    EXPECT_LT(orthogonality_error(soap.state("Q_L")), 1e-13);
    EXPECT_LT(orthogonality_error(soap.state("Q_R")), 1e-13);
    const Values& one = soap.state(dims[0] == 1 ? "Q_L" : "Q_R");
    EXPECT_EQ(std::fabs(one[0]), 1);
  }
}

// The first update after equal gradients of rank one has that direction.
TEST(SoapShapes, D6ARankOneGradientIsOneDirection) {
  const auto engine = make_cpu_engine();
  PlainMatrix a(4, 1), b(1, 6);
  for (size_t i = 0; i < 4; ++i) a.values[i] = 1 + static_cast<double>(i);
  for (size_t i = 0; i < 6; ++i) b.values[i] = 2 - static_cast<double>(i);
  const PlainMatrix g = a * b;
  TestTensor<double> soap = make({{"epsilon", "0.001"}}, {4, 6});
  soap.step(*engine, g.values, kRate);
  soap.step(*engine, g.values, kRate);
  PlainMatrix u(4, 6);
  u.values = soap.update;
  const double scale = u(3, 0) / g(3, 0);
  for (size_t i = 0; i < 24; ++i)
    EXPECT_NEAR(u.values[i], scale * g.values[i], 1e-9);
  EXPECT_NEAR(frobenius(u), 1, 1e-2);
}

TEST(SoapShapes, AVectorIsAdamUnlessAsked) {
  const auto engine = make_cpu_engine();
  TestTensor<double> adam = make({}, {5});
  TestTensor<double> matrix = make({{"max_preconditioner_dim", "1"}}, {5, 1});
  TestTensor<double> asked = make({{"precondition_1d", "on"}}, {5});
  TestTensor<double> column = make({}, {5, 1});
  for (uint64_t t = 1; t <= 4; ++t) {
    const Values g = random_values({5}, t);
    for (TestTensor<double>* each : {&adam, &matrix, &asked, &column})
      each->step(*engine, g, kRate);
  }
  EXPECT_TRUE(adam.state("L").empty());
  EXPECT_EQ(asked.state("L").size(), 25U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(asked.weights[i], column.weights[i], 1e-13);
    EXPECT_NE(asked.weights[i], adam.weights[i]);
  }
}

TEST(SoapShapes, MergedDimsAreAMatrix) {
  const auto engine = make_cpu_engine();
  const RuleOptions options = {{"merge_dims", "on"},
                               {"max_preconditioner_dim", "6"},
                               {"precondition_frequency", "2"}};
  TestTensor<double> merged = make(options, {3, 2, 4});
  TestTensor<double> matrix =
      make({{"max_preconditioner_dim", "6"}, {"precondition_frequency", "2"}},
           {6, 4});
  matrix.weights = merged.weights;
  for (uint64_t t = 1; t <= 6; ++t) {
    const Values g = random_values({6, 4}, t);
    merged.step(*engine, g, kRate);
    matrix.step(*engine, g, kRate);
    EXPECT_EQ(merged.weights, matrix.weights);
  }
}

// A tensor with three axes, one of length one, is a matrix with one more sign.
TEST(SoapShapes, TensorsOfManyAxesHaveAFactorForEach) {
  const auto engine = make_cpu_engine();
  const RuleOptions options = {{"precondition_frequency", "2"}};
  for (const Dims& dims : {Dims{1, 4, 3}, Dims{4, 1, 3}, Dims{4, 3, 1}}) {
    TestTensor<double> tensor = make(options, dims);
    TestTensor<double> matrix = make(options, {4, 3});
    for (uint64_t t = 1; t <= 6; ++t) {
      const Values g = random_values(dims, t);
      tensor.step(*engine, g, kRate);
      matrix.step(*engine, g, kRate);
    }
    for (size_t i = 0; i < 12; ++i)
      EXPECT_NEAR(tensor.weights[i], matrix.weights[i], 1e-12);
    EXPECT_EQ(tensor.state("F_1").size(),
              static_cast<size_t>(dims[1] * dims[1]));
  }
}

// A tensor that is cut behaves as its blocks, each an independent tensor.
class Cut : public ::testing::TestWithParam<Dims> {};

TEST_P(Cut, BlocksAreTensorsOfTheirOwn) {
  const auto engine = make_cpu_engine();
  const Dims dims = GetParam();
  for (const char* grafting : {"none", "adam"}) {
    const RuleOptions options = {{"preset", "meta"},
                                 {"beta2", "0.9"},
                                 {"grafting", grafting},
                                 {"epsilon", "0.001"},
                                 {"precondition_frequency", "2"},
                                 {"max_preconditioner_dim", "2"}};
    // The elements of each block, found by walking over the tensor.
    std::map<Dims, std::vector<size_t>> places;
    std::map<Dims, Dims> block_dims;
    for (int64_t i = 0; i < num_elements(dims); ++i) {
      Dims block(dims.size()), size(dims.size());
      int64_t rest = i;
      for (size_t d = dims.size(); d-- > 0;) {
        block[d] = rest % dims[d] / 2;
        size[d] = std::min<int64_t>(2, dims[d] - 2 * block[d]);
        rest /= dims[d];
      }
      places[block].push_back(static_cast<size_t>(i));
      block_dims[block] = size;
    }
    const auto taken = [&](const Values& from, const Dims& block) {
      Values values;
      for (size_t at : places.at(block)) values.push_back(from[at]);
      return values;
    };
    for (const auto& [block, size] : block_dims) {
      TestTensor<double> whole = make(options, dims);
      TestTensor<double> alone = make(options, size);
      alone.weights = taken(whole.weights, block);
      for (uint64_t t = 1; t <= 5; ++t) {
        const Values g = random_values(dims, t);
        whole.step(*engine, g, kRate);
        alone.step(*engine, taken(g, block), kRate);
      }
      EXPECT_EQ(alone.weights, taken(whole.weights, block));
      EXPECT_EQ(alone.state("exp_avg_sq"),
                taken(whole.state("exp_avg_sq"), block));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Cut,
                         ::testing::Values(Dims{5, 3}, Dims{4, 4}, Dims{5},
                                           Dims{3, 4, 2}, Dims{3, 2, 3}));

TEST(SoapShapes, RefusesMoreAxesThanItCanTake) {
  EXPECT_THROW(make({}, Dims(9, 1)), UsageError);
}

}  // namespace
}  // namespace canzona::rules::shapes_test
