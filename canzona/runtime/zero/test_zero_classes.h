// Runs that must have the same result, for tests: each is compared with the
// first of its class.
//
//   ResultClasses results(toy_moe(), 8);
//   for (…) ASSERT_TRUE(results.fit(random_variant(random, sizes, 2)));
#pragma once

#include <gtest/gtest.h>

#include "canzona/runtime/testing/test_reference.h"
#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime {

// A layer with tensors of 1, 2, 3 and 5 rows, of single elements and of none,
// so that several places store nothing of most tensors.
inline Model thin_model() {
  std::vector<Tensor> tensors{toy_vocabulary("embedding", Role::kEmbedding)};
  tensors[0].shape = {3, 5};
  tensors[0].cut = Cut::kNone;
  for (int32_t l = 0; l < 2; ++l) {
    const std::string at = cat("layers.", l, ".");
    for (const int64_t rows : {1, 2, 3, 5})
      tensors.push_back(
          matrix_tensor(cat(at, "w", rows), rows, 7 - rows, Cut::kNone, l));
    tensors.push_back(matrix_tensor(at + "empty", 0, 4, Cut::kNone, l));
    for (const int64_t elements : {1, 2, 11})
      tensors.push_back(adamw_tensor(cat(at, "n", elements), elements, l));
  }
  tensors.push_back(toy_vocabulary("head", Role::kHead));
  tensors.back().shape = {2, 3};
  tensors.back().cut = Cut::kNone;
  return model_of(std::move(tensors));
}

// Everything that a run may choose; worlds have at most `most` times dp ranks.
inline ZeroVariant random_variant(Random& random, const ZeroSizes& sizes,
                                  int32_t most) {
  ZeroVariant v{.sizes = sizes};
  do {
    v.strategy = random.pick(strategy_names());
    v.replica_sum =
        random.pick<ReplicaSum>({ReplicaSum::kScatter, ReplicaSum::kAllReduce});
  } while (!is_allowed(v));
  v.overlap = random.pick<Overlap>(
      {Overlap::kNone, Overlap::kMain, Overlap::kBackground});
  v.message =
      random.pick<MessageUnit>({MessageUnit::kModule, MessageUnit::kParameter});
  v.prefetch = random.pick<int32_t>({0, 1, 2, 5});
  v.tp = most > 1 ? random.small(1, 2) : 1;
  v.pp = most > 1 && v.tp == 1 ? random.small(1, 2) : 1;
  v.link = random.small(0, 3) == 0;
  if (std::has_single_bit(static_cast<uint32_t>(sizes.places()))) {
    // Whole storage goes once per node only if nodes have a power of two of
    // ranks.
    const Reach per_node = sizes.places() == 1 ? Reach::kAuto : Reach::kPerNode;
    v.reach = random.pick<Reach>({Reach::kDirect, per_node});
    v.ranks_per_node = random.pick<int32_t>({2, 4});
  }
  return v;
}

// Inexact sums in fp32 depend only on the order of micro-batches and ranks,
// that is, on z2. With bf16 on the wire every intermediate sum matters, except
// that of a node's ranks, which leaves the node in fp32.
inline std::string class_of(const ZeroVariant& v) {
  if (v.wire == DType::kBf16)
    return cat("z2=", v.sizes.z2, " ", to_string(v.replica_sum), " ",
               v.replica_sum == ReplicaSum::kAllReduce ? 0 : v.sizes.z1);
  if (v.gradients == GradientKind::kExact || v.micro_batches == 1) return "";
  return cat("z2=", v.sizes.z2, " ", v.experts.z2);
}

// Four steps on all ranks, against a single rank that has everything whole.
inline void expect_result_of_one_rank(const Plan& plan) {
  constexpr int kSteps = 4;
  constexpr double kRate = 0.01, kClip = 0.5;
  Reference reference(plan, GradientKind::kRandom, {});
  for (int step = 0; step < kSteps; ++step)
    reference.step({.learning_rate = kRate, .clip_norm = kClip});
  const TrialResult result = run_trial({.plan = plan,
                                        .gradients = GradientKind::kRandom,
                                        .steps = kSteps,
                                        .learning_rate = kRate,
                                        .clip_norm = kClip});
  EXPECT_EQ(result.parameters, reference.parameter_digest());
  EXPECT_EQ(result.states, reference.state_digest());
}

class ResultClasses {
 public:
  ResultClasses(Model model, int32_t dp) : model_(std::move(model)), dp_(dp) {}

  testing::AssertionResult fit(const ZeroVariant& v) {
    const std::string digest = zero_digest(model_, dp_, v);
    const auto [at, is_first] =
        firsts_.try_emplace(class_of(v), First{digest, to_string(v)});
    if (digest.empty())
      return testing::AssertionFailure()
             << "dp=" << dp_ << ": ranks have seen different parameters with "
             << to_string(v);
    if (at->second.digest != digest)
      return testing::AssertionFailure() << "dp=" << dp_ << ": " << to_string(v)
                                         << " differs from " << at->second.what;
    digests_.insert(digest);
    return testing::AssertionSuccess();
  }
  size_t count() const { return digests_.size(); }

 private:
  struct First {
    std::string digest, what;
  };
  Model model_;
  int32_t dp_;
  std::map<std::string, First> firsts_;
  std::set<std::string> digests_;
};

}  // namespace canzona::runtime
