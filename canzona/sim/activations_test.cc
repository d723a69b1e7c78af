#include "canzona/sim/activations.h"

#include <gmock/gmock.h>

#include <memory>

#include "canzona/base/error.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::sim::sim_activations_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr ActivationLoad kTenTokens{.tokens = 10};

int64_t bytes_on(const std::string& mesh, const ActivationLoad& load,
                 const Model& model = toy_model(2)) {
  return activation_bytes(model, parse_mesh(mesh), load);
}

// Counted by hand for a layer of the toy model and one token in bf16: input 16;
// also kept are the stream 16, attention 16, qkv 32, gate and up 48, and 4
// log-sums in fp32; scratch is three streams, attention's gradient 16, and the
// gated product 24. Head: 64 logits in fp32 and its input.
constexpr int64_t kInput = 2 * 16;
constexpr int64_t kKept = 2 * (16 + 16 + 32 + 48) + 4 * 4;
constexpr int64_t kScratch = 2 * (3 * 16 + 16 + 24);
constexpr int64_t kHead = 4 * 64 + 2 * 16;

TEST(Activations, AreThoseOfALayerTimesTokens) {
  EXPECT_EQ(bytes_on("dp=1", kTenTokens),
            10 * (2 * (kInput + kKept) + kScratch + kHead));
  EXPECT_EQ(bytes_on("dp=8", kTenTokens), bytes_on("dp=1", kTenTokens));
}

TEST(Activations, AreNoneOfNoTokens) {
  EXPECT_EQ(bytes_on("dp=1", {.tokens = 0}), 0);
}

TEST(Activations, OfRecomputedLayersAreTheirInputs) {
  EXPECT_EQ(bytes_on("dp=1", {.tokens = 10, .recompute = true}),
            10 * (2 * kInput + kKept + kScratch + kHead));
}

// Streams are whole on every tp rank; outputs of products are cut.
TEST(Activations, AreCutByTensorParallelism) {
  const int64_t kept = 2 * (16 + 8 + 16 + 24) + 2 * 4;
  const int64_t scratch = 2 * (3 * 16 + 8 + 12);
  const int64_t head = 4 * 32 + 2 * 16;
  EXPECT_EQ(bytes_on("tp=2", kTenTokens),
            10 * (2 * (kInput + kept) + scratch + head));
}

// The first of two stages has two micro-batches in flight, the last has the
// head: with two layers the last needs more, with four the first.
TEST(Activations, OfAPipelineAreThoseInFlight) {
  const Mesh mesh = parse_mesh("pp=2");
  const ActivationLoad load{.tokens = 10, .num_micro_batches = 4};
  EXPECT_EQ(activation_bytes(toy_model(2), mesh, load),
            10 * (kInput + kKept + kScratch + kHead));
  EXPECT_EQ(activation_bytes(toy_model(4), mesh, load),
            10 * (2 * 2 * (kInput + kKept) + kScratch));
}

// Two of four experts: 8 rows each and the input of the pair.
TEST(Activations, OfExpertsAreThoseOfTheVisitedOnes) {
  EXPECT_EQ(
      bytes_on("dp=1", {.tokens = 10, .experts_per_token = 2}, toy_moe(1, 4)),
      10 * (kInput + kKept + 2 * 2 * (8 + 16) + kScratch + kHead));
}

TEST(Activations, AreTwiceAsManyInFp32ButForLogits) {
  EXPECT_EQ(bytes_on("dp=1", {.tokens = 10, .dtype = DType::kFp32}),
            10 * (2 * (2 * kInput + 2 * kKept - 4 * 4) + 2 * kScratch + 4 * 64 +
                  4 * 16));
}

// 2^24 logits are in memory at once, whatever the number of tokens.
TEST(Activations, OfLongBatchesHaveLogitsInChunks) {
  const int64_t tokens = int64_t{1} << 20;
  EXPECT_EQ(bytes_on("dp=1", {.tokens = tokens}),
            tokens * (2 * (kInput + kKept) + kScratch + 2 * 16) +
                4 * (int64_t{1} << 24));
}

TEST(Activations, BeyondCountingAreRefused) {
  EXPECT_THROW(bytes_on("dp=1", {.tokens = INT64_MAX / 2}), UsageError);
}

TEST(Activations, OfModelsWithoutLayersAreNone) {
  EXPECT_EQ(bytes_on("dp=1", kTenTokens, squares({4, 4})), 0);
}

struct Request {
  Model model = toy_model(2);
  std::unique_ptr<RuleFacts> rule = make_rule_facts("muon", {});
  PlanOptions options = {};

  PlanRequest on(const std::string& mesh) const {
    return {model, parse_mesh(mesh), *rule, options};
  }
};

// A plan does not change because of what is counted beside it.
TEST(MemoryTerms, LeaveAPlanAsItIs) {
  Request request;
  for (const int64_t cap : {int64_t{0}, int64_t{1} << 20}) {
    request.options.memory_cap_bytes = cap;
    const PlanRequest asked = request.on("dp=2,tp=2");
    EXPECT_EQ(plan_to_json(plan_in_terms(
                  asked, {.activations = 1000, .cap_bytes = cap})),
              plan_to_json(make_plan(asked)));
  }
}

TEST(MemoryTerms, SayWhatWasAssumedOfExperts) {
  MemoryTerms terms{.load = {.tokens = 10, .experts_per_token = 8}};
  const Mesh mesh = parse_mesh("dp=1");
  EXPECT_THAT(describe_activations(terms, mesh), Not(HasSubstr("assumed")));
  terms.load.experts_assumed = true;
  EXPECT_THAT(describe_activations(terms, mesh),
              HasSubstr("8 experts per token assumed"));
}

TEST(MemoryTerms, LeaveThePrefetchWhatActivationsDoNotTake) {
  Request request;
  request.options.zero.sizes = {4, 4, 4};
  request.options.memory_cap_bytes = int64_t{1} << 20;
  const auto prefetch = [&](int64_t activations) {
    return plan_in_terms(request.on("dp=4"), {.activations = activations})
        .options.zero.prefetch;
  };
  EXPECT_GT(prefetch(0), prefetch((int64_t{1} << 20) - 30'000));
}

TEST(MemoryTerms, CountGradientsAsTheyLie) {
  const Request request;
  const Plan plan = make_plan(request.on("dp=2"));
  const RankMemory fp32 = fullest_memory(predict_in_terms(plan, {}));
  const RankMemory bf16 =
      fullest_memory(predict_in_terms(plan, {.gradients = DType::kBf16}));
  EXPECT_EQ(fp32.total(), fullest_memory(predict(plan)).total());
  EXPECT_EQ(bf16.gradients.value() * 2, fp32.gradients.value());
  EXPECT_EQ(bf16.states, fp32.states);
}

// The memory saved by smaller gradients is given to the plan; its file stays
// valid.
TEST(MemoryTerms, OfSmallGradientsRaiseThePlansOwnCap) {
  Request request;
  const Plan alone = make_plan(request.on("dp=2"));
  const MemoryTerms terms{.gradients = DType::kBf16};
  request.options.memory_cap_bytes =
      fullest_memory(predict_in_terms(alone, terms)).total().value();
  const Plan plan = plan_in_terms(request.on("dp=2"), terms);
  EXPECT_GT(plan.options.memory_cap_bytes, request.options.memory_cap_bytes);
  EXPECT_EQ(validate(plan), std::vector<std::string>());
  EXPECT_TRUE(plan_from_json(plan_to_json(plan), "plan").digest_matches);
}

TEST(MemoryTerms, RefuseActivationsThatTakeTheWholeCap) {
  const Model model = toy_model(2);
  PlanOptions options;
  options.memory_cap_bytes = 5000;
  EXPECT_THAT(
      [&] { memory_terms(model, {}, kTenTokens, DType::kFp32, options); },
      ThrowsMessage<UsageError>(HasSubstr("activations alone take")));
  EXPECT_EQ(memory_terms(model, {}, {}, DType::kFp32, options).activations, 0);
}

}  // namespace
}  // namespace canzona::sim::sim_activations_test
