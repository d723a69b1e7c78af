#include "canzona/plan/schedule/iteration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "canzona/base/error.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::iteration_test {
namespace {

struct Wish {
  std::string mesh, zero, strategy = "balanced";
  bool experts = false, per_node = false;
  int32_t ranks_per_node = 2;
  int64_t micro_batches = 1;
};

Plan plan_for(const Wish& wish) {
  const Mesh mesh = parse_mesh(wish.mesh);
  PlanOptions options = with_strategy(wish.strategy);
  options.bucket_elements = 700;
  options.ranks_per_node = wish.ranks_per_node;
  options.zero.sizes = parse_zero(wish.zero, mesh.homes());
  if (wish.per_node) options.zero.reach = Reach::kPerNode;
  return plan_of(wish.experts ? toy_moe() : toy_model(), wish.mesh, options);
}

std::vector<ScheduleEntry> entries_of(const Plan& plan, int32_t rank,
                                      int64_t micro_batches) {
  const int32_t stage = coordinates_of(plan.mesh, rank).stage;
  return iteration_of(plan, rank, usual_calls(plan, stage, micro_batches));
}

std::vector<Wish> wishes() {
  std::vector<Wish> all;
  for (const std::string& strategy : strategy_names())
    for (const char* mesh :
         {"dp=1", "dp=2,tp=2", "dp=4", "dp=2,tp=2,pp=2", "dp=2,cp=2,ep=2,tp=2"})
      all.push_back({mesh, "zero1", strategy, parse_mesh(mesh).ep > 1});
  for (const char* zero : {"zero2", "zero3", "hier:2", "replica:2", "z2=2",
                           "z3=2", "z1=2,z2=1,z3=1", "z1=4,z2=2,z3=4"})
    for (const char* mesh : {"dp=4", "dp=4,tp=2", "dp=4,pp=2", "dp=8"})
      for (const bool per_node : {false, true})
        all.push_back({mesh, zero, "balanced", false, per_node, 2, 2});
  for (const char* zero : {"zero3", "hier:2", "replica:2"})
    all.push_back({"dp=2,ep=2,tp=2", zero, "balanced", true, false, 2, 2});
  for (const std::string& strategy : strategy_names())
    for (const char* mesh : {"dp=8", "dp=8,tp=2", "dp=4,tp=2,pp=2",
                             "dp=2,cp=2,ep=2,tp=2", "dp=4,ep=2"})
      all.push_back(
          {mesh, "zero1", strategy, parse_mesh(mesh).ep > 1, true, 4, 1});
  all.push_back({"dp=6", "z1=3,z2=1,z3=1"});
  all.push_back({"dp=6", "z1=3,z2=1,z3=1", "replicated"});
  return all;
}

// The properties of a collective on which all its members must agree.
using Shared = std::tuple<int, int, int32_t, int32_t, int32_t, int64_t, int32_t,
                          std::vector<int64_t>>;
Shared shared(const ScheduleEntry& e) {
  // Every member of an all-to-all has counts of its own.
  return {static_cast<int>(e.kind),
          static_cast<int>(e.purpose),
          e.part,
          e.bucket,
          e.round,
          e.micro_batch,
          e.ranks.first,
          e.kind == EntryKind::kAllToAll ? std::vector<int64_t>() : e.counts};
}

TEST(Iteration, HasOneOrderForAllMembersOfAGroup) {
  for (const Wish& wish : wishes()) {
    SCOPED_TRACE(cat(wish.mesh, " ", wish.zero, " ", wish.strategy));
    const Plan plan = plan_for(wish);
    // Collects, by part and group, the collectives of each member.
    std::map<std::array<int32_t, 6>, std::map<int32_t, std::vector<Shared>>>
        groups;
    for (int32_t r = 0; r < plan.mesh.world(); ++r)
      for (const ScheduleEntry& e : entries_of(plan, r, wish.micro_batches)) {
        if (!is_collective(e.kind) || e.ranks.count == 1) continue;
        groups[{e.part, e.ranks.first, e.ranks.step, e.ranks.count, e.ranks.run,
                e.ranks.stride}][r]
            .push_back(shared(e));
      }
    for (const auto& [group, members] : groups) {
      ASSERT_EQ(std::ssize(members), group[3]);
      for (const auto& [rank, entries] : members)
        EXPECT_EQ(entries, members.begin()->second) << "rank " << rank;
    }
  }
}

// Checks that two ranks that share several groups issue their common
// collectives in the same order.
void expect_one_order(const Plan& plan, int64_t micro_batches) {
  std::map<std::pair<int32_t, int32_t>, std::vector<Shared>> of_pair;
  for (int32_t r = 0; r < plan.mesh.world(); ++r)
    for (const ScheduleEntry& e : entries_of(plan, r, micro_batches)) {
      if (!is_collective(e.kind)) continue;
      const PlanPart& part = plan.parts[static_cast<size_t>(e.part)];
      for (int32_t i = 0; i < e.ranks.count; ++i)
        of_pair[{r, part.rank_in_whole(e.ranks.rank(i))}].push_back(shared(e));
    }
  for (const auto& [pair, entries] : of_pair)
    ASSERT_EQ(entries, (of_pair[{pair.second, pair.first}]))
        << pair.first << " and " << pair.second;
}

// Simulates ranks that issue one entry after the other and wait in each
// collective for all members, as one thread with one stream would; checks that
// all of them finish.
void expect_to_end(const Plan& plan, int64_t micro_batches) {
  const auto world = static_cast<size_t>(plan.mesh.world());
  std::vector<std::vector<ScheduleEntry>> entries(world);
  std::vector<size_t> next(world, 0);
  for (size_t r = 0; r < world; ++r)
    for (ScheduleEntry& e :
         entries_of(plan, static_cast<int32_t>(r), micro_batches))
      if (is_collective(e.kind)) entries[r].push_back(std::move(e));
  const auto members_of = [&](const ScheduleEntry& e) {
    std::vector<size_t> members;
    const PlanPart& part = plan.parts[static_cast<size_t>(e.part)];
    for (int32_t i = 0; i < e.ranks.count; ++i)
      members.push_back(
          static_cast<size_t>(part.rank_in_whole(e.ranks.rank(i))));
    return members;
  };
  const auto ended = [&](size_t r) { return next[r] == entries[r].size(); };
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t r = 0; r < world; ++r) {
      if (ended(r)) continue;
      const ScheduleEntry& head = entries[r][next[r]];
      const std::vector<size_t> members = members_of(head);
      const bool all_here = std::ranges::all_of(members, [&](size_t m) {
        return !ended(m) && entries[m][next[m]].ranks == head.ranks &&
               shared(entries[m][next[m]]) == shared(head);
      });
      if (!all_here) continue;
      for (size_t m : members) ++next[m];
      moved = true;
    }
  }
  for (size_t r = 0; r < world; ++r)
    ASSERT_TRUE(ended(r)) << "rank " << r << " waits for ever in "
                          << describe(plan, entries[r][next[r]]);
}

TEST(Iteration, HasOneOrderForEveryPairOfRanks) {
  for (const Wish& wish : wishes()) {
    SCOPED_TRACE(cat(wish.mesh, " ", wish.zero, " ", wish.strategy));
    expect_one_order(plan_for(wish), wish.micro_batches);
    expect_to_end(plan_for(wish), wish.micro_batches);
  }
}

// With the smallest pools.
TEST(Iteration, OfRandomPlansHasOneOrderAndEnds) {
  Random random(18);
  int num_planned = 0;
  while (num_planned < 1000) {
    const bool experts = random.coin();
    const Mesh mesh{.dp = random.small(1, 6),
                    .tp = random.pick<int32_t>({1, 2}),
                    .pp = random.pick<int32_t>({1, 1, 2}),
                    .ep = experts ? random.pick<int32_t>({1, 2}) : 1};
    PlanOptions options = with_strategy(random.pick(strategy_names()));
    options.bucket_elements = random.between(100, 3000);
    options.ranks_per_node = random.pick<int32_t>({1, 2, 4});
    options.zero.sizes = random.pick(all_zero_sizes(mesh.homes()));
    options.zero.prefetch = 0;
    options.zero.message =
        random.coin() ? MessageUnit::kModule : MessageUnit::kParameter;
    if (random.coin()) options.zero.reach = Reach::kPerNode;
    if (random.coin()) options.zero.replica_sum = ReplicaSum::kAllReduce;
    const std::string text = to_string(mesh);
    SCOPED_TRACE(
        cat(text, " ", to_string(options.zero.sizes), " ", options.strategy));
    Plan plan;
    try {
      plan = plan_of(experts ? toy_moe() : toy_model(), text, options);
    } catch (const UsageError&) {
      continue;
    }
    ++num_planned;
    const int32_t micro_batches = random.small(1, 2);
    ASSERT_NO_FATAL_FAILURE(expect_one_order(plan, micro_batches));
    ASSERT_NO_FATAL_FAILURE(expect_to_end(plan, micro_batches));
  }
}

// Returns the bytes of all entries with one of these purposes.
WireBytes sum_of(const std::vector<ScheduleEntry>& entries,
                 std::initializer_list<Purpose> purposes) {
  WireBytes sum;
  for (const ScheduleEntry& e : entries)
    if (std::ranges::find(purposes, e.purpose) != purposes.end())
      sum += e.bytes;
  return sum;
}
void expect_bytes(const WireBytes& a, const WireBytes& b, const char* what) {
  EXPECT_EQ(a.sent_intra, b.sent_intra) << what;
  EXPECT_EQ(a.sent_inter, b.sent_inter) << what;
  EXPECT_EQ(a.received_intra, b.received_intra) << what;
  EXPECT_EQ(a.received_inter, b.received_inter) << what;
}

TEST(Iteration, HasThePredictedBytes) {
  for (const Wish& wish : wishes()) {
    SCOPED_TRACE(cat(wish.mesh, " ", wish.zero, " ", wish.strategy));
    const Plan plan = plan_for(wish);
    const std::vector<RankCost> costs = predict(plan);
    for (int32_t r = 0; r < plan.mesh.world(); ++r) {
      SCOPED_TRACE(r);
      const auto& wire = costs[static_cast<size_t>(r)].wire;
      const auto of = [&](std::initializer_list<Collective> all) {
        WireBytes sum;
        for (Collective c : all) sum += wire[static_cast<size_t>(c)];
        return sum;
      };
      const auto entries = entries_of(plan, r, wish.micro_batches);
      expect_bytes(sum_of(entries, {Purpose::kSum, Purpose::kSumReplicas}),
                   of({Collective::kReduceScatter, Collective::kAllReduce}),
                   "sums");
      expect_bytes(sum_of(entries, {Purpose::kGatherMatrices}),
                   of({Collective::kGather}), "gather");
      expect_bytes(sum_of(entries, {Purpose::kScatterMatrices}),
                   of({Collective::kScatter}), "scatter");
      expect_bytes(sum_of(entries, {Purpose::kPublish}),
                   of({Collective::kAllGather, Collective::kBroadcast}),
                   "publish");
      WireBytes gather, scatter;
      for (const PurposeBytes& module : module_bytes(plan, r)) {
        gather.add(module[static_cast<size_t>(Purpose::kGatherModule)],
                   2 * wish.micro_batches);
        scatter.add(module[static_cast<size_t>(Purpose::kScatterModule)],
                    wish.micro_batches);
      }
      expect_bytes(sum_of(entries, {Purpose::kGatherModule}), gather,
                   "modules gathered");
      expect_bytes(sum_of(entries, {Purpose::kScatterModule}), scatter,
                   "modules scattered");
    }
  }
}

// A slot is taken once at a time, and what frees it comes later.
TEST(Iteration, TakesNoSlotTwice) {
  int num_taken = 0;
  for (const Wish& wish : wishes()) {
    SCOPED_TRACE(cat(wish.mesh, " ", wish.zero, " ", wish.strategy));
    const Plan plan = plan_for(wish);
    for (int32_t r = 0; r < plan.mesh.world(); ++r) {
      const auto entries = entries_of(plan, r, wish.micro_batches);
      std::map<std::tuple<int32_t, Purpose, bool, int32_t>, int32_t> free_after;
      for (size_t i = 0; i < entries.size(); ++i) {
        const ScheduleEntry& e = entries[i];
        if (e.slot.slot < 0) continue;
        ++num_taken;
        ASSERT_GT(e.slot.freed, static_cast<int32_t>(i));
        const PlanPart& part = plan.parts[static_cast<size_t>(e.part)];
        const int32_t stage = coordinates_of(plan.mesh, r).stage;
        const bool large =
            e.module >= 0 &&
            module_elements(part, stage)[static_cast<size_t>(e.module)] >
                pool_sizes(part, stage).slot;
        int32_t& before = free_after[{e.part, e.purpose, large, e.slot.slot}];
        EXPECT_LE(before, static_cast<int32_t>(i));
        before = e.slot.freed;
      }
    }
  }
  EXPECT_GT(num_taken, 1000);
}

// No strategy produces an empty bucket, but a file may contain one.
TEST(Iteration, PassesOverAnEmptyBucket) {
  for (const char* zero : {"zero1", "zero3", "replica:2"})
    for (const char* strategy : {"balanced", "layerwise", "replicated"}) {
      SCOPED_TRACE(cat(zero, " ", strategy));
      Plan plan = plan_for({"dp=4,tp=2", zero, strategy});
      const size_t before = entries_of(plan, 1, 1).size();
      Bucket empty = plan.parts[0].buckets.front();
      empty.tensors.clear();
      empty.num_matrix_tensors = 0;
      for (auto* cuts : {&empty.cuts, &empty.adamw_cuts})
        std::ranges::fill(*cuts, 0);
      plan.parts[0].buckets.push_back(empty);
      derive(plan);
      EXPECT_EQ(entries_of(plan, 1, 1).size(), before);
    }
}

Model tied_model(int32_t layers) {
  Model model = toy_model(layers);
  model.tensors.back() = adamw_tensor("final norm", 16);
  return model;
}

// Module 0 is waited for once more before module 2, in both passes, and
// released with it; the second micro-batch completes the gradients.
TEST(Iteration, UsesFollowFromTheCalls) {
  const Plan plan = plan_of(tied_model(1), "dp=2");
  const std::vector<ModuleUse> uses = uses_of(usual_calls(plan, 0, 2));
  const std::vector<ModuleUse> pass = {
      {0},       {1},       {0, false, true}, {2}, {0, true, true},
      {2, true}, {1, true}, {0, true}};
  ASSERT_EQ(uses.size(), 2 * pass.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    ModuleUse expected = pass[i % pass.size()];
    expected.is_last = i >= pass.size() + 5;
    EXPECT_EQ(uses[i], expected) << "use " << i;
  }
}

// Buckets are in the plan's order, dense ones before those of experts; the last
// is published first.
TEST(Iteration, SumsExpertsBehindDenseBucketsInPlansOfOnePart) {
  const Plan plan = plan_for({"dp=2,ep=2", "zero1", "balanced", true});
  ASSERT_EQ(plan.parts.size(), 1U);
  std::vector<bool> summed, published;  // whether it is of experts
  for (const ScheduleEntry& e : entries_of(plan, 0, 1)) {
    if (e.purpose == Purpose::kSum)
      summed.push_back(e.group == GroupKind::kExperts);
    if (e.purpose == Purpose::kPublish)
      published.push_back(e.group == GroupKind::kExperts);
  }
  EXPECT_TRUE(std::ranges::is_sorted(summed));
  EXPECT_TRUE(std::ranges::is_sorted(published, std::greater<>()));
  EXPECT_NE(summed.front(), summed.back());
  EXPECT_NE(published.front(), published.back());
}

// The embedding is gathered again beside a tied head.
TEST(Iteration, LendsTheEmbeddingToATiedHead) {
  PlanOptions options;
  options.zero.sizes = parse_zero("zero3", 2);
  const Plan plan = plan_of(tied_model(2), "dp=2", options);
  int gathered = 0;
  for (const ScheduleEntry& e : entries_of(plan, 0, 1))
    gathered += e.purpose == Purpose::kGatherModule && e.module == 0 ? 1 : 0;
  EXPECT_EQ(gathered, 4);
}

TEST(Iteration, SaysWhatIsDone) {
  const Plan plan = plan_for({"dp=2", "zero3"});
  std::set<std::string> words;
  for (const ScheduleEntry& e : entries_of(plan, 0, 1))
    words.insert(describe(plan, e));
  for (const char* expected :
       {"the trainer uses embedding", "all-gather layer 1",
        "gradients of layer 0 are complete", "reduce-scatter layer 0", "step",
        "all-reduce largest gradient", "transform micro-group 0"})
    EXPECT_TRUE(words.contains(expected)) << expected;
}

}  // namespace
}  // namespace canzona::plan::iteration_test
