#include "canzona/rules/soap/facts.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"

namespace canzona::rules::soap_layout_test {
namespace {

using ::testing::ElementsAre;
using Dims = std::vector<int64_t>;

SoapOptions with(const RuleOptions& given) {
  return read_soap_options(soap_options_in_force(given));
}
SoapOptions merging(const char* max_dim) {
  return with({{"merge_dims", "on"}, {"max_preconditioner_dim", max_dim}});
}
SoapOptions cutting(const char* max_dim) {
  return with({{"preset", "meta"}, {"max_preconditioner_dim", max_dim}});
}

Dims lengths(const SoapLayout& layout) {
  const std::span<const int64_t> sizes = layout.blocking().sizes().span();
  return {sizes.begin(), sizes.end()};
}

TEST(SoapLayout, MergesNeighboursFromTheFirstDimOn) {
  EXPECT_THAT(lengths(SoapLayout(merging("6"), Dims{3, 2, 4})),
              ElementsAre(6, 4));
  EXPECT_THAT(lengths(SoapLayout(merging("10"), Dims{3, 2})), ElementsAre(6));
  EXPECT_THAT(lengths(SoapLayout(merging("5"), Dims{3, 2, 2, 7, 2})),
              ElementsAre(3, 4, 7, 2));
  EXPECT_THAT(lengths(SoapLayout(merging("5"), Dims{1, 9, 1, 1})),
              ElementsAre(9));
  EXPECT_THAT(lengths(SoapLayout(merging("5"), Dims{1, 1})), ElementsAre(1));
  EXPECT_THAT(lengths(SoapLayout(merging("5"), Dims{3, 0})), ElementsAre(3, 0));
}

// An original vector has no factor; a vector that results from merging has one.
TEST(SoapLayout, KnowsVectorsFromMatricesThatWereMerged) {
  EXPECT_EQ(SoapLayout(merging("10"), Dims{6}).factors().num_factors(), 0);
  EXPECT_EQ(SoapLayout(merging("10"), Dims{3, 2}).factors().num_factors(), 1);
}

TEST(SoapLayout, CutsOnlySidesThatAreTooLong) {
  const SoapLayout layout(cutting("4"), Dims{4, 9});
  using Kind = BlockedSide::Kind;
  EXPECT_THAT(layout.blocking().side(0).kinds(), ElementsAre(Kind{1, 4}));
  EXPECT_THAT(layout.blocking().side(1).kinds(),
              ElementsAre(Kind{2, 4}, Kind{1, 1}));
}

TEST(SoapLayout, GivesALongSideNoFactorWhereItIsNotCut) {
  const SoapLayout layout(with({{"max_preconditioner_dim", "4"}}), Dims{4, 9});
  EXPECT_EQ(layout.blocking().num_blocks(), 1);
  EXPECT_TRUE(layout.factors().has_factor(0));
  EXPECT_FALSE(layout.factors().has_factor(1));
}

}  // namespace
}  // namespace canzona::rules::soap_layout_test
