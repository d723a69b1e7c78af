#include "canzona/measure/step_bench.h"

#include <algorithm>
#include <new>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/measure/planned_exchange.h"
#include "canzona/measure/rank_runner.h"

namespace canzona {
namespace {

constexpr double kComputePerStep = 2;
constexpr int kStepsMeasuredFirst = 3;

int64_t largest_memory(const std::vector<RankCost>& predicted) {
  int64_t most = 0;
  for (const RankCost& rank : predicted)
    most = std::max(most, rank.memory.total().value());
  return most;
}

// For ranks with these bytes each, for the plan and for their library.
[[noreturn]] void refuse_gpu_memory(const std::string& strategy, int num_ranks,
                                    int64_t plan_bytes, int64_t library_bytes,
                                    int64_t free_bytes) {
  throw UsageError(
      cat("strategy ", strategy, " does not fit on the GPU: ",
          num_ranks > 1 ? cat(num_ranks, " ranks with ") : "",
          human_bytes(plan_bytes), num_ranks > 1 ? " each" : "",
          " by the plan, plus scratch memory of the rules,",
          library_bytes > 0
              ? cat(" and about ", human_bytes(library_bytes), " for NCCL,")
              : "",
          " but ", human_bytes(free_bytes),
          " are free; shard states over more ranks, or use a smaller model"));
}

StepTrial carry_out(const StepBenchRequest& request, const Plan& plan,
                    const Link& link, StepTrialRequest trial) {
  return on_every_rank(request.run, link, [&](Communicator& world) {
    if (trial.phases != nullptr && world.rank() == 0)
      trial.phases->begin("memory and groups");
    const std::unique_ptr<Engine> engine = make_engine(request.device);
    const int64_t free = request.device == "cuda" ? cuda_free_bytes() : 0;
    try {
      return run_step_trial(plan, world, *engine, trial);
    } catch (const std::bad_alloc&) {
      if (request.device != "cuda") throw;
      refuse_gpu_memory(plan.options.strategy, request.ranks_per_gpu,
                        largest_memory(predict(plan)), request.library_bytes,
                        free);
    }
  });
}

std::string first_to_measure(const StepBenchRequest& request) {
  const auto& names = request.strategies;
  const auto ours = std::find(names.begin(), names.end(), "balanced");
  return ours != names.end() ? *ours : names.front();
}

// Returns how long the busiest rank sends in a step.
double sending_seconds(const Plan& plan, const LinkModel& link,
                       GradientWire wire) {
  double most = 0;
  for (const WireBytes& rank : step_bytes(plan, wire))
    most = std::max(
        most,
        static_cast<double>(rank.sent_intra) / link.intra_bytes_per_second +
            static_cast<double>(rank.sent_inter) / link.inter_bytes_per_second);
  return most;
}

// All ranks get the same result: the smallest free memory anywhere counts.
void check_gpu_memory(const StepBenchRequest& request, const Plan& plan) {
  if (request.device != "cuda") return;
  const double free = on_every_rank(request.run, {}, [](Communicator& world) {
    const auto gpu = find_cuda_device(nullptr);
    return -largest_of(world, gpu ? -static_cast<double>(gpu->free_bytes) : 0);
  });
  require_gpu_memory(plan.options.strategy, request.ranks_per_gpu,
                     largest_memory(predict(plan)), request.library_bytes,
                     static_cast<int64_t>(free));
}

// The first run reports `phases`, which are null from then on.
void measure_first(const StepBenchRequest& request, Phases*& phases,
                   StepBench& bench) {
  bench.compute_seconds = request.compute_seconds.value_or(0);
  bench.link = request.link;
  if (request.compute_seconds && request.comm_ratio == 0) return;
  bench.measured_first = first_to_measure(request);
  request.progress(cat("measuring ", bench.measured_first, " without links"));
  if (phases != nullptr) phases->begin("plan");
  const Plan plan = request.plan(bench.measured_first, {});
  check_gpu_memory(request, plan);
  const bool multiplies = request.trial.product_tokens > 0;
  StepTrialRequest brief = request.trial;
  brief.phases = std::exchange(phases, nullptr);
  brief.digests = false;
  brief.runtime.trace = nullptr;
  brief.steps = kStepsMeasuredFirst;
  brief.warmup = 1;
  brief.iterations = multiplies ? kStepsMeasuredFirst : 0;
  const StepTrial first = carry_out(request, plan, {}, brief);
  const double step = first.step_compute_seconds;
  if (multiplies)
    bench.compute_seconds =
        std::max(0.0, first.iteration_seconds - first.waited_seconds - step);
  else if (!request.compute_seconds)
    bench.compute_seconds = kComputePerStep * step;
  if (request.comm_ratio > 0)
    bench.link = scaled_link(
        request.link, plan, plan.options.strategy, request.comm_ratio,
        bench.compute_seconds + step, [&](const LinkModel& link) {
          return sending_seconds(plan, link, request.trial.runtime.wire);
        });
}

SharedProducts share_machine(const StepBenchRequest& request, DType precision) {
  return on_every_rank(request.run, {}, [&](Communicator& world) {
    return measure_shared_products(world, *make_engine(request.device),
                                   precision);
  });
}

void measure_one_rank(const StepBenchRequest& request, StepBench& bench) {
  request.progress("measuring one rank alone");
  const Plan plan = request.one_rank();
  bench.products = share_machine(request, DType::kFp32);
  if (product_type(plan) == DType::kBf16)
    bench.products_bf16 = share_machine(request, DType::kBf16);
  StepBenchRequest alone = request;
  alone.run = on_threads(1, {});
  StepTrialRequest trial = request.trial;
  trial.runtime.trace = nullptr;
  trial.iterations = 0;
  trial.digests = false;
  bench.one_rank_step = carry_out(alone, plan, {}, trial).step;
}

// GPUs have other rates than the products measured on ranks of this process.
void measure_machine(const StepBenchRequest& request, const Plan& plan,
                     StepBench& bench) {
  if (bench.speed || request.device != "cpu" || !lacks_cost_table(plan)) return;
  request.progress("measuring the machine");
  bench.speed = on_every_rank(request.run, {}, [&](Communicator& world) {
    return measure_speed(world, *make_engine(request.device),
                         product_type(plan));
  });
}

StrategyBench bench_strategy(const StepBenchRequest& request, Phases*& phases,
                             StepBench& bench, const std::string& name) {
  StrategyBench out{.name = name, .error = {}};
  if (phases != nullptr) phases->begin("plan");
  try {
    out.plan = request.plan(name, bench.link);
  } catch (const UsageError& error) {
    out.error = error.what();
    return out;
  }
  measure_machine(request, *out.plan, bench);
  out.predicted =
      predict(bench.speed ? priced(*out.plan, *bench.speed) : *out.plan);
  out.memory_predicted_max = largest_memory(out.predicted);
  for (const WireBytes& rank :
       step_bytes(*out.plan, request.trial.runtime.wire)) {
    out.bytes_predicted_max = std::max(out.bytes_predicted_max, rank.sent());
    out.slow_bytes_predicted_max =
        std::max(out.slow_bytes_predicted_max, rank.sent_inter);
  }
  check_gpu_memory(request, *out.plan);
  StepTrialRequest trial = request.trial;
  trial.compute_seconds = bench.compute_seconds;
  trial.phases = std::exchange(phases, nullptr);
  out.trial = carry_out(request, *out.plan, bench.link, trial);
  if (request.with_serial) {
    trial.runtime.pipelined = false;
    trial.runtime.trace = nullptr;
    trial.iterations = 0;
    trial.digests = false;
    trial.phases = nullptr;
    out.serial_step = carry_out(request, *out.plan, bench.link, trial).step;
  }
  return out;
}

void compare_with_replicated(std::vector<StrategyBench>& strategies) {
  const auto replicated = std::find_if(
      strategies.begin(), strategies.end(), [](const StrategyBench& s) {
        return s.name == "replicated" && s.error.empty();
      });
  if (replicated == strategies.end()) return;
  const double slow = replicated->trial.step.mean;
  for (StrategyBench& s : strategies)
    if (s.trial.step.mean > 0)
      s.speedup_over_replicated = slow / s.trial.step.mean;
}

}  // namespace

void require_gpu_memory(const std::string& strategy, int num_ranks,
                        int64_t plan_bytes, int64_t library_bytes,
                        int64_t free_bytes) {
  if (num_ranks * (plan_bytes + library_bytes) > free_bytes)
    refuse_gpu_memory(strategy, num_ranks, plan_bytes, library_bytes,
                      free_bytes);
}

double StrategyBench::predicted_mean() const {
  double most = 0;
  for (const RankCost& rank : predicted)
    most = std::max(most, rank.step_seconds_mean);
  return most;
}

double StrategyBench::predicted_worst() const {
  double most = 0;
  for (const RankCost& rank : predicted)
    most = std::max(most, rank.step_seconds_worst);
  return most;
}

double StepBench::scaling(const StrategyBench& strategy) const {
  const double ranks = static_cast<double>(strategy.predicted.size());
  const double step = strategy.trial.step.mean;
  return step > 0 ? one_rank_step.mean / (ranks * step) : 0;
}

StepBench run_step_bench(const StepBenchRequest& request) {
  StepBench bench;
  Phases own(request.progress);
  Phases& beginning = request.phases != nullptr ? *request.phases : own;
  Phases* phases = &beginning;
  if (request.one_rank) measure_one_rank(request, bench);
  measure_first(request, phases, bench);
  if (bench.link)
    bench.copy_bytes_per_second =
        on_every_rank(request.run, {}, measure_copy_rate);
  for (const std::string& name : request.strategies) {
    request.progress(cat("running ", name));
    bench.strategies.push_back(bench_strategy(request, phases, bench, name));
  }
  bench.beginning = beginning.done();
  compare_with_replicated(bench.strategies);
  return bench;
}

}  // namespace canzona
