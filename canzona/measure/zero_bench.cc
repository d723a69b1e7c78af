#include "canzona/measure/zero_bench.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/planned_exchange.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/step_bench.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/train/train_rank.h"

namespace canzona {
namespace {

// A copy reads and writes.
constexpr double kPassesOfACopy = 2;

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// The work of the slowest rank of a plan in a step.
struct StepWork {
  double transform_seconds = 0;
  double bytes = 0;
};

StepWork step_work(const Plan& plan) {
  StepWork work;
  for (const RankCost& rank : predict(plan)) {
    work.transform_seconds =
        std::max(work.transform_seconds, rank.transform_seconds_mean);
    work.bytes = std::max(work.bytes, rank.element_wise_bytes);
  }
  return work;
}

void fit_step(const Plan& plan, double copy_rate, MeasuredInputs& inputs) {
  const StepWork work = step_work(plan);
  const double measured = inputs.step_seconds;
  if (work.transform_seconds == 0) {
    inputs.step_per_byte = work.bytes > 0 ? measured / work.bytes : 0;
    return;
  }
  if (copy_rate > 0 && work.bytes > 0)
    inputs.step_per_byte =
        std::min(1 / (kPassesOfACopy * copy_rate), measured / work.bytes);
  inputs.step_per_transform =
      (measured - inputs.step_per_byte * work.bytes) / work.transform_seconds;
}

// Returns compute, or the pipeline of rounds if matrices are exchanged.
double step_seconds(const Plan& plan, Overlap overlap,
                    const MeasuredInputs& inputs) {
  const StepWork work = step_work(plan);
  const double elements = inputs.step_per_byte * work.bytes;
  const double compute =
      inputs.step_per_transform * work.transform_seconds + elements;
  const bool pipelined = overlap != Overlap::kNone;
  const SharedMeetings& meetings = inputs.meetings;
  return std::max(
      compute,
      planned_exchange(plan).step_seconds(
          {.per_transform = inputs.step_per_transform,
           .elements = elements,
           .per_operation = pipelined ? meetings.beside_compute : meetings.idle,
           .pipelined = pipelined}));
}

Workload workload_of(const TrainSettings& settings, const Plan& plan,
                     Overlap overlap, const MeasuredInputs& inputs) {
  Workload workload;
  for (size_t m = 0; m < inputs.forward_seconds.size(); ++m)
    workload.measured.push_back(
        {inputs.forward_seconds[m], inputs.backward_seconds[m]});
  workload.num_micro_batches = settings.micro_batches(plan.mesh);
  workload.overlap = overlap;
  workload.copy_bytes_per_second = inputs.copy_bytes_per_second;
  workload.slowdown = inputs.slowdown;
  workload.meetings = {inputs.meetings.idle, inputs.meetings.beside_compute};
  if (plan.mesh.tp > 1) {
    workload.hidden = settings.decoder.architecture.hidden;
    workload.compute.tokens = settings.decoder.tokens();
    workload.compute.recompute = settings.decoder.recompute;
  }
  return workload;
}

}  // namespace

MeasuredInputs measured_inputs(const TrainSettings& settings, const Plan& plan,
                               const IterationTrial& trial,
                               const MachineLimits& limits) {
  const double copy_rate = limits.copies.together;
  MeasuredInputs inputs;
  inputs.forward_seconds = trial.forward_seconds;
  inputs.backward_seconds = trial.backward_seconds;
  inputs.step_seconds = trial.step_seconds;
  fit_step(plan, copy_rate, inputs);
  const double passes =
      static_cast<double>(settings.micro_batches(plan.mesh)) *
      (sum_of(trial.forward_seconds) + sum_of(trial.backward_seconds)) /
      plan.mesh.pp;
  inputs.other_seconds =
      std::max(0.0, trial.compute_seconds - trial.step_seconds - passes);
  inputs.copy_bytes_per_second = copy_rate;
  inputs.meetings = limits.meetings;
  const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  inputs.slowdown = plan.mesh.world() >= cores ? 1 : 0;
  return inputs;
}

IterationOutlook predict_iteration_of(const TrainSettings& settings,
                                      const Plan& plan, Overlap overlap,
                                      const MeasuredInputs& inputs) {
  const Workload workload = workload_of(settings, plan, overlap, inputs);
  IterationOutlook outlook;
  for (int32_t stage = 0; stage < plan.mesh.pp; ++stage) {
    IterationWork work = plan_iteration(plan, workload, stage);
    work.step_seconds =
        step_seconds(plan, overlap, inputs) + inputs.other_seconds;
    const IterationTime time = simulate_iteration(work);
    if (time.seconds > outlook.seconds)
      outlook = {time.seconds, time.hidden_fraction()};
  }
  return outlook;
}

namespace {

constexpr IterationTrialRequest kFirst = {
    .warmup = 1, .steps = 1, .wants_digests = false};
// A single iteration this long is enough.
constexpr double kLongIteration = 1;
constexpr IterationTrialRequest kFirstOfShort = {
    .warmup = 1, .steps = 3, .wants_digests = false};

RankRunner ranks_of(const ZeroBenchRequest& request) {
  RankRunner threads = on_threads(request.mesh.world(), request.communicator);
  return request.split_gpu ? with_gpu_shares(std::move(threads)) : threads;
}

IterationTrial carry_out(const ZeroBenchRequest& request, const Plan& plan,
                         const Link& link, const TrainSettings& settings,
                         const IterationTrialRequest& trial) {
  return on_every_rank(ranks_of(request), link, [&](Communicator& world) {
    if (request.make_engine)
      return run_device_trial(settings, plan, request.compute, world,
                              *request.make_engine(), trial);
    return run_iteration_trial(settings, plan, *request.batches, world,
                               *make_cpu_engine(), trial);
  });
}

// Returns why cells of these sizes cannot be planned; "" if they can.
std::string why_no_plan(const ZeroBenchRequest& request,
                        const ZeroSizes& sizes) {
  try {
    request.plan(sizes, {});
    if (request.link) request.plan(sizes, request.link);
    return "";
  } catch (const UsageError& error) {
    return cat(error.what(),
               " (cell zero=", zero_name(sizes, request.mesh.homes()), ")");
  }
}

// Plans all cells, which takes less time than measuring anything. Throws
// UsageError if none can be planned.
ZeroSizes first_to_measure(const ZeroBenchRequest& request) {
  const int32_t homes = request.mesh.homes();
  const ZeroSizes zero3{homes, homes, homes};
  std::vector<ZeroSizes> possible;
  std::string why;
  for (const ZeroSizes& sizes : request.sizes) {
    const std::string problem = why_no_plan(request, sizes);
    if (problem.empty())
      possible.push_back(sizes);
    else if (why.empty())
      why = problem;
  }
  if (possible.empty()) throw UsageError(why);
  const auto found = std::ranges::find(possible, zero3);
  return found != possible.end() ? zero3 : possible.front();
}

int64_t most_memory(const Plan& plan) {
  int64_t most = 0;
  for (const RankCost& rank : predict(plan))
    most = std::max(most, rank.memory.total().value());
  return most;
}

void require_device_memory(const ZeroBenchRequest& request, const Plan& plan) {
  if (request.device_bytes > 0)
    require_gpu_memory(to_string(plan.options.zero.sizes), request.mesh.world(),
                       most_memory(plan), 0, request.device_bytes);
}

// Runs without overlap, so that copying threads take no time from the computing
// one.
void measure_first(const ZeroBenchRequest& request, ZeroBench& bench) {
  bench.measured_first = first_to_measure(request);
  if (request.wants_limits && !request.make_engine) {
    request.progress("measuring what the machine can do");
    bench.limits =
        on_every_rank(ranks_of(request), {}, [](Communicator& world) {
          return measure_limits(world, *make_cpu_engine());
        });
  }
  request.progress(
      cat("measuring ", to_string(bench.measured_first), " without links"));
  const Plan plan = request.plan(bench.measured_first, {});
  require_device_memory(request, plan);
  TrainSettings settings = request.settings;
  settings.runtime.overlap = Overlap::kNone;
  const bool is_short = request.make_engine != nullptr;
  IterationTrial trial =
      carry_out(request, plan, {}, settings, is_short ? kFirstOfShort : kFirst);
  if (!is_short && trial.iteration_seconds < kLongIteration)
    trial = carry_out(request, plan, {}, settings, kFirstOfShort);
  bench.compute_seconds = trial.compute_seconds;
  bench.inputs = measured_inputs(request.settings, plan, trial, bench.limits);
  bench.link = request.link;
  if (request.comm_ratio > 0)
    bench.link = scaled_link(
        request.link, plan, to_string(plan.options.zero.sizes),
        request.comm_ratio, trial.compute_seconds, [&](const LinkModel& link) {
          return planned_bytes(request.settings, plan).seconds(link);
        });
}

// The work that stands in for forward and backward has no tensor-parallel sums.
TrainSettings settings_of_prediction(const ZeroBenchRequest& request) {
  TrainSettings settings = request.settings;
  if (request.make_engine) settings.decoder.architecture.hidden = 0;
  return settings;
}

void plan_cell(const ZeroBenchRequest& request, const ZeroBench& bench,
               ZeroCell& cell) {
  try {
    cell.plan = request.plan(cell.sizes, bench.link);
    require_device_memory(request, *cell.plan);
  } catch (const UsageError& error) {
    cell.error = error.what();
    return;
  }
  cell.bytes = planned_bytes(request.settings, *cell.plan);
  cell.memory_predicted_max = most_memory(*cell.plan);
  cell.predicted = predict_iteration_of(settings_of_prediction(request),
                                        *cell.plan, cell.overlap, bench.inputs);
  if (!bench.link) return;
  cell.link_seconds = cell.bytes.seconds(*bench.link);
  cell.edge_seconds = cell.bytes.edge_seconds(*bench.link);
  cell.step_limit = planned_exchange(*cell.plan).limit();
}

// Digests are those of the first round; all rounds do the same.
void run_cell(const ZeroBenchRequest& request, const ZeroBench& bench,
              ZeroCell& cell, Trace* trace) {
  TrainSettings settings = request.settings;
  settings.runtime.overlap = cell.overlap;
  settings.runtime.trace = trace;
  IterationTrialRequest trial = request.trial;
  trial.wants_digests = cell.trials.empty();
  trial.wants_modules = false;
  cell.trials.push_back(
      carry_out(request, *cell.plan, bench.link, settings, trial));
}

void run_round(const ZeroBenchRequest& request, int round, ZeroBench& bench) {
  std::vector<ZeroCell*> order;
  for (ZeroCell& cell : bench.cells)
    if (cell.error.empty()) order.push_back(&cell);
  const ZeroCell* last = order.empty() ? nullptr : order.back();
  if (round % 2 == 1) std::ranges::reverse(order);
  for (ZeroCell* cell : order) {
    request.progress(cat("round ", round + 1, " of ", request.repeats, ": ",
                         to_string(cell->sizes), " ",
                         to_string(cell->overlap)));
    const bool traced = round == 0 && cell == last;
    run_cell(request, bench, *cell, traced ? request.trace : nullptr);
  }
}

// For another z2, sums over ranks and micro-batches are added in another order,
// unless there is one micro-batch and the groups are subtrees of the sum over
// all. In bf16 every sum over groups is rounded, and z1 and z2 determine the
// groups.
std::pair<int32_t, int32_t> digest_class(const ZeroCell& cell, const Mesh& mesh,
                                         int64_t num_micro_batches,
                                         GradientWire wire) {
  if (wire == GradientWire::kBf16) return {cell.sizes.z1, cell.sizes.z2};
  const bool one_for_all =
      num_micro_batches == 1 && keeps_bits(cell.sizes, mesh.homes());
  return {0, one_for_all ? 0 : cell.sizes.z2};
}

std::vector<double> values_of(const std::vector<IterationTrial>& trials,
                              double IterationTrial::*member) {
  std::vector<double> values;
  for (const IterationTrial& trial : trials) values.push_back(trial.*member);
  return values;
}

std::vector<double> all_seconds(const std::vector<IterationTrial>& trials) {
  std::vector<double> all;
  for (const IterationTrial& trial : trials)
    all.insert(all.end(), trial.seconds.begin(), trial.seconds.end());
  return all;
}

double sum_of(const std::vector<IterationTrial>& trials,
              double IterationTrial::*member) {
  double sum = 0;
  for (const IterationTrial& trial : trials) sum += trial.*member;
  return sum;
}

std::string name_of(const ZeroCell& cell) {
  return cat(to_string(cell.sizes), " ", to_string(cell.overlap));
}

}  // namespace

double ZeroCell::median(double IterationTrial::*member) const {
  return median_of(values_of(trials, member));
}

double ZeroCell::iteration_seconds() const {
  return median_of(all_seconds(trials));
}

double ZeroCell::iteration_spread() const {
  const auto [least, most] = std::ranges::minmax(all_seconds(trials));
  return most - least;
}

// Treats the rounds as if they followed each other: all have the same kinds of
// iterations.
StepTimes ZeroCell::iteration_times() const {
  std::vector<double> medians;
  for (size_t i = 0; i < first().seconds.size(); ++i) {
    std::vector<double> rounds;
    for (const IterationTrial& trial : trials)
      rounds.push_back(trial.seconds[i]);
    medians.push_back(median_of(std::move(rounds)));
  }
  return summarize_steps(medians, first_timed, plan ? plan->period : 1);
}

double ZeroCell::hidden(double IterationTrial::*waited,
                        double IterationTrial::*busy) const {
  return share_hidden(sum_of(trials, waited), sum_of(trials, busy));
}

double ZeroCell::hidden_fraction() const {
  return hidden(&IterationTrial::waited_seconds, &IterationTrial::busy_seconds);
}
double ZeroCell::covered_fraction() const {
  return hidden(&IterationTrial::exposed_seconds,
                &IterationTrial::busy_seconds);
}
double ZeroCell::step_hidden_fraction() const {
  return hidden(&IterationTrial::step_waited_seconds,
                &IterationTrial::step_busy_seconds);
}
double ZeroCell::step_covered_fraction() const {
  return hidden(&IterationTrial::step_exposed_seconds,
                &IterationTrial::step_busy_seconds);
}

std::string ZeroBench::disagreement(const Mesh& mesh, int64_t num_micro_batches,
                                    GradientWire wire) const {
  const auto kind = [&](const ZeroCell& cell) {
    return digest_class(cell, mesh, num_micro_batches, wire);
  };
  for (size_t i = 0; i < cells.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const ZeroCell &a = cells[j], &b = cells[i];
      if (!a.error.empty() || !b.error.empty()) continue;
      if (kind(a) != kind(b)) continue;
      if (a.first().digest != b.first().digest ||
          a.first().state_digest != b.first().state_digest)
        return cat(name_of(a), " and ", name_of(b),
                   " give different parameters or states");
    }
  return "";
}

ZeroBench run_zero_bench(const ZeroBenchRequest& request) {
  ZeroBench bench;
  measure_first(request, bench);
  for (const ZeroSizes& sizes : request.sizes)
    for (const Overlap overlap : request.overlaps) {
      ZeroCell& cell = bench.cells.emplace_back();
      cell.sizes = sizes;
      cell.overlap = overlap;
      cell.first_timed = request.trial.warmup + 1;
      plan_cell(request, bench, cell);
    }
  const double begin = wall_seconds();
  double last_began = begin;
  for (int round = 0; round < request.repeats; ++round) {
    const double now = wall_seconds();
    const double end = now + (now - last_began) - begin;
    if (round > 0 && request.limit_seconds > 0 && end > request.limit_seconds)
      break;
    last_began = now;
    run_round(request, round, bench);
  }
  return bench;
}

}  // namespace canzona
