#include "canzona/report/explain.h"

#include <gmock/gmock.h>

#include <map>

#include "canzona/base/json_reader.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/test_plans.h"

namespace canzona::report::explain_test {
namespace {

using ::testing::HasSubstr;

void expect_page(const std::string& text) {
  for (const std::string& line : split_text(text, '\n'))
    EXPECT_LE(display_width(line), kPageWidth) << line;
}

TEST(Explain, EveryStrategyCanBeExplained) {
  for (const std::string& strategy : strategy_names()) {
    const ReportPlan shown = shown_plan({.strategy = strategy});
    for (const char* name : {"layers.0.up", "layers.2.down", "layers.1.norm"}) {
      const Found found = find_by_name(shown.plan, name);
      const std::string text =
          print_text(explain_matrices(shown, found), Ink());
      EXPECT_THAT(text, HasSubstr(name));
      expect_page(text);
      const Json json = parse_json(to_json(explain_matrices(shown, found)), {});
      EXPECT_EQ(json.at("tensor"), name);
      EXPECT_EQ(json.at("matrices").size(), found.matrices.size());
    }
  }
}

TEST(Explain, AMatrixSaysWhyAndWhatMoves) {
  const ReportPlan shown = shown_plan();
  const std::string text = print_text(
      explain_matrices(shown, find_by_name(shown.plan, "layers.0.up")), Ink());
  for (const char* part :
       {"Why", "as planned", "without this matrix", "best other", "lower bound",
        "What moves", "reduce-scatter", "gather", "scatter", "all-gather"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Explain, ARankListsWhatItComputes) {
  const ReportPlan shown = shown_plan();
  for (int32_t rank = 0; rank < shown.plan.mesh.world(); ++rank) {
    expect_page(print_text(explain_rank(shown, rank), Ink()));
    const Json json = parse_json(to_json(explain_rank(shown, rank)), {});
    EXPECT_EQ(json.at("rank"), rank);
    EXPECT_EQ(json.at("matrices").size(),
              static_cast<size_t>(
                  shown.ranks[static_cast<size_t>(rank)].num_matrices));
  }
}

// The words and bytes of an entry are those of the spans of a trace, which the
// runtime's tests compare with the same functions.
void expect_entries(const ReportPlan& shown, int32_t rank) {
  const Plan& plan = shown.plan;
  std::map<int32_t, RankInPart> at;  // by part
  for (const RankInPart& in : parts_of_rank(plan, rank)) at[in.part] = in;
  const Json json = parse_json(to_json(explain_rank(shown, rank)), {});
  size_t next = 0;
  for (const ScheduleEntry& e : iteration_of(
           plan, rank,
           usual_calls(plan, coordinates_of(plan.mesh, rank).stage, 1))) {
    const Json& row = json.at("iteration").at(next++);
    EXPECT_EQ(row.at("what"), describe(plan, e));
    EXPECT_EQ(row.contains("operation"), e.kind != EntryKind::kCall);
    if (e.kind == EntryKind::kCall) continue;
    const PlanPart& part = plan.parts[static_cast<size_t>(e.part)];
    const int32_t own = at[e.part].rank;
    const Coordinates in = in_grid(part, own);
    EXPECT_EQ(row.at("operation"), word_of(e.kind));
    EXPECT_EQ(row.at("label"), label_of(part, e));
    EXPECT_EQ(row.at("tensors"),
              names_of(part, kept_by(part, in, lay_out_rank(part, in)), e));
    EXPECT_EQ(row.at("bytes"), bytes_of(part, own, e, kBytesPerFp32));
  }
  EXPECT_EQ(json.at("iteration").size(), next);
}

TEST(Explain, ARanksEntriesHaveTheWordsAndBytesOfSpans) {
  for (const char* zero : {"zero1", "hier:2"})
    for (const std::string& strategy : strategy_names()) {
      if (strategy != "balanced" && zero != std::string("zero1")) continue;
      const ReportPlan shown = shown_plan({.strategy = strategy,
                                           .mesh = "dp=4,tp=2",
                                           .zero = zero,
                                           .ranks_per_node = 4});
      for (const int32_t rank : {0, 7}) expect_entries(shown, rank);
    }
  for (const int32_t rank : {0, 3}) expect_entries(shown_in_parts(), rank);
}

// --json has every number that is printed.
TEST(Explain, ARanksNumbersAreInItsJson) {
  const ReportPlan shown =
      shown_plan({.mesh = "dp=4,tp=2", .zero = "hier:2", .ranks_per_node = 4});
  const int32_t world = shown.plan.mesh.world();
  std::map<std::string, double> sums;
  for (int32_t rank = 0; rank < world; ++rank) {
    const Json memory =
        parse_json(to_json(explain_rank(shown, rank)), {}).at("memory");
    for (const auto& [kind, bytes] : memory.items())
      sums[kind] += bytes.get<double>();
  }
  const std::string text = print_text(explain_rank(shown, 5), Ink());
  const Json json = parse_json(to_json(explain_rank(shown, 5)), {});
  const Json& mean = json.at("mean_memory");
  EXPECT_EQ(mean.size(), sums.size());
  for (const auto& [kind, sum] : sums)
    EXPECT_EQ(mean.at(kind).get<double>(), sum / world) << kind;
  EXPECT_THAT(text, HasSubstr("activations: not counted"));
  EXPECT_EQ(json.at("activations_counted"), false);
  const Json& modules = json.at("bytes_per_micro_batch");
  for (const auto& [key, name] :
       {std::pair("modules_gathered", "modules gathered, per micro-batch"),
        std::pair("gradients", "gradients, per micro-batch")}) {
    const size_t at = text.find(name);
    ASSERT_NE(at, std::string::npos) << name;
    const std::string row = text.substr(at, text.find('\n', at) - at);
    for (const char* way :
         {"sent_intra", "sent_inter", "received_intra", "received_inter"})
      EXPECT_THAT(
          row, HasSubstr(human_bytes(modules.at(key).at(way).get<int64_t>())))
          << name << ", " << way;
  }
}

TEST(Explain, RefreshesNameTheirPhase) {
  const ReportPlan shown =
      shown_plan({.rule = "soap", .rule_options = {{"phases", "2"}}});
  EXPECT_THAT(print_text(explain_matrices(
                             shown, find_by_name(shown.plan, "layers.0.up")),
                         Ink()),
              HasSubstr("phase"));
}

// The total of a rank is what `plan` prints and compares with the cap.
TEST(Explain, ARanksTotalCountsWhatAPlanCounts) {
  ReportPlan shown = shown_plan({.mesh = "dp=4"});
  shown.terms = MemoryTerms{.load = {.tokens = 64}, .activations = 5 << 20};
  const int64_t total = fullest_memory(shown.ranks).total().value() + (5 << 20);
  int64_t most = 0;
  for (int32_t rank = 0; rank < 4; ++rank)
    most = std::max(most, parse_json(to_json(explain_rank(shown, rank)), {})
                              .at("counted_total")
                              .get<int64_t>());
  EXPECT_EQ(most, total);
  EXPECT_THAT(print_text(explain_rank(shown, 0), Ink()),
              HasSubstr("activations"));
  EXPECT_THAT(print_text(memory_view(shown), Ink()),
              HasSubstr(human_bytes(total)));
}

}  // namespace
}  // namespace canzona::report::explain_test
