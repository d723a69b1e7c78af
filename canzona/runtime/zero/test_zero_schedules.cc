#include "canzona/runtime/zero/test_zero_schedules.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "canzona/base/random.h"
#include "canzona/comm/thread/thread_world.h"

namespace canzona::runtime {
namespace {

// Usually does nothing, sometimes yields the processor, rarely sleeps.
void come_late(uint64_t chance) {
  constexpr uint64_t kKinds = 16, kLongest = 300;
  const uint64_t kind = chance % kKinds;
  if (kind < 8) return;
  if (kind < 14) {
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(
      std::chrono::microseconds(chance / kKinds % kLongest));
}

// Delays every collective of every thread.
class LateGate final : public Gate {
 public:
  explicit LateGate(uint64_t seed) : seed_(seed) {}
  void pass(std::string_view, Operation, std::string_view, int) override {
    come_late(bits_at(seed_, drawn_++));
  }
  void open_for_good() noexcept override {}

 private:
  uint64_t seed_;
  std::atomic<uint64_t> drawn_ = 0;
};

Model model_for(const ZeroVariant& v) {
  return v.ep > 1 ? toy_moe(3) : toy_model(3);
}

std::string digest_of(const Schedule& schedule) {
  Witness witness;
  LateGate gate(schedule.seed);
  Trial trial = zero_trial(model_for(schedule.variant), schedule.dp,
                           schedule.variant, witness);
  trial.ranks.world.gate = &gate;
  std::atomic<uint64_t> drawn = 0;
  const auto look = trial.in_use;
  trial.in_use = [&](Runtime& runtime, int64_t step, int32_t module) {
    come_late(bits_at(~schedule.seed, drawn++));
    look(runtime, step, module);
    come_late(bits_at(~schedule.seed, drawn++));
  };
  trial.before_step = [&](Runtime&, int64_t) {
    come_late(bits_at(~schedule.seed, drawn++));
  };
  bool is_empty = true;
  trial.at_end = [&](Runtime& runtime) {
    if (runtime.pool_use().slots_now != 0) is_empty = false;
  };
  const TrialResult result = run_trial(trial);
  if (!witness.agreed() || !is_empty) return "";
  return result.parameters + result.states;
}

}  // namespace

Schedule random_schedule(uint64_t seed) {
  Random random(seed);
  Schedule schedule{.seed = seed, .dp = random.pick<int32_t>({2, 4})};
  ZeroVariant& v = schedule.variant;
  if (random.small(0, 3) == 0) {
    v.ep = 2;
    schedule.dp = 2;
    v.experts = random.pick(all_zero_sizes(schedule.dp));
  }
  do {
    v.sizes = random.pick(all_zero_sizes(schedule.dp * v.ep));
  } while (v.sizes.places() == 1);
  v.rule = random.pick<std::string>({"muon", "soap", "adamw"});
  v.overlap =
      random.pick<Overlap>({Overlap::kNone, Overlap::kMain,
                            Overlap::kBackground, Overlap::kBackground});
  v.message =
      random.pick<MessageUnit>({MessageUnit::kModule, MessageUnit::kParameter});
  v.prefetch = random.pick<int32_t>({0, 0, 0, 1});
  v.replica_sum = random.pick<ReplicaSum>(
      {ReplicaSum::kScatter, ReplicaSum::kScatter, ReplicaSum::kAllReduce});
  v.reach = random.pick<Reach>({Reach::kDirect, Reach::kPerNode});
  v.ranks_per_node = 2;
  v.micro_batches = random.small(1, 2);
  v.gradients = GradientKind::kExact;
  return schedule;
}

std::string to_string(const Schedule& schedule) {
  return cat("schedule ", schedule.seed, ": dp=", schedule.dp, " ",
             to_string(schedule.variant));
}

bool Schedules::agrees(const Schedule& schedule) {
  ZeroVariant plain;
  plain.ep = schedule.variant.ep;
  plain.sizes = {schedule.dp * plain.ep, 1, 1};
  plain.rule = schedule.variant.rule;
  plain.gradients = schedule.variant.gradients;
  plain.micro_batches = schedule.variant.micro_batches;
  std::string& expected = expected_[cat(schedule.dp, " ", plain.ep, " ",
                                        plain.rule, " ", plain.micro_batches)];
  if (expected.empty())
    expected = zero_digest(model_for(plain), schedule.dp, plain);
  return !expected.empty() && digest_of(schedule) == expected;
}

}  // namespace canzona::runtime
