#include "canzona/rules/soap/layout.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"

namespace canzona {
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
  Dims found;
  for (int i = 0; i < layout.order(); ++i)
    found.push_back(layout.axis(i).length);
  return found;
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

// A vector that was one from the start has no factor; one that comes of
// merging has.
TEST(SoapLayout, KnowsVectorsFromMatricesThatWereMerged) {
  EXPECT_EQ(SoapLayout(merging("10"), Dims{6}).num_factors(), 0);
  EXPECT_EQ(SoapLayout(merging("10"), Dims{3, 2}).num_factors(), 1);
}

TEST(SoapLayout, NumbersBlocksWithTheLastDimRunningFastest) {
  const SoapLayout layout(cutting("2"), Dims{5, 3});
  ASSERT_EQ(layout.num_blocks(), 6);
  std::vector<Dims> starts;
  std::vector<Dims> sizes;
  for (int64_t i = 0; i < 6; ++i) {
    const SoapBlock block = layout.block(i);
    starts.push_back({block.start[0], block.start[1]});
    sizes.push_back({block.dims()[0], block.dims()[1]});
  }
  EXPECT_THAT(starts, ElementsAre(Dims{0, 0}, Dims{0, 2}, Dims{2, 0},
                                  Dims{2, 2}, Dims{4, 0}, Dims{4, 2}));
  EXPECT_THAT(sizes, ElementsAre(Dims{2, 2}, Dims{2, 1}, Dims{2, 2}, Dims{2, 1},
                                 Dims{1, 2}, Dims{1, 1}));
}

// Every factor has a place of its own, and all places are taken.
TEST(SoapLayout, PlacesEveryFactorOnce) {
  for (const Dims& dims : {Dims{5, 3}, Dims{4, 4}, Dims{5}, Dims{3, 4, 5}}) {
    const SoapLayout layout(cutting("2"), dims);
    std::map<int, std::vector<int64_t>> places;  // by state
    std::vector<int64_t> failures;
    for (int64_t block = 0; block < layout.num_blocks(); ++block)
      for (int axis = 0; axis < layout.order(); ++axis) {
        const SoapFactorPlace place = layout.place(block, axis);
        places[place.first_state].push_back(place.place);
        failures.push_back(place.failure);
      }
    for (const auto& [state, found] : places)
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i], static_cast<int64_t>(i)) << "state " << state;
    for (size_t i = 0; i < failures.size(); ++i)
      EXPECT_EQ(failures[i], static_cast<int64_t>(i));
    for (int axis = 0; axis < layout.order(); ++axis) {
      const SoapAxis& own = layout.axis(axis);
      EXPECT_EQ(std::ssize(places[own.first_state]),
                layout.stack_size(axis, false));
      if (own.edge() > 0) {
        const int edge = own.first_state + layout.states_per_factor();
        EXPECT_EQ(std::ssize(places[edge]), layout.stack_size(axis, true));
      }
    }
  }
}

TEST(SoapLayout, CutsOnlySidesThatAreTooLong) {
  const SoapLayout layout(cutting("4"), Dims{4, 9});
  EXPECT_EQ(layout.axis(0).num_blocks(), 1);
  EXPECT_EQ(layout.axis(1).num_blocks(), 3);
  EXPECT_EQ(layout.axis(1).edge(), 1);
}

}  // namespace
}  // namespace canzona
