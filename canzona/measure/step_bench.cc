#include "canzona/measure/step_bench.h"

#include <algorithm>
#include <map>
#include <new>
#include <numeric>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/iteration_trial.h"
#include "canzona/measure/planned_exchange.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/options.h"
#include "canzona/train/train_rank.h"

namespace canzona {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

StepTimes summarize_steps(std::span<const double> seconds, int64_t first,
                          int64_t period) {
  StepTimes times;
  times.median = median_of({seconds.begin(), seconds.end()});
  std::map<int64_t, std::vector<double>> kinds;
  for (size_t i = 0; i < seconds.size(); ++i)
    kinds[(first + static_cast<int64_t>(i)) % period].push_back(seconds[i]);
  for (const auto& [kind, of_kind] : kinds) {
    const double median = median_of(of_kind);
    times.mean += median / static_cast<double>(kinds.size());
    times.worst = std::max(times.worst, median);
  }
  times.covers_period = std::ssize(kinds) == period;
  return times;
}

std::vector<double> slowest(const std::vector<std::vector<double>>& rows) {
  std::vector<double> most;
  for (const std::vector<double>& row : rows) {
    if (most.empty()) most.resize(row.size(), 0);
    for (size_t i = 0; i < row.size(); ++i) most[i] = std::max(most[i], row[i]);
  }
  return most;
}

namespace {

// The measurements of one rank, in the same form on all ranks.
struct StepNumbers {
  double step_compute = 0;  // median
  double host = 0;          // median
  double iteration = 0;
  double waited = 0, links_busy = 0;            // in all iterations
  double step_waited = 0, step_links_busy = 0;  // in all timed steps
  double bytes_sent = 0;                        // of a step
  double slow_bytes_sent = 0;                   // of these, to other nodes
  double memory_bytes = 0;
};

double learning_rate_of(const std::string& rule, const RuleOptions& options) {
  return real_option(make_rule_facts(rule, options)->options(),
                     "learning_rate");
}

// One rank's trial.
class StepRank {
 public:
  StepRank(const Plan& plan, Communicator& world, Engine& engine,
           const StepTrialRequest& request)
      : plan_(plan),
        world_(world),
        engine_(engine),
        request_(request),
        runtime_(plan, world, engine, with_timed_waits(request.runtime)),
        tensors_(static_cast<size_t>(num_modules(plan.model))) {
    settings_.learning_rate = learning_rate_of(plan.rule, plan.rule_options);
    settings_.adamw_learning_rate =
        learning_rate_of(kElementRule, request.runtime.adamw);
    settings_.gradient_factor = gradient_factor(request.gradients, plan.mesh);
    settings_.clip_norm = request.clip_norm;
    begin_phase("parameters");
    for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t)
      if (runtime_.holds(t)) add_tensor(t);
    engine_.synchronize();
  }

  // Ranks that have finished would take memory and cores from the others by
  // copying all parameters, so gathers are held until all have finished.
  void run_steps() {
    runtime_.hold_params(true);
    const int64_t before = runtime_.sent().total();
    const int64_t slow_before = runtime_.sent_slow().total();
    for (int step = 1; step <= request_.steps; ++step) run_step(step);
    numbers_.bytes_sent =
        static_cast<double>(runtime_.sent().total() - before) / request_.steps;
    numbers_.slow_bytes_sent =
        static_cast<double>(runtime_.sent_slow().total() - slow_before) /
        request_.steps;
    numbers_.step_compute = median_of(compute_);
    numbers_.host = median_of(host_);
    numbers_.memory_bytes =
        static_cast<double>(runtime_.memory().total().value());
    runtime_.hold_params(false);
  }

  // The first iteration finds all parameters available and is not timed.
  void run_iterations() {
    if (request_.iterations == 0) return;
    if (runtime_.only_issues()) {
      EngineWork work(runtime_, engine_,
                      {request_.product_tokens, request_.compute_seconds});
      time_iterations([&] { issue_iteration(work); });
      refuse_skipped(runtime_.outcome());
    } else {
      if (request_.product_tokens > 0)
        throw UsageError(
            "products can only simulate forward and backward if ranks do not "
            "wait for the GPU; these wait for every collective");
      TimedWork work(plan_, runtime_.coordinates(), request_.compute_seconds);
      time_iterations([&] { run_iteration(work); });
    }
  }

  Runtime& runtime() { return runtime_; }
  const StepNumbers& numbers() const { return numbers_; }
  const std::vector<double>& seconds() const { return seconds_; }
  const std::vector<double>& with_gather() const { return with_gather_; }

 private:
  const Tensor& tensor(int32_t t) const {
    return plan_.model.tensors[static_cast<size_t>(t)];
  }

  void begin_phase(const std::string& name) const {
    if (request_.phases != nullptr && world_.rank() == 0)
      request_.phases->begin(name);
  }

  void add_tensor(int32_t t) {
    tensors_[static_cast<size_t>(module_of(plan_.model, tensor(t)))].push_back(
        t);
    set_first_parameter(runtime_, engine_, t);
  }

  void write_gradient(int32_t t, int64_t step) {
    const Coordinates& at = runtime_.coordinates();
    const auto [home, num_homes] = home_of(plan_, at, tensor(t));
    make_gradient(engine_, {request_.gradients, home, num_homes, step},
                  tensor(t), plan_.mesh.tp, at.t, runtime_.gradient(t).data());
  }

  void announce(const std::vector<int32_t>& tensors) {
    for (const int32_t t : tensors) runtime_.grad_ready(t);
  }

  // Timed work stands in for compute, so it begins when the engine has reached
  // this point.
  void wait_for_engine() {
    const double begin = wall_seconds();
    engine_.synchronize();
    numbers_.waited += wall_seconds() - begin;
  }

  // With an asynchronous runtime, waits for the engine before the first and
  // after the last iteration.
  template <class Iterate>
  void time_iterations(const Iterate& iterate) {
    iterate();
    if (runtime_.only_issues()) engine_.synchronize();
    numbers_.waited = 0;
    const double begin = wall_seconds();
    const RuntimeTimes before = runtime_.times();
    for (int i = 0; i < request_.iterations; ++i) iterate();
    wait_for_engine();
    const RuntimeTimes after = runtime_.times();
    numbers_.iteration = (wall_seconds() - begin) / request_.iterations;
    if (runtime_.only_issues()) numbers_.waited = 0;
    numbers_.waited += after.waited() - before.waited();
    numbers_.links_busy = after.links_busy - before.links_busy;
    runtime_.wait_all_params();
  }

  // Returns how long it took to issue the step.
  double update() {
    const double begin = wall_seconds();
    runtime_.issue_step(settings_);
    const double issued = wall_seconds() - begin;
    refuse_skipped(runtime_.outcome());
    return issued;
  }

  void refuse_skipped(const StepOutcome& outcome) {
    if (outcome.skipped)
      throw NumericalError(cat("step ", runtime_.steps_done() + 1,
                               ": the gradient of ",
                               quoted(outcome.nonfinite_tensor), " on rank ",
                               outcome.nonfinite_rank, " is not finite"));
  }

  void run_step(int step) {
    if (step == 1) begin_phase("gradients");
    for (const std::vector<int32_t>& module : tensors_)
      for (const int32_t t : module) write_gradient(t, step);
    if (step == 1) engine_.synchronize();
    world_.barrier({.label = "before a step"});
    if (step == 1) begin_phase("first step");
    for (auto module = tensors_.rbegin(); module != tensors_.rend(); ++module)
      announce(*module);
    // A step is measured from when the last gradient on any rank is reduced.
    runtime_.wait_gradients();
    engine_.synchronize();
    world_.barrier({.label = "gradients are reduced"});
    const RuntimeTimes before = runtime_.times();
    const double begin = wall_seconds();
    const double issued = update();
    engine_.synchronize();
    const double seconds = wall_seconds() - begin;
    const RuntimeTimes after = runtime_.times();
    world_.barrier({.label = "parameters are applied"});
    const double applied = wall_seconds();
    runtime_.wait_all_params();
    engine_.synchronize();
    const double gathered = wall_seconds();
    if (step == 1 && request_.phases != nullptr && world_.rank() == 0)
      request_.phases->end();
    runtime_.zero_gradients();
    if (step <= request_.warmup) return;
    const double waited = after.waited_in_step - before.waited_in_step;
    seconds_.push_back(seconds);
    host_.push_back(issued);
    with_gather_.push_back(seconds + gathered - applied);
    compute_.push_back(seconds - waited);
    numbers_.step_waited += waited;
    numbers_.step_links_busy += after.exchange_busy - before.exchange_busy;
  }

  // Gradients stay as the last step left them: their values do not affect the
  // time.
  void run_iteration(TimedWork& work) {
    const auto num_modules = static_cast<int32_t>(tensors_.size());
    work.begin();
    for (int32_t m = 0; m < num_modules; ++m) {
      runtime_.wait_params(m);
      wait_for_engine();
      work.forward(m);
    }
    for (int32_t m = num_modules - 1; m >= 0; --m) {
      work.backward(m);
      announce(tensors_[static_cast<size_t>(m)]);
    }
    update();
  }

  void issue_iteration(EngineWork& work) {
    const auto num_modules = static_cast<int32_t>(tensors_.size());
    for (int32_t m = 0; m < num_modules; ++m) {
      runtime_.wait_params(m);
      work.forward(m);
    }
    for (int32_t m = num_modules - 1; m >= 0; --m) {
      work.backward(m);
      announce(tensors_[static_cast<size_t>(m)]);
    }
    runtime_.issue_step(settings_);
  }

  const Plan& plan_;
  Communicator& world_;
  Engine& engine_;
  const StepTrialRequest& request_;
  Runtime runtime_;
  StepSettings settings_;
  std::vector<std::vector<int32_t>> tensors_;  // on this rank, by module
  // By timed step.
  std::vector<double> seconds_, with_gather_, compute_, host_;
  StepNumbers numbers_;
};

void add_totals(const std::vector<StepNumbers>& ranks, int iterations,
                StepTrial& trial) {
  double waited = 0, busy = 0, step_waited = 0, step_busy = 0;
  for (const StepNumbers& rank : ranks) {
    waited += rank.waited;
    busy += rank.links_busy;
    step_waited += rank.step_waited;
    step_busy += rank.step_links_busy;
    trial.step_compute_seconds =
        std::max(trial.step_compute_seconds, rank.step_compute);
    trial.host_seconds = std::max(trial.host_seconds, rank.host);
    trial.iteration_seconds = std::max(trial.iteration_seconds, rank.iteration);
    trial.bytes_sent.push_back(static_cast<int64_t>(rank.bytes_sent));
    trial.slow_bytes_sent.push_back(static_cast<int64_t>(rank.slow_bytes_sent));
    trial.memory_bytes.push_back(static_cast<int64_t>(rank.memory_bytes));
  }
  const double share =
      1.0 / (std::max(1, iterations) * static_cast<double>(ranks.size()));
  trial.waited_seconds = waited * share;
  trial.links_busy_seconds = busy * share;
  trial.hidden_fraction = share_hidden(waited, busy);
  trial.step_hidden_fraction = share_hidden(step_waited, step_busy);
  trial.bytes_sent_max = std::ranges::max(trial.bytes_sent);
  trial.slow_bytes_sent_max = std::ranges::max(trial.slow_bytes_sent);
  trial.memory_bytes_max = std::ranges::max(trial.memory_bytes);
}

}  // namespace

StepTrial run_step_trial(const Plan& plan, Communicator& world, Engine& engine,
                         const StepTrialRequest& request) {
  CANZONA_CHECK(request.warmup < request.steps, "no step is timed");
  StepRank rank(plan, world, engine, request);
  StepTrial trial;
  trial.knows_hidden =
      !rank.runtime().only_issues() || rank.runtime().times().links_modelled;
  rank.run_steps();
  if (request.digests) {
    const double begin = wall_seconds();
    trial.digest = rank.runtime().parameter_digest();
    trial.state_digest = rank.runtime().state_digest();
    trial.digest_seconds = one_from_all(world, wall_seconds() - begin)[0];
  }
  rank.run_iterations();

  const int64_t first = request.warmup + 1;
  const auto seconds = from_all<double>(world, rank.seconds());
  trial.step = summarize_steps(slowest(seconds), first, plan.period);
  trial.step_and_gather = summarize_steps(
      slowest(from_all<double>(world, rank.with_gather())), first, plan.period);
  for (const std::vector<double>& of_rank : seconds)
    trial.rank_seconds.push_back(
        summarize_steps(of_rank, first, plan.period).mean);
  add_totals(one_from_all(world, rank.numbers()), request.iterations, trial);
  return trial;
}

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
  if (!device_kind(request.device).has_own_memory) return;
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
  if (bench.speed || device_kind(request.device).has_own_memory ||
      !lacks_cost_table(plan))
    return;
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
