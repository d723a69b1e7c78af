#include "canzona/plan/validate/validate.h"

#include <gmock/gmock.h>

#include "canzona/plan/testing/test_tampering.h"

namespace canzona::plan::validate_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Validate, ASoundPlanHasNoViolations) {
  EXPECT_THAT(validate(sound_plan()), IsEmpty());
}

class ValidStrategy : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, ValidStrategy,
                         ::testing::ValuesIn(strategy_names()));

TEST_P(ValidStrategy, MakesSoundPlans) {
  for (const char* mesh : {"dp=1", "dp=7", "tp=4", "dp=2,tp=2", "dp=8,tp=2",
                           "dp=2,cp=2,tp=2,pp=2"}) {
    PlanOptions options = with_strategy(GetParam());
    for (int64_t bucket_elements : {1, 700, 1'000'000}) {
      options.bucket_elements = bucket_elements;
      EXPECT_THAT(validate(plan_of(toy_model(), mesh, options)), IsEmpty())
          << mesh << ", buckets of " << bucket_elements;
    }
  }
}

TEST_P(ValidStrategy, MakesSoundPlansOfSplitTensors) {
  PlanOptions options = with_strategy(GetParam());
  for (const char* splits : {"qkv", "head", "gate-up", "head,gate-up"}) {
    options.splits = parse_splits(splits);
    EXPECT_THAT(validate(plan_of(toy_model(), "dp=2,tp=4", options)), IsEmpty())
        << splits;
  }
}

TEST_P(ValidStrategy, MakesSoundPlansOfExperts) {
  for (const char* mesh : {"dp=2,ep=2", "dp=2,tp=2,ep=4", "cp=2,pp=2,ep=2"}) {
    EXPECT_THAT(validate(plan_of(toy_moe(), mesh, with_strategy(GetParam()))),
                IsEmpty())
        << mesh;
  }
}

TEST_P(ValidStrategy, MakesSoundPlansOfOddModels) {
  const std::vector<Model> models{Model{}, squares({1}), squares({0, 3}),
                                  model_of({adamw_tensor("only", 5)}),
                                  squares({5, 5, 5, 5, 5, 5, 5, 5, 5})};
  for (const Model& model : models) {
    for (const char* mesh : {"dp=1", "dp=8", "dp=3,tp=2", "dp=512"}) {
      EXPECT_THAT(validate(plan_of(model, mesh, with_strategy(GetParam()))),
                  IsEmpty())
          << model.tensors.size() << " tensors on " << mesh;
    }
  }
}

TEST(Validate, ListsAllViolations) {
  Plan plan = sound_plan();
  plan.parts[0].buckets[0].cuts.back() -= 1;
  plan.parts[0].home[static_cast<size_t>(tensor_named(plan, "head"))] = 0;
  replace_owners(plan, matrix_of(plan, "layers.1.fc2"), {0, 0});
  plan.parts[0].micro_group[0] = 9;
  const auto violations = validate(plan);
  EXPECT_GE(violations.size(), 4u);
  for (const char* says :
       {"bucket 0: cuts", "'head' has a home", "names rank 0 twice",
        "micro-groups are not numbered"}) {
    EXPECT_THAT(violations, Contains(HasSubstr(says)));
  }
}

}  // namespace
}  // namespace canzona::plan::validate_test
