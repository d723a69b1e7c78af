#include "cli/train_job.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/machine.h"
#include "canzona/measure/planned_exchange.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/view_parts.h"
#include "canzona/sim/compute_seconds.h"
#include "canzona/train/local_decoder.h"
#include "canzona/train/model_source.h"
#include "canzona/train/schedule.h"
#include "cli/plan_input.h"
#include "cli/run_folder.h"

namespace canzona::cli {
namespace {

// Links that are not modelled count as fast as memory.
std::string rates_text(const MachineLimits& limits,
                       const PlanOptions& options) {
  return cat(
      "measured here: ", flops_text(limits.flops.together),
      "/s per rank, copies of ",
      human_bytes(static_cast<int64_t>(limits.copies.together)), "/s; ",
      options.links.nominal ? "links as fast as memory" : links_text(options));
}

void require_sound(const Plan& plan) {
  std::vector<std::string> violations = validate(plan);
  if (!violations.empty())
    throw ViolationsFound("the plan fails validation", std::move(violations));
}

}  // namespace

MachineLimits measure_limits_on(Ranks& ranks) {
  return on_every_rank(ranks.runner(), {}, [](Communicator& world) {
    return measure_limits(world, *make_cpu_engine());
  });
}

double measure_product_rate_on(Ranks& ranks) {
  return on_every_rank(ranks.runner(), {}, [](Communicator& world) {
    return measure_shared_flops(world, *make_cpu_engine()).together;
  });
}

namespace {

// Returns the rate of step 1, 2, …
std::function<double(int64_t)> rate_of(const TrainConfig& config, double peak) {
  return
      [peak, steps = config.steps, schedule = config.schedule](int64_t step) {
        return peak * rate_factor(step - 1, steps, schedule);
      };
}

TrainSettings settings_of(const TrainConfig& config) {
  TrainSettings settings;
  settings.decoder = decoder_of(config);
  check_decoder(settings.decoder, model_name(config));
  settings.steps = config.steps;
  settings.global_batch = config.batch.global;
  settings.seed = static_cast<uint64_t>(config.seed);
  settings.learning_rate = rate_of(config, config.rule.learning_rate);
  settings.adamw_learning_rate = rate_of(config, config.adamw.learning_rate);
  settings.clip_norm = config.clip;
  settings.eval_every = config.eval.every;
  settings.eval_sequences = eval_sequences_of(config);
  settings.max_skipped = config.max_skipped;
  settings.spike_factor = config.spike.factor;
  settings.spike_stop = config.spike.stop;
  settings.check_replicas = config.check_replicas;
  if (!config.run.empty()) {
    settings.saving.every = config.save.every;
    settings.saving.store = {.folder = checkpoint_folder(config.run),
                             .owner = folder_owner(),
                             .keep_last = config.save.keep_last,
                             .background = config.save.mode == "background"};
  }
  settings.runtime.adamw = adamw_options_of(config);
  // Norms do not decay.
  settings.runtime.groups = {{.pattern = "*norm.weight", .weight_decay = 0.0}};
  settings.runtime.wire =
      config.wire == "bf16" ? GradientWire::kBf16 : GradientWire::kFp32;
  settings.runtime.overlap = parse_overlap(config.zero.overlap);
  settings.reuse = config.zero.reuse;
  return settings;
}

int64_t staging_bytes(const TrainSettings& settings, const Plan& plan,
                      int32_t rank) {
  const bool staged =
      settings.saving.every > 0 && settings.saving.store.background;
  return staged ? given_bytes(plan, rank, settings.runtime) : 0;
}

// The plan was made to fit without the staging memory.
void require_room_for_saving(const TrainJob& job, int64_t cap) {
  const int32_t rank = job.fullest_rank();
  const int64_t staging = job.staging_of[static_cast<size_t>(rank)];
  if (cap == 0 || staging == 0 || job.most_bytes() <= cap) return;
  throw UsageError(cat("--memory-cap ", human_bytes(cap), ": rank ", rank,
                       " needs ", human_bytes(job.most_bytes()), ", including ",
                       human_bytes(staging),
                       " to save in the background; --save sync needs none"));
}

// Counts forward and backward; recomputation is work, but not the model's.
double flops_per_token(const TrainJob& job) {
  const DecoderConfig& decoder = job.settings.decoder;
  double flops = 0;
  for (const PassSeconds& pass : compute_seconds(
           job.plan.model,
           {.tokens = 1,
           .length = decoder.length,
           .width = decoder.architecture.heads * decoder.architecture.head_dim,
           .flops_per_second = 1,
           .experts_per_token = decoder.experts_per_token}))
    flops += pass.forward + pass.backward;
  return flops;
}

}  // namespace

int64_t checkpoint_bytes(const TrainJob& job) {
  const TrainSaving& saving = job.settings.saving;
  if (saving.every == 0) return 0;
  int64_t bytes = 0;
  for (int32_t r = 0; r < job.plan.mesh.world(); ++r)
    bytes += given_bytes(job.plan, r, job.settings.runtime);
  // A new checkpoint exists before an old one is removed.
  const int64_t kept = saving.store.keep_last;
  return bytes * (kept == 0 ? 1 : kept + 1);
}

int64_t TrainJob::num_parameters() const {
  int64_t sum = 0;
  for (const Tensor& tensor : plan.model.tensors) sum += tensor.elements();
  return sum;
}

int32_t TrainJob::fullest_rank() const {
  int32_t fullest = 0;
  for (int32_t r = 1; r < std::ssize(ranks); ++r)
    if (bytes_of(r) > bytes_of(fullest)) fullest = r;
  return fullest;
}

double TrainJob::step_seconds() const {
  double most = 0;
  if (!speed) return most;
  for (const RankCost& rank : ranks)
    most = std::max(most, rank.step_seconds_mean);
  return most;
}

WireBytes TrainJob::bytes_per_step() const {
  WireBytes most;
  for (const WireBytes& rank : planned_bytes(settings, plan).ranks)
    most = largest(most, rank);
  return most;
}

bool TrainJob::is_plain() const {
  return canzona::is_plain(plan.options.zero, plan.mesh.homes()) &&
         plan.options.zero.reach == Reach::kDirect && !chose_collectives;
}

TrainJob make_job(const TrainConfig& config, const Mesh& mesh,
                  const std::optional<MachineLimits>& limits) {
  TrainJob job;
  job.settings = settings_of(config);
  job.context = context_length_of(config);
  check_training(job.settings, mesh);
  job.link = link_of(config);
  TrainPlan made = plan_training(config, job.settings, mesh, limits);
  require_sound(made.plan);
  if (made.ranking)
    made.ranking->rates = rates_text(*limits, made.plan.options);
  job.plan = std::move(made.plan);
  job.ranking = std::move(made.ranking);
  job.chose_collectives = parse_reach(config.zero.collectives) == Reach::kAuto;
  job.settings.initial = initial_weights(config, job.plan.model, job.notes);
  job.ranks = predict(job.plan);
  for (int32_t r = 0; r < mesh.world(); ++r) {
    job.activations_of.push_back(training_memory(job.settings, job.plan, r));
    job.staging_of.push_back(staging_bytes(job.settings, job.plan, r));
  }
  job.activations = job.activations_of[static_cast<size_t>(job.fullest_rank())];
  require_room_for_saving(job, memory_cap_of(config));
  job.settings.flops_per_token = flops_per_token(job);
  if (limits) {
    set_product_rate(limits->flops.together, job);
    predict_at({.flops_per_second = limits->flops.together,
                .copy_bytes_per_second = limits->copies.together},
               job);
  }
  return job;
}

void set_product_rate(double flops_per_second_of_a_rank, TrainJob& job) {
  job.settings.product_flops_per_second =
      flops_per_second_of_a_rank * job.plan.mesh.world();
}

void predict_at(const MachineSpeed& speed, TrainJob& job) {
  job.speed = speed;
  job.ranks = predict(priced(job.plan, speed));
}

void require_memory(const TrainJob& job, int64_t ranks_here) {
  const int64_t needed = ranks_here * job.most_bytes();
  const int64_t there = available_memory();
  if (needed <= there || there == 0) return;
  throw UsageError(
      cat("the run needs ", human_bytes(needed), " (", ranks_here,
          ranks_here == 1 ? " rank of " : " ranks of ",
          human_bytes(job.most_bytes()), "), but this machine has ",
          human_bytes(there),
          " free; try model.recompute=true, a smaller batch.micro, or more "
          "machines"));
}

}  // namespace canzona::cli
