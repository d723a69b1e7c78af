// Small files that describe huge plans. Every one of them is refused at once,
// or small enough to be predicted.
#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_support.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::plan_json_hostile_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kHuge = int64_t{1} << 40;

// A plan of one 4x4 matrix that all ranks repeat: no cuts, no owners.
Json repeated_plan(const std::string& mesh = "dp=1",
                   const RuleChoice& rule = {}) {
  Model model = squares({4});
  model.tensors[0].sections = {{"q", {0, 2, 2, 2}, 2}};
  return Json::parse(
      plan_to_json(plan_of(model, mesh, with_strategy("replicated"), rule)));
}

void expect_refused(const Json& plan, const std::string& says) {
  EXPECT_THAT([&] { plan_from_json(plan.dump(), "plan.json"); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("plan.json"), HasSubstr(says))));
}

TEST(HostilePlan, TheOriginalIsRead) {
  EXPECT_NO_THROW(plan_from_json(repeated_plan().dump(), "plan.json"));
}

TEST(HostilePlan, TimesBeyondAllMeasure) {
  const std::vector<std::vector<const char*>> members = {
      {"predicted", "step_seconds_mean"},
      {"predicted", "step_seconds_worst"},
      {"request", "cost", "seconds_per_tick"},
      {"request", "options", "links", "latency_seconds"},
      {"request", "options", "links", "intra_latency_seconds"}};
  for (const std::vector<const char*>& path : members)
    for (const double seconds : {1e308, -1.0}) {
      Json plan = repeated_plan();
      Json* at = &plan;
      for (const char* key : path) at = &(*at)[key];
      *at = seconds;
      expect_refused(plan, cat(path.back(), ": ", seconds, ", expected "));
    }
  for (const char* key : {"intra_bytes_per_second", "inter_bytes_per_second"}) {
    Json plan = repeated_plan();
    plan["request"]["options"]["links"][key] = 1e-300;
    expect_refused(plan, cat(key, ": 1e-300, expected 1 to "));
  }
}

TEST(HostilePlan, HeadsWithoutNumber) {
  Json plan = repeated_plan();
  plan["request"]["options"]["split"] = "head";
  plan["storage"]["model"]["tensors"][0][1] = {kHuge, 1};
  plan["storage"]["model"]["parts"][0][0] = {"q", 0, kHuge, kHuge, 1, kHuge};
  expect_refused(plan, "1 owners of 1099511627776 matrices");
}

TEST(HostilePlan, HeadsThatDoNotDivide) {
  Json plan = repeated_plan();
  plan["storage"]["model"]["parts"][0][0][5] = 3;
  expect_refused(plan, "3 heads do not divide its 4 rows");
}

TEST(HostilePlan, HeadsOfColumnsThatDoNotDivide) {
  Json plan = repeated_plan();
  Json& parts = plan["storage"]["model"]["parts"][0];
  parts = Json::array({{"out", 0, 4, 4, 1, kHuge}});
  expect_refused(plan, "heads do not divide its");
  parts = Json::array({{"q", 0, 2, 2, 1, 1}, {"out", 2, 2, 2, 1, 3}});
  expect_refused(plan, "part \"out\" has all rows of a tensor");
}

TEST(HostilePlan, RunsWithoutNumber) {
  Json plan = repeated_plan();
  plan["storage"]["model"]["tensors"][0][1] = {kHuge, 1};
  plan["storage"]["model"]["parts"][0][0] = {"q", 0, 1, 1, kHuge, 1};
  expect_refused(plan, "runs of a part");
  // Every kind of parts is within the limit, all together are not.
  plan = repeated_plan();
  for (int kind = 0; kind < 5; ++kind) {
    plan["storage"]["model"]["parts"].push_back({{"q", 0, 1, 1, 1 << 20, 1}});
  }
  expect_refused(plan, "4194304 runs");
}

TEST(HostilePlan, PartsWithoutNumber) {
  Json plan = repeated_plan();
  for (int part = 0; part < 9; ++part) {
    plan["storage"]["model"]["parts"][0][part] = {"q", part, 1, 1, 1, 1};
  }
  expect_refused(plan, "more than 8 parts");
  plan = repeated_plan();
  plan["storage"]["model"]["parts"][0][0][0] = std::string(1000, 'q');
  expect_refused(plan, "its name is too long");
}

TEST(HostilePlan, PartsThatDoNotTile) {
  for (const Json& part : std::vector<Json>{
           {"q", 1, 2, 2, 2, 1}, {"q", 0, 2, 1, 2, 1}, {"q", 0, 2, 3, 2, 1}}) {
    Json plan = repeated_plan();
    plan["storage"]["model"]["parts"][0][0] = part;
    expect_refused(plan, "do not tile");
  }
  Json plan = repeated_plan();
  plan["storage"]["model"]["parts"][0][0] = {"q", 0, 3, 3, 1, 1};
  expect_refused(plan, "'m0' has 4 rows, its parts 3");
}

TEST(HostilePlan, RoundsWithoutNumber) {
  Json plan = repeated_plan();
  plan["decisions"]["parts"][0]["rounds"][0] = INT32_MAX;
  expect_refused(plan, "rounds");
}

// Every tp rank takes a piece from every other.
TEST(HostilePlan, MessagesWithoutNumber) {
  Json plan = repeated_plan();
  plan["storage"]["mesh"]["tp"] = 1 << 20;
  expect_refused(plan, "too large to predict");
}

TEST(HostilePlan, PhasesOfAMillionRanks) {
  Json plan = repeated_plan("dp=1", {"soap", {}});
  plan["storage"]["mesh"]["dp"] = 1 << 20;
  plan["decisions"]["parts"][0]["buffers"][0][2] = 1 << 20;
  EXPECT_NO_THROW(plan_from_json(plan.dump(), "plan.json"));
  plan["request"]["groups"][0]["options"]["precondition_frequency"] = "10000";
  plan["request"]["groups"][0]["options"]["phases"] = "10000";
  expect_refused(plan, "too large to predict");
}

// There is one rank, but a number is stored for every phase of every matrix and
// round.
TEST(HostilePlan, PhasesOfManyMatrices) {
  Json plan = Json::parse(
      plan_to_json(plan_of(squares(std::vector<int64_t>(3500, 1)), "dp=1",
                           with_strategy("replicated"), {"soap", {}})));
  plan["request"]["groups"][0]["options"]["precondition_frequency"] = "10000";
  EXPECT_NO_THROW(plan_from_json(plan.dump(), "plan.json"));
  plan["request"]["groups"][0]["options"]["phases"] = "10000";
  expect_refused(plan, "too large to predict");
}

// A bucket takes 70 bytes of the file and a million ranks of the prediction.
TEST(HostilePlan, BucketsOfAMillionRanks) {
  Json plan = repeated_plan();
  plan["storage"]["mesh"]["dp"] = 1 << 20;
  plan["decisions"]["parts"][0]["buffers"][0][2] = 1 << 20;
  Json empty = plan["decisions"]["parts"][0]["buckets"][0];
  empty["tensors"] = Json::array();
  empty["matrix_tensors"] = 0;
  for (int b = 0; b < 300; ++b)
    plan["decisions"]["parts"][0]["buckets"].push_back(empty);
  expect_refused(plan, "too large to predict");
}

TEST(HostilePlan, ExpertsOfAMillionRanks) {
  Json plan = repeated_plan();
  plan["storage"]["mesh"]["dp"] = 10;
  plan["storage"]["mesh"]["ep"] = 100'000;
  plan["storage"]["model"]["experts"] = 100'000;
  plan["decisions"]["parts"][0]["buffers"][0][2] = 1'000'000;
  expect_refused(plan, "too large to predict");
}

TEST(HostilePlan, StagesWithoutNumber) {
  Json plan = repeated_plan();
  plan["storage"]["mesh"]["pp"] = 1 << 20;
  plan["storage"]["model"]["layers"] = 1 << 20;
  expect_refused(plan, "'layers' is 1048576");
}

TEST(HostilePlan, TicksBeyondCounting) {
  Json plan = repeated_plan("dp=1", {"soap", {}});
  plan["request"]["cost"]["ticks"][0][2] = int64_t{1} << 61;
  expect_refused(plan, "ticks");
}

TEST(HostilePlan, ElementsBeyondCounting) {
  Json plan = repeated_plan();
  plan["storage"]["model"]["tensors"][0] = {
      "m0", {kHuge, 1 << 22}, "matrix", "none", -1, -1, false, -1};
  plan["decisions"]["parts"][0]["buckets"][0]["matrix_tensors"] = 0;
  plan["decisions"]["parts"][0]["owners"] = Json::array();
  plan["decisions"]["parts"][0]["rounds"] = Json::array();
  expect_refused(plan, "exceed 64-bit counts");
  plan["storage"]["model"]["tensors"][0][1] = {kHuge, kHuge};
  expect_refused(plan, "64-bit");
}

// A home's run would overflow; found by fuzzing.
TEST(HostilePlan, CutsBeyondTheBucket) {
  Json plan = Json::parse(plan_to_json(plan_of(squares({4, 4}), "dp=2")));
  for (const char* cuts : {"cuts", "adamw_cuts"}) {
    Json changed = plan;
    changed["decisions"]["parts"][0]["buckets"][0][cuts][1] = int64_t{1} << 61;
    expect_refused(changed, "is not in 0..32");
  }
}

// A matrix without a home is broadcast; found by fuzzing.
TEST(HostilePlan, MatricesWithoutHome) {
  Json plan = Json::parse(plan_to_json(
      plan_of(squares({4, 4}), "dp=2", with_strategy("layerwise"))));
  plan["decisions"]["parts"][0]["home"][1] = -1;
  expect_refused(plan, "home -1 of tensor 'm1': expected 0..1");
  plan["decisions"]["parts"][0]["home"][1] = 2;
  expect_refused(plan, "home");
}

TEST(HostilePlan, OwnersBeyondTheStage) {
  const Json original =
      Json::parse(plan_to_json(plan_of(squares({4, 4}), "dp=1,tp=2", {}, {})));
  Json plan = original;
  plan["decisions"]["parts"][0]["owners"][1] = 2;
  expect_refused(plan,
                 "owner: rank 2 is not one of the 2 ranks of its home, from "
                 "rank 0 on; it is the owner of matrix 'm1'");
  plan = original;
  plan["decisions"]["parts"][0]["owners"][1] = {0, 9};
  expect_refused(plan, "rank 9 is not one of the 2 ranks of its home");
  plan["decisions"]["parts"][0]["owners"][1] = "0";
  expect_refused(plan,
                 "owner: expected an integer; it is the owner of matrix '");
}

TEST(HostilePlan, HomesOfWhatHasNone) {
  Json plan = repeated_plan();
  plan["decisions"]["parts"][0]["home"][0] = 0;
  expect_refused(plan, "home 0 of tensor 'm0': expected -1");
}

TEST(HostilePlan, TensorsInTheWrongRegion) {
  Json plan = repeated_plan();
  plan["decisions"]["parts"][0]["buckets"][0]["matrix_tensors"] = 0;
  expect_refused(plan, "'m0' lies in the wrong region");
}

TEST(HostilePlan, TensorsInSeveralPlaces) {
  Json plan = repeated_plan();
  plan["decisions"]["parts"][0]["buckets"].push_back(
      plan["decisions"]["parts"][0]["buckets"][0]);
  expect_refused(plan, "'m0' lies in more than one place");
  plan["decisions"]["parts"][0]["buckets"] = Json::array();
  expect_refused(plan, "'m0' lies in no bucket");
}

// validate() and predict() rely on what a strategy's name promises.
TEST(HostilePlan, TrafficOfAnotherStrategy) {
  Json plan = repeated_plan();
  plan["request"]["options"]["strategy"] = "balanced";
  expect_refused(plan, "strategy balanced means reduce_scatter");
  plan["request"]["options"]["strategy"] = "balance";
  expect_refused(plan, "did you mean 'balanced'?");
}

// Slices over two homes each, two layers.
Json sliced_plan() {
  PlanOptions options;
  options.zero.sizes = {4, 2, 2};
  return Json::parse(
      plan_to_json(plan_of(model_of({matrix_tensor("a", 4, 4, Cut::kNone, 0),
                                     matrix_tensor("b", 4, 4, Cut::kNone, 1)}),
                           "dp=4", options)));
}

// Dense tensors and experts apart, ep = 2.
Json plan_in_parts() {
  Model model = model_of({matrix_tensor("a", 4, 4, Cut::kNone, 0),
                          matrix_tensor("e0", 4, 4, Cut::kNone, 0),
                          matrix_tensor("e1", 4, 4, Cut::kNone, 0)});
  model.tensors[1].expert = 0;
  model.tensors[2].expert = 1;
  model.num_experts = 2;
  PlanOptions options;
  options.zero.sizes = {4, 2, 2};
  options.zero.experts = {2, 2, 1};
  return Json::parse(plan_to_json(plan_of(model, "dp=2,ep=2", options)));
}

// Modules are counted by layers: one beyond them would be written elsewhere.
TEST(HostilePlan, LayersBeyondTheModel) {
  for (const Json& plan : {repeated_plan(), sliced_plan(), plan_in_parts()}) {
    EXPECT_NO_THROW(plan_from_json(plan.dump(), "plan.json"));
    const int64_t layers = plan["storage"]["model"]["layers"];
    for (const int64_t layer : {layers, layers + 7, int64_t{INT32_MAX}}) {
      Json changed = plan;
      changed["storage"]["model"]["tensors"][0][4] = layer;
      expect_refused(changed, cat("lies in layer ", layer,
                                  ", but the model's 'layers' is ", layers));
    }
    if (layers == 0) continue;
    Json fewer = plan;
    fewer["storage"]["model"]["layers"] = 0;
    expect_refused(fewer, "but the model's 'layers' is 0");
  }
}

TEST(HostilePlan, ExpertsBeyondTheModel) {
  Json plan = plan_in_parts();
  plan["storage"]["model"]["tensors"][2][5] = 2;
  expect_refused(plan,
                 "'e1' belongs to expert 2, but the model's 'experts' is 2");
  plan = sliced_plan();
  plan["storage"]["model"]["tensors"][0][5] = 0;
  expect_refused(plan, "'a' belongs to expert 0");
}

TEST(HostilePlan, NodesLargerThanAnyMesh) {
  for (Json plan : {sliced_plan(), plan_in_parts()}) {
    for (const int64_t ranks : {kMaxWorld + 1, int64_t{INT32_MAX}}) {
      plan["request"]["options"]["ranks_per_node"] = ranks;
      expect_refused(plan, "'ranks_per_node'");
    }
    plan["request"]["options"]["ranks_per_node"] = kMaxWorld;
    const Plan read = plan_from_json(plan.dump(), "plan.json").plan;
    EXPECT_EQ(predict(read).size(), 4u);
  }
}

TEST(HostilePlan, SlotsWithoutNumber) {
  Json plan = sliced_plan();
  plan["request"]["options"]["zero"]["prefetch"] = INT32_MAX;
  expect_refused(plan, "prefetch");
  plan["request"]["options"]["zero"]["prefetch"] = 1 << 16;
  EXPECT_NO_THROW(plan_from_json(plan.dump(), "plan.json"));
  for (Json& tensor : plan["storage"]["model"]["tensors"])
    tensor[1] = {int64_t{1} << 20, int64_t{1} << 24};
  plan["request"]["cost"]["ticks"][0] = {int64_t{1} << 20, int64_t{1} << 24, 1,
                                         1};
  expect_refused(plan, "exceed 64-bit counts");
}

// Replicas of one rank, all on one node: each looks at the sums of all others,
// but not one by one.
TEST(HostilePlan, ReplicasOfAQuarterMillionRanks) {
  PlanOptions options;
  options.zero.sizes = {1, 1, 1};
  Json plan = Json::parse(plan_to_json(plan_of(squares({4}), "dp=2", options)));
  plan["storage"]["mesh"]["dp"] = 1 << 18;
  for (const int ranks_per_node : {1 << 18, (1 << 18) - 1}) {
    plan["request"]["options"]["ranks_per_node"] = ranks_per_node;
    const Plan read = plan_from_json(plan.dump(), "plan.json").plan;
    EXPECT_EQ(predict(read).size(), size_t{1} << 18);
  }
}

// A quarter of a million ranks in a kilobyte are few enough to be predicted.
TEST(HostilePlan, ManyRanksAreNotTooMany) {
  const std::string text = plan_to_json(
      plan_of(squares({4}), "dp=262144", with_strategy("replicated")));
  EXPECT_LT(text.size(), 2100u);
  const ReadPlan read = plan_from_json(text, "plan.json");
  EXPECT_TRUE(read.digest_matches);
  EXPECT_EQ(predict(read.plan).size(), size_t{1} << 18);
}

}  // namespace
}  // namespace canzona::plan::plan_json_hostile_test
