#include "canzona/rules/soap/facts.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"

namespace canzona::rules::soap_options_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

SoapOptions read(const RuleOptions& given) {
  return read_soap_options(soap_options_in_force(given));
}

std::vector<int64_t> refreshes(const SoapOptions& soap, int phase,
                               int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= last; ++step)
    if (soap.is_refresh(step, phase)) steps.push_back(step);
  return steps;
}

TEST(SoapOptions, AreThoseOfTheOriginalUnlessAsked) {
  const SoapOptions soap = read({{"device", "cpu"}});
  EXPECT_EQ(soap.beta1, 0.95);
  EXPECT_EQ(soap.beta3, 0.95);
  EXPECT_EQ(soap.shampoo_beta, 0.95);
  EXPECT_TRUE(soap.moment_in_basis);
  EXPECT_TRUE(soap.skips_first_update);
  EXPECT_FALSE(soap.basis_includes_gradient);
  EXPECT_EQ(soap.sort, SoapOptions::Sort::kBefore);
  EXPECT_EQ(soap.refresh, SoapOptions::Refresh::kQr);
  EXPECT_FALSE(soap.splits_products);
}

TEST(SoapOptions, UseCheapProductsOnAGpu) {
  const SoapOptions soap = read({{"device", "cuda"}});
  EXPECT_EQ(soap.refresh, SoapOptions::Refresh::kCholeskyQr);
  EXPECT_TRUE(soap.splits_products);
  EXPECT_TRUE(
      read({{"device", "cpu"}, {"products", "bf16x3"}}).splits_products);
  EXPECT_THROW(read({{"products", "bf16"}}), UsageError);
}

TEST(SoapOptions, FollowBeta2UnlessAsked) {
  EXPECT_EQ(read({{"beta2", "0.5"}}).shampoo_beta, 0.5);
  EXPECT_EQ(read({{"beta2", "0.5"}, {"shampoo_beta", "0.75"}}).shampoo_beta,
            0.75);
}

TEST(SoapOptions, TakeThePresetsAsTheyAre) {
  const SoapOptions nvidia = read({{"preset", "nvidia-kl"}});
  EXPECT_TRUE(nvidia.kl);
  EXPECT_TRUE(nvidia.corrected_epsilon);
  EXPECT_EQ(nvidia.period, 1);
  EXPECT_EQ(nvidia.factor_bias, SoapOptions::FactorBias::kWeights);
  const SoapOptions meta = read({{"preset", "meta"}});
  EXPECT_TRUE(meta.cuts_long_sides);
  EXPECT_EQ(meta.beta2, 1);
  EXPECT_EQ(meta.sort, SoapOptions::Sort::kAscending);
  EXPECT_EQ(meta.factor_bias, SoapOptions::FactorBias::kDecomposition);
}

// After the first step, which moves no weights, every f-th step refreshes.
TEST(SoapOptions, CountRefreshesByUpdates) {
  const SoapOptions soap = read({{"precondition_frequency", "3"}});
  EXPECT_THAT(refreshes(soap, 0, 10), ElementsAre(1, 4, 7, 10));
  EXPECT_THAT(refreshes(soap, 1, 10), ElementsAre(1, 3, 6, 9));
  EXPECT_THAT(refreshes(soap, 2, 10), ElementsAre(1, 2, 5, 8));
}

TEST(SoapOptions, BeginToRefreshAtTheStartStep) {
  const SoapOptions soap = read({{"preset", "meta"},
                                 {"precondition_frequency", "3"},
                                 {"start_step", "4"}});
  EXPECT_THAT(refreshes(soap, 0, 12), ElementsAre(4, 6, 9, 12));
}

TEST(SoapOptions, RefuseContradictions) {
  EXPECT_THAT(
      [] {
        read({{"nesterov", "on"}, {"beta3", "0.5"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("beta3")));
  EXPECT_THAT(
      [] {
        read({{"beta1", "0"}, {"beta3", "0.5"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("beta3")));
  EXPECT_THAT(
      [] {
        read({{"grafting", "adam"}});
      },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("grafting"), HasSubstr("momentum_basis"))));
  EXPECT_THAT(
      [] {
        read({{"preset", "meta"},
              {"grafting", "adam"},
              {"normalize_grads", "on"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("normalize_grads=on and grafting")));
  EXPECT_THAT(
      [] {
        read({{"ignored_dims", "0,8"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("ignored_dims='0,8'")));
  EXPECT_THAT(
      [] {
        read({{"max_update_rms", "-1"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("max_update_rms")));
  EXPECT_THAT(
      [] {
        read({{"refresh", "svd"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("qr|cholesky_qr|eigh")));
}

}  // namespace
}  // namespace canzona::rules::soap_options_test
