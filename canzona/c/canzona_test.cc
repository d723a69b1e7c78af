// Tests the C interface through its library, as any caller sees it.
#include "canzona/c/canzona.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace canzona::c::canzona_test {

using testing::HasSubstr;
using testing::IsNull;
using testing::NotNull;

TEST(CInterface, TellsItsVersion) {
  EXPECT_EQ(canzona_abi(), CANZONA_ABI);
  EXPECT_STREQ(canzona_version(), CANZONA_TEST_VERSION);
}

TEST(CInterface, ListsRulesAsJson) {
  ASSERT_THAT(canzona_rules(), NotNull());
  const std::string text = canzona_rules();
  for (const char* rule : {"muon", "soap", "shampoo", "adamw"})
    EXPECT_THAT(text, HasSubstr('"' + std::string(rule) + '"'));
}

TEST(CInterface, DescribesDevices) {
  ASSERT_THAT(canzona_describe("cpu"), NotNull());
  EXPECT_THAT(canzona_describe("cpu"), HasSubstr("bf16 by"));
}

TEST(CInterface, RefusesUnknownDevicesByName) {
  EXPECT_THAT(canzona_describe("tpu"), IsNull());
  EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  EXPECT_THAT(canzona_error(), HasSubstr("'tpu': expected cpu or cuda:N"));
  EXPECT_THAT(canzona_describe("cuda:x"), IsNull());
  EXPECT_THAT(canzona_error(), HasSubstr("the GPU's number"));
  EXPECT_THAT(canzona_describe(nullptr), IsNull());
  EXPECT_THAT(canzona_error(), HasSubstr("canzona_describe: device is NULL"));
}

TEST(CInterface, KeepsErrorsByThread) {
  ASSERT_THAT(canzona_describe("tpu"), IsNull());
  std::string seen = "unset";
  int kind = -1;
  std::thread([&] {
    seen = canzona_error();
    kind = canzona_error_kind();
    canzona_describe("npu");
  }).join();
  EXPECT_EQ(seen, "");
  EXPECT_EQ(kind, CANZONA_NO_ERROR);
  EXPECT_THAT(canzona_error(), HasSubstr("tpu"));
}

// Two ranks, a matrix cut by rows, a vector that both store.
constexpr const char* kRequest = R"({
  "canzona_storage": 1, "world": 2,
  "groups": [{"rule": "muon", "options": {"preset": "torch"}},
             {"rule": "adamw", "options": {}}],
  "tensors": [
    {"name": "w", "shape": [5, 4], "dtype": "fp32", "group": 0,
     "stored": [[[[0, 0], [3, 4]]], [[[3, 0], [2, 4]]]]},
    {"name": "b", "shape": [3], "dtype": "fp32", "group": 1,
     "stored": [[[[0], [3]]], [[[0], [3]]]]}]})";

canzona_plan* plan_of_text(const std::string& text) {
  return canzona_plan_new(text.data(), static_cast<int64_t>(text.size()));
}

// Runs work() in a forked child; returns its exit status.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool error_has(const char* words) {
  return std::string(canzona_error()).find(words) != std::string::npos;
}

TEST(CQkClip, GivesFactorsOfQueriesPartsAndKeys) {
  const double largest[] = {40, 1, 1, 1};
  double factors[10];
  ASSERT_EQ(canzona_qk_factors(largest, 4, 2, 10, 0.5, 0, factors), 0);
  EXPECT_THAT(factors,
              testing::ElementsAre(0.5, 0.5, 1, 1, 0.25, 0.25, 1, 1, 0.5, 1));
  EXPECT_EQ(canzona_qk_factors(largest, 4, 3, 10, 0.5, 0, factors), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("3 keys do not divide 4"));
  EXPECT_EQ(canzona_qk_factors(largest, -4, 2, 10, 0.5, 0, factors), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("2 keys do not divide 0"));
  EXPECT_EQ(canzona_qk_factors(nullptr, 4, 2, 10, 0.5, 0, factors), -1);
  EXPECT_THAT(canzona_error(), HasSubstr("largest is NULL"));
}

TEST(CPlan, IsTheSameForTheSameRequest) {
  canzona_plan* one = plan_of_text(kRequest);
  canzona_plan* two = plan_of_text(kRequest);
  ASSERT_THAT(one, NotNull());
  ASSERT_THAT(two, NotNull());
  EXPECT_STREQ(canzona_plan_digest(one), canzona_plan_digest(two));
  EXPECT_EQ(std::string(canzona_plan_digest(one)).size(), 64u);
  EXPECT_EQ(canzona_plan_json(one), canzona_plan_json(one));
  canzona_plan_free(one);
  canzona_plan_free(two);
}

TEST(CPlan, ReadsNoFurtherThanTheLength) {
  const std::string text = std::string(kRequest) + "not JSON";
  canzona_plan* plan = canzona_plan_new(
      text.data(), static_cast<int64_t>(std::string(kRequest).size()));
  EXPECT_THAT(plan, NotNull());
  canzona_plan_free(plan);
}

TEST(CPlan, RefusesWhatIsNoRequest) {
  EXPECT_THAT(canzona_plan_new(nullptr, 0), IsNull());
  EXPECT_THAT(canzona_error(), HasSubstr("json is NULL"));
  EXPECT_THAT(canzona_plan_new("{}", -1), IsNull());
  EXPECT_THAT(canzona_error(), HasSubstr("is -1, expected 0 or more"));
  EXPECT_THAT(plan_of_text("{"), IsNull());
  EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  EXPECT_THAT(plan_of_text(std::string(1000, '[')), IsNull());
  std::string hole = kRequest;
  hole.replace(hole.find("[[3, 0], [2, 4]]"), 16, "[[4, 0], [1, 4]]");
  EXPECT_THAT(plan_of_text(hole), IsNull());
  EXPECT_EQ(canzona_error_kind(), CANZONA_USAGE_ERROR);
  EXPECT_THAT(canzona_error(), HasSubstr("'w'"));
}

TEST(CPlan, RefusesRanksThatItHasNot) {
  canzona_plan* plan = plan_of_text(kRequest);
  ASSERT_THAT(plan, NotNull());
  EXPECT_THAT(canzona_plan_explain(plan, -1), NotNull());
  EXPECT_THAT(canzona_plan_explain(plan, 1), NotNull());
  for (const int32_t rank : {-2, 2, INT32_MAX, INT32_MIN}) {
    EXPECT_THAT(canzona_plan_explain(plan, rank), IsNull());
    EXPECT_THAT(canzona_error(), HasSubstr("expected 0 to 1"));
  }
  canzona_plan_free(plan);
}

TEST(CPlan, IsRefusedOnceItIsFreed) {
  canzona_plan* plan = plan_of_text(kRequest);
  canzona_plan_free(plan);
  canzona_plan* next = plan_of_text(kRequest);
  EXPECT_NE(plan, next);
  canzona_plan_free(plan);  // has no effect, least of all on the next one
  EXPECT_THAT(canzona_plan_digest(next), NotNull());
  EXPECT_THAT(canzona_plan_digest(plan), IsNull());
  EXPECT_THAT(canzona_error(), HasSubstr("no such plan; it was freed"));
  canzona_plan_free(next);
  canzona_plan_free(nullptr);
  EXPECT_THAT(canzona_plan_json(nullptr), IsNull());
  EXPECT_THAT(canzona_error(), HasSubstr("the plan is NULL"));
}

TEST(CPlan, RefusesAddressesThatAreNoHandles) {
  int anything = 0;
  EXPECT_THAT(canzona_plan_json(reinterpret_cast<canzona_plan*>(&anything)),
              IsNull());
  EXPECT_THAT(canzona_error(), HasSubstr("no such plan"));
  canzona_plan_free(reinterpret_cast<canzona_plan*>(&anything));
}

TEST(CPlan, DoesNothingInAForkedChild) {
  canzona_plan* plan = plan_of_text(kRequest);
  ASSERT_THAT(plan, NotNull());
  EXPECT_EQ(in_child([&] {
              if (canzona_plan_json(plan) != nullptr) return 1;
              if (!error_has("before the process was forked")) return 2;
              canzona_plan_free(plan);
              canzona_plan* own = plan_of_text(kRequest);
              if (canzona_plan_digest(own) == nullptr) return 3;
              return canzona_plan_digest(plan) == nullptr ? 0 : 4;
            }),
            0);
  EXPECT_THAT(canzona_plan_digest(plan), NotNull());
  canzona_plan_free(plan);
}

TEST(CPlan, IsReadByManyThreadsAtOnce) {
  canzona_plan* plan = plan_of_text(kRequest);
  ASSERT_THAT(plan, NotNull());
  std::vector<const char*> seen(4);
  std::vector<std::thread> threads;
  for (const char*& text : seen)
    threads.emplace_back([&] { text = canzona_plan_json(plan); });
  for (std::thread& thread : threads) thread.join();
  for (const char* text : seen) EXPECT_EQ(text, canzona_plan_json(plan));
  canzona_plan_free(plan);
}

}  // namespace canzona::c::canzona_test
