#include "canzona/measure/planned_bytes.h"

#include <gtest/gtest.h>

#include "canzona/measure/test_bench.h"

namespace canzona::measure::planned_bytes_test {
namespace {

int64_t parameter_bytes(const Plan& plan) {
  int64_t elements = 0;
  for (const Tensor& tensor : plan.model.tensors) elements += tensor.elements();
  return elements * kBytesPerFp32;
}

WireBytes all_ranks(const PlannedBytes& bytes) {
  WireBytes sum;
  for (const WireBytes& rank : bytes.ranks) {
    sum.sent_intra += rank.sent_intra;
    sum.sent_inter += rank.sent_inter;
    sum.received_intra += rank.received_intra;
    sum.received_inter += rank.received_inter;
  }
  return sum;
}

// Two gathers in bf16 and a scatter in fp32 of everything for each micro-batch;
// AdamW has no exchange in its step.
TEST(PlannedBytes, OfZero3AreThreeTimesTheModelForEachMicroBatch) {
  const TestBenchWish wish{.mesh = "dp=4", .rule = "adamw"};
  const Plan plan = bench_plan(wish, {"balanced", {4, 4, 4}});
  for (const int64_t micro_batches : {1, 3}) {
    const WireBytes sum =
        all_ranks(planned_bytes(plan, DType::kFp32, micro_batches));
    const int64_t bytes = parameter_bytes(plan);
    EXPECT_EQ(sum.sent(), 3 * micro_batches * 2 * bytes);
    EXPECT_EQ(sum.received(), sum.sent());
    EXPECT_EQ(sum.sent_inter, 2 * sum.sent_intra);  // nodes of two
  }
}

TEST(PlannedBytes, OfPlainZeroDoNotDependOnMicroBatches) {
  const TestBenchWish wish{.mesh = "dp=4", .rule = "adamw"};
  const Plan plan = bench_plan(wish, {"balanced", {4, 1, 1}});
  for (const int64_t micro_batches : {1, 3})
    EXPECT_EQ(
        all_ranks(planned_bytes(plan, DType::kFp32, micro_batches)).sent(),
        3 * 3 * parameter_bytes(plan) / 2);
}

TEST(PlannedBytes, TakeWhatTheBusiestPortTakes) {
  PlannedBytes bytes;
  bytes.ranks = {{.sent_intra = 100, .received_inter = 10},
                 {.sent_inter = 30, .received_intra = 400}};
  const LinkModel link{.intra_bytes_per_second = 20,
                       .inter_bytes_per_second = 2};
  EXPECT_EQ(bytes.seconds(link), 20);
  EXPECT_EQ(bytes.most_sent(), 100);
  EXPECT_EQ(bytes.most_slow(), 30);
  bytes.ranks.pop_back();
  EXPECT_EQ(bytes.seconds(link), 5);
}

}  // namespace
}  // namespace canzona::measure::planned_bytes_test
