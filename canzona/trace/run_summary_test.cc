#include "canzona/trace/run_summary.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/base/error.h"

namespace canzona::trace::run_summary_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

RunSummary sample() {
  RunSummary s;
  s.steps = 200;
  s.tokens = 409600;
  s.seconds = 61.5;
  s.final_loss = 1.625;
  s.eval_loss = 1.75;
  s.digest = "3f";
  s.state_digest = "77";
  s.weights_sha256 = "5a";
  s.config = Json{{"batch", {{"global", 16}}},
                  {"seed", -1},
                  {"rule", {{"learning_rate", 0.02}, {"nesterov", true}}},
                  {"betas", {0.5, 1}},
                  {"eval", nullptr}};
  s.model = "tiny";
  s.parameters = 1'000'000;
  s.mesh = "dp=2,tp=2";
  s.ranks = 4;
  s.transport = "thread";
  s.rule = "muon";
  s.precision = "bf16";
  s.precision_why = "auto: AMX";
  s.strategy = "balanced";
  s.plan_digest = "ab";
  s.predicted_step_seconds = 0.25;
  s.data = "synthetic";
  s.data_digest = "cd";
  s.environment = {"box", "some CPU", 16, "OpenBLAS", "", "0.1.0", "c2a0d7b"};
  s.per_rank = {{0, 40, 10, 5, 8, 6.5, 1000, 900, 7, 1.25},
                {1, 41, 9, 5, 8, 6.5, 1000, 901, 6, 0.75}};
  return s;
}

std::string message_of(const std::string& text) {
  try {
    read_summary(text, "summary.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(RunSummary, ReadsBackAsItWas) {
  const RunSummary s = sample();
  const RunSummary read = read_summary(to_json(s), "summary.json");
  EXPECT_EQ(to_json(read), to_json(s));
  EXPECT_EQ(read.steps, 200);
  EXPECT_EQ(read.eval_loss, 1.75);
  EXPECT_EQ(read.config, s.config);
  EXPECT_EQ(read.environment.cpu, "some CPU");
  EXPECT_EQ(read.precision, "bf16");
  EXPECT_EQ(read.precision_why, "auto: AMX");
  ASSERT_THAT(read.per_rank, SizeIs(2));
  EXPECT_EQ(read.per_rank[1].reserved_bytes, 901);
  EXPECT_EQ(read.per_rank[1].owned_matrices, 6);
  EXPECT_EQ(read.per_rank[0].load, 1.25);
}

TEST(RunSummary, HasThePromisedMembers) {
  const Json object = Json::parse(to_json(sample()));
  for (const char* key : {"steps", "tokens", "seconds", "final_loss",
                          "eval_loss", "digest", "config"})
    EXPECT_TRUE(object.contains(key)) << key;
  EXPECT_EQ(object["config"]["batch"]["global"], 16);
}

TEST(RunSummary, TheCoreIsEnough) {
  const RunSummary read =
      read_summary(R"({"steps":1,"tokens":2,"seconds":3,"final_loss":null,)"
                   R"("eval_loss":null,"digest":"","config":{},"new":{}})",
                   "summary.json");
  EXPECT_TRUE(std::isnan(read.final_loss));
  EXPECT_EQ(read.ranks, 1);
  EXPECT_THAT(read.per_rank, SizeIs(0));
}

TEST(RunSummary, ARunThatIsGoingOnSaysSo) {
  RunSummary s = sample();
  s.state = "running";
  s.pid = 4711;
  s.started = "2026-01-31T12:00:00Z";
  s.final_loss = s.eval_loss = RunSummary::kNone;
  const RunSummary read = read_summary(to_json(s), "summary.json");
  EXPECT_FALSE(read.has_ended());
  EXPECT_EQ(read.pid, 4711);
  EXPECT_EQ(read.started, s.started);
  EXPECT_EQ(read.rule, "muon");
  EXPECT_TRUE(std::isnan(read.eval_loss));
}

TEST(RunSummary, WhatWasSkippedAndNotedIsKept) {
  RunSummary s = sample();
  s.state = "diverged";
  s.skipped_steps = 7;
  s.nonfinite_tensor = "model.layers.0.q";
  s.nonfinite_rank = 3;
  s.spikes = 2;
  s.spike_step = 41;
  s.spike_loss = 8.5;
  s.spike_over = 0.25;
  s.notes = {"no config.json"};
  const RunSummary read = read_summary(to_json(s), "summary.json");
  EXPECT_EQ(read.state, "diverged");
  EXPECT_EQ(read.skipped_steps, 7);
  EXPECT_EQ(read.nonfinite_tensor, "model.layers.0.q");
  EXPECT_EQ(read.nonfinite_rank, 3);
  EXPECT_EQ(read.spikes, 2);
  EXPECT_EQ(read.spike_step, 41);
  EXPECT_EQ(read.spike_loss, 8.5);
  EXPECT_EQ(read.spike_over, 0.25);
  EXPECT_EQ(read.notes, s.notes);
}

TEST(RunSummary, RatesAreThoseOfTheWholeRun) {
  RunSummary s = sample();
  s.tokens = 1000;
  s.seconds = 4;
  s.flops_per_token = 600;
  EXPECT_TRUE(Json::parse(to_json(s))["mfu"].is_null());
  s.product_flops_per_second = 300'000;
  const Json object = Json::parse(to_json(s));
  EXPECT_EQ(object["tokens_per_second"], 250);
  EXPECT_EQ(object["mfu"], 0.5);
  EXPECT_NEAR(object["perplexity"].get<double>(), 5.7546, 1e-4);
  s.eval_loss = RunSummary::kNone;
  EXPECT_TRUE(Json::parse(to_json(s))["perplexity"].is_null());
}

// Four ranks, ten steps after a resume; the third works 2 s longer than the
// others.
TEST(RunSummary, R9ALateRankIsNamedWithItsExcess) {
  RunSummary s = sample();
  s.steps = 30;
  s.start_step = 20;
  s.starts = 2;
  s.per_rank = {{0, 3, 1.0, 2}, {1, 3, 1.1, 2}, {2, 5, 1.0, 0}, {3, 3, 0.9, 2}};
  find_late_ranks(s);
  EXPECT_EQ(s.late_rank, 2);
  EXPECT_NEAR(s.late_seconds_per_step, 0.2, 1e-12);
  EXPECT_NEAR(s.per_rank[1].late_seconds_per_step, 0.01, 1e-12);
  EXPECT_EQ(s.per_rank[3].late_seconds_per_step, 0);
  const RunSummary read = read_summary(to_json(s), "summary.json");
  EXPECT_EQ(read.late_rank, 2);
  EXPECT_EQ(read.starts, 2);
  EXPECT_EQ(read.start_step, 20);
  EXPECT_NEAR(read.per_rank[2].late_seconds_per_step, 0.2, 1e-12);
}

TEST(RunSummary, R9OfTwoRanksTheFasterOneIsTheMeasure) {
  RunSummary s = sample();
  s.steps = 10;
  s.per_rank = {{0, 5, 0, 0}, {1, 3, 0, 2}};
  find_late_ranks(s);
  EXPECT_EQ(s.late_rank, 0);
  EXPECT_NEAR(s.late_seconds_per_step, 0.2, 1e-12);
}

TEST(RunSummary, R9NobodyIsNamedForNothing) {
  RunSummary s = sample();
  s.steps = 10;
  s.per_rank = {{0, 5, 1, 0.1}, {1, 5.3, 1, 0}, {2, 4.8, 1, 0.3}};
  find_late_ranks(s);
  EXPECT_EQ(s.late_rank, -1);
  s.per_rank.resize(1);
  find_late_ranks(s);
  EXPECT_EQ(s.late_rank, -1);
  s.per_rank = {{0, 5, 1, 0.1}, {1, 9, 1, 0}};
  s.start_step = 10;  // no step since
  find_late_ranks(s);
  EXPECT_EQ(s.late_rank, -1);
}

// Summaries from before there was a state.
TEST(RunSummary, OlderFilesTellTheirStateByInterrupted) {
  const char* kCore =
      R"({"steps":1,"tokens":2,"seconds":3,"final_loss":1,"eval_loss":1,)"
      R"("digest":"","config":{},"interrupted":%})";
  for (const auto& [word, state] :
       {std::pair("true", "stopped"), std::pair("false", "finished")}) {
    std::string text = kCore;
    text.replace(text.find('%'), 1, word);
    EXPECT_EQ(read_summary(text, "summary.json").state, state);
  }
}

TEST(RunSummary, NamesWhatIsWrong) {
  EXPECT_THAT(message_of("{}"),
              AllOf(HasSubstr("summary.json"), HasSubstr("'steps'")));
  EXPECT_THAT(message_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(message_of("{\"steps\":"), HasSubstr("not valid JSON"));
  const auto changed = [](const char* key, const Json& value) {
    Json object = Json::parse(to_json(sample()));
    object[key] = value;
    return message_of(object.dump());
  };
  EXPECT_THAT(changed("steps", -1), HasSubstr("'steps' is -1"));
  EXPECT_THAT(changed("seconds", "1"), HasSubstr("a number"));
  EXPECT_THAT(changed("config", 1), HasSubstr("'config'"));
  EXPECT_THAT(changed("environment", 1), HasSubstr("environment"));
  EXPECT_THAT(changed("data", Json::array()), HasSubstr("data"));
  EXPECT_THAT(changed("per_rank", 1), HasSubstr("per_rank"));
  EXPECT_THAT(changed("per_rank", Json::array({1})), HasSubstr("per_rank[0]"));
  EXPECT_THAT(changed("per_rank", Json::array({{{"rank", -1}}})),
              HasSubstr("'rank' is -1"));
  EXPECT_THAT(changed("notes", 1), HasSubstr("notes"));
  EXPECT_THAT(changed("notes", Json::array({1})), HasSubstr("notes"));
  EXPECT_THAT(changed("state", 1), HasSubstr("'state'"));
  EXPECT_THAT(changed("rule", 1), HasSubstr("'rule'"));
}

}  // namespace
}  // namespace canzona::trace::run_summary_test
