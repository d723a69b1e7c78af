#include "canzona/plan/schedule/updates.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/schedule/rank_layout.h"
#include "canzona/shapes/read_model.h"

namespace canzona::plan::updates_test {
namespace {

using testing::ElementsAre;

// So many layers, each a bucket of its own, with two matrices of that size.
Plan plan_of(int layers, int64_t size, const std::string& mesh,
             const std::string& strategy) {
  std::string shapes;
  for (int layer = 0; layer < layers; ++layer)
    for (const char* name : {"up", "down"})
      shapes += cat(shapes.empty() ? "[" : ",", R"({"name": "layers.)", layer,
                    ".", name, R"(", "shape": [)", size, ", ", size, "]}");
  PlanOptions options;
  options.strategy = strategy;
  options.bucket_elements = 2 * size * size;
  const auto muon = make_rule_facts("muon", {{"device", "cpu"}});
  return make_plan({model_from_shapes(shapes + "]", "layers"), parse_mesh(mesh),
                    *muon, options});
}

// By batch, how many matrices, in the order in which rank 0 updates them; and
// that each of its matrices is updated once. It keeps so many rows of each at
// most.
std::vector<size_t> batches_of(const Plan& plan, int64_t width,
                               int64_t most_rows = 1 << 20) {
  const PlanPart& part = plan.parts[0];
  const Coordinates at = in_grid(part, 0);
  const RankLayout layout = lay_out_rank(part, at);
  Kept kept = kept_by(part, at, layout);
  for (KeptMatrix& matrix : kept.matrices)
    matrix.dims[0] = std::min(matrix.dims[0], most_rows);
  const auto facts = make_rule_facts(part.rule, part.rule_options);
  const RulesOfTensors rules{std::vector<int32_t>(part.model.tensors.size(), 0),
                             {facts.get()}};
  const UpdatePlan updates = plan_updates(part, layout, kept, {}, rules, width);
  std::vector<size_t> sizes;
  std::vector<int32_t> seen;
  for (const UpdateBatch& batch : updates.batches.at(0)) {
    sizes.push_back(batch.members.size());
    seen.insert(seen.end(), batch.members.begin(), batch.members.end());
  }
  std::ranges::sort(seen);
  EXPECT_EQ(seen.size(), kept.matrices.size());
  EXPECT_THAT(std::ranges::adjacent_find(seen), seen.end());
  return sizes;
}

TEST(Updates, AreDoneOneByOneWhereBatchesAreOfNoUse) {
  EXPECT_THAT(batches_of(plan_of(3, 64, "dp=1", "balanced"), 1),
              ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST(Updates, TakeMatricesWithoutElementsTogether) {
  EXPECT_THAT(batches_of(plan_of(3, 64, "dp=1", "balanced"), 4096, 0),
              ElementsAre(6));
}

// Nothing leaves, or too little to be worth a batch.
TEST(Updates, JoinBucketsThatGiveAnEngineTooLittleToDo) {
  EXPECT_THAT(batches_of(plan_of(6, 64, "dp=1", "balanced"), 4096),
              ElementsAre(12));
  EXPECT_THAT(batches_of(plan_of(6, 64, "dp=2", "balanced"), 4096),
              ElementsAre(6));
  EXPECT_THAT(batches_of(plan_of(6, 64, "dp=2", "replicated"), 4096),
              ElementsAre(12));
  EXPECT_THAT(batches_of(plan_of(6, 64, "dp=1", "balanced"), 5),
              ElementsAre(5, 5, 2));
}

// Each of two ranks has a matrix of 2^26 elements of every layer, whose new
// parameters leave before the next is updated. Scratch is made for 2^28.
TEST(Updates, KeepBucketsApartThatGiveItEnough) {
  EXPECT_THAT(batches_of(plan_of(3, 8192, "dp=2", "balanced"), 4096),
              ElementsAre(1, 1, 1));
  EXPECT_THAT(batches_of(plan_of(3, 8192, "dp=1", "balanced"), 4096),
              ElementsAre(4, 2));
}

// Counters of a batch, or seven numbers of AdamW's, move no matrix off its
// cache line. Together the states fill their array.
TEST(Updates, BeginMatricesAtCacheLines) {
  PlanOptions options;
  options.strategy = "balanced";
  const auto soap = make_rule_facts("soap", {});
  const Plan plan =
      make_plan({model_from_shapes(R"([{"name": "norm", "shape": [7]},
                                       {"name": "a", "shape": [64, 96]},
                                       {"name": "b", "shape": [32, 64]},
                                       {"name": "c", "shape": [5, 3]},
                                       {"name": "d", "shape": [64, 64]}])",
                                   "shapes"),
                 parse_mesh("dp=1"), *soap, options});
  const PlanPart& part = plan.parts[0];
  const Coordinates place = in_grid(part, 0);
  const RankLayout layout = lay_out_rank(part, place);
  const Kept kept = kept_by(part, place, layout);
  const RulesOfTensors rules{std::vector<int32_t>(part.model.tensors.size(), 0),
                             {soap.get()}};
  const UpdatePlan updates = plan_updates(part, layout, kept, {}, rules, 64);
  std::vector<std::pair<int64_t, int64_t>> runs = {
      {updates.exp_avg, kept.num_elements},
      {updates.exp_avg_sq, kept.num_elements}};
  int aligned = 0;
  for (const UpdateBatch& batch : updates.batches.at(0))
    for (const KeptState& state : batch.owned) {
      const int64_t elements =
          std::ssize(batch.members) * state.fact->elements();
      runs.emplace_back(state.first, elements);
      if (elements % 32 != 0) continue;
      EXPECT_EQ(state.first % 32, 0) << state.fact->name;
      ++aligned;
    }
  EXPECT_GT(aligned, 12);
  std::ranges::sort(runs);
  int64_t next = 0;
  for (const auto& [first, elements] : runs) {
    EXPECT_EQ(first, next);
    next += elements;
  }
  EXPECT_EQ(next, updates.num_state_elements);
}

}  // namespace
}  // namespace canzona::plan::updates_test
