// Every matrix has one owner or team, and routes that tile it.
#include <gmock/gmock.h>

#include "canzona/plan/testing/test_tampering.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::validate_owners_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Validate, FindsAChangedHome) {
  Plan plan = sound_plan();
  int32_t& home =
      plan.parts[0]
          .home[static_cast<size_t>(tensor_named(plan, "layers.0.fc1"))];
  home = 1 - home;
  EXPECT_THAT(validate(plan),
              Contains(AllOf(HasSubstr("tensor 'layers.0.fc1'"),
                             HasSubstr("outside the run of its home"))));
}

TEST(Validate, FindsAHomeBeyondTheMesh) {
  for (const char* strategy : {"balanced", "layerwise"}) {
    Plan plan = sound_plan(strategy);
    plan.parts[0]
        .home[static_cast<size_t>(tensor_named(plan, "layers.0.fc1"))] = 2;
    EXPECT_THAT(validate(plan), Contains(HasSubstr("layers.0.fc1")))
        << strategy;
  }
}

TEST(Validate, FindsAMatrixWithoutHome) {
  Plan plan = sound_plan("layerwise");
  plan.parts[0].home[static_cast<size_t>(tensor_named(plan, "layers.0.fc1"))] =
      kEveryHome;
  EXPECT_THAT(validate(plan), Contains("tensor 'layers.0.fc1' has no home"));
}

TEST(Validate, FindsAHomeOfAnAdamWTensor) {
  Plan plan = sound_plan();
  plan.parts[0].home[static_cast<size_t>(tensor_named(plan, "head"))] = 0;
  EXPECT_THAT(validate(plan),
              ElementsAre("tensor 'head' has a home but no owner"));
}

TEST(Validate, FindsAMatrixWithoutOwner) {
  Plan plan = sound_plan();
  replace_owners(plan, matrix_of(plan, "layers.1.fc2"), {});
  EXPECT_THAT(validate(plan),
              ElementsAre("matrix 'layers.1.fc2' has 0 owners"));
}

TEST(Validate, FindsAnOwnerBeyondTheHome) {
  for (int32_t owner : {-1, 2}) {
    Plan plan = sound_plan();
    replace_owners(plan, matrix_of(plan, "layers.1.fc2"), {owner});
    EXPECT_THAT(validate(plan), Contains(HasSubstr("layers.1.fc2"))) << owner;
  }
}

TEST(Validate, FindsAnOwnerOfARepeatedUpdate) {
  Plan plan = sound_plan("replicated");
  replace_owners(plan, 0, {1});
  EXPECT_THAT(validate(plan), Contains(HasSubstr("has 1 owners")));
}

TEST(Validate, FindsAGapInMicroGroups) {
  Plan plan = sound_plan();
  plan.parts[0].micro_group[0] = 7;
  EXPECT_THAT(validate(plan),
              Contains(HasSubstr("micro-groups are not numbered 0 to")));
  plan.parts[0].micro_group[0] = -1;
  EXPECT_THAT(validate(plan), Contains(HasSubstr("micro-groups")));
}

// q, k and v overlap or leave rows out.
TEST(Validate, FindsMatricesThatDoNotTile) {
  PlanOptions options;
  options.splits = parse_splits("qkv");
  const Plan sound = plan_of(toy_model(), "dp=2,tp=2", options);
  EXPECT_THAT(validate(sound), IsEmpty());
  for (const char* tensor : {"layers.0.qkv", "layers.1.qkv"}) {
    Plan plan = sound;
    plan.parts[0].matrices[matrix_of(plan, tensor) + 1].section = 0;
    EXPECT_THAT(validate(plan), Contains(HasSubstr(tensor))) << tensor;
    plan = sound;
    plan.parts[0].matrices[matrix_of(plan, tensor)].rows -= 1;
    EXPECT_THAT(validate(plan), Contains(HasSubstr(tensor))) << tensor;
    plan = sound;
    plan.parts[0].matrices[matrix_of(plan, tensor)].first_row += 1;
    EXPECT_THAT(validate(plan), Contains(HasSubstr(tensor))) << tensor;
  }
}

// Some rows of q are in no section, or in k as well, so that whole tensors
// cannot be assembled from such shards.
TEST(Validate, FindsSectionsThatDoNotTile) {
  for (const char* tensor : {"layers.0.qkv", "layers.1.qkv"}) {
    Plan plan = sound_plan();
    Tensor& tampered =
        plan.parts[0]
            .model.tensors[static_cast<size_t>(tensor_named(plan, tensor))];
    tampered.sections[1].rows.first = 4;
    EXPECT_THAT(validate(plan), Contains(HasSubstr(tensor))) << tensor;
    tampered.sections.erase(tampered.sections.begin());
    EXPECT_THAT(validate(plan), Contains(HasSubstr(tensor))) << tensor;
  }
}

// The matrices are not those that the split requires.
TEST(Validate, FindsMatricesOfAnotherSplit) {
  PlanOptions options;
  options.splits = parse_splits("qkv");
  Plan plan = plan_of(toy_model(), "dp=2,tp=2", options);
  plan.options.splits = {};
  EXPECT_FALSE(validate(plan).empty());
}

}  // namespace
}  // namespace canzona::plan::validate_owners_test
