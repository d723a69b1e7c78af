#include "cli/train_job.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/measure/machine.h"
#include "canzona/report/zero_bytes.h"
#include "canzona/train/decoder_of.h"
#include "canzona/train/schedule.h"

namespace canzona::cli {
namespace {

// Of step 1, 2, …
std::function<double(int64_t)> rate_of(const TrainConfig& config, double peak) {
  return
      [peak, steps = config.steps, schedule = config.schedule](int64_t step) {
        return peak * rate_factor(step - 1, steps, schedule);
      };
}

// Norms do not decay. Where AdamW is the rule of matrices, they still have a
// rate of their own.
std::vector<ParameterGroup> groups_of(const TrainConfig& config) {
  std::vector<ParameterGroup> groups = {
      {.pattern = "*norm.weight", .weight_decay = 0.0}};
  if (config.rule.name == "adamw" && config.adamw.learning_rate > 0)
    groups.push_back({.pattern = "*_proj.weight",
                      .weight_decay = config.rule.weight_decay,
                      .learning_rate_factor = config.rule.learning_rate /
                                              config.adamw.learning_rate});
  return groups;
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
  settings.eval_sequences = config.eval.sequences;
  settings.runtime.adamw = adamw_options_of(config);
  settings.runtime.groups = groups_of(config);
  settings.runtime.wire =
      config.wire == "bf16" ? GradientWire::kBf16 : GradientWire::kFp32;
  settings.runtime.overlap = parse_overlap(config.zero.overlap);
  settings.reuse = config.zero.reuse;
  return settings;
}

}  // namespace

int64_t TrainJob::num_parameters() const {
  int64_t sum = 0;
  for (const Tensor& tensor : plan.model.tensors) sum += tensor.elements();
  return sum;
}

int64_t TrainJob::most_bytes() const {
  int64_t most = 0;
  for (int32_t r = 0; r < std::ssize(ranks); ++r)
    most = std::max(most, bytes_of(r));
  return most;
}

double TrainJob::step_seconds() const {
  double most = 0;
  if (!speed) return most;
  for (const RankCost& rank : ranks)
    most = std::max(most, rank.step_seconds_mean);
  return most;
}

WireBytes TrainJob::bytes_per_step() const {
  const int64_t at_once = settings.decoder.micro_batch * plan.mesh.homes();
  return most_iteration_bytes(plan, ranks, settings.global_batch / at_once);
}

bool TrainJob::is_plain() const {
  return plan.parts.empty() && plan.grid.places == 1 &&
         plan.num_replicas() == 1;
}

TrainJob make_job(const TrainConfig& config, const Mesh& mesh,
                  const std::optional<MachineLimits>& limits) {
  TrainJob job;
  job.settings = settings_of(config);
  check_training(job.settings, mesh);
  job.link = link_of(config);
  TrainPlan made = plan_training(config, job.settings, mesh, limits);
  job.plan = std::move(made.plan);
  job.ranking = std::move(made.ranking);
  job.ranks = predict(job.plan);
  job.activations = training_memory(job.settings, job.plan);
  if (limits)
    predict_at({.flops_per_second = limits->flops.together,
                .copy_bytes_per_second = limits->copies.together},
               job);
  return job;
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
      cat("the run needs ", human_bytes(needed), " (", ranks_here, " ranks of ",
          human_bytes(job.most_bytes()), "), but this machine has ",
          human_bytes(there),
          " free; try model.recompute=true, a smaller batch.micro, or more "
          "machines"));
}

}  // namespace canzona::cli
