#include "canzona/measure/step_trial.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/measure/stand_in.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/options.h"
#include "canzona/train/train_rank.h"

namespace canzona::measure {

double LinkTimes::hidden_fraction() const { return share_hidden(waited, busy); }
double LinkTimes::covered_fraction() const {
  return share_hidden(exposed, busy);
}

namespace {

// The measurements of one rank, in the same form on all ranks.
struct StepNumbers {
  double step_compute = 0;     // median
  double host = 0;             // median
  LinkTimes step_links = {};   // in all timed steps
  double iterations = 0;       // seconds of all timed ones
  LinkTimes links = {};        // in these
  double bytes_sent = 0;       // of a step
  double slow_bytes_sent = 0;  // of these, to other nodes
  int64_t memory_bytes = 0;
  Runtime::PoolUse pools = {};
};

double learning_rate_of(const std::string& rule, const RuleOptions& options) {
  return real_option(make_rule_facts(rule, options)->options(),
                     "learning_rate");
}

RuntimeOptions with_timed_waits(RuntimeOptions options) {
  options.timed_waits = true;
  return options;
}

LinkTimes links_between(const RuntimeTimes& before, const RuntimeTimes& after) {
  return {after.waited() - before.waited(),
          after.links_busy - before.links_busy,
          after.links_exposed - before.links_exposed};
}

void add(const LinkTimes& from, double share, LinkTimes& to) {
  to.waited += share * from.waited;
  to.busy += share * from.busy;
  to.exposed += share * from.exposed;
}

// Points in the work of a rank: of its engine if calls only issue work, else of
// this thread.
class Marks {
 public:
  Marks(Engine& engine, bool on_engine)
      : engine_(engine), on_engine_(on_engine) {}

  void add() {
    if (!on_engine_) return seconds_.push_back(wall_seconds());
    events_.push_back(engine_.make_timed_event());
    engine_.record_in(*events_.back());
  }
  // Returns the seconds between neighbours. The engine must have reached the
  // last.
  std::vector<double> intervals() const {
    std::vector<double> out;
    for (size_t i = 1; i < events_.size(); ++i)
      out.push_back(events_[i]->seconds_after(*events_[i - 1]));
    for (size_t i = 1; i < seconds_.size(); ++i)
      out.push_back(seconds_[i] - seconds_[i - 1]);
    return out;
  }

 private:
  Engine& engine_;
  bool on_engine_;
  std::vector<double> seconds_;
  std::vector<std::unique_ptr<Event>> events_;
};

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
        tensors_(static_cast<size_t>(num_modules(plan.model))),
        uses_(uses_of(usual_calls(plan, runtime_.coordinates().stage,
                                  request.micro_batches))) {
    for (const ModuleUse& use : uses_) used_.push_back(use.module);
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
    runtime_.hold_params(false);
  }

  // The first iteration finds all parameters available and is not timed.
  void run_iterations() {
    if (request_.iterations == 0) return;
    const auto micro_batches = static_cast<double>(request_.micro_batches);
    StandIn work(
        runtime_, engine_,
        {request_.product_tokens, request_.compute_seconds / micro_batches});
    iterate(work);
    settle();
    world_.barrier({.label = "before the timed iterations"});
    time_iterations(work);
    runtime_.wait_all_params();
  }

  Runtime& runtime() { return runtime_; }
  const StepNumbers& numbers() {
    numbers_.memory_bytes = runtime_.memory().total().value();
    numbers_.pools = runtime_.pool_use();
    return numbers_;
  }
  const std::vector<double>& seconds() const { return seconds_; }
  const std::vector<double>& with_gather() const { return with_gather_; }
  const std::vector<double>& iterations() const { return iterations_; }

 private:
  const Tensor& tensor(int32_t t) const {
    return plan_.model.tensors[static_cast<size_t>(t)];
  }
  const std::vector<int32_t>& tensors_of(int32_t module) const {
    return tensors_[static_cast<size_t>(module)];
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

  void refuse_skipped(const StepOutcome& outcome) {
    if (outcome.skipped)
      throw NumericalError(cat("step ", runtime_.steps_done() + 1,
                               ": the gradient of ",
                               quoted(outcome.nonfinite_tensor), " on rank ",
                               outcome.nonfinite_rank, " is not finite"));
  }

  // Reports what the check of the last step has found, too.
  void settle() {
    refuse_skipped(runtime_.outcome());
    engine_.synchronize();
  }

  // Work that stands in for compute begins when the engine has reached this
  // point.
  void wait_for_engine() {
    if (runtime_.only_issues()) return;
    const double begin = wall_seconds();
    engine_.synchronize();
    numbers_.links.waited += wall_seconds() - begin;
  }

  // Makes the calls of a trainer before a step, with `work` in place of forward
  // and backward. A backward takes its slots before it begins.
  template <class Work>
  void run_modules(Work& work) {
    runtime_.begin_iteration(used_, request_.micro_batches);
    int32_t beside = -1;
    for (const ModuleUse& use : uses_) {
      runtime_.wait_params(use.module);
      if (use.is_beside) {
        beside = use.module;
        continue;
      }
      wait_for_engine();
      if (use.completes()) {
        for (const int32_t t : tensors_of(use.module)) runtime_.gradient(t);
        work.backward(use.module);
        for (const int32_t t : tensors_of(use.module)) runtime_.grad_ready(t);
      } else {
        work.forward(use.module);
      }
      runtime_.release_params(use.module);
      if (beside >= 0) runtime_.release_params(std::exchange(beside, -1));
    }
  }

  // Writes the gradients of a step in its first micro-batch; the others add
  // nothing, so that the sum does not depend on how many there are.
  class FreshGradients {
   public:
    FreshGradients(StepRank& rank, int64_t step)
        : rank_(rank), step_(step), is_written_(rank.tensors_.size()) {}
    void forward(int32_t) {}
    void backward(int32_t module) {
      if (is_written_[static_cast<size_t>(module)]) return;
      is_written_[static_cast<size_t>(module)] = true;
      for (const int32_t t : rank_.tensors_of(module)) write(t);
    }

   private:
    void write(int32_t t) {
      const Plan& plan = rank_.plan_;
      Runtime& runtime = rank_.runtime_;
      const Coordinates& at = runtime.coordinates();
      const auto [home, num_homes] = home_of(plan, at, rank_.tensor(t));
      make_gradient(
          rank_.engine_, {rank_.request_.gradients, home, num_homes, step_},
          rank_.tensor(t), plan.mesh.tp, at.t, runtime.gradient(t).data());
    }

    StepRank& rank_;
    int64_t step_;
    std::vector<bool> is_written_;  // by module
  };

  // Returns how long it took to issue the step.
  double update() {
    const double begin = wall_seconds();
    runtime_.issue_step(settings_);
    const double issued = wall_seconds() - begin;
    refuse_skipped(runtime_.outcome());
    return issued;
  }

  void run_step(int step) {
    if (step == 1) begin_phase("gradients");
    world_.barrier({.label = "before a step"});
    FreshGradients gradients(*this, step);
    run_modules(gradients);
    if (step == 1) engine_.synchronize();
    if (step == 1) begin_phase("first step");
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
    const LinkTimes links = {after.waited_in_step - before.waited_in_step,
                             after.exchange_busy - before.exchange_busy,
                             after.exchange_exposed - before.exchange_exposed};
    seconds_.push_back(seconds);
    host_.push_back(issued);
    with_gather_.push_back(seconds + gathered - applied);
    compute_.push_back(seconds - links.waited);
    add(links, 1, numbers_.step_links);
  }

  // Gradients stay as the last step left them: their values do not affect the
  // time.
  void iterate(StandIn& work) {
    work.begin();
    run_modules(work);
    runtime_.issue_step(settings_);
    if (!runtime_.only_issues()) refuse_skipped(runtime_.outcome());
  }

  void time_iterations(StandIn& work) {
    numbers_.links = {};
    const RuntimeTimes before = runtime_.times();
    Marks marks(engine_, runtime_.only_issues());
    marks.add();
    for (int i = 0; i < request_.iterations; ++i) {
      iterate(work);
      wait_for_engine();
      marks.add();
    }
    settle();
    add(links_between(before, runtime_.times()), 1, numbers_.links);
    iterations_ = marks.intervals();
    for (const double seconds : iterations_) numbers_.iterations += seconds;
  }

  const Plan& plan_;
  Communicator& world_;
  Engine& engine_;
  const StepTrialRequest& request_;
  Runtime runtime_;
  StepSettings settings_;
  std::vector<std::vector<int32_t>> tensors_;  // on this rank, by module
  std::vector<ModuleUse> uses_;                // before a step
  std::vector<int32_t> used_;                  // modules of the uses
  // By timed step.
  std::vector<double> seconds_, with_gather_, compute_, host_;
  std::vector<double> iterations_;  // seconds of each timed one
  StepNumbers numbers_;
};

void add_rank(const StepNumbers& rank, StepTrial& trial) {
  trial.step_compute_seconds =
      std::max(trial.step_compute_seconds, rank.step_compute);
  trial.host_seconds = std::max(trial.host_seconds, rank.host);
  trial.bytes_sent.push_back(static_cast<int64_t>(rank.bytes_sent));
  trial.slow_bytes_sent.push_back(static_cast<int64_t>(rank.slow_bytes_sent));
  trial.memory_bytes.push_back(rank.memory_bytes);
  Runtime::PoolUse& pools = trial.pools;
  pools.gather_slots = std::max(pools.gather_slots, rank.pools.gather_slots);
  pools.scatter_slots = std::max(pools.scatter_slots, rank.pools.scatter_slots);
  pools.bytes = std::max(pools.bytes, rank.pools.bytes);
}

void add_ranks(const std::vector<StepNumbers>& ranks,
               const StepTrialRequest& request, StepTrial& trial) {
  const auto num_ranks = static_cast<double>(ranks.size());
  const double of_step = 1 / (num_ranks * (request.steps - request.warmup));
  const double of_iteration = 1 / (num_ranks * std::max(1, request.iterations));
  for (const StepNumbers& rank : ranks) {
    add_rank(rank, trial);
    add(rank.step_links, of_step, trial.step_links);
    add(rank.links, of_iteration, trial.links);
    trial.compute_seconds +=
        of_iteration * (rank.iterations - rank.links.waited);
  }
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
  const bool modelled = rank.runtime().times().links_modelled;
  trial.knows_busy = modelled || !rank.runtime().only_issues();
  trial.knows_exposed = modelled && !rank.runtime().only_issues();
  rank.run_steps();
  if (request.digests) {
    const double begin = wall_seconds();
    trial.digest = rank.runtime().parameter_digest();
    trial.state_digest = rank.runtime().state_digest();
    trial.digest_seconds = one_from_all(world, wall_seconds() - begin)[0];
  }
  rank.run_iterations();

  const int64_t first = request.warmup + 1;
  const auto summary = [&](const std::vector<double>& own, int64_t number) {
    return summarize_steps(slowest(from_all<double>(world, own)), number,
                           plan.period);
  };
  trial.step = summary(rank.seconds(), first);
  trial.step_and_gather = summary(rank.with_gather(), first);
  // The first iteration is not timed.
  trial.iteration = summary(rank.iterations(), request.steps + 2);
  for (const std::vector<double>& of_rank :
       from_all<double>(world, rank.seconds()))
    trial.rank_seconds.push_back(
        summarize_steps(of_rank, first, plan.period).mean);
  add_ranks(one_from_all(world, rank.numbers()), request, trial);
  return trial;
}

}  // namespace canzona::measure
