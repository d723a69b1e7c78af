// Every element of every tensor has one place.
#include <gmock/gmock.h>

#include "canzona/plan/testing/test_tampering.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::validate_places_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Validate, FindsAMissingTensor) {
  Plan plan = sound_plan();
  Bucket& bucket = bucket_with(plan, "layers.0.norm");
  std::erase(bucket.tensors, tensor_named(plan, "layers.0.norm"));
  EXPECT_THAT(validate(plan),
              Contains("tensor 'layers.0.norm' has 0 places, expected one"));
}

TEST(Validate, FindsAMissingMatrix) {
  Plan plan = sound_plan();
  Bucket& bucket = bucket_with(plan, "layers.0.proj");
  std::erase(bucket.tensors, tensor_named(plan, "layers.0.proj"));
  --bucket.num_matrix_tensors;
  derive(plan);
  EXPECT_THAT(validate(plan),
              Contains("tensor 'layers.0.proj' has 0 places, expected one"));
}

TEST(Validate, FindsATensorThatLiesTwice) {
  Plan plan = sound_plan();
  bucket_with(plan, "layers.0.norm")
      .tensors.push_back(tensor_named(plan, "layers.1.norm"));
  EXPECT_THAT(validate(plan),
              Contains("tensor 'layers.1.norm' has 2 places, expected one"));
}

TEST(Validate, FindsATensorInTheWrongRegion) {
  Plan plan = sound_plan();
  ++bucket_with(plan, "layers.0.norm").num_matrix_tensors;
  EXPECT_THAT(validate(plan), Contains(HasSubstr("lies in the wrong region")));
}

TEST(Validate, FindsATensorOnOtherRanks) {
  Plan plan = plan_of(toy_model(), "dp=2,pp=2");
  std::swap(plan.parts[0].buckets[0].buffer, plan.parts[0].buckets[1].buffer);
  EXPECT_THAT(validate(plan),
              Contains(AllOf(HasSubstr("tensor 'layers.0.fc1'"),
                             HasSubstr("other ranks (stage 1, ep -1)"))));
}

TEST(Validate, FindsAnExpertOnOtherRanks) {
  Plan plan = plan_of(toy_moe(1, 2), "dp=2,ep=2");
  for (Bucket& bucket : plan.parts[0].buckets) {
    if (bucket.buffer > 0) bucket.buffer = 3 - bucket.buffer;
  }
  EXPECT_THAT(validate(plan),
              Contains(AllOf(HasSubstr("tensor 'layers.0.experts.0.up'"),
                             HasSubstr("other ranks (stage 0, ep 1)"))));
}

TEST(Validate, FindsABufferWithTooFewHomes) {
  Plan plan = sound_plan();
  plan.parts[0].buffers[0].num_homes = 1;
  EXPECT_THAT(validate(plan), Contains(HasSubstr("1 homes, expected 2")));
}

TEST(Validate, FindsAMovedCut) {
  Plan plan = sound_plan();
  plan.parts[0].buckets[0].cuts[1] += 1;
  EXPECT_THAT(validate(plan),
              Contains(HasSubstr("lies outside the run of its home")));
}

TEST(Validate, FindsCutsThatDoNotCover) {
  Plan plan = sound_plan();
  plan.parts[0].buckets[0].cuts.back() -= 1;
  EXPECT_THAT(validate(plan),
              Contains(HasSubstr("bucket 0: cuts do not cut its")));
  plan = sound_plan();
  plan.parts[0].buckets[0].cuts.front() = 1;
  EXPECT_THAT(validate(plan), Contains(HasSubstr("bucket 0: cuts")));
  plan = sound_plan();
  plan.parts[0].buckets[0].cuts.push_back(plan.parts[0].buckets[0].cuts.back());
  EXPECT_THAT(validate(plan), Contains("bucket 0: 4 cuts, expected 3"));
}

TEST(Validate, FindsAdamWCutsThatDoNotCover) {
  Plan plan = sound_plan();
  plan.parts[0].buckets[0].adamw_cuts.back() += 1;
  EXPECT_THAT(validate(plan),
              Contains(HasSubstr("bucket 0: AdamW cuts do not cut its")));
  plan = sound_plan();
  Bucket& bucket = bucket_with(plan, "head");
  bucket.adamw_cuts[1] = bucket.adamw_cuts.back() + 1;
  EXPECT_THAT(validate(plan), Contains(HasSubstr("AdamW cuts")));
}

// Any cut between 0 and the end is a place to cut AdamW tensors, but another
// than the one whose memory was predicted.
TEST(Validate, FindsAMovedAdamWCut) {
  Plan plan = sound_plan();
  Bucket& bucket = bucket_with(plan, "head");
  bucket.adamw_cuts[1] = 0;
  EXPECT_THAT(validate(plan),
              ElementsAre("the stored predictions are not those of this plan"));
}

TEST(Validate, FindsCutsOfWhatIsAllReduced) {
  Plan plan = sound_plan("replicated");
  plan.parts[0].buckets[0].cuts = {0, 1};
  EXPECT_THAT(
      validate(plan),
      Contains("bucket 0: has cuts although its gradients are all-reduced"));
}

}  // namespace
}  // namespace canzona::plan::validate_places_test
