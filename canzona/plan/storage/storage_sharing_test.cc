#include "canzona/plan/storage/storage_sharing.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/plan/storage/storage_basis.h"
#include "canzona/plan/storage/storage_json.h"
#include "canzona/plan/storage/storage_owners.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/plan/storage/test_layouts.h"

namespace canzona::plan::storage_sharing_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Links on which every team pays that shortens the work.
StorageRequest on_fast_links(StorageRequest request,
                             int32_t teams = kTeamsAuto) {
  request.options.teams = teams;
  request.options.links =
      parse_links("intra=1000TB/s,inter=1000TB/s,latency=0s");
  return request;
}

int64_t num_shared(const StoragePlan& plan) {
  return std::ranges::count_if(
      plan.matrices, [](const OwnedMatrix& m) { return !m.team.empty(); });
}

// One large matrix and many small ones: without teams its owner is the slowest.
StorageRequest one_large(const std::vector<AxisCut>& axes,
                         const std::string& rule, RuleOptions options) {
  // Factors of both sides are decomposed: equal ones are shared best.
  const int64_t cols = rule == "soap" && options.empty() ? 1024 : 4096;
  int32_t world = 1;
  for (const AxisCut& axis : axes) world *= axis.ranks;
  std::vector<CutTensor> tensors = {
      storage_tensor("large", {1024, cols}, stored_by({1024, cols}, axes))};
  for (int i = 0; i < 12; ++i)
    tensors.push_back(
        storage_tensor(cat("small", i), {64, 128}, stored_by({64, 128}, axes)));
  StorageRequest request = storage_request(world, std::move(tensors), rule);
  request.groups[0].options = std::move(options);
  return request;
}

struct Case {
  const char* rule;
  RuleOptions options;
  int32_t least_ranks;
};
std::vector<Case> cases() {
  return {{"muon", {{"strips", "8"}}, 4},
          {"soap", {{"strips", "8"}, {"ignored_dims", "1"}}, 4},
          {"soap", {}, 2},
          {"shampoo", {{"max_preconditioner_dim", "512"}}, 4}};
}

TEST(StorageSharing, SharesWhatIsTooLargeForOneRank) {
  for (const auto& axes : std::vector<std::vector<AxisCut>>{
           {{8, 0}}, {{2, -1}, {4, 0}}, {{4, 0}, {2, 1}}})
    for (const auto& [rule, options, least] : cases()) {
      SCOPED_TRACE(cat(rule, ", ", axes.size(), " axes"));
      const StorageRequest request =
          on_fast_links(one_large(axes, rule, options));
      StorageRequest alone = request;
      alone.options.teams = kTeamsOff;
      const StoragePlan whole = make_storage_plan(alone);
      const StoragePlan plan = make_storage_plan(request);
      EXPECT_THAT(validate(plan), IsEmpty());
      EXPECT_GE(std::ssize(distinct(plan.matrices[0].owners())), least);
      EXPECT_LT(plan.summary.makespan.value(),
                0.97 * static_cast<double>(whole.summary.makespan.value()));
      EXPECT_EQ(plan.summary.bound, whole.summary.bound);
      const auto seconds = storage_step_seconds(plan);
      EXPECT_LT(std::ranges::max(seconds),
                std::ranges::max(storage_step_seconds(whole)));
      EXPECT_EQ(make_storage_plan(request).digest, plan.digest);
    }
}

TEST(StorageSharing, KeepsSizesAndNodes) {
  for (const int32_t most : {2, 4, 8})
    for (const int32_t per_node : {2, 4, 8}) {
      StorageRequest request =
          on_fast_links(one_large({{8, 0}}, "muon", {{"strips", "8"}}), most);
      request.options.ranks_per_node = per_node;
      const StoragePlan plan = make_storage_plan(request);
      EXPECT_THAT(validate(plan), IsEmpty());
      EXPECT_GT(num_shared(plan), 0);
      for (const OwnedMatrix& m : plan.matrices) {
        EXPECT_LE(std::ssize(m.team), std::min(most, per_node));
        for (const int32_t rank : m.team)
          EXPECT_EQ(rank / per_node, m.owner / per_node);
      }
    }
}

TEST(StorageSharing, SharesNothingThatMayNot) {
  // Teams are off, every rank has everything, or ranks have nothing of it.
  EXPECT_EQ(num_shared(make_storage_plan(on_fast_links(
                one_large({{8, 0}}, "muon", {{"strips", "8"}}), kTeamsOff))),
            0);
  EXPECT_EQ(num_shared(make_storage_plan(on_fast_links(
                one_large({{8, -1}}, "muon", {{"strips", "8"}})))),
            0);
  StorageRequest request = one_large({{8, 0}}, "muon", {{"strips", "8"}});
  const std::vector<int64_t> few = {4, 8192};
  request.tensors.push_back(
      storage_tensor("few rows", few, stored_by(few, {{8, 0}})));
  const StoragePlan plan = make_storage_plan(on_fast_links(request));
  EXPECT_EQ(plan.classes.size(), 1U);
  EXPECT_THAT(plan.matrices.back().team, IsEmpty());
}

// Where the number of strips is left open, teams get as many as they can use.
TEST(StorageSharing, ChoosesStripsForTeams) {
  const StoragePlan plan =
      make_storage_plan(on_fast_links(one_large({{8, 0}}, "muon", {})));
  EXPECT_EQ(plan.groups[0].options.at("strips"), "8");
  EXPECT_GE(std::ssize(plan.matrices[0].team), 4);
  const StoragePlan off = make_storage_plan(
      on_fast_links(one_large({{8, 0}}, "muon", {}), kTeamsOff));
  EXPECT_EQ(off.groups[0].options.at("strips"), "auto");
}

TEST(StorageSharing, IsReadAsItWasWritten) {
  for (const auto& [rule, options, least] : cases()) {
    const StoragePlan plan = make_storage_plan(
        on_fast_links(one_large({{2, -1}, {4, 0}}, rule, options)));
    const std::string text = storage_plan_to_json(plan);
    EXPECT_THAT(text, HasSubstr(R"("version":3,)"));
    const ReadStoragePlan read = storage_plan_from_json(text, "plan.json");
    EXPECT_TRUE(read.digest_matches);
    EXPECT_EQ(storage_plan_to_json(read.plan), text);
    EXPECT_THAT(validate(read.plan), IsEmpty());
  }
}

TEST(StorageSharing, ViolationsAreNamed) {
  const StoragePlan good = make_storage_plan(
      on_fast_links(one_large({{2, -1}, {4, 0}}, "muon", {{"strips", "8"}})));
  const auto expect = [&](const auto& change, const char* says) {
    StoragePlan plan = good;
    change(plan.matrices[0]);
    EXPECT_THAT(validate(plan), Contains(HasSubstr(says)));
  };
  const int32_t other_line = good.matrices[0].owner < 4 ? 4 : 0;
  expect([](OwnedMatrix& m) { std::swap(m.team[0], m.team[1]); },
         "is the first that shares it");
  expect([&](OwnedMatrix& m) { m.team.back() = other_line; },
         "not a rank of its owner's line");
  expect([](OwnedMatrix& m) { m.team.pop_back(); },
         "has 3 ranks, expected 2, 4 or 8");
  expect([](OwnedMatrix& m) { m.team.back() = m.team[1]; }, "twice");
  StoragePlan blocks = make_storage_plan(on_fast_links(
      one_large({{4, 0}}, "shampoo", {{"max_preconditioner_dim", "512"}})));
  blocks.matrices[0].team.pop_back();
  EXPECT_THAT(validate(blocks), Contains(HasSubstr("owners of its blocks")));
}

// Bytes as the schedule sends them, in a step without a refresh.
TEST(StorageSharing, BytesAreThoseOfTheSchedule) {
  int64_t exchanged = 0;
  for (const auto& axes : std::vector<std::vector<AxisCut>>{
           {{8, 0}}, {{2, -1}, {4, 0}}, {{4, 0}, {2, 1}}})
    for (const auto& [rule, options, least] : cases()) {
      const StoragePlan plan =
          make_storage_plan(on_fast_links(one_large(axes, rule, options)));
      const auto bytes = storage_wire(StorageBasis(plan), plan);
      for (int32_t r = 0; r < plan.world; ++r) {
        const RankSchedule schedule = make_storage_schedule(plan, r, 4);
        int64_t moved = 0, in_rooms = 0;
        for (const ScheduleEntry& e : schedule.actions) {
          if (is_of_team(e.purpose)) {
            const StripFacts& facts =
                schedule.rounds[index(e.round)].shared[index(e.shared)].facts;
            const auto& group = schedule.groups[index(e.ranks_of)];
            for (size_t i = 0; i < group.size(); ++i)
              if (group[i] != r &&
                  is_exchanged(facts, e.purpose, !facts.factors_at_refresh))
                in_rooms += e.exchange.send_bytes[i];
          } else if (e.kind == EntryKind::kAllToAll) {
            for (const int64_t sent : e.exchange.send_bytes) moved += sent;
          } else if (e.kind == EntryKind::kBroadcast && e.root == r) {
            moved += e.all.count * 4 *
                     (std::ssize(schedule.groups[index(e.ranks_of)]) - 1);
          }
        }
        const auto sent = [&](Collective c) {
          return bytes[index(r)].wire[static_cast<size_t>(c)].sent();
        };
        EXPECT_EQ(sent(Collective::kTeamSums) + sent(Collective::kTeamFactors),
                  in_rooms);
        EXPECT_EQ(bytes[index(r)].bytes_sent(), moved + in_rooms);
        exchanged += in_rooms;
      }
    }
  EXPECT_GT(exchanged, 0);
}

}  // namespace
}  // namespace canzona::plan::storage_sharing_test
