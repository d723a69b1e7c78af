#include "canzona/plan/json/plan_json.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "canzona/base/digest.h"
#include "canzona/base/files.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::plan_json_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Plan read_back(const Plan& plan) {
  const ReadPlan read = plan_from_json(plan_to_json(plan), "plan.json");
  EXPECT_TRUE(read.digest_matches);
  return read.plan;
}

TEST(PlanJson, ReadsBackWhatItWrote) {
  const Plan plan = plan_of(toy_model(), "dp=2,tp=2");
  const std::string text = plan_to_json(plan);
  EXPECT_THAT(text, StartsWith(R"({"format":"canzona.plan","version":3,)"));
  const ReadPlan read = plan_from_json(text, "plan.json");
  EXPECT_TRUE(read.digest_matches);
  EXPECT_EQ(plan_to_json(read.plan), text);
  EXPECT_THAT(validate(read.plan), IsEmpty());
}

void expect_equal(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.mesh, b.mesh);
  EXPECT_EQ(a.rule, b.rule);
  EXPECT_EQ(a.rule_options, b.rule_options);
  EXPECT_EQ(a.options, b.options);
  EXPECT_EQ(a.cost_basis, b.cost_basis);
  EXPECT_EQ(a.traffic, b.traffic);
  EXPECT_EQ(a.matrices, b.matrices);
  EXPECT_EQ(a.costs, b.costs);
  EXPECT_EQ(a.parts[0].buffers, b.parts[0].buffers);
  EXPECT_EQ(a.parts[0].buckets, b.parts[0].buckets);
  EXPECT_EQ(a.parts[0].home, b.parts[0].home);
  EXPECT_TRUE(a.parts[0].owners == b.parts[0].owners);
  EXPECT_EQ(a.parts[0].micro_group, b.parts[0].micro_group);
  EXPECT_EQ(a.parts[0].bucket_of, b.parts[0].bucket_of);
  EXPECT_EQ(a.first_matrix, b.first_matrix);
  EXPECT_EQ(a.phase, b.phase);
  EXPECT_EQ(a.period, b.period);
  EXPECT_EQ(a.phases, b.phases);
  EXPECT_EQ(a.summary, b.summary);
  EXPECT_EQ(a.digest, b.digest);
}

class PlanJsonOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Strategies, PlanJsonOf,
                         ::testing::ValuesIn(strategy_names()));

TEST_P(PlanJsonOf, KeepsEveryField) {
  PlanOptions options = with_strategy(GetParam());
  options.splits = parse_splits("head,gate-up");
  options.bucket_elements = 700;
  options.memory_cap_bytes = 123'456'789;
  options.capacity_bytes = 4096;
  options.ranks_per_node = 3;
  options.parameters = DType::kFp32;
  options.links =
      parse_links("intra=1.1GB/s,inter=0.3GB/s,latency=7us,intra_latency=3us");
  const RuleChoice soap{"soap",
                        {{"precondition_frequency", "7"}, {"phases", "3"}}};
  const Plan plan = plan_of(toy_moe(), "dp=2,tp=2,pp=2,ep=2", options, soap);
  expect_equal(read_back(plan), plan);
}

TEST_P(PlanJsonOf, KeepsPlansOfOddModels) {
  for (const Model& model : {Model{}, squares({1}), squares({0, 3}),
                             model_of({adamw_tensor("only", 5)})}) {
    for (const char* mesh : {"dp=1", "dp=7", "dp=3,tp=2"}) {
      const Plan plan = plan_of(model, mesh, with_strategy(GetParam()));
      expect_equal(read_back(plan), plan);
    }
  }
}

TEST_P(PlanJsonOf, GivesTheSameBytesTwice) {
  const auto text = [] {
    return plan_to_json(
        plan_of(toy_model(), "dp=4,tp=2", with_strategy(GetParam())));
  };
  EXPECT_EQ(text(), text());
}

// A plan without it has the bytes that it always had.
TEST(PlanJson, KeepsTheRateOfPassesOverMemory) {
  Plan plan = plan_of(toy_model(), "dp=2", {});
  EXPECT_THAT(plan_to_json(plan), Not(HasSubstr("element_wise")));
  plan.cost_basis.element_wise_bytes_per_second = 2.5e10;
  plan.digest = digest_of(plan);
  EXPECT_THAT(plan_to_json(plan),
              HasSubstr(R"("element_wise_bytes_per_second":2.5e+10)"));
  EXPECT_EQ(read_back(plan).cost_basis, plan.cost_basis);
}

TEST(PlanJson, KeepsTheRuleThatOwnsNothing) {
  const Plan plan = plan_of(toy_model(), "dp=3,tp=2", {}, {"adamw"});
  EXPECT_THAT(plan.matrices, IsEmpty());
  expect_equal(read_back(plan), plan);
}

TEST(PlanJson, KeepsTeams) {
  Plan plan = plan_of(squares({4, 4}), "dp=1,tp=3");
  plan.parts[0].owners = {};
  plan.parts[0].owners.push_back(std::vector<int32_t>{0, 2});
  plan.parts[0].owners.push_back(1);
  plan.digest = digest_of(plan);
  EXPECT_TRUE(read_back(plan).parts[0].owners == plan.parts[0].owners);
}

TEST(PlanJson, KeepsNamesOfAnyKind) {
  Model model = squares({2, 2, 2});
  model.name = "</script>\u2028";
  model.tensors[0].name = "quote \" and \\ and \n";
  model.tensors[1].name = "Ünï↯\x01";
  model.tensors[2].name = "\"\\\\\" ,: {}[] 123";
  const Plan plan = plan_of(model, "dp=2");
  expect_equal(read_back(plan), plan);
}

// The digest is the SHA-256 of the file with an empty digest.
TEST(PlanJson, HasADigestThatAnybodyCanCompute) {
  const Plan plan = plan_of(toy_model(), "dp=2,tp=2");
  std::string text = plan_to_json(plan);
  const size_t at = text.find(plan.digest);
  ASSERT_NE(at, std::string::npos);
  text.erase(at, plan.digest.size());
  EXPECT_EQ(sha256_hex(text), plan.digest);
  EXPECT_EQ(digest_of(plan), plan.digest);
}

TEST(PlanJson, DigestsDiffer) {
  const Plan plan = plan_of(toy_model(), "dp=2,tp=2");
  Plan other = plan;
  other.parts[0].micro_group[0] += 1;
  EXPECT_NE(digest_of(other), plan.digest);
  other = plan;
  other.summary.step_seconds_mean *= 1 + 1e-15;
  EXPECT_NE(digest_of(other), plan.digest);
  other = plan;
  other.digest = "something else";
  EXPECT_EQ(digest_of(other), plan.digest);
}

// Spaces and line ends do not matter: a pretty-printed plan is the same plan.
TEST(PlanJson, MayBeIndented) {
  const Plan plan = plan_of(squares({2, 3}), "dp=2");
  const std::string text = plan_to_json(plan);
  std::string spaced;
  bool in_string = false;
  for (char c : text) {
    if (c == '"') in_string = !in_string;
    spaced += c;
    if (!in_string && (c == ',' || c == '{' || c == ':')) spaced += " \n\t\r";
  }
  const ReadPlan read = plan_from_json(spaced, "plan.json");
  EXPECT_TRUE(read.digest_matches);
  expect_equal(read.plan, plan);
}

// Plans of versions 1 and 2, as former programs wrote them.
TEST(PlanJson, FormerVersionsAreRead) {
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           CANZONA_TEST_DATA "/../../fuzz/corpus/plan")) {
    const std::string text = read_file(entry.path().string(), 1 << 20, "plan");
    ASSERT_THAT(text, HasSubstr("\"micro_group\":["));
    const ReadPlan former = plan_from_json(text, "plan.json");
    EXPECT_TRUE(former.digest_matches) << entry.path();
    EXPECT_EQ(former.plan.digest, digest_of(former.plan));
    expect_equal(read_back(former.plan), former.plan);
    std::string changed = text;
    const std::string capacity = "\"capacity_bytes\":";
    changed.insert(changed.find(capacity) + capacity.size(), "1");
    EXPECT_FALSE(plan_from_json(changed, "plan.json").digest_matches);
    ++read;
  }
  EXPECT_GE(read, 8);
}

// The first JSON of docs/plan.md.
TEST(PlanJson, TheDocumentedExampleIsSound) {
  std::ifstream file(CANZONA_TEST_DATA "/../../docs/plan.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string fence = "```json\n";
  const size_t begin = text.str().find(fence);
  ASSERT_NE(begin, std::string::npos);
  const size_t end = text.str().find("```", begin + fence.size());
  const std::string json =
      text.str().substr(begin + fence.size(), end - begin - fence.size());
  const ReadPlan read = plan_from_json(json, "docs/plan.md");
  EXPECT_TRUE(read.digest_matches) << "it should be " << digest_of(read.plan);
  EXPECT_THAT(validate(read.plan), IsEmpty());
}

// Costs are listed by shape: 64 layers take little more than one.
TEST(PlanJson, StaysSmall) {
  const size_t one = plan_to_json(plan_of(toy_model(1), "dp=2,tp=2")).size();
  const size_t many = plan_to_json(plan_of(toy_model(64), "dp=2,tp=2")).size();
  EXPECT_LT(many, one + 63 * 400);
}

}  // namespace
}  // namespace canzona::plan::plan_json_test
