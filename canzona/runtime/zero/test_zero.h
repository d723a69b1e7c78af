// Trials of hierarchical ZeRO, for tests: everything that a run may choose
// without changing its result, and gradients that depend on the parameters that
// ranks have seen.
//
//   ZeroVariant v{.sizes = {8, 4, 4}, .overlap = Overlap::kMain};
//   Witness witness;
//   TrialResult r = run_trial(zero_trial(toy_moe(), 8, v, witness));
//   EXPECT_TRUE(witness.agreed());
#pragma once

#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime {

struct ZeroVariant {
  ZeroSizes sizes = {};
  std::string rule = "muon";
  std::string strategy = "balanced";
  Overlap overlap = Overlap::kBackground;
  MessageUnit message = MessageUnit::kModule;
  int32_t prefetch = kAutoPrefetch;
  ReplicaSum replica_sum = ReplicaSum::kScatter;
  Reach reach = Reach::kDirect;
  int32_t ranks_per_node = 8;
  int32_t tp = 1;
  int32_t pp = 1;
  int32_t ep = 1;
  ZeroSizes experts = {};  // their own sizes
  bool link = false;
  DType parameters = DType::kFp32;
  MasterForm master = MasterForm::kFp32;
  DType wire = DType::kFp32;
  GradientKind gradients = GradientKind::kRandom;
  int micro_batches = 1;
  int steps = 3;
};

inline std::string to_string(const ZeroVariant& v) {
  return cat(to_string(v.sizes), " ", v.rule, " ", v.strategy, " overlap ",
             to_string(v.overlap), " message ", to_string(v.message),
             " prefetch ", v.prefetch, " sum ", to_string(v.replica_sum),
             v.reach == Reach::kPerNode
                 ? cat(" once per node of ", v.ranks_per_node)
                 : "",
             " tp=", v.tp, " pp=", v.pp, " ep=", v.ep,
             v.experts.z1 > 0 ? cat(" experts ", to_string(v.experts)) : "",
             v.link ? " link" : "", v.parameters == DType::kBf16 ? " bf16" : "",
             v.master == MasterForm::kRemainder ? " remainders" : "",
             v.wire == DType::kBf16 ? " bf16 wire" : "", " ",
             to_string(v.gradients), " micro-batches ", v.micro_batches);
}

// False for strategies that repeat or broadcast updates: they require z2 = z3
// and have different sums.
inline bool spreads(const std::string& strategy) {
  return strategy != "replicated" && strategy != "layerwise";
}
inline bool is_allowed(const ZeroVariant& v) {
  if (spreads(v.strategy)) return true;
  return v.sizes.z2 == v.sizes.z3 && v.replica_sum == ReplicaSum::kScatter;
}

// The shard of a tensor that is in use.
inline std::vector<float> seen_parameter(Runtime& runtime, int32_t tensor) {
  std::vector<float> values;
  if (runtime.plan().options.parameters == DType::kFp32) {
    const std::span<float> shard = runtime.parameter(tensor);
    values.assign(shard.begin(), shard.end());
    return values;
  }
  for (const uint16_t half : runtime.bf16_parameter(tensor))
    values.push_back(std::bit_cast<float>(uint32_t{half} << 16));
  return values;
}

// Checks that all ranks have seen the same parameters, in forward and backward.
// Called by ranks concurrently.
class Witness {
 public:
  void look(Runtime& runtime, int64_t step, int32_t module) {
    const Model& model = runtime.plan().model;
    for (int32_t t = 0; t < std::ssize(model.tensors); ++t) {
      const Tensor& tensor = model.tensors[static_cast<size_t>(t)];
      if (!runtime.holds(t) || module_of(model, tensor) != module) continue;
      std::vector<float> values = seen_parameter(runtime, t);
      const std::lock_guard lock(mutex_);
      const auto [at, is_first] = seen_.try_emplace(
          {step, t, runtime.coordinates().t}, std::move(values));
      ++num_looks_;
      if (!is_first && at->second != values) ++num_different_;
    }
  }
  bool agreed() const { return num_looks_ > 0 && num_different_ == 0; }

 private:
  using Key = std::tuple<int64_t, int32_t, int32_t>;  // step, tensor, tp rank
  std::mutex mutex_;
  std::map<Key, std::vector<float>> seen_;
  int num_looks_ = 0;
  int num_different_ = 0;
};

// Small integers times a power of two, so that sums stay exact.
inline void add_seen(Runtime& runtime, int32_t tensor,
                     std::span<float> gradient) {
  const std::vector<float> seen = seen_parameter(runtime, tensor);
  for (size_t i = 0; i < gradient.size(); ++i)
    gradient[i] += std::nearbyint(seen[i] * 1024) * 0x1p-20F;
}

inline Plan zero_plan(const Model& model, int32_t dp, const ZeroVariant& v,
                      const std::string& device = "cpu") {
  PlanWish wish{
      .mesh = cat("dp=", dp, ",tp=", v.tp, ",pp=", v.pp, ",ep=", v.ep),
      .strategy = v.strategy,
      .rule = v.rule,
      .options = quick(v.rule),
      .device = device,
      .parameters = v.parameters,
      .master = v.master,
      .zero = to_string(v.sizes),
      .ranks_per_node = v.ranks_per_node};
  wish.zero_options = {.experts = v.experts,
                       .message = v.message,
                       .prefetch = v.prefetch,
                       .replica_sum = v.replica_sum,
                       .reach = v.reach};
  return small_plan(model, wish);
}

// `witness` must outlive the trial.
inline Trial zero_trial(const Model& model, int32_t dp, const ZeroVariant& v,
                        Witness& witness) {
  Trial trial;
  trial.plan = zero_plan(model, dp, v);
  trial.gradients = v.gradients;
  trial.steps = v.steps;
  trial.micro_batches = v.micro_batches;
  trial.clip_norm = 0.5;
  trial.options.overlap = v.overlap;
  trial.options.wire = v.wire;
  if (v.link)
    trial.ranks.world.link = parse_link_model(
        "intra=2GB/s,inter=0.5GB/s,latency=5us,ranks_per_node=4");
  trial.in_use = [&](Runtime& runtime, int64_t step, int32_t module) {
    witness.look(runtime, step, module);
  };
  trial.poison = [](Runtime& runtime, int64_t, int32_t tensor,
                    std::span<float> gradient) {
    add_seen(runtime, tensor, gradient);
  };
  return trial;
}

// Digests of parameters and states; empty if ranks did not see the same ones.
inline std::string zero_digest(const Model& model, int32_t dp,
                               const ZeroVariant& v) {
  Witness witness;
  const TrialResult result = run_trial(zero_trial(model, dp, v, witness));
  return witness.agreed() ? result.parameters + result.states : "";
}

}  // namespace canzona::runtime
