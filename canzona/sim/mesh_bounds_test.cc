#include "canzona/sim/mesh_bounds.h"

#include <gmock/gmock.h>

#include "canzona/sim/test_mesh.h"

namespace canzona::sim::mesh_bounds_test {
namespace {

// No bound is above what is planned and simulated.
void expect_bounds(const MeshQuestion& question, const MeshChoice& choice) {
  WeighedMesh weighed;
  try {
    weighed = weigh_mesh(question, choice);
  } catch (const UsageError&) {
    return;  // the groups do not allow these collectives
  }
  const TensorFacts facts(question);
  const MeshBounds bounds(question, facts, choice.mesh);
  const MeshPace pace = bounds.paces({choice}).front();
  const bool apart = bounds.is_apart(choice.dense, choice.experts);
  const auto dense = bounds.ops(choice.dense, false, apart, choice.reach);
  std::vector<StageOps> experts;
  if (choice.experts.z1 > 0)
    experts = bounds.ops(choice.experts, true, apart, choice.reach);
  const auto* own = experts.empty() ? nullptr : &experts;
  const SecondsByStage step = bounds.step_seconds(choice.dense, choice.experts);
  const std::vector<int32_t> stages = stages_to_look_at(choice.mesh);
  for (size_t s = 0; s < stages.size(); ++s)
    if (stages[s] == weighed.stage) {
      EXPECT_LE(step[s], weighed.step_seconds() * (1 + 1e-9))
          << to_string(choice);
    }
  const double loose = bounds.seconds(pace, &dense, own, step);
  EXPECT_LE(loose, weighed.seconds()) << to_string(choice);
  EXPECT_LE(bounds.seconds(pace, nullptr, nullptr, step), loose * (1 + 1e-9));
  EXPECT_LE(bounds.busiest_seconds(
                pace, bounds.loads(dense),
                own == nullptr ? LoadByStage{} : bounds.loads(*own), step),
            loose * (1 + 1e-9))
      << to_string(choice);
  const PoolSlots slots =
      bounds.slots(choice.dense, choice.experts, pace.activations);
  EXPECT_LE(bounds.seconds(pace, &dense, own, step, &slots), weighed.seconds())
      << to_string(choice);
  EXPECT_LE(bounds.memory(choice.dense, choice.experts) + pace.activations,
            weighed.memory_bytes())
      << to_string(choice);
}

void expect_bounds_of_some(AskedMesh& asked, int count, uint64_t seed) {
  const std::vector<MeshChoice> all = every_choice(asked.question);
  ASSERT_FALSE(all.empty());
  Random random(seed);
  for (int i = 0; i < count; ++i)
    expect_bounds(asked.question,
                  all[static_cast<size_t>(random.between(
                      0, static_cast<int64_t>(all.size()) - 1))]);
}

TEST(MeshBounds, NothingTakesLessTimeOrMemory) {
  for (int model = 0; model < kNumSearchedModels; ++model)
    for (const int32_t ranks : {1, 8, 16, 64}) {
      AskedMesh asked(searched_model(model), ranks);
      expect_bounds_of_some(asked, ranks == 64 ? 10 : 25,
                            static_cast<uint64_t>(ranks + model));
    }
}

TEST(MeshBounds, NothingDoesUnderACapAndWithOtherOptions) {
  for (int model = 0; model < kNumSearchedModels; ++model) {
    AskedMesh asked(searched_model(model), 16);
    MeshQuestion& question = asked.question;
    const std::vector<MeshChoice> all = every_choice(question);
    question.options.memory_cap_bytes =
        weigh_mesh(question, all[all.size() / 2]).memory_bytes();
    question.gradients = DType::kBf16;
    question.options.links.inter_bytes_per_second = 1e8;
    question.work.overlap = model % 2 == 0 ? Overlap::kMain : Overlap::kNone;
    expect_bounds_of_some(asked, 25, static_cast<uint64_t>(model));
    question.options.strategy = "megatron";
    question.options.ranks_per_node = 3;
    expect_bounds_of_some(asked, 15, static_cast<uint64_t>(model));
  }
}

// Iterations of many micro-batches are extrapolated; bounds hold for them, too.
TEST(MeshBounds, NothingTakesLessTimeWithManyMicroBatches) {
  for (int model = 0; model < kNumSearchedModels; ++model) {
    AskedMesh asked(searched_model(model), 8);
    asked.question.global_batch = int64_t{8} * 32 * 90;
    asked.question.limits.fix("tokens=32");
    asked.question.options.links.inter_bytes_per_second =
        model % 2 == 0 ? 2e7 : 1e9;
    expect_bounds_of_some(asked, 15, static_cast<uint64_t>(model));
  }
}

// If experts differ, none stands for the others, and the bounds hold.
TEST(MeshBounds, HoldForExpertsThatDiffer) {
  AskedMesh asked(toy_moe(2, 4), 8);
  for (Tensor& tensor : asked.model.tensors)
    if (tensor.expert == 1) tensor.frozen = true;
  EXPECT_EQ(TensorFacts(asked.question).experts_alike, 1);
  expect_bounds_of_some(asked, 20, 7);
  AskedMesh alike(toy_moe(2, 4), 8);
  EXPECT_EQ(TensorFacts(alike.question).experts_alike, 4);
}

TEST(MeshBounds, AreExactWhereNothingIsHidden) {
  AskedMesh asked(toy_model(2), 1);
  const MeshChoice choice{.mesh = {}, .dense = {1, 1, 1}, .tokens = 64};
  const TensorFacts facts(asked.question);
  const MeshBounds bounds(asked.question, facts, {});
  const MeshPace pace = bounds.paces({choice}).front();
  const SecondsByStage step = bounds.step_seconds(choice.dense, {});
  EXPECT_NEAR(bounds.seconds(pace, nullptr, nullptr, step) /
                  weigh_mesh(asked.question, choice).seconds(),
              1, 1e-6);
}

}  // namespace
}  // namespace canzona::sim::mesh_bounds_test
