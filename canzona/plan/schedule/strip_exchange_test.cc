// Strips that go one by one: who is chosen, what moves, and what the plan says.
#include "canzona/plan/schedule/routes.h"

#include <gmock/gmock.h>

#include <set>

#include "canzona/base/text.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/testing/test_home_of_slots.h"
#include "canzona/plan/testing/test_teams.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::strip_exchange_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PlanOptions exchanged_by(ExchangeBy how, int64_t capacity = 1'000'000) {
  PlanOptions options;
  options.exchange = how;
  options.capacity_bytes = capacity;
  return options;
}

RuleChoice on_cpu(int strips) {
  RuleChoice rule = rule_with_strips(strips);
  rule.options["device"] = "cpu";
  return rule;
}

// A wide and a tall matrix in every layer.
Model wide_and_tall(int32_t layers) {
  Model model = wide_and_small(layers);
  std::erase_if(model.tensors,
                [](const Tensor& t) { return t.cut == Cut::kNone; });
  return model;
}

Plan strip_plan(const Model& model, const char* mesh, int strips,
                const PlanOptions& options) {
  return plan_of(model, mesh, options, on_cpu(strips));
}

TEST(StripExchange, BringsStripsAndTakesUpdates) {
  Model fused = wide_and_tall(2);
  fused.tensors[1].sections = {{"gate", {0, 1024, 1024, 1}, 1},
                               {"up", {1024, 1024, 1024, 1}, 1}};
  for (const char* mesh : {"tp=2", "tp=4", "dp=2,tp=2"})
    for (const int strips : {2, 8})
      for (const int64_t capacity : {1000, 1'000'000'000}) {
        SCOPED_TRACE(testing::Message() << mesh << " " << strips);
        const PlanOptions options = exchanged_by(ExchangeBy::kStrips, capacity);
        EXPECT_GT(check_slots(strip_plan(fused, mesh, strips, options)), 0);
      }
  EXPECT_EQ(check_slots(strip_plan(fused, "tp=4", 8,
                                   exchanged_by(ExchangeBy::kRounds))),
            0);
}

// Every owner's largest, of equal ones the first; teams keep their rounds to
// themselves.
TEST(StripExchange, TakesOneMatrixOfEachOwner) {
  Plan plan = strip_plan(wide_and_small(2), "tp=2", 8,
                         exchanged_by(ExchangeBy::kStrips));
  PlanPart& part = plan.parts[0];
  // wide, tall, small; wide, tall, small.
  const auto owned_by = [&](std::vector<std::vector<int32_t>> lists) {
    part.owners = {};
    for (const auto& list : lists) part.owners.push_back(list);
  };
  const std::vector<int32_t> all{0, 1, 2, 3, 4, 5};
  TeamTable teams(part);
  owned_by({{0}, {0}, {0}, {1}, {0}, {1}});
  const StripExchange some(part, teams, all);
  EXPECT_EQ(some.size(), 8);
  for (const int32_t m : all)
    EXPECT_EQ(some.strips(m), m == 1 || m == 3 ? 8 : 0) << m;
  owned_by({{0}, {}, {0}, {0, 1}, {0}, {1}});
  EXPECT_EQ(StripExchange(part, teams, all).size(), 0);
  owned_by({{}, {}, {1}, {}, {}, {1}});
  EXPECT_EQ(StripExchange(part, teams, all).size(), 0);
}

// Matrices of fewer strips go with some of the exchanges, in order.
TEST(StripExchange, SpreadsFewStrips) {
  Model model = wide_and_small(1);
  model.tensors[0] = matrix_tensor("layers.0.wide", 64, 256, Cut::kColumns, 0);
  const Plan plan =
      strip_plan(model, "tp=2", 8, exchanged_by(ExchangeBy::kStrips));
  PlanPart part = plan.parts[0];
  part.owners = {};
  for (const int32_t owner : {0, 1, 0}) part.owners.push_back(owner);
  TeamTable teams(part);
  const std::vector<int32_t> all{0, 1, 2};
  const StripExchange strips(part, teams, all);
  EXPECT_EQ(strips.size(), 8);
  EXPECT_EQ(strips.strips(0), 4);
  // Owner 0 begins with its first strip, owner 1 of two with its fifth.
  EXPECT_EQ(strips.exchange_of(0, 0), 0);
  EXPECT_EQ(strips.exchange_of(0, 3), 6);
  EXPECT_EQ(strips.exchange_of(1, 4), 0);
  EXPECT_EQ(strips.exchange_of(1, 7), 3);
  EXPECT_EQ(strips.exchange_of(1, 3), 7);
  HomeOfSlots home(part, 0, 0);
  home.check();
}

// In the first and the last round alone: gathers of strips before the others,
// products and scatters after them.
TEST(StripExchange, IsOfTheFirstAndTheLastRound) {
  const Plan plan = strip_plan(wide_and_tall(4), "tp=2", 4,
                               exchanged_by(ExchangeBy::kStrips, 1000));
  const PlanPart& part = plan.parts[0];
  const Coordinates at = coordinates_of(part.grid, 0);
  const RankLayout layout = lay_out_rank(part, at);
  const Kept kept = kept_by(part, at, layout);
  const std::vector<Round> rounds = make_rounds(part, at, kept, 1);
  ASSERT_GT(rounds.size(), 2u);
  for (size_t r = 0; r < rounds.size(); ++r)
    EXPECT_EQ(rounds[r].num_tables(), r == 0 || r + 1 == rounds.size() ? 6 : 2);
  const RankEntries entries(part, 0, layout, kept, rounds);
  std::vector<std::string> words;
  for (const ScheduleEntry& e : entries.step())
    if (e.round == 0)
      words.push_back(cat(word_of(e.kind), e.strip < 0 ? "" : " ",
                          e.strip < 0 ? "" : std::to_string(e.strip)));
  std::vector<std::string> want{"prepare"};
  for (const char* i : {"0", "1", "2", "3"})
    want.push_back(cat("all-to-all ", i));
  want.emplace_back("all-to-all");
  const size_t others = want.size();
  for (const char* i : {"0", "1", "2", "3"})
    want.push_back(cat("sum strips ", i));
  want.emplace_back("iterate");
  want.emplace_back("transform");
  for (const char* i : {"0", "1", "2", "3"}) {
    want.push_back(cat("multiply strips ", i));
    want.push_back(cat("all-to-all ", i));
  }
  want.emplace_back("apply");
  // Other matrices of the round have exchanges of their own, if there are any.
  std::erase(words, "all-to-all");
  want.erase(want.begin() + static_cast<int64_t>(others) - 1);
  EXPECT_EQ(words, want);
}

TEST(StripExchange, IsChosenWhereTheStepIsShorter) {
  const Model model = wide_and_tall(3);
  PlanOptions options = exchanged_by(ExchangeBy::kAuto);
  options.links.intra_bytes_per_second = 1e13;
  options.links.latency_seconds = 0;
  const Plan slow = strip_plan(model, "tp=4", 8, options);
  EXPECT_EQ(slow.options.exchange, ExchangeBy::kStrips);
  options.exchange = ExchangeBy::kRounds;
  const Plan rounds = strip_plan(model, "tp=4", 8, options);
  EXPECT_EQ(rounds.options.exchange, ExchangeBy::kRounds);
  EXPECT_LT(slow.summary.step_seconds_mean, rounds.summary.step_seconds_mean);
  EXPECT_EQ(slow.parts[0].owners, rounds.parts[0].owners);
  // A message costs more than it hides.
  options.exchange = ExchangeBy::kAuto;
  options.links.intra_bytes_per_second = 1e18;
  options.links.latency_seconds = 1;
  EXPECT_EQ(strip_plan(model, "tp=4", 8, options).options.exchange,
            ExchangeBy::kRounds);
}

TEST(StripExchange, IsRefusedWhereNothingHasStrips) {
  const PlanOptions options = exchanged_by(ExchangeBy::kStrips);
  const auto refused = [&](const char* mesh, const RuleChoice& rule) {
    EXPECT_THAT(
        [&] { plan_of(wide_and_small(1), mesh, options, rule); },
        testing::ThrowsMessage<UsageError>(HasSubstr("exchange strips: rule")))
        << mesh << " " << rule.name;
  };
  refused("dp=2", on_cpu(8));
  refused("tp=2", on_cpu(1));
  refused("tp=2", {"shampoo", {}});
  RuleChoice gpu = on_cpu(8);
  gpu.options["device"] = "cuda";
  refused("tp=2", gpu);
  for (const char* strategy : {"replicated", "layerwise"}) {
    PlanOptions repeated = options;
    repeated.strategy = strategy;
    EXPECT_THAT(
        [&] { plan_of(wide_and_small(1), "dp=2,tp=2", repeated, on_cpu(8)); },
        testing::ThrowsMessage<UsageError>(HasSubstr(cat(
            "exchange strips: strategy ", strategy, " gives matrices no"))));
  }
  EXPECT_EQ(
      plan_of(wide_and_small(1), "tp=2", exchanged_by(ExchangeBy::kAuto), gpu)
          .options.exchange,
      ExchangeBy::kRounds);
}

// Matrices with strips are in the middle, where rounds are not cut.
TEST(StripExchange, OfRoundsWithoutStripsIsNotSound) {
  Plan plan = strip_plan(wide_and_small(2), "tp=2", 8,
                         exchanged_by(ExchangeBy::kStrips));
  EXPECT_THAT(validate(plan), IsEmpty());
  PlanPart& part = plan.parts[0];
  // wide, tall, small; wide, tall, small.
  part.micro_group = {1, 1, 0, 1, 1, 2};
  summarize(plan);
  EXPECT_THAT(validate(plan),
              ElementsAre(HasSubstr("exchange strips: no matrix of the first "
                                    "or the last round has strips")));
  part.micro_group = {1, 1, 0, 1, 2, 1};
  summarize(plan);
  EXPECT_THAT(validate(plan), IsEmpty());
}

// What plan refuses, validate finds in a file.
TEST(StripExchange, OfAPlanWithoutStripsIsNotSound) {
  Plan plan = plan_of(wide_and_small(1), "tp=2",
                      exchanged_by(ExchangeBy::kRounds), on_cpu(1));
  ASSERT_THAT(validate(plan), testing::IsEmpty());
  plan.options.exchange = ExchangeBy::kStrips;
  plan.parts[0].options.exchange = ExchangeBy::kStrips;
  EXPECT_THAT(validate(plan),
              testing::Contains(HasSubstr("exchange strips: rule muon")));
}

// The first and the last round have the small matrices.
TEST(StripExchange, IsRefusedWhereNoRoundIsCut) {
  std::vector<Tensor> tensors;
  for (const char* name : {"up", "down"})
    tensors.push_back(matrix_tensor(name, 64, 1024, Cut::kColumns));
  for (const char* name : {"q", "k", "v", "o"})
    tensors.push_back(matrix_tensor(name, 64, 64, Cut::kRows));
  const Model model = model_of(std::move(tensors));
  EXPECT_THAT(
      [&] { strip_plan(model, "tp=2", 8, exchanged_by(ExchangeBy::kStrips)); },
      testing::ThrowsMessage<UsageError>(HasSubstr(
          "exchange strips: no matrix of the first or the last round")));
  EXPECT_EQ(strip_plan(model, "tp=2", 8, exchanged_by(ExchangeBy::kAuto))
                .options.exchange,
            ExchangeBy::kRounds);
}

TEST(StripExchange, IsReadBack) {
  const Plan plan = strip_plan(wide_and_small(2), "tp=2", 8,
                               exchanged_by(ExchangeBy::kStrips));
  const std::string text = plan_to_json(plan);
  EXPECT_THAT(text, HasSubstr("\"exchange\":\"strips\""));
  EXPECT_THAT(text, HasSubstr("\"version\":2"));
  const Plan rounds = strip_plan(wide_and_small(2), "tp=2", 8,
                                 exchanged_by(ExchangeBy::kRounds));
  EXPECT_THAT(plan_to_json(rounds), testing::Not(HasSubstr("exchange")));
  const ReadPlan read = plan_from_json(text, "plan");
  EXPECT_TRUE(read.digest_matches);
  EXPECT_EQ(read.plan.options, plan.options);
  EXPECT_EQ(validate(read.plan), std::vector<std::string>{});
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& words) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    EXPECT_THAT([&] { plan_from_json(other, "plan"); },
                testing::ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  refused("\"exchange\":\"strips\"", "\"exchange\":\"rounds\"",
          "exchange rounds: expected strips");
  refused("\"exchange\":\"strips\"", "\"exchange\":\"pieces\"",
          "exchange 'pieces': expected auto, rounds or strips");
  refused("\"version\":2", "\"version\":1", "version 1 with teams off");
}

}  // namespace
}  // namespace canzona::strip_exchange_test
