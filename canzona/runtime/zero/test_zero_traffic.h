// Compares measured with predicted bytes of every operation and link class, and
// memory, for tests.
#pragma once

#include <gtest/gtest.h>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime {

// Bytes of one operation: in all, and between nodes.
struct CountedBytes {
  int64_t sent = 0;
  int64_t slow = 0;

  void add(const WireBytes& wire, int64_t times) {
    sent += wire.sent() * times;
    slow += wire.sent_inter * times;
  }
  friend bool operator==(const CountedBytes&, const CountedBytes&) = default;
  friend std::ostream& operator<<(std::ostream& out, const CountedBytes& b) {
    return out << b.sent << " bytes, " << b.slow << " of them slow";
  }
};

struct CountedOperations {
  CountedBytes sums, replicas, gather, scatter, publish;
  CountedBytes module_gather, module_scatter;
};

inline CountedOperations predicted_operations(const Plan& plan, size_t rank,
                                              const RankCost& cost, int steps,
                                              int micro_batches) {
  CountedOperations out;
  const auto add = [&](CountedBytes& to, Collective collective) {
    to.add(cost.wire[static_cast<size_t>(collective)], steps);
  };
  add(out.sums, Collective::kReduceScatter);
  add(out.replicas, Collective::kAllReduce);
  add(out.gather, Collective::kGather);
  add(out.scatter, Collective::kScatter);
  add(out.publish, Collective::kAllGather);
  add(out.publish, Collective::kBroadcast);
  for (const PurposeBytes& m : module_bytes(plan, static_cast<int32_t>(rank))) {
    out.module_gather.add(of(m, Purpose::kGatherModule),
                          int64_t{2} * steps * micro_batches);
    out.module_scatter.add(of(m, Purpose::kScatterModule),
                           int64_t{1} * steps * micro_batches);
  }
  return out;
}

inline CountedOperations counted_operations(const Groups::Sent& all,
                                            const Groups::Sent& slow) {
  return {{all.reduce_scatter, slow.reduce_scatter},
          {all.all_reduce, slow.all_reduce},
          {all.gather, slow.gather},
          {all.scatter, slow.scatter},
          {all.all_gather + all.broadcast, slow.all_gather + slow.broadcast},
          {all.parameter_gather, slow.parameter_gather},
          {all.gradient_scatter, slow.gradient_scatter}};
}

inline void expect_equal(const CountedOperations& counted,
                         const CountedOperations& predicted) {
  EXPECT_EQ(counted.sums, predicted.sums);
  EXPECT_EQ(counted.replicas, predicted.replicas);
  EXPECT_EQ(counted.gather, predicted.gather);
  EXPECT_EQ(counted.scatter, predicted.scatter);
  EXPECT_EQ(counted.publish, predicted.publish);
  EXPECT_EQ(counted.module_gather, predicted.module_gather);
  EXPECT_EQ(counted.module_scatter, predicted.module_scatter);
}

inline void expect_equal(const RankMemory& got, const RankMemory& predicted) {
  EXPECT_EQ(got.parameters, predicted.parameters);
  EXPECT_EQ(got.gradients, predicted.gradients);
  EXPECT_EQ(got.master, predicted.master);
  EXPECT_EQ(got.states, predicted.states);
  EXPECT_EQ(got.buffers, predicted.buffers);
  EXPECT_EQ(got.pools, predicted.pools);
  EXPECT_EQ(got.staging, predicted.staging);
}

// Runs two steps of the plan.
inline void expect_as_predicted(const Plan& plan, int micro_batches) {
  constexpr int kSteps = 2;
  Trial trial{.plan = plan, .steps = kSteps, .micro_batches = micro_batches};
  trial.ranks.communicator.ranks_per_node = plan.options.ranks_per_node;
  const std::vector<RankCost> predicted = predict(plan);
  const TrialResult result = run_trial(trial);
  ASSERT_EQ(predicted.size(), result.sent.size());
  for (size_t r = 0; r < predicted.size(); ++r) {
    SCOPED_TRACE(cat("rank ", r));
    expect_equal(
        counted_operations(result.sent[r], result.sent_slow[r]),
        predicted_operations(plan, r, predicted[r], kSteps, micro_batches));
    expect_equal(result.memory[r], predicted[r].memory);
  }
}

}  // namespace canzona::runtime
