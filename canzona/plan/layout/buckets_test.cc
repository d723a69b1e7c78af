#include "canzona/plan/layout/layout.h"

#include <gmock/gmock.h>

#include <numeric>

#include "canzona/plan/predict/summary.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::buckets_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Indices = std::vector<int32_t>;

// "m8" is a matrix-rule tensor of 8 elements, "n3" an AdamW tensor of 3.
Model model_from(const std::vector<std::string>& words) {
  std::vector<Tensor> tensors;
  for (const std::string& word : words) {
    const int64_t elements = std::stoll(word.substr(1));
    tensors.push_back(word[0] == 'm' ? matrix_tensor(word, elements, 1)
                                     : adamw_tensor(word, elements));
  }
  return model_of(std::move(tensors));
}

// Buckets of one rank.
std::vector<OpenBucket> buckets_of(const Model& model, int64_t limit,
                                   bool join_small_tail = false,
                                   const Mesh& mesh = {}) {
  std::vector<int32_t> buffer_of;
  const std::vector<Buffer> buffers = make_buffers(mesh, model, buffer_of);
  std::vector<int64_t> shards;
  for (const Tensor& t : model.tensors) {
    shards.push_back(t.elements() / (t.cut == Cut::kNone ? 1 : mesh.tp));
  }
  return make_buckets(model, buffers, buffer_of, shards, limit,
                      join_small_tail);
}

std::vector<Indices> matrices_of(const std::vector<OpenBucket>& buckets) {
  std::vector<Indices> out;
  for (const OpenBucket& b : buckets) out.push_back(b.matrix_tensors);
  return out;
}

std::vector<Indices> adamw_of(const std::vector<OpenBucket>& buckets) {
  std::vector<Indices> out;
  for (const OpenBucket& b : buckets) out.push_back(b.adamw_tensors);
  return out;
}

// Backward finishes the last tensor first. A bucket closes at 10 elements.
TEST(Buckets, CloseWhenTheyAreFull) {
  const auto buckets =
      buckets_of(model_from({"m1", "m4", "m6", "m3", "m9"}), 10);
  EXPECT_THAT(matrices_of(buckets),
              ElementsAre(Indices{4, 3}, Indices{2, 1}, Indices{0}));
  EXPECT_EQ(buckets[0].elements, 12);
  EXPECT_EQ(buckets[1].elements, 10);
  EXPECT_EQ(buckets[2].elements, 1);
}

TEST(Buckets, AnOversizeTensorEndsItsBucket) {
  EXPECT_THAT(
      matrices_of(buckets_of(model_from({"m2", "m100", "m3", "m3"}), 10)),
      ElementsAre(Indices{3, 2, 1}, Indices{0}));
  EXPECT_THAT(matrices_of(buckets_of(model_from({"m5", "m5", "m5"}), 1)),
              ElementsAre(Indices{2}, Indices{1}, Indices{0}));
}

// Whatever the AdamW tensors are, the matrices are bucketed as without them.
TEST(Buckets, AdamWTensorsMoveNoCut) {
  const auto plain = buckets_of(model_from({"m6", "m6", "m6", "m6", "m2"}), 10);
  const auto mixed = buckets_of(
      model_from({"n99", "m6", "n99", "m6", "n99", "m6", "m6", "n99", "m2"}),
      10);
  ASSERT_EQ(mixed.size(), plain.size());
  for (size_t b = 0; b < plain.size(); ++b) {
    EXPECT_EQ(mixed[b].elements, plain[b].elements);
  }
}

// From the end: n6 and n5 wait for the first bucket. m4 opens it and m3 fills
// it, so that n2 waits for the next, which m1 opens; n0 finds that one open.
TEST(Buckets, AdamWTensorsLieWhereABucketIsOpen) {
  const auto buckets =
      buckets_of(model_from({"n1", "m5", "n1", "m5", "m5", "n1", "n1"}), 10);
  EXPECT_THAT(matrices_of(buckets), ElementsAre(Indices{4, 3}, Indices{1}));
  EXPECT_THAT(adamw_of(buckets), ElementsAre(Indices{6, 5}, Indices{2, 0}));
}

TEST(Buckets, AdamWTensorsNeverOpenOne) {
  const auto buckets = buckets_of(model_from({"n50", "n50", "m10"}), 10);
  EXPECT_THAT(matrices_of(buckets), ElementsAre(Indices{2}));
  EXPECT_THAT(adamw_of(buckets), ElementsAre(Indices{1, 0}));
}

TEST(Buckets, ASmallTailJoinsItsNeighbour) {
  const Model model = model_from({"m4", "n1", "m10", "n7", "m10"});
  const auto apart = buckets_of(model, 10, false);
  EXPECT_THAT(matrices_of(apart),
              ElementsAre(Indices{4}, Indices{2}, Indices{0}));
  EXPECT_THAT(adamw_of(apart), ElementsAre(IsEmpty(), Indices{3}, Indices{1}));
  const auto joined = buckets_of(model, 10, true);
  EXPECT_THAT(matrices_of(joined), ElementsAre(Indices{4}, Indices{2, 0}));
  EXPECT_THAT(adamw_of(joined), ElementsAre(IsEmpty(), Indices{3, 1}));
  EXPECT_EQ(joined[1].elements, 14);
}

TEST(Buckets, ATailOfHalfSizeStaysAlone) {
  EXPECT_EQ(buckets_of(model_from({"m5", "m10"}), 10, true).size(), 2u);
  EXPECT_EQ(buckets_of(model_from({"m4", "m10"}), 10, true).size(), 1u);
  EXPECT_EQ(buckets_of(model_from({"m6", "m11"}), 11, true).size(), 2u);
  // 5 of 11 is below half.
  EXPECT_EQ(buckets_of(model_from({"m5", "m11"}), 11, true).size(), 1u);
}

TEST(Buckets, AnOnlyBucketHasNobodyToJoin) {
  EXPECT_EQ(buckets_of(model_from({"m1"}), 1000, true).size(), 1u);
  EXPECT_THAT(buckets_of(Model{}, 10, true), IsEmpty());
}

// An element-wise rule has no matrices, and all its tensors count.
TEST(Buckets, ElementWiseModelsCountAllTensors) {
  const auto buckets =
      buckets_of(model_from({"n1", "n4", "n6", "n3", "n9"}), 10, true);
  EXPECT_THAT(adamw_of(buckets),
              ElementsAre(Indices{4, 3}, Indices{2, 1}, Indices{0}));
  EXPECT_THAT(matrices_of(buckets),
              ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
}

TEST(Buckets, CountTensorParallelShards) {
  Model model = model_of({matrix_tensor("a", 8, 4, Cut::kRows),
                          matrix_tensor("b", 4, 8, Cut::kColumns),
                          matrix_tensor("c", 4, 4)});
  const auto buckets = buckets_of(model, 24, false, {.tp = 4});
  EXPECT_THAT(matrices_of(buckets), ElementsAre(Indices{2, 1}, Indices{0}));
  EXPECT_EQ(buckets[0].elements, 24);  // 16 whole, 8 of 32
}

TEST(Buffers, HoldTensorsOfTheSameRanks) {
  std::vector<int32_t> buffer_of;
  const Mesh mesh = parse_mesh("dp=3,cp=2,tp=2,pp=2,ep=2");
  const Model model = toy_moe(2, 4);
  EXPECT_THAT(make_buffers(mesh, model, buffer_of),
              ElementsAre(Buffer{0, -1, 12}, Buffer{0, 0, 6}, Buffer{0, 1, 6},
                          Buffer{1, -1, 12}, Buffer{1, 0, 6}, Buffer{1, 1, 6}));
  ASSERT_EQ(buffer_of.size(), model.tensors.size());
  for (size_t t = 0; t < buffer_of.size(); ++t) {
    const Tensor& tensor = model.tensors[t];
    const int32_t stage =
        tensor.layer < 0 ? tensor.role == Role::kHead : tensor.layer;
    const int32_t within = tensor.expert < 0 ? 0 : 1 + tensor.expert / 2;
    EXPECT_EQ(buffer_of[t], stage * 3 + within) << tensor.name;
  }
}

TEST(Buffers, AreOnePerStageWithoutExpertParallelism) {
  std::vector<int32_t> buffer_of;
  const Model model = toy_moe(2, 4);
  EXPECT_THAT(make_buffers(parse_mesh("dp=3,pp=2"), model, buffer_of),
              ElementsAre(Buffer{0, -1, 3}, Buffer{1, -1, 3}));
}

// Every tensor lies in one bucket of its own buffer, in backward's order.
TEST(Buckets, HoldEveryTensorOnce) {
  const Model model = toy_moe(4, 4);
  for (const char* words : {"dp=1", "dp=7", "dp=2,ep=2", "pp=4,ep=4,tp=2"}) {
    const Mesh mesh = parse_mesh(words);
    std::vector<int32_t> buffer_of;
    make_buffers(mesh, model, buffer_of);
    for (int64_t limit : {1, 300, 1000, 100000}) {
      std::vector<int> places(model.tensors.size(), 0);
      for (const OpenBucket& b : buckets_of(model, limit, false, mesh)) {
        EXPECT_TRUE(
            std::is_sorted(b.matrix_tensors.rbegin(), b.matrix_tensors.rend()));
        for (const Indices* list : {&b.matrix_tensors, &b.adamw_tensors}) {
          for (int32_t t : *list) {
            ++places[static_cast<size_t>(t)];
            EXPECT_EQ(buffer_of[static_cast<size_t>(t)], b.buffer);
          }
        }
      }
      EXPECT_THAT(places, ::testing::Each(1)) << words << " " << limit;
    }
  }
}

// 64 matrices of 400M elements: each would fill a usual bucket alone, so that
// one of 16 homes would keep all of it.
Plan plan_of_large(PlanOptions options = {}) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 64; ++i)
    tensors.push_back(matrix_tensor(cat("m", i), 20'000, 20'000));
  const Model model = model_of(std::move(tensors));
  const auto rule = make_rule_facts("muon", {});
  return make_plan({model, parse_mesh("dp=16"), *rule, options});
}

TEST(EvenBuckets, UnevenOnesAreMadeLarger) {
  const Plan plan = plan_of_large();
  EXPECT_EQ(plan.options.bucket_elements, 8 * kUsualBucketElements);
  EXPECT_DOUBLE_EQ(bucket_unevenness(plan), 2);
  EXPECT_THAT(validate(plan), IsEmpty());
}

TEST(EvenBuckets, AGivenSizeIsKept) {
  PlanOptions options;
  options.bucket_elements = kUsualBucketElements;
  const Plan plan = plan_of_large(options);
  EXPECT_EQ(plan.options.bucket_elements, kUsualBucketElements);
  EXPECT_DOUBLE_EQ(bucket_unevenness(plan), 16);
}

TEST(EvenBuckets, StrategiesOfOthersKeepTheUsualSize) {
  for (const char* strategy : {"start_offset", "contiguous", "megatron"}) {
    PlanOptions options;
    options.strategy = strategy;
    EXPECT_EQ(plan_of_large(options).options.bucket_elements,
              kUsualBucketElements);
  }
}

// A model of a single bucket cannot be more even, and one whose buckets are
// below the limit stays as it is.
TEST(EvenBuckets, OtherPlansHaveTheUsualSize) {
  const auto rule = make_rule_facts("muon", {});
  const auto size_of = [&](const Model& model, const char* mesh) {
    return make_plan({model, parse_mesh(mesh), *rule, {}})
        .options.bucket_elements;
  };
  EXPECT_EQ(size_of(toy_model(2), "dp=64"), kUsualBucketElements);
  Model model = read_model("qwen3-32b", {.fused = true});
  route(model, {});
  EXPECT_EQ(size_of(model, "dp=32,tp=8"), kUsualBucketElements);
}

}  // namespace
}  // namespace canzona::plan::buckets_test
