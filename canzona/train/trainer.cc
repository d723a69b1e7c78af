#include "canzona/train/trainer.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/train/run_checks.h"
#include "canzona/train/train_rank.h"

namespace canzona::train {
namespace {

// After this many rounds on each pipeline stage, ranks agree on whether to
// continue an evaluation.
constexpr int64_t kRoundsAtOnce = 4;
constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

double now() { return 1e-9 * static_cast<double>(steady_nanoseconds()); }

// Exchanged by the ranks after a step.
struct RankStep {
  double optimizer = 0;
  double waited = 0;
  double busy = 0;
  double stop = 0;
  double save = 0;
};

class RankTrainer {
 public:
  RankTrainer(const TrainSettings& settings, const Plan& plan,
              const Batches& batches, Communicator& world, Engine& engine,
              TrainObserver* observer)
      : settings_(settings),
        plan_(plan),
        world_(world),
        observer_(world.rank() == 0 ? observer : nullptr),
        rank_(settings, plan, batches, world, engine) {
    if (computes_on_device(plan))
      require_same_device(rank_.stage().describe(), world);
    begin_with(settings.resume ? resumed() : begun());
    if (settings.saving.every > 0)
      saver_.emplace(rank_.runtime(), world, settings.saving.store);
    result_.memory_bytes =
        one_from_all(world, rank_.runtime().memory().total().value() +
                                rank_.stage().reserved() +
                                (saver_ ? saver_->staging_bytes() : 0));
  }

  TrainResult run() {
    begin_ = now();
    make_up_evaluation();
    for (int64_t step = state_.step + 1;
         result_.stop == 0 && step <= settings_.steps; ++step)
      if (run_step(step)) break;
    finish_saving();
    close_books();
    hand_over_weights();
    if (result_.stop == 0 && !result_.diverged) evaluate_last();
    return std::move(result_);
  }

 private:
  RunState resumed();
  RunState begun();
  void begin_with(const RunState& start);
  void save();
  void save_if_due(bool wished, bool skipped);
  void finish_saving();
  void take(const SavedStep& saved);
  bool run_step(int64_t step);
  void come_to(TrainPoint point, int64_t step) {
    settings_.come_to({point, step, world_.rank(), rank_.runtime()});
  }
  void check_replicas(int64_t step);
  void watch_loss(StepMetrics& metrics);
  void take(const StepMetrics& metrics);
  double loss_of(const std::vector<std::vector<double>>& rows, int64_t m) const;
  double mean_loss(const std::vector<double>& own, int64_t count);
  std::vector<double> held_out_losses(int64_t sequences, int64_t rounds);
  void evaluate();
  bool is_evaluated_after(int64_t step) const;
  void make_up_evaluation();
  void evaluate_last();
  int own_stop() const;
  int wishes() const;
  bool is_stopped();
  void add_times(const RankStep& own, double seconds, StepMetrics& metrics);
  void close_books();
  void hand_over_weights();

  const TrainSettings& settings_;
  const Plan& plan_;
  Communicator& world_;
  TrainObserver* observer_;
  TrainRank rank_;
  double begin_ = 0;
  RankTimes times_;
  SentBytes not_of_steps_;
  double seconds_before_ = 0;  // this start
  RunState state_;             // after the last step
  std::optional<RunSaver> saver_;
  int64_t last_save_ = 0;  // the step of the last one begun
  bool save_is_due_ = false;
  bool save_is_wished_ = false;  // requested by any rank, after this step
  int wishes_served_ = 0;
  TrainResult result_;
};

void require_same_data(const DataIdentity& now, const LoadedState& loaded) {
  const DataIdentity saved =
      read_data_identity(loaded.side_files.at(kDataFile), loaded.path);
  if (now.digest.empty() || saved.digest == now.digest) return;
  throw DataLost(cat("the data differs from what ", printable(loaded.path),
                     " was saved with: ", printable(saved.description), " (",
                     saved.digest, "), now ", printable(now.description), " (",
                     now.digest, "); resume with the data of the saved run"));
}

std::string device_text(const std::string& device) {
  return device.empty() ? "a CPU" : printable(device, 400);
}

// Returns the same on every rank.
RunState RankTrainer::resumed() {
  LoadedState loaded = load_state(rank_.runtime(), world_, *settings_.resume);
  RunState state = read_run_state(loaded.side_files, loaded.path);
  require_same_data(settings_.data, loaded);
  if (state.step != loaded.step)
    throw DataLost(cat(printable(loaded.path), "/run.json: step ", state.step,
                       " of a checkpoint of step ", loaded.step));
  if (state.step > settings_.steps)
    throw UsageError(cat("resume: ", printable(loaded.path), " has done ",
                         counted_text(state.step, "step"),
                         ", but the run should have ", settings_.steps));
  state.starts = std::max(state.starts, settings_.starts_before) + 1;
  if (const std::string now = rank_.stage().describe(); now != state.device)
    loaded.notes.push_back(cat("the run was computed on ",
                               device_text(state.device), ", and is now on ",
                               device_text(now), ": bits may differ"));
  if (observer_ != nullptr) observer_->on_resumed(loaded, state);
  return state;
}

RunState RankTrainer::begun() {
  world_.barrier({.label = "what the run begins with"});
  if (observer_ != nullptr) observer_->on_begin();
  return settings_.start;
}

void RankTrainer::begin_with(const RunState& start) {
  state_ = start;
  result_.device = state_.device = rank_.stage().describe();
  seconds_before_ = start.seconds;
  last_save_ = start.step;
  result_.starts = start.starts;
  result_.start_step = start.step;
  rank_.go_on_after(start.step, start.sequences);
  result_.steps = start.step;
  result_.tokens = start.tokens;
  result_.final_loss = start.last_loss;
  result_.skipped_steps = start.skipped_steps;
  result_.nonfinite_tensor = start.nonfinite_tensor;
  result_.nonfinite_rank = start.nonfinite_rank;
  result_.spikes = start.spikes;
}

// Returns the loss of micro-batch m over all homes, from all ranks' rows.
double RankTrainer::loss_of(const std::vector<std::vector<double>>& rows,
                            int64_t m) const {
  const Mesh& mesh = plan_.mesh;
  const auto home = static_cast<int32_t>(m % mesh.homes());
  const int32_t rank = mesh.rank(mesh.pp - 1, home, 0);
  return rows[index(rank)][index(m / mesh.homes())];
}

// Returns the mean over the first `count` micro-batches of all homes, added in
// order, so that the sum does not depend on the mesh.
double RankTrainer::mean_loss(const std::vector<double>& own, int64_t count) {
  const auto rows = from_all<double>(world_, own);
  double sum = 0;
  for (int64_t m = 0; m < count; ++m) sum += loss_of(rows, m);
  return sum / static_cast<double>(count);
}

int RankTrainer::own_stop() const {
  return settings_.stop == nullptr ? 0 : settings_.stop->load();
}

int RankTrainer::wishes() const {
  const std::atomic<int>* now = settings_.saving.now;
  return now == nullptr ? 0 : now->load();
}

// True if any rank was asked to stop.
bool RankTrainer::is_stopped() {
  for (const int stop : one_from_all(world_, own_stop()))
    result_.stop = std::max(result_.stop, stop);
  return result_.stop != 0;
}

// The losses of this home, by round; fewer if the evaluation was stopped.
std::vector<double> RankTrainer::held_out_losses(int64_t sequences,
                                                 int64_t rounds) {
  const SentBytes before = rank_.sent();
  std::vector<double> own;
  const int64_t at_once = kRoundsAtOnce * plan_.mesh.pp;
  for (int64_t first = 0; first < rounds; first += at_once) {
    if (first > 0 && is_stopped()) break;
    const int64_t count = std::min(at_once, rounds - first);
    const auto losses = rank_.stage().evaluate({sequences, first, count});
    own.insert(own.end(), losses.begin(), losses.end());
    const int64_t done = rank_.micro_batches().held_out_in(first + count);
    if (observer_ != nullptr)
      observer_->on_evaluating(std::min(done, sequences), sequences);
  }
  const SentBytes after = rank_.sent();
  not_of_steps_.all += after.all - before.all;
  not_of_steps_.slow += after.slow - before.slow;
  return own;
}

// Reports no loss if it was stopped. Micro-batches are weighted by their number
// of sequences; the last one may have fewer.
void RankTrainer::evaluate() {
  const int64_t all =
      rank_.micro_batches().num_held_out(settings_.eval_sequences);
  const int64_t rounds = rank_.micro_batches().held_out_rounds(all);
  const std::vector<double> own = held_out_losses(all, rounds);
  if (all == 0 || std::ssize(own) < rounds) return;
  const auto rows = from_all<double>(world_, own);
  double sum = 0;
  for (int64_t m = 0; m < rounds * plan_.mesh.homes(); ++m)
    sum += loss_of(rows, m) *
           static_cast<double>(rank_.micro_batches().counted(m, all));
  result_.eval_loss = sum / static_cast<double>(all);
  result_.eval_sequences = all;
  if (observer_ != nullptr)
    observer_->on_evaluation(result_.steps, result_.eval_loss);
}

bool RankTrainer::is_evaluated_after(int64_t step) const {
  return settings_.eval_every > 0 && step > 0 &&
         step % settings_.eval_every == 0;
}

// A run that ended between a step and its evaluation makes it up when it is
// resumed. After the last step there is always an evaluation.
void RankTrainer::make_up_evaluation() {
  if (!settings_.resume || !is_evaluated_after(state_.step) ||
      state_.step >= settings_.steps)
    return;
  const int lacks =
      observer_ != nullptr && observer_->lacks_evaluation() ? 1 : 0;
  if (one_from_all(world_, lacks).front() != 0) evaluate();
}

// Its time counts for the run, unlike that of writing weights.
void RankTrainer::evaluate_last() {
  const double start = now();
  evaluate();
  const double seconds = now() - start;
  result_.seconds += seconds;
  for (RankTimes& times : result_.times) times.other += seconds;
}

// Returns true if the run must end after this step.
bool RankTrainer::run_step(int64_t step) {
  const double start = now();
  const TrainRank::Times before = rank_.times();
  come_to(TrainPoint::kForward, step);
  rank_.learn(step);
  const double learned = now();
  const double waited_in_learning = rank_.times().waited - before.waited;
  come_to(TrainPoint::kOptimizer, step);
  StepMetrics metrics;
  const StepOutcome outcome = rank_.update(step, metrics);
  const double end = now();
  const TrainRank::Times after = rank_.times();

  const RankStep own{.optimizer = outcome.seconds,
                     .waited = after.waited - before.waited,
                     .busy = after.busy - before.busy,
                     .stop = static_cast<double>(own_stop()),
                     .save = wishes() != wishes_served_ ? 1.0 : 0.0};
  times_.forward_backward += learned - start - waited_in_learning;
  times_.optimizer += end - learned - (own.waited - waited_in_learning);
  times_.waited += own.waited;
  times_.links_busy += own.busy;

  const int64_t count = rank_.micro_batches().per_home() * plan_.mesh.homes();
  metrics.step = step;
  metrics.loss = mean_loss(rank_.stage().losses(), count);
  metrics.grad_norm = outcome.gradient_norm;
  metrics.lr = settings_.learning_rate(step);
  metrics.tokens = rank_.micro_batches().tokens_after(step);
  metrics.skipped = outcome.skipped;
  metrics.nonfinite_tensor = outcome.nonfinite_tensor;
  metrics.nonfinite_rank = outcome.nonfinite_rank;
  // The norm was not computed.
  if (outcome.skipped) metrics.grad_norm = kNotMeasured;
  add_times(own, now() - start, metrics);
  metrics.seconds = seconds_before_ + now() - begin_;
  watch_loss(metrics);
  take(metrics);
  check_replicas(step);
  const bool goes_on =
      result_.stop == 0 && !result_.diverged && step < settings_.steps;
  if (goes_on) save_if_due(save_is_wished_, outcome.skipped);
  if (goes_on && is_evaluated_after(step)) evaluate();
  result_.stopped = result_.stop != 0 && step < settings_.steps;
  return result_.stop != 0 || result_.diverged;
}

// All ranks have the same losses and decide alike. A skipped step is reported
// as such.
void RankTrainer::watch_loss(StepMetrics& metrics) {
  if (metrics.skipped) return;
  metrics.spike_over =
      spike_over(state_.recent_losses, metrics.loss, settings_.spike_factor);
  remember_loss(metrics.loss, state_.recent_losses);
  if (!metrics.spike_over) return;
  state_.spikes.add(metrics.step, metrics.loss, *metrics.spike_over);
  result_.spikes = state_.spikes;
  result_.diverged = settings_.spike_stop;
}

void RankTrainer::take(const StepMetrics& metrics) {
  result_.steps = metrics.step;
  result_.tokens = metrics.tokens;
  result_.final_loss = metrics.loss;
  // The evaluation loss must be this step's, or none.
  result_.eval_loss = kNotMeasured;
  result_.eval_sequences = 0;
  ++result_.steps_here;
  state_.step = metrics.step;
  state_.sequences = rank_.micro_batches().sequences_after(metrics.step);
  state_.tokens = metrics.tokens;
  state_.seconds = metrics.seconds;
  state_.last_loss = metrics.loss;
  state_.skipped_in_a_row = metrics.skipped ? state_.skipped_in_a_row + 1 : 0;
  if (metrics.skipped) {
    state_.skipped_steps = ++result_.skipped_steps;
    state_.nonfinite_tensor = result_.nonfinite_tensor =
        metrics.nonfinite_tensor;
    state_.nonfinite_rank = result_.nonfinite_rank = metrics.nonfinite_rank;
    result_.diverged = settings_.max_skipped > 0 &&
                       state_.skipped_in_a_row >= settings_.max_skipped;
  }
  if (observer_ != nullptr) observer_->on_step(metrics);
}

void RankTrainer::take(const SavedStep& saved) {
  result_.save_failure = saved.failure;
  result_.save_not_finite = saved.not_finite;
  result_.save_pause_seconds += saved.pause_seconds;
  result_.failed_step = saved.failure.empty() ? -1 : saved.step;
  if (saved.failure.empty()) {
    ++result_.saves;
    result_.saved_step = saved.step;
  }
  if (observer_ != nullptr) observer_->on_saved(saved);
}

void RankTrainer::save() {
  std::vector<SideFile> files;
  if (world_.rank() == 0) {
    files = settings_.saving.side_files;
    files.push_back({kDataFile, data_json(state_, settings_.data)});
    files.push_back({"rng.json", rng_json(settings_.seed)});
    files.push_back({kRunFile, run_json(state_)});
  }
  saver_->save(state_.step, files);
  come_to(TrainPoint::kSave, state_.step);
  last_save_ = state_.step;
  save_is_due_ = false;
  while (const auto saved = saver_->poll()) take(*saved);
}

// Serves all requests made until now.
void RankTrainer::save_if_due(bool wished, bool skipped) {
  wishes_served_ = wishes();
  if (!saver_) return;
  while (const auto saved = saver_->poll()) take(*saved);
  if (state_.step % settings_.saving.every == 0) save_is_due_ = true;
  if (wished || (save_is_due_ && !skipped)) save();
}

// The state of a diverged run is worth no more than its last checkpoint.
void RankTrainer::finish_saving() {
  if (!saver_) return;
  if (!result_.diverged && state_.step != last_save_) save();
  while (const auto saved = saver_->finish()) take(*saved);
}

// Throws NumericalError, the same on all ranks, if replicas have drifted apart.
void RankTrainer::check_replicas(int64_t step) {
  const int64_t every = settings_.check_replicas;
  if (every == 0 || step % every != 0) return;
  const std::optional<Drift> drift = find_drift(rank_.runtime(), world_);
  if (!drift) return;
  throw NumericalError(cat("replicas differ: after step ", step, " ",
                           drift->text(),
                           ", which must have the same (check-replicas=", every,
                           "): its memory, processor or program may be faulty; "
                           "resume from a checkpoint of step ",
                           step - every, " or before, without that machine"));
}

// Times are those of the slowest rank. Also learns whether a rank was asked to
// stop.
void RankTrainer::add_times(const RankStep& own, double seconds,
                            StepMetrics& metrics) {
  double waited = 0, busy = 0, busiest = 0, optimizer = 0;
  save_is_wished_ = false;
  for (const RankStep& rank : one_from_all(world_, own)) {
    waited += rank.waited;
    busy += rank.busy;
    busiest = std::max(busiest, rank.busy);
    optimizer = std::max(optimizer, rank.optimizer);
    result_.stop = std::max(result_.stop, static_cast<int>(rank.stop));
    save_is_wished_ = save_is_wished_ || rank.save > 0;
  }
  constexpr double kMilli = 1e3;
  metrics.tokens_per_second =
      static_cast<double>(rank_.micro_batches().tokens_per_step()) / seconds;
  metrics.optimizer_ms = kMilli * optimizer;
  metrics.comm_ms = kMilli * busiest;
  metrics.hidden_fraction = share_hidden(waited, busy);
  metrics.memory_bytes = std::ranges::max(result_.memory_bytes);
  const double flops = metrics.tokens_per_second * settings_.flops_per_token;
  if (computes_on_device(plan_)) metrics.flops_per_second = flops;
  if (settings_.product_flops_per_second > 0)
    metrics.mfu = flops / settings_.product_flops_per_second;
}

void RankTrainer::close_books() {
  const double seconds = now() - begin_;
  result_.seconds = seconds_before_ + seconds;
  times_.other =
      seconds - times_.forward_backward - times_.optimizer - times_.waited;
  result_.times = one_from_all(world_, times_);
  SentBytes of_steps = rank_.sent();
  of_steps.all -= not_of_steps_.all;
  of_steps.slow -= not_of_steps_.slow;
  result_.sent = one_from_all(world_, of_steps);
}

// Hands over the weights before anything else that could block.
void RankTrainer::hand_over_weights() {
  for (int32_t t = 0; t < std::ssize(plan_.model.tensors); ++t)
    gather_whole(world_, rank_.runtime(), t, [&](std::span<const float> whole) {
      if (observer_ != nullptr) observer_->on_tensor(t, whole);
    });
  if (observer_ != nullptr) observer_->on_weights();
  result_.digest = rank_.runtime().parameter_digest();
  result_.state_digest = rank_.runtime().state_digest();
  if (observer_ != nullptr) observer_->on_result(result_);
}

}  // namespace

void check_device_training(const TrainSettings& settings, const Mesh& mesh) {
  if (mesh.world() != mesh.dp)
    throw UsageError(cat("mesh ", to_string(mesh),
                         ": training on a GPU does not support tp, pp, ep and "
                         "cp yet; expected dp alone, such as dp=",
                         mesh.world()));
  if (settings.qk_clip)
    throw UsageError(
        "qk_clip.tau: training on a GPU does not support QK-clip yet; expected "
        "0");
  if (!settings.make_device_decoder)
    check_device_decoder(settings.decoder, "the model");
}

void check_training(const TrainSettings& settings, const Mesh& mesh) {
  if (mesh.cp > 1)
    throw UsageError(
        cat("mesh ", to_string(mesh),
            ": training does not support cp; expected cp=1, got cp=", mesh.cp));
  const int64_t share = settings.decoder.micro_batch * mesh.homes();
  if (settings.global_batch < 1 || settings.global_batch % share != 0)
    throw UsageError(cat("a step of ", settings.global_batch,
                         " sequences cannot be divided among ", mesh.homes(),
                         " data-parallel ranks in micro-batches of ",
                         settings.decoder.micro_batch,
                         "; expected a multiple of ", share));
}

int64_t training_memory(const TrainSettings& settings, const Plan& plan,
                        int32_t rank) {
  return Stage::memory(settings, plan, coordinates_of(plan.mesh, rank));
}

int64_t training_memory(const TrainSettings& settings, const Plan& plan) {
  int64_t most = 0;
  for (int32_t r = 0; r < plan.mesh.world(); ++r)
    most = std::max(most, training_memory(settings, plan, r));
  return most;
}

TrainResult train(const TrainSettings& settings, const Plan& plan,
                  const Batches& batches, Communicator& world, Engine& engine,
                  TrainObserver* observer) {
  check_training(settings, plan.mesh);
  if (computes_on_device(plan)) check_device_training(settings, plan.mesh);
  RankTrainer trainer(settings, plan, batches, world, engine, observer);
  try {
    return trainer.run();
  } catch (const PeerLost&) {
    throw;
  } catch (const std::exception& error) {
    // Done before anything on this rank waits for the others, so that they
    // learn why.
    world.abort(cat("rank ", world.rank(), " failed: ", error.what()));
    throw;
  }
}

}  // namespace canzona::train
