#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/measure/calibrate.h"
#include "canzona/measure/machine.h"
#include "canzona/plan/cost/cost_table.h"

namespace canzona::measure::measure_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

const Progress kSilent = [](const std::string&) {};

TEST(MachineInfo, NamesWhatComputes) {
  const MachineInfo machine = machine_info();
  EXPECT_GE(machine.num_cpus, 1);
  EXPECT_GT(machine.memory_bytes, 0);
  EXPECT_THAT(machine.blas.core, Not(IsEmpty()));
  ASSERT_THAT(machine.bf16_kernels, Not(IsEmpty()));
  EXPECT_EQ(machine.bf16_kernels.back(), "portable");
}

TEST(Calibrate, WritesATableOfEveryRuleWithWork) {
  CalibrateRequest request = cpu_calibration("fp32");
  for (CostSubject& subject : request.subjects) subject.shapes = {{8, 16}};
  request.rounds = 1;
  request.date = "2026-01-31";
  MachineInfo machine = machine_info();
  machine.blas.fallback_core = false;
  const std::string table = calibrate(request, machine, kSilent);
  for (const char* word :
       {"canzona.cost_table", "2026-01-31", "\"standard\"", "\"symmetric\"",
        "\"gram\"", "refresh_seconds", "element_wise_bytes_per_second"})
    EXPECT_THAT(table, HasSubstr(word));
  for (const RuleEntry& rule : rule_table())
    EXPECT_THAT(table, HasSubstr(cat("\"rule\": \"", rule.name, "\"")));
}

// Muon computes small matrices in fp32 where others are in bf16.
TEST(Calibrate, MeasuresSmallShapesThatHaveTheirOwnAlgorithm) {
  const auto algorithms = [](const char* precision) {
    std::vector<std::string> all;
    for (const CostSubject& subject : cpu_calibration(precision).subjects) {
      const auto facts = make_rule_facts(subject.rule, subject.options);
      for (const MatrixShape& shape : subject.shapes)
        EXPECT_EQ(facts->algorithm(shape),
                  facts->algorithm(subject.shapes.front()));
      if (subject.rule == "muon")
        all.push_back(facts->algorithm(subject.shapes.front()));
    }
    return all;
  };
  EXPECT_THAT(algorithms("fp32"), ElementsAre("standard", "symmetric", "gram"));
  EXPECT_THAT(algorithms("bf16"),
              ElementsAre("standard", "standard_fp32", "symmetric",
                          "symmetric_fp32", "gram", "gram_fp32"));
}

// One small matrix is square, so it uses another form than the other two.
Plan toy_plan() {
  Plan plan;
  plan.rule = "muon";
  plan.rule_options = make_rule_facts("muon", {{"device", "cpu"}})->options();
  for (const MatrixShape& shape :
       {MatrixShape{8, 32}, {16, 16}, {8, 32}, {0, 4}, {32, 8}}) {
    Matrix matrix;
    matrix.rows = shape.rows;
    matrix.cols = shape.cols;
    plan.matrices.push_back(matrix);
  }
  return plan;
}

TEST(Calibrate, MeasuresWhatAPlanNeedsOnAllRanksAtOnce) {
  CalibrateRequest request = calibration_for(toy_plan());
  EXPECT_EQ(request.device, "cpu");
  size_t shapes = 0;
  for (const CostSubject& subject : request.subjects)
    shapes += subject.shapes.size();
  EXPECT_EQ(shapes, 3U);
  request.rounds = 1;
  request.num_ranks = 2;
  request.date = "2026-01-31";
  MachineInfo machine = machine_info();
  machine.blas.fallback_core = false;
  const CostTable table =
      CostTable::parse(calibrate(request, machine, kSilent), "table");
  EXPECT_THAT(table.device(), HasSubstr("2 cores at once"));
  EXPECT_GT(table.element_wise_bytes_per_second().value_or(0), 0);
  const auto muon = make_rule_facts("muon", toy_plan().rule_options);
  EXPECT_GT(table.seconds(*muon, {16, 16}, false).value_or(0), 0);
}

TEST(Calibrate, SharesNoGpu) {
  CalibrateRequest request{.device = "cuda", .num_ranks = 2};
  EXPECT_THAT([&] { calibrate(request, machine_info(), kSilent); },
              ThrowsMessage<UsageError>(HasSubstr("2 ranks on a cuda")));
}

TEST(Calibrate, NeverStoresTheTimesOfAFallbackCore) {
  MachineInfo machine = machine_info();
  machine.blas.fallback_core = true;
  machine.blas.core = "Prescott";
  EXPECT_THAT([&] { calibrate({}, machine, kSilent); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("Prescott"), HasSubstr("doctor"))));
}

}  // namespace
}  // namespace canzona::measure::measure_test
