#include "canzona/plan/storage/storage_schedule.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/storage/test_players.h"
#include "canzona/plan/storage/test_storage.h"

namespace canzona::plan::storage_schedule_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The first is the documentation, executed: two ranks with half of a matrix
// each, which rank 1 owns.
TEST(RankSchedule, GathersPiecesToTheOwnerAndScattersUpdates) {
  StoragePlan plan = plan_by_lot(
      storage_request("muon", {{"w", {4, 3}}}, {{.dim = 0, .size = 2}}), 1);
  plan.matrices[0].owner = 1;
  const RankSchedule first = make_storage_schedule(plan, 0, 1);
  const RankSchedule second = make_storage_schedule(plan, 1, 1);
  std::vector<std::string> labels;
  for (const ScheduleEntry& action : second.actions)
    labels.push_back(action.label);
  EXPECT_THAT(labels, ElementsAre("prepare round 0", "gather round 0",
                                  "wait for gather round 0",
                                  "transform round 0", "scatter round 0",
                                  "wait for scatter round 0", "apply round 0"));
  EXPECT_THAT(first.groups, ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(first.actions[1].exchange.send_bytes, ElementsAre(0, 24));
  EXPECT_THAT(first.actions[1].exchange.receive_bytes, ElementsAre(0, 0));
  EXPECT_THAT(second.actions[1].exchange.receive_bytes, ElementsAre(24, 0));
  ASSERT_EQ(second.states.size(), 1U);
  EXPECT_EQ(second.states[0].name, "momentum");
  EXPECT_THAT(second.states[0].shape, ElementsAre(2, 3));
}

TEST(RankSchedule, NamesARankThatThereIsNot) {
  const StoragePlan plan = plan_by_lot(
      storage_request("muon", {{"w", {4, 3}}}, {{.dim = 0, .size = 2}}), 1);
  EXPECT_THAT([&] { make_storage_schedule(plan, 2, 1); },
              ::testing::ThrowsMessage<UsageError>(
                  HasSubstr("rank 2 of a plan for 2 ranks")));
}

const std::vector<NamedShape>& shapes() {
  static const std::vector<NamedShape> all = {{"a", {8, 6}},
                                              {"b", {7, 5}},
                                              {"one row", {1, 9}},
                                              {"few", {3, 4}},
                                              {"norm", {11}},
                                              {"stack", {3, 5, 4}},
                                              {"qkv", {12, 5}, {6, 4, 2}},
                                              {"one", {1, 1}},
                                              {"tall", {13, 2}},
                                              {"bias", {1}},
                                              {"c", {8, 6}},
                                              {"stacks", {2, 2, 3, 4}, {1, 2}}};
  return all;
}

std::vector<MeshAxes> meshes() {
  return {{},
          {{kReplicated, 2}},
          {{kReplicated, 3}},
          {{kReplicated, 4}},
          {{0, 2}},
          {{0, 3}},
          {{0, 4}},
          {{-1, 3}},
          {{-2, 2}},
          {{kReplicated, 2}, {0, 2}},
          {{0, 2}, {kReplicated, 2}},
          {{0, 2}, {-1, 2}},
          {{0, 2}, {0, 2}},
          {{kReplicated, 2}, {0, 2}, {-1, 2}},
          {{-1, 5}}};
}

TEST(RankSchedule, BringsEveryElementToItsOwnerAndBackOnce) {
  for (const MeshAxes& mesh : meshes())
    for (const char* rule : {"muon", "soap", "shampoo"})
      for (uint64_t seed = 0; seed < 12; ++seed) {
        StorageRequest request = storage_request(rule, shapes(), mesh);
        request.options.share_states = seed % 2 == 1;
        request.options.wire = seed % 3 == 0 ? DType::kBf16 : DType::kFp32;
        const StoragePlan plan = plan_by_lot(request, seed);
        SCOPED_TRACE(cat(rule, ", ", world_of(mesh), " ranks, seed ", seed));
        Players(plan, seed % 2 == 0 ? 1 : 4).play();
        if (HasFatalFailure()) return;
      }
}

// The same where ranks share matrices by lot.
TEST(RankSchedule, BringsEveryElementToTheRanksThatShareItAndBack) {
  const std::vector<std::pair<const char*, RuleOptions>> rules = {
      {"muon", {{"strips", "4"}}},
      {"soap", {{"strips", "4"}, {"ignored_dims", "1"}}},
      {"soap", {}},
      {"shampoo", {{"max_preconditioner_dim", "8"}}}};
  const std::vector<NamedShape> some = {{"a", {8, 6}},
                                        {"b", {16, 260}},
                                        {"c", {270, 9}},
                                        {"norm", {11}},
                                        {"qkv", {24, 128}, {8, 8, 8}},
                                        {"stack", {3, 16, 16}}};
  int64_t num_shared = 0;
  for (const MeshAxes& mesh : meshes())
    for (const auto& [rule, options] : rules)
      for (uint64_t seed = 0; seed < 8; ++seed) {
        StorageRequest request = storage_request(rule, some, mesh);
        for (const auto& [name, value] : options)
          request.groups[0].options[name] = value;
        request.options.teams = kTeamsAuto;
        request.options.share_states = seed % 2 == 1;
        request.options.wire = seed % 3 == 0 ? DType::kBf16 : DType::kFp32;
        const StoragePlan plan = plan_by_lot(request, seed);
        for (const OwnedMatrix& m : plan.matrices)
          num_shared += m.team.empty() ? 0 : 1;
        SCOPED_TRACE(cat(rule, ", ", world_of(mesh), " ranks, seed ", seed));
        Players(plan, seed % 2 == 0 ? 1 : 4).play();
        if (HasFatalFailure()) return;
      }
  EXPECT_GT(num_shared, 300);
}
// Some tensors on some ranks, others on others, replicas or not.
TEST(RankSchedule, ServesClassesOfDifferentRanks) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto lot = [&](uint64_t i, uint64_t below) {
      return bits_at(seed, i) % below;
    };
    StorageRequest request =
        storage_request("muon", shapes(), {{kReplicated, 6}});
    if (lot(0, 2) == 1)
      request.groups[0] = storage_request("soap", {}, {}).groups[0];
    request.options.share_states = lot(1, 2) == 1;
    const std::vector<MeshAxes> few = {{{0, 6}},
                                       {{kReplicated, 2}, {0, 3}},
                                       {{0, 2}, {kReplicated, 3}},
                                       {{kReplicated, 6}},
                                       {{-1, 2}, {0, 3}},
                                       {{0, 3}},
                                       {}};
    for (size_t t = 0; t < request.tensors.size(); ++t)
      request.tensors[t].stored =
          boxes_on(few[lot(2 + t, few.size())], request.tensors[t].shape, 6);
    const StoragePlan plan = plan_by_lot(request, seed);
    SCOPED_TRACE(cat("seed ", seed));
    Players(plan, 3).play();
    if (HasFatalFailure()) return;
  }
}

// Two boxes of one rank, which lie one after the other in its memory.
TEST(RankSchedule, ServesRanksWithSeveralBoxes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    StorageRequest request =
        storage_request("muon", {{"w", {6, 4}}, {"v", {6, 4}}}, {{0, 2}});
    request.tensors[0].stored = {{{{4, 0}, {2, 4}}, {{0, 0}, {2, 4}}},
                                 {{{2, 0}, {2, 4}}}};
    request.tensors[1].stored = {{{{0, 2}, {6, 2}}, {{0, 0}, {6, 2}}}, {}};
    const StoragePlan plan = plan_by_lot(request, seed);
    Players(plan, 1).play();
    EXPECT_THAT(make_storage_schedule(plan, 0, 1).states[0].shape,
                ElementsAre(16));
  }
}

TEST(RankSchedule, KeepsSharedStatesAtOneLine) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    StorageRequest request =
        storage_request("muon", shapes(), {{kReplicated, 3}});
    request.options.share_states = true;
    const StoragePlan plan = plan_by_lot(request, seed);
    std::vector<int64_t> kept(plan.tensors.size());
    for (int32_t r = 0; r < 3; ++r) {
      const RankSchedule schedule = make_storage_schedule(plan, r, 1);
      std::set<int32_t> seen;
      for (const ScheduledState& state : schedule.states)
        if (seen.insert(state.tensor).second)
          for (const Extent& e : state.kept)
            kept[index(state.tensor)] += e.count;
    }
    for (size_t t = 0; t < plan.tensors.size(); ++t) {
      int64_t elements = 1;
      for (int64_t side : plan.tensors[t].shape) elements *= side;
      EXPECT_EQ(kept[t], elements) << plan.tensors[t].name;
    }
  }
}

// Two gathers ahead of a transform, and updates on their way behind it.
TEST(RankSchedule, HasTwoGathersUnderWay) {
  std::vector<NamedShape> many;
  for (int i = 0; i < 12; ++i) many.push_back({cat("w", i), {4, 4}});
  StoragePlan plan = plan_by_lot(storage_request("muon", many, {{0, 2}}), 1);
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    plan.matrices[m].round = static_cast<int32_t>(m);
  plan.classes[0].num_rounds = 12;
  const RankSchedule schedule = make_storage_schedule(plan, 0, 1);
  std::set<std::string> flying;
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    const ScheduleEntry& a = schedule.actions[i];
    if (a.kind == EntryKind::kAllToAll) flying.insert(a.label);
    if (a.kind == EntryKind::kWait)
      flying.erase(schedule.actions[index(a.after[0])].label);
    if (a.label != "transform round 5") continue;
    EXPECT_THAT(flying, ElementsAre("gather round 6", "gather round 7",
                                    "scatter round 4"));
  }
}

}  // namespace
}  // namespace canzona::plan::storage_schedule_test
