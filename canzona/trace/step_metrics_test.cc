#include "canzona/trace/run_summary.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "canzona/base/error.h"

namespace canzona::trace::step_metrics_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

StepMetrics sample(int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 4.125;
  m.grad_norm = 1.5;
  m.lr = 1e-3;
  m.tokens_per_second = 12345.5;
  m.optimizer_ms = 3.25;
  m.comm_ms = 1.125;
  m.hidden_fraction = 0.9375;
  m.memory_bytes = 123 << 20;
  m.tokens = 2048 * step;
  m.seconds = 0.5 * static_cast<double>(step);
  return m;
}

std::string message_of(const std::string& text) {
  try {
    read_metrics(text, "metrics.jsonl");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

// The line is written before the evaluation begins.
TEST(StepMetrics, AnEvaluationIsAddedToALineThatWasWritten) {
  StepMetrics m = sample(7);
  std::string line = json_line(m);
  line.pop_back();
  line += evaluation_tail(0.5);
  m.eval_loss = 0.5;
  EXPECT_EQ(line, json_line(m));
  EXPECT_EQ(read_metrics(line + "\n", "metrics.jsonl")[0].eval_loss, 0.5);
  EXPECT_THAT(line, HasSubstr("\"perplexity\":1.648"));
}

TEST(StepMetrics, ALineReadsBackAsItWas) {
  StepMetrics m = sample(7);
  m.eval_loss = 4.25;
  m.skipped = true;
  m.nonfinite_tensor = "model.layers.0.q";
  m.nonfinite_rank = 3;
  m.spike_over = 0.25;
  m.largest_logit = 130.5;
  m.clipped_heads = 3;
  m.mfu = 0.375;
  const auto read = read_metrics(json_line(m) + "\n", "metrics.jsonl");
  ASSERT_THAT(read, SizeIs(1));
  EXPECT_EQ(read[0].step, 7);
  EXPECT_EQ(read[0].loss, m.loss);
  EXPECT_EQ(read[0].grad_norm, m.grad_norm);
  EXPECT_EQ(read[0].lr, m.lr);
  EXPECT_EQ(read[0].tokens_per_second, m.tokens_per_second);
  EXPECT_EQ(read[0].optimizer_ms, m.optimizer_ms);
  EXPECT_EQ(read[0].comm_ms, m.comm_ms);
  EXPECT_EQ(read[0].hidden_fraction, m.hidden_fraction);
  EXPECT_EQ(read[0].memory_bytes, m.memory_bytes);
  EXPECT_EQ(read[0].tokens, m.tokens);
  EXPECT_EQ(read[0].seconds, m.seconds);
  EXPECT_TRUE(read[0].skipped);
  EXPECT_EQ(read[0].nonfinite_tensor, m.nonfinite_tensor);
  EXPECT_EQ(read[0].nonfinite_rank, 3);
  EXPECT_EQ(read[0].spike_over, 0.25);
  EXPECT_EQ(read[0].largest_logit, 130.5);
  EXPECT_EQ(read[0].clipped_heads, 3);
  EXPECT_EQ(read[0].mfu, m.mfu);
  EXPECT_EQ(read[0].eval_loss, 4.25);
}

TEST(StepMetrics, AnotherParserFindsThePromisedMembers) {
  const auto object = nlohmann::json::parse(json_line(sample(1)));
  for (const char* key :
       {"step", "loss", "grad_norm", "lr", "tokens_per_second", "optimizer_ms",
        "comm_ms", "hidden_fraction", "memory_bytes"})
    EXPECT_TRUE(object.contains(key)) << key;
  EXPECT_FALSE(object.contains("eval_loss"));
  EXPECT_FALSE(object.contains("skipped"));
}

TEST(StepMetrics, ALossThatIsNotFiniteStaysSo) {
  StepMetrics m = sample(1);
  m.loss = std::numeric_limits<double>::infinity();
  m.eval_loss = std::nan("");
  const auto read = read_metrics(json_line(m), "metrics.jsonl");
  ASSERT_THAT(read, SizeIs(1));
  EXPECT_TRUE(std::isnan(read[0].loss));
  ASSERT_TRUE(read[0].eval_loss);
  EXPECT_TRUE(std::isnan(*read[0].eval_loss));
}

TEST(StepMetrics, ReadsWhatOlderAndNewerWritersLeave) {
  const std::string text =
      R"({"step":1,"loss":2,"grad_norm":1,"lr":0.1,"tokens_per_second":9,)"
      R"("optimizer_ms":0,"comm_ms":0,"hidden_fraction":1,"memory_bytes":5,)"
      R"("what_may_come":[1,2]})";
  const auto read = read_metrics(text, "metrics.jsonl");
  ASSERT_THAT(read, SizeIs(1));
  EXPECT_EQ(read[0].tokens, 0);
  EXPECT_EQ(read[0].eval_loss, std::nullopt);
}

TEST(StepMetrics, ALastLineThatWasCutOffIsLeftOut) {
  const std::string one = json_line(sample(1)) + "\n";
  const std::string two = json_line(sample(2));
  for (size_t length = 0; length < two.size(); ++length)
    EXPECT_THAT(read_metrics(one + two.substr(0, length), "m"), SizeIs(1));
  EXPECT_THAT(read_metrics(one + two, "m"), SizeIs(2));
  EXPECT_THAT(read_metrics("", "m"), SizeIs(0));
  EXPECT_THAT(read_metrics("\n \r\n", "m"), SizeIs(0));
}

TEST(StepMetrics, NamesTheLineAndWhatIsWrong) {
  const std::string good = json_line(sample(1)) + "\n";
  EXPECT_THAT(message_of(good + "{\"step\":2}\n"),
              AllOf(HasSubstr("metrics.jsonl line 2"), HasSubstr("'loss'")));
  EXPECT_THAT(message_of("[]\n"), HasSubstr("expected an object"));
  EXPECT_THAT(message_of("{\"step\":0}\n"), HasSubstr("'step' is 0"));
  EXPECT_THAT(message_of("{\"step\":1,\"step\":1}\n"), HasSubstr("twice"));
  EXPECT_THAT(message_of("\x80\n"), HasSubstr("line 1"));
  EXPECT_THAT(message_of(good + good), HasSubstr("step 1 comes after step 1"));
  EXPECT_THAT(message_of(std::string(100, '[') + "\n"), HasSubstr("deeper"));
  EXPECT_THAT(message_of("\"" + std::string(70000, 'x') + "\"\n"),
              HasSubstr("the limit is"));
}

TEST(StepMetrics, SurvivesAnyOneByteThatChanged) {
  const std::string text =
      json_line(sample(1)) + "\n" + json_line(sample(2)) + "\n";
  for (size_t at = 0; at < text.size(); ++at)
    for (const char byte : {'\0', '"', '}', '\n', '-', '\xFF'}) {
      std::string changed = text;
      changed[at] = byte;
      try {
        EXPECT_LE(read_metrics(changed, "m").size(), 3u);
      } catch (const UsageError&) {
      }
    }
}

}  // namespace
}  // namespace canzona::trace::step_metrics_test
