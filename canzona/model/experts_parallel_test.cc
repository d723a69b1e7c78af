#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/model/test_experts.h"

namespace canzona::model::experts_parallel_test {
namespace {

struct Split {
  int ep = 1;
  int tp = 1;
  int ranks() const { return ep * tp; }
  // Ranks count tp fastest.
  int of_ep(int rank) const { return rank / tp; }
  int of_tp(int rank) const { return rank % tp; }
};

Numbers input_of(const ExpertTrial& trial, int ep_rank) {
  return random_numbers(100 + static_cast<uint64_t>(ep_rank), trial.elements(),
                        1);
}
Numbers gradient_of(const ExpertTrial& trial, int ep_rank) {
  return random_numbers(200 + static_cast<uint64_t>(ep_rank), trial.elements(),
                        1);
}

// The results of every rank.
template <class Real>
std::vector<ExpertRun<Real>> run_split(const ExpertTrial& trial, Split split,
                                       int times = 1) {
  std::vector<ExpertRun<Real>> runs(static_cast<size_t>(split.ranks()));
  run_ranks(split.ranks(), [&](Communicator& world) {
    const int rank = world.rank(), e = split.of_ep(rank);
    const auto tp = world.split(e, rank, "tp");
    const auto ep = world.split(split.of_tp(rank), rank, "ep");
    const Parallel parallel{.tp = tp.get(), .ep = ep.get(), .num_layers = 1};
    runs[static_cast<size_t>(rank)] = run_experts<Real>(
        trial, parallel, input_of(trial, e), gradient_of(trial, e), times);
  });
  return runs;
}

template <class Real>
void add_to(Numbers& sum, const std::vector<Real>& values) {
  sum.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    sum[i] += static_cast<double>(values[i]);
}

template <class Real>
struct Comparison {
  Comparison(const ExpertTrial& with, Split as)
      : trial(with), split(as), runs(run_split<Real>(with, as)) {
    for (int e = 0; e < split.ep; ++e)
      alone.push_back(
          run_alone<double>(trial, input_of(trial, e), gradient_of(trial, e)));
  }

  // Outputs are shares over tp.
  void expect_outputs(double tolerance) const {
    for (int e = 0; e < split.ep; ++e) {
      Numbers y, dx;
      for (int t = 0; t < split.tp; ++t) {
        const auto& run = runs[static_cast<size_t>(e * split.tp + t)];
        add_to(y, run.y);
        add_to(dx, run.dx);
        EXPECT_NEAR(run.balance, one(e).balance, tolerance);
      }
      expect_near(y, one(e).y, tolerance, "y");
      expect_near(dx, one(e).dx, tolerance, "dx");
    }
  }

  void expect_gradients(double tolerance) const {
    for (int rank = 0; rank < split.ranks(); ++rank)
      for (const size_t t : trial.tensors())
        expect_gradient(rank, t, tolerance);
  }

  // An expert's gradient is the sum over the ranks' micro-batches, on the rank
  // that holds it.
  void expect_gradient(int rank, size_t t, double tolerance) const {
    const Tensor& tensor = trial.shapes.tensors[t];
    const auto& run = runs[static_cast<size_t>(rank)];
    const int64_t held = trial.config.architecture.experts.count / split.ep;
    const bool here =
        tensor.expert < 0 || tensor.expert / held == split.of_ep(rank);
    EXPECT_EQ(run.num_ready(t), here ? 1 : 0) << tensor.name;
    Numbers whole(static_cast<size_t>(tensor.elements()));
    if (tensor.expert < 0) whole = one(split.of_ep(rank)).gradients[t];
    if (tensor.expert >= 0 && here)
      for (const auto& other : alone) add_to(whole, other.gradients[t]);
    Numbers right;
    for (size_t i = 0; i < run.gradients[t].size(); ++i)
      right.push_back(whole[static_cast<size_t>(place_in_whole(
          tensor, split.tp, split.of_tp(rank), static_cast<int64_t>(i)))]);
    expect_near(run.gradients[t], right, tolerance, tensor.name);
  }

  const ExpertRun<double>& one(int e) const {
    return alone[static_cast<size_t>(e)];
  }

  const ExpertTrial& trial;
  Split split;
  std::vector<ExpertRun<Real>> runs;
  std::vector<ExpertRun<double>> alone;
};

const std::vector<TrialSizes> kTrials = {
    {.experts = 8, .choices = 2},
    {.experts = 4, .choices = 4, .shared = 1},
    {.experts = 4, .choices = 1, .length = 1, .sequences = 1},
    {.experts = 4, .choices = 3, .hidden = 1, .ffn = 2},
};

TEST(ExpertsParallel, ExpertsMayLieOnOtherRanks) {
  for (const TrialSizes& sizes : kTrials) {
    const ExpertTrial trial(sizes);
    for (const int ep : {1, 2, 4}) {
      const Comparison<double> split(trial, {.ep = ep});
      split.expect_outputs(1e-13);
      split.expect_gradients(1e-13);
    }
  }
}

TEST(ExpertsParallel, ExpertsMayBeCut) {
  for (const TrialSizes& sizes : kTrials) {
    const ExpertTrial trial(sizes);
    for (const Split split :
         {Split{.tp = 2}, Split{.ep = 2, .tp = 2}, Split{.ep = 4, .tp = 2}}) {
      const Comparison<float> cut(trial, split);
      cut.expect_outputs(1e-5);
      cut.expect_gradients(1e-5);
    }
  }
}

TEST(ExpertsParallel, TheRouterIsTheSameOnEveryTpRank) {
  const ExpertTrial trial({.experts = 8, .choices = 3, .hidden = 16, .ffn = 8});
  const auto router = trial.tensor("gate.weight");
  const auto runs = run_split<float>(trial, {.ep = 2, .tp = 4});
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    const auto& first = runs[rank / 4 * 4];
    EXPECT_EQ(runs[rank].gradients[router], first.gradients[router]);
    EXPECT_EQ(runs[rank].balance, first.balance);
  }
}

TEST(ExpertsParallel, RunsHaveTheSameBits) {
  const ExpertTrial trial({.experts = 4, .hidden = 16, .ffn = 8, .length = 20});
  const auto first = run_split<float>(trial, {.ep = 4, .tp = 2}, 2);
  const auto second = run_split<float>(trial, {.ep = 4, .tp = 2}, 2);
  for (size_t rank = 0; rank < first.size(); ++rank) {
    EXPECT_EQ(first[rank].y, second[rank].y);
    EXPECT_EQ(first[rank].dx, second[rank].dx);
    EXPECT_EQ(first[rank].gradients, second[rank].gradients);
  }
}

// The requested memory is enough if all tokens of all ranks go to one rank, and
// to one expert.
TEST(ExpertsParallel, AllTokensMayComeToOneRank) {
  for (const int64_t choices : {1, 2}) {
    ExpertTrial trial({.experts = 4, .choices = choices});
    auto& router = trial.parameters[trial.tensor("gate.weight")];
    std::ranges::fill(router, 0.0);  // the lowest experts
    const Comparison<double> split(trial, {.ep = 2});
    split.expect_outputs(1e-13);
    split.expect_gradients(1e-13);
  }
}

TEST(ExpertsParallel, RefusesWhatIsNotDivided) {
  const ExpertTrial trial({.experts = 3, .ffn = 3});
  EXPECT_THROW(run_split<double>(trial, {.ep = 2}), UsageError);
  EXPECT_THROW(run_split<float>(trial, {.tp = 2}), UsageError);
  const ExpertTrial even({});
  EXPECT_THROW(run_split<double>(even, {.tp = 2}), UsageError);
}

}  // namespace
}  // namespace canzona::model::experts_parallel_test
