// What the links around Newton-Schulz need, and what they exclude.
#include "canzona/rules/muon/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/rules/muon/facts.h"

namespace canzona::rules::muon_links_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

using Shape = std::vector<int64_t>;

// The shape of the second moment; none if there is no such state.
Shape second_moment(const RuleOptions& options, MatrixShape shape) {
  for (const StateFact& state : MuonFacts(options).states(shape))
    if (state.name == "second_moment") {
      EXPECT_EQ(state.lives, Lives::kWithOwner);
      return state.shape;
    }
  return {};
}

TEST(MuonLinks, KeepTheirSecondMomentAtTheOwner) {
  const RuleOptions long_side = {{"second_moment", "normuon"}};
  EXPECT_EQ(second_moment(long_side, {6, 4}), (Shape{6, 1}));
  EXPECT_EQ(second_moment(long_side, {4, 6}), (Shape{1, 6}));
  EXPECT_EQ(second_moment(long_side, {5, 5}), (Shape{5, 1}));
  EXPECT_EQ(second_moment({{"preset", "normuon"}}, {4, 6}), (Shape{4, 1}));
  EXPECT_EQ(second_moment({{"second_moment", "adamuon"}}, {4, 6}),
            (Shape{4, 6}));
  EXPECT_EQ(second_moment({{"second_moment", "namo"}}, {4, 6}), (Shape{1}));
  EXPECT_EQ(second_moment({{"preset", "muonh"}}, {4, 6}), (Shape{}));
}

TEST(MuonLinks, GatherWhatTheOwnerNeeds) {
  const auto fields = [](const RuleOptions& options) {
    return MuonFacts(options).gather_fields();
  };
  EXPECT_EQ(fields({}), 1);
  EXPECT_EQ(fields({{"preset", "nanochat"}}), 1);
  EXPECT_EQ(fields({{"second_moment", "adamuon"}}), 1);
  EXPECT_EQ(fields({{"second_moment", "namo"}}), 2);
  EXPECT_EQ(fields({{"preset", "muonh"}}), 2);
  EXPECT_EQ(fields({{"second_moment", "namo"}, {"constraint", "hyperball"}}),
            3);
}

// Norms of rows and their scaling twice, 3 flops each; nanochat divides by
// roots in the same pass as it restores the norm.
TEST(MuonLinks, CountTheirFlops) {
  const auto more = [](const RuleOptions& options) {
    const MatrixShape shape{4, 6};
    return MuonFacts(options).work(shape).every_step -
           MuonFacts(RuleOptions{{"coefficients", "polar-dion"}})
               .work(shape)
               .every_step;
  };
  EXPECT_EQ(more({{"preset", "nanochat"}}), Flops(6 * 24));
  EXPECT_EQ(more({{"preset", "normuon"}}), Flops(3 * 24));
}

TEST(MuonLinks, LeaveMatricesWhole) {
  const MatrixShape large{4096, 16384};
  EXPECT_GT(MuonFacts(RuleOptions{}).strips(large).strips, 1);
  for (const RuleOptions& link :
       {RuleOptions{{"equilibrate", "rows"}}, RuleOptions{{"renorm", "on"}},
        RuleOptions{{"second_moment", "normuon"}},
        RuleOptions{{"constraint", "hyperball"}}})
    EXPECT_EQ(MuonFacts(link).strips(large).strips, 1);
}

void expect_refused(const RuleOptions& options, const std::string& message) {
  EXPECT_THAT([&] { MuonFacts facts(options); },
              ThrowsMessage<UsageError>(HasSubstr(message)));
}

TEST(MuonLinks, NameWhatTheyExclude) {
  expect_refused({{"second_moment", "namo"}, {"decay_form", "l2"}},
                 "second_moment=namo excludes decay_form=l2");
  expect_refused({{"decay_lr", "scaled"}, {"decay_form", "independent"}},
                 "decay_lr=scaled excludes decay_form=independent");
  expect_refused({{"renorm", "on"}, {"strips", "4"}}, "strips=4 excludes");
  expect_refused({{"constraint", "hyperball"}, {"constraint_radius", "0"}},
                 "constraint_radius=0 leaves no weights");
  expect_refused({{"second_moment", "nor"}}, "second_moment");
  expect_refused({{"beta2", "1"}}, "beta2");
}

TEST(MuonLinks, APresetSetsWhatItsReferenceComputes) {
  const RuleOptions nanochat =
      MuonFacts(RuleOptions{{"preset", "nanochat"}}).options();
  EXPECT_EQ(nanochat.at("second_moment_norm_eps"), "1e-10");
  EXPECT_EQ(nanochat.at("norm_factor"), "1.01");
  const RuleOptions normuon =
      MuonFacts(RuleOptions{{"preset", "normuon"}}).options();
  EXPECT_EQ(normuon.at("norm_factor"), "1.02");
  EXPECT_EQ(normuon.at("learning_rate"), "0.01");
  EXPECT_EQ(MuonFacts(RuleOptions{{"preset", "scion"}}).options().at("scale"),
            "unit_rms");
}

}  // namespace
}  // namespace canzona::rules::muon_links_test
