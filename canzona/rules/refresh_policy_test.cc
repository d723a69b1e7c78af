#include "canzona/rules/refresh_policy.h"

#include <gmock/gmock.h>

#include <limits>
#include <vector>

namespace canzona {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr double kInf = std::numeric_limits<double>::infinity();

// A factor of one number, whose decomposition gives what it is told to.
template <class Real>
class Refreshes {
 public:
  bool operator()(int64_t step) {
    const Arena::Scope scope(engine_->arena());
    RefreshSite site{.rule = "test", .result = "root", .step = step};
    site.part = {.tensor = 3, .block = 2, .axis = 1};
    site.failures = matrices(&failures, 1, 1);
    const auto decompose = [&](DType dtype) -> Decomposition {
      tried.push_back(dtype);
      if (dtype == works_in) return {true, matrices(&result, 1, 1)};
      return {.reason = "no luck"};
    };
    return refresh(*engine_, site, matrices(&factor, 1, 1), decompose)
        .succeeded;
  }

  Real factor = 1;
  Real result = 2;
  Real failures = 0;
  DType works_in = DType::kBf16;  // none
  std::vector<DType> tried;

 private:
  std::unique_ptr<Engine> engine_ = make_cpu_engine();
};

TEST(RefreshPolicy, TriesAgainOnlyAfterAFailure) {
  Refreshes<float> refreshes;
  refreshes.works_in = DType::kFp32;
  EXPECT_TRUE(refreshes(1));
  EXPECT_THAT(refreshes.tried, ElementsAre(DType::kFp32));
}

TEST(RefreshPolicy, TriesAgainInFp64) {
  Refreshes<float> refreshes;
  refreshes.works_in = DType::kFp64;
  EXPECT_TRUE(refreshes(1));
  EXPECT_THAT(refreshes.tried, ElementsAre(DType::kFp32, DType::kFp64));
  EXPECT_EQ(refreshes.failures, 0);
}

TEST(RefreshPolicy, HasNoSecondTryAfterFp64) {
  Refreshes<double> refreshes;
  EXPECT_FALSE(refreshes(1));
  EXPECT_THAT(refreshes.tried, ElementsAre(DType::kFp64));
  EXPECT_EQ(refreshes.failures, 1);
}

TEST(RefreshPolicy, ASuccessForgetsFailures) {
  Refreshes<float> refreshes;
  for (int64_t step = 1; step <= 3; ++step) EXPECT_FALSE(refreshes(step));
  EXPECT_EQ(refreshes.failures, 3);
  refreshes.works_in = DType::kFp32;
  EXPECT_TRUE(refreshes(4));
  EXPECT_EQ(refreshes.failures, 0);
}

TEST(RefreshPolicy, TheFourthFailureInARowIsAnErrorThatSaysWhere) {
  Refreshes<float> refreshes;
  for (int64_t step = 1; step <= 3; ++step) refreshes(step);
  EXPECT_THAT(
      [&] { refreshes(4); },
      ThrowsMessage<NumericalError>(AllOf(
          HasSubstr("rule test"), HasSubstr("step 4"),
          HasSubstr("4 failures in a row to find a root (no luck)"),
          HasSubstr("axis 1"), HasSubstr("block 2"), HasSubstr("tensor 3"))));
}

TEST(RefreshPolicy, NeverDecomposesAFactorThatIsNotFinite) {
  Refreshes<double> refreshes;
  refreshes.factor = kInf;
  EXPECT_THAT(
      [&] { refreshes(1); },
      ThrowsMessage<NumericalError>(HasSubstr("a factor that is not finite")));
  EXPECT_THAT(refreshes.tried, IsEmpty());
}

TEST(RefreshPolicy, AResultThatIsNotFiniteIsAnError) {
  Refreshes<double> refreshes;
  refreshes.works_in = DType::kFp64;
  refreshes.result = kInf;
  EXPECT_THAT(
      [&] { refreshes(1); },
      ThrowsMessage<NumericalError>(HasSubstr("a root that is not finite")));
}

}  // namespace
}  // namespace canzona
