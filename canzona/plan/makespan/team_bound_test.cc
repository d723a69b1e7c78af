// The bound on plans with teams.
#include <gtest/gtest.h>

#include "canzona/plan/makespan/bound.h"

namespace canzona::plan::team_bound_test {
namespace {

// 8 of work that can be shared beside 2 that cannot; a sum takes 1 on the link.
TeamSizes ten() { return {whole_matrix(10), {2, 4, 2, 7}, {4, 2, 2, 5}}; }

// One matrix on four ranks cannot be done before the path of a team of four.
TEST(TeamBound, IsAPathWhereRanksHaveRoom) {
  EXPECT_EQ(team_bound(std::vector<TeamItem>{{ten(), 1}}, 4), 5);
  EXPECT_EQ(team_bound(std::vector<TeamItem>{{{whole_matrix(10)}, 1}}, 4), 10);
}

TEST(TeamBound, IsTheMeanWhereRanksAreFull) {
  EXPECT_EQ(team_bound(std::vector<TeamItem>{{ten(), 8}}, 4), 20);
  EXPECT_EQ(team_bound(std::vector<TeamItem>{{ten(), 7}}, 4), 18);
}

// At T = 7 a team of two is allowed, but costs 14 instead of 10 on two ranks:
// the works of both decide.
TEST(TeamBound, CountsTheWorkThatSharingAdds) {
  const TeamSizes dear{whole_matrix(10), {2, 6, 2, 8}};
  EXPECT_EQ(team_bound(std::vector<TeamItem>{{dear, 1}}, 2), 8);
  EXPECT_EQ(team_bound(std::vector<TeamItem>{{dear, 3}}, 4), 10);
}

TEST(TeamBound, OfNothingIsZero) {
  EXPECT_EQ(team_bound({}, 4), 0);
  EXPECT_EQ(team_bound(std::vector<TeamItem>{{{whole_matrix(0)}, 5}}, 2), 0);
}

TEST(TeamBound, TheSmallestSizeThatFitsATarget) {
  const TeamSizes sizes = ten();
  EXPECT_EQ(smallest_that_fits(sizes, 4), nullptr);
  EXPECT_EQ(smallest_that_fits(sizes, 5)->size, 4);
  EXPECT_EQ(smallest_that_fits(sizes, 9)->size, 2);
  EXPECT_EQ(smallest_that_fits(sizes, 10)->size, 1);
}

}  // namespace
}  // namespace canzona::plan::team_bound_test
