#include "canzona/measure/step_bench.h"

#include <algorithm>
#include <new>
#include <utility>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/measure/stand_in.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/sim/plan_iteration.h"

namespace canzona::measure {
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
    const bool own_memory = device_kind(request.device).has_own_memory;
    const int64_t free = own_memory ? cuda_free_bytes() : 0;
    try {
      return run_step_trial(plan, world, *engine, trial);
    } catch (const std::bad_alloc&) {
      if (!own_memory) throw;
      refuse_gpu_memory(plan.options.strategy, request.ranks_per_gpu,
                        largest_memory(predict(plan)), request.library_bytes,
                        free);
    }
  });
}

// All ranks get the same result: the smallest free memory anywhere counts.
void check_gpu_memory(const StepBenchRequest& request, const Plan& plan) {
  if (!device_kind(request.device).has_own_memory) return;
  const double free = on_every_rank(request.run, {}, [](Communicator& world) {
    const auto gpu = find_cuda_device(nullptr);
    return -largest_of(world, gpu ? -static_cast<double>(gpu->free_bytes) : 0);
  });
  require_gpu_memory(plan.options.strategy, request.ranks_per_gpu,
                     largest_memory(predict(plan)), request.library_bytes,
                     static_cast<int64_t>(free));
}

PlannedBytes planned_bytes(const StepBenchRequest& request, const Plan& plan) {
  return measure::planned_bytes(plan, request.trial.runtime.wire,
                                request.trial.micro_batches);
}

// Choices in the order in which one is wanted to be measured first.
std::vector<StepChoice> first_choices(const StepBenchRequest& request) {
  std::vector<StepChoice> choices = request.choices;
  std::ranges::stable_sort(choices, std::ranges::greater(),
                           [](const StepChoice& choice) {
                             const auto [z1, z2, z3] = choice.sizes;
                             return std::pair(choice.strategy == "balanced",
                                              z1 > 0 && z1 == z2 && z2 == z3);
                           });
  return choices;
}

// Returns the plan of the first choice that has one, without links.
Plan plan_first(const StepBenchRequest& request, StepBench& bench) {
  std::optional<UsageError> why;
  for (const StepChoice& choice : first_choices(request)) try {
      Plan plan = request.plan(choice, {});
      bench.measured_first = choice.strategy;
      if (choice.sizes != ZeroSizes{})
        bench.measured_first +=
            ", " + zero_name(choice.sizes, plan.mesh.homes());
      return plan;
    } catch (const UsageError& error) {
      if (!why) why = error;
    }
  throw *why;
}

// The first run reports `phases`, which are null from then on.
void measure_first(const StepBenchRequest& request, Phases*& phases,
                   StepBench& bench) {
  bench.compute_seconds = request.compute_seconds.value_or(0);
  bench.link = request.link;
  if (request.compute_seconds && request.comm_ratio == 0) return;
  if (phases != nullptr) phases->begin("plan");
  const Plan plan = plan_first(request, bench);
  request.progress(cat("measuring ", bench.measured_first, " without links"));
  check_gpu_memory(request, plan);
  const bool multiplies = request.trial.product_tokens > 0;
  StepTrialRequest brief = request.trial;
  brief.phases = std::exchange(phases, nullptr);
  brief.digests = false;
  brief.runtime.trace = nullptr;
  brief.runtime.overlap = Overlap::kNone;
  brief.steps = kStepsMeasuredFirst;
  brief.warmup = 1;
  brief.iterations = multiplies ? kStepsMeasuredFirst : 0;
  const StepTrial first = carry_out(request, plan, {}, brief);
  const double step = first.step_compute_seconds;
  if (multiplies)
    bench.compute_seconds = std::max(0.0, first.compute_seconds - step);
  else if (!request.compute_seconds)
    bench.compute_seconds = kComputePerStep * step;
  if (request.comm_ratio > 0)
    bench.link = scaled_link(
        request.link, plan, plan.options.strategy, request.comm_ratio,
        bench.compute_seconds + step, [&](const LinkModel& link) {
          return planned_bytes(request, plan).seconds(link);
        });
}

// GPUs have other rates than the products measured on ranks of this process.
void measure_machine(const StepBenchRequest& request, const Plan& plan,
                     StepBench& bench) {
  if (bench.speed || device_kind(request.device).has_own_memory ||
      !lacks_cost_table(plan))
    return;
  request.progress("measuring the machine");
  bench.speed = on_every_rank(request.run, {}, [&](Communicator& world) {
    return measure_speed(world, *make_engine(request.device),
                         product_type(plan));
  });
}

// Nothing but the modules' work and the step computes: no sums of tensor
// parallelism, no exchanges of tokens or between stages.
IterationTime predicted_iteration(const StepBenchRequest& request,
                                  const Plan& plan, Overlap overlap,
                                  const StepBench& bench) {
  const auto micro_batches = static_cast<double>(request.trial.micro_batches);
  IterationTime slowest;
  for (int32_t stage = 0; stage < plan.mesh.pp; ++stage) {
    const Coordinates at =
        coordinates_of(plan.mesh, stage * plan.mesh.ranks_per_stage());
    Workload work;
    for (const double seconds :
         module_shares(plan, at, bench.compute_seconds / micro_batches))
      work.measured.push_back({seconds / 3, seconds * 2 / 3});
    work.num_micro_batches = request.trial.micro_batches;
    work.overlap = overlap;
    work.copy_bytes_per_second = bench.copy_bytes_per_second;
    IterationWork iteration = plan_iteration(plan, work, stage);
    iteration.bubble_seconds = 0;  // stages do not wait for each other
    const IterationTime time = simulate_iteration(iteration);
    if (time.seconds > slowest.seconds) slowest = time;
  }
  return slowest;
}

void predict_plan(const StepBenchRequest& request, const StepBench& bench,
                  PlanBench& out) {
  const Plan priced_plan =
      bench.speed ? priced(*out.plan, *bench.speed) : *out.plan;
  out.predicted = predict(priced_plan);
  out.memory_predicted_max = largest_memory(out.predicted);
  out.bytes_predicted = planned_bytes(request, *out.plan);
  if (request.trial.iterations > 0) {
    const IterationTime time =
        predicted_iteration(request, priced_plan, out.choice.overlap, bench);
    out.predicted_iteration_seconds = time.seconds;
    out.predicted_hidden_fraction = time.hidden_fraction();
  }
  if (!bench.link) return;
  out.link_seconds = out.bytes_predicted.seconds(*bench.link);
}

PlanBench bench_choice(const StepBenchRequest& request, Phases*& phases,
                       StepBench& bench, const StepChoice& choice) {
  PlanBench out{.choice = choice, .error = {}};
  if (phases != nullptr) phases->begin("plan");
  try {
    out.plan = request.plan(choice, bench.link);
    check_gpu_memory(request, *out.plan);
  } catch (const UsageError& error) {
    out.error = error.what();
    return out;
  }
  measure_machine(request, *out.plan, bench);
  request.progress(cat("running ", name_of(choice, out.plan->mesh.homes())));
  predict_plan(request, bench, out);
  StepTrialRequest trial = request.trial;
  trial.runtime.overlap = choice.overlap;
  trial.compute_seconds = bench.compute_seconds;
  trial.phases = std::exchange(phases, nullptr);
  out.trial = carry_out(request, *out.plan, bench.link, trial);
  return out;
}

void compare_with_replicated(std::vector<PlanBench>& plans) {
  for (PlanBench& one : plans)
    for (const PlanBench& other : plans)
      if (other.choice.strategy == "replicated" && other.error.empty() &&
          other.choice.sizes == one.choice.sizes &&
          other.choice.overlap == one.choice.overlap && one.trial.step.mean > 0)
        one.speedup_over_replicated =
            other.trial.step.mean / one.trial.step.mean;
}

// Plans of one class must lead to the same bits. Sums of exact gradients have
// no order. For another z2, sums over ranks are added in another order, unless
// the groups are subtrees of the sum over all. In bf16 every sum over groups is
// rounded, and z1 and z2 determine the groups.
std::pair<int32_t, int32_t> digest_class(const Plan& plan,
                                         GradientKind gradients, DType wire) {
  const ZeroSizes& sizes = plan.options.zero.sizes;
  if (wire == DType::kBf16) return {sizes.z1, sizes.z2};
  const bool one_for_all =
      gradients == GradientKind::kExact ||
      std::ranges::all_of(
          plan.parts, [](const PlanPart& part) { return keeps_bits(part); });
  return {0, one_for_all ? 0 : sizes.z2};
}

}  // namespace

std::string name_of(const StepChoice& choice, int32_t homes) {
  std::string out = choice.strategy;
  if (choice.sizes != ZeroSizes{}) out += ", " + zero_name(choice.sizes, homes);
  return cat(out, ", ", to_string(choice.overlap));
}

void require_gpu_memory(const std::string& strategy, int num_ranks,
                        int64_t plan_bytes, int64_t library_bytes,
                        int64_t free_bytes) {
  if (num_ranks * (plan_bytes + library_bytes) > free_bytes)
    refuse_gpu_memory(strategy, num_ranks, plan_bytes, library_bytes,
                      free_bytes);
}

double PlanBench::predicted_mean() const {
  double most = 0;
  for (const RankCost& rank : predicted)
    most = std::max(most, rank.step_seconds_mean);
  return most;
}

double PlanBench::predicted_worst() const {
  double most = 0;
  for (const RankCost& rank : predicted)
    most = std::max(most, rank.step_seconds_worst);
  return most;
}

std::string StepBench::disagreement(GradientKind gradients, DType wire) const {
  for (size_t i = 0; i < plans.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const PlanBench &a = plans[j], &b = plans[i];
      if (!a.error.empty() || !b.error.empty() ||
          digest_class(*a.plan, gradients, wire) !=
              digest_class(*b.plan, gradients, wire))
        continue;
      if (a.trial.digest != b.trial.digest ||
          a.trial.state_digest != b.trial.state_digest)
        return cat(name_of(a.choice, a.plan->mesh.homes()), " and ",
                   name_of(b.choice, b.plan->mesh.homes()),
                   " give different parameters or states");
    }
  return "";
}

StepBench run_step_bench(const StepBenchRequest& request) {
  StepBench bench;
  Phases own(request.progress);
  Phases& beginning = request.phases != nullptr ? *request.phases : own;
  Phases* phases = &beginning;
  measure_first(request, phases, bench);
  if (bench.link)
    bench.copy_bytes_per_second =
        on_every_rank(request.run, {}, measure_copy_rate);
  for (const StepChoice& choice : request.choices)
    bench.plans.push_back(bench_choice(request, phases, bench, choice));
  bench.beginning = beginning.done();
  compare_with_replicated(bench.plans);
  return bench;
}

}  // namespace canzona::measure
