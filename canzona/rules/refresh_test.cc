#include "canzona/rules/refresh.h"

#include <gmock/gmock.h>

#include <limits>
#include <vector>

namespace canzona::rules::refresh_policy_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Factors of one number each, whose decompositions succeed or fail as told.
template <class Real>
class Refreshes {
 public:
  explicit Refreshes(size_t count = 1)
      : factors(count, 1),
        results(count, 2),
        failures(count),
        works_in(count, DType::kBf16) {}

  // Returns which factors succeeded.
  std::vector<bool> operator()(int64_t step) {
    const Arena::Scope scope(engine_->arena());
    const auto count = std::ssize(factors);
    RefreshSite site{.rule = "test", .result = "root", .step = step};
    site.part = {.tensor = 3, .block = 2, .axis = 1};
    site.failures = matrices(failures.data(), 1, 1, count);
    PerTensor<Outcome> outcomes(count);
    refresh(*engine_, site, matrices(factors.data(), 1, 1, count),
            matrices(results.data(), 1, 1, count), outcomes.span(),
            [&](DType dtype, int64_t begin, std::span<Outcome> some) {
              for (size_t i = 0; i < some.size(); ++i) {
                tried.push_back(dtype);
                const bool works =
                    works_in[static_cast<size_t>(begin) + i] == dtype;
                some[i] = {works, works ? "" : "no luck"};
              }
            });
    std::vector<bool> succeeded;
    for (int64_t i = 0; i < count; ++i)
      succeeded.push_back(outcomes[i].succeeded);
    return succeeded;
  }

  std::vector<Real> factors;
  std::vector<Real> results;
  std::vector<Real> failures;
  std::vector<DType> works_in;  // bf16: never
  std::vector<DType> tried;

 private:
  std::unique_ptr<Engine> engine_ = make_cpu_engine();
};

TEST(RefreshPolicy, TriesAgainOnlyAfterAFailure) {
  Refreshes<float> refreshes;
  refreshes.works_in[0] = DType::kFp32;
  EXPECT_THAT(refreshes(1), ElementsAre(true));
  EXPECT_THAT(refreshes.tried, ElementsAre(DType::kFp32));
}

TEST(RefreshPolicy, TriesAgainInFp64) {
  Refreshes<float> refreshes;
  refreshes.works_in[0] = DType::kFp64;
  EXPECT_THAT(refreshes(1), ElementsAre(true));
  EXPECT_THAT(refreshes.tried, ElementsAre(DType::kFp32, DType::kFp64));
  EXPECT_EQ(refreshes.failures[0], 0);
}

TEST(RefreshPolicy, HasNoSecondTryAfterFp64) {
  Refreshes<double> refreshes;
  EXPECT_THAT(refreshes(1), ElementsAre(false));
  EXPECT_THAT(refreshes.tried, ElementsAre(DType::kFp64));
  EXPECT_EQ(refreshes.failures[0], 1);
}

TEST(RefreshPolicy, ASuccessForgetsFailures) {
  Refreshes<float> refreshes;
  for (int64_t step = 1; step <= 3; ++step)
    EXPECT_THAT(refreshes(step), ElementsAre(false));
  EXPECT_EQ(refreshes.failures[0], 3);
  refreshes.works_in[0] = DType::kFp32;
  EXPECT_THAT(refreshes(4), ElementsAre(true));
  EXPECT_EQ(refreshes.failures[0], 0);
}

TEST(RefreshPolicy, D7TheFourthFailureInARowIsAnErrorThatSaysWhere) {
  Refreshes<float> refreshes;
  for (int64_t step = 1; step <= 3; ++step) refreshes(step);
  EXPECT_THAT(
      [&] { refreshes(4); },
      ThrowsMessage<NumericalError>(AllOf(
          HasSubstr("rule test"), HasSubstr("step 4"),
          HasSubstr("4 consecutive failures to compute a root (no luck)"),
          HasSubstr("axis 1"), HasSubstr("block 2"), HasSubstr("tensor 3"))));
}

TEST(RefreshPolicy, CountsEachFactorOfABatch) {
  Refreshes<float> refreshes(4);
  refreshes.works_in = {DType::kFp32, DType::kBf16, DType::kFp64, DType::kFp32};
  refreshes.failures = {2, 1, 0, 0};
  EXPECT_THAT(refreshes(1), ElementsAre(true, false, true, true));
  EXPECT_THAT(refreshes.failures, ElementsAre(0, 2, 0, 0));
  EXPECT_THAT(refreshes.tried,
              ElementsAre(DType::kFp32, DType::kFp32, DType::kFp32,
                          DType::kFp32, DType::kFp64, DType::kFp64));
}

TEST(RefreshPolicy, TellsWhichTensorOfABatch) {
  Refreshes<float> failing(3);
  failing.works_in = {DType::kFp32, DType::kBf16, DType::kFp32};
  failing.failures = {0, 3, 0};
  EXPECT_THAT([&] { failing(1); },
              ThrowsMessage<NumericalError>(HasSubstr("tensor 4")));
  Refreshes<float> bad(3);
  bad.factors[2] = std::numeric_limits<float>::infinity();
  EXPECT_THAT([&] { bad(1); },
              ThrowsMessage<NumericalError>(HasSubstr("tensor 5")));
  Refreshes<float> result(3);
  result.works_in = {DType::kBf16, DType::kFp32, DType::kFp32};
  result.results = {std::numeric_limits<float>::infinity(), 1,
                    std::numeric_limits<float>::infinity()};
  EXPECT_THAT([&] { result(1); },
              ThrowsMessage<NumericalError>(HasSubstr("tensor 5")));
}

TEST(RefreshPolicy, D7NeverDecomposesAFactorThatIsNotFinite) {
  Refreshes<double> refreshes;
  refreshes.factors[0] = kInf;
  EXPECT_THAT(
      [&] { refreshes(1); },
      ThrowsMessage<NumericalError>(HasSubstr("a factor that is not finite")));
  EXPECT_THAT(refreshes.tried, IsEmpty());
}

TEST(RefreshPolicy, AResultThatIsNotFiniteIsAnError) {
  Refreshes<double> refreshes;
  refreshes.works_in[0] = DType::kFp64;
  refreshes.results[0] = kInf;
  EXPECT_THAT(
      [&] { refreshes(1); },
      ThrowsMessage<NumericalError>(HasSubstr("a root that is not finite")));
}

}  // namespace
}  // namespace canzona::rules::refresh_policy_test
