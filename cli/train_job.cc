#include "cli/train_job.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/store.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/decoder_bench.h"
#include "canzona/measure/planned_bytes.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/train/model_source.h"
#include "canzona/train/resume.h"
#include "canzona/train/stage.h"
#include "canzona/train/stage_links.h"
#include "cli/plan_input.h"
#include "cli/precision.h"
#include "cli/run_folder.h"

namespace canzona::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAuto = "auto";
constexpr const char* kSavedConfig = "config.json";

std::string point_name(int64_t step) {
  return cat("checkpoint of step ", step);
}

[[noreturn]] void refuse_large_step(const std::string& wish) {
  throw UsageError(
      cat("--resume ", wish, ": expected a step of at most ", kMaxStep));
}

// Parses plain digits, as in --resume 1000.
std::optional<int64_t> wished_step(const std::string& wish) {
  int64_t step = 0;
  const char* end = wish.data() + wish.size();
  const auto [stop, error] = std::from_chars(wish.data(), end, step);
  if (wish.empty() || stop != end || wish.front() == '-') return std::nullopt;
  if (error == std::errc::result_out_of_range) refuse_large_step(wish);
  if (error != std::errc()) return std::nullopt;
  return step;
}

ResumePoint point_of(const CheckpointReader& reader, LoadRequest request,
                     bool is_of_run) {
  const int64_t step = reader.manifest().step;
  const std::string name = point_name(step);
  return {.request = std::move(request),
          .name = name,
          .hash = reader.manifest_hash(),
          .saved = saved_settings(reader.side_file(kSavedConfig), name),
          .has_run_state = has_run_state(reader),
          .is_of_run = is_of_run};
}

// Returns the newest checkpoint whose small files are valid and whose other
// files exist; loading verifies every byte, and falls back.
ResumePoint newest_point(const std::string& folder, bool is_of_run) {
  std::vector<std::string> faults;
  for (const ListedCheckpoint& listed : resume_order(Folder::open(folder))) {
    const std::string path = cat(folder, "/", listed.name);
    try {
      const CheckpointReader reader = open_checkpoint(path);
      const std::vector<std::string> missing = reader.check_files();
      if (missing.empty())
        return point_of(reader, {.folder = folder, .which = kAuto}, is_of_run);
      faults.push_back(cat(listed.name, ": ", missing.front()));
    } catch (const DataLost& error) {
      faults.push_back(error.what());
    } catch (const UsageError& error) {
      faults.push_back(error.what());
    }
  }
  throw CheckpointRefused(cat(
      "--resume auto: no checkpoint in ", quoted(folder), " is complete:\n",
      join(faults, "\n"),
      "\ncanzona ckpt verify shows details; --overwrite starts the run anew"));
}

[[noreturn]] void refuse_step(const std::string& folder, int64_t step) {
  std::vector<std::string> there;
  if (has_checkpoint(folder))
    for (const ListedCheckpoint& listed :
         list_checkpoints(Folder::open(folder)))
      there.push_back(cat(listed.step));
  throw CheckpointRefused(
      cat("--resume ", step, ": no checkpoint of this step in ", quoted(folder),
          there.empty() ? "" : "; found those of steps ", join(there, ", ")));
}

ResumePoint point_of_step(const std::string& folder, int64_t step) {
  if (step > kMaxStep) refuse_large_step(cat(step));
  const std::string path = cat(folder, "/", checkpoint_name(step));
  if (!is_there(path)) refuse_step(folder, step);
  return point_of(open_checkpoint(path), {.folder = folder, .which = cat(step)},
                  true);
}

bool is_same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// Accepts a checkpoint's own folder, or one that contains checkpoints.
ResumePoint point_at(const std::string& path, const std::string& run) {
  const bool is_checkpoint = is_there(path + "/manifest.json");
  if (!is_checkpoint) {
    require_reachable(checkpoint_folder(path));
    for (const std::string& folder : {checkpoint_folder(path), path})
      if (has_checkpoint(folder))
        return newest_point(
            folder,
            !run.empty() && is_same_folder(folder, checkpoint_folder(run)));
  }
  const fs::path whole = fs::path(path + "/").lexically_normal().parent_path();
  const std::string name = whole.filename().string();
  const bool has_folder = is_folder(path);
  // A folder with the name of a checkpoint is one, however damaged.
  if (!is_checkpoint &&
      (!has_folder || !step_of_name(name.substr(0, name.find('.')))))
    throw UsageError(cat("--resume ", quoted(path),
                         has_folder       ? ": the folder has no checkpoint"
                         : is_there(path) ? ": it is a file"
                                          : ": no such folder",
                         "; expected auto, a step, or a folder with a "
                         "checkpoint"));
  const fs::path parent =
      whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  // One that was set aside no longer belongs to the run.
  const bool is_of_run = !run.empty() &&
                         is_same_folder(parent, checkpoint_folder(run)) &&
                         step_of_name(name);
  return point_of(open_checkpoint(path),
                  {.folder = parent.string(), .which = path}, is_of_run);
}

[[noreturn]] void refuse_weights_alone(const std::string& wish,
                                       const std::string& folder,
                                       const std::string& name) {
  throw UsageError(cat("--resume ", quoted(wish, 300), ": the ", name, " in ",
                       quoted(folder, 300),
                       " holds only weights and no state to resume from; start "
                       "a run from them with canzona train --init ",
                       printable(folder), " --run NEW_FOLDER"));
}

std::optional<ResumePoint> any_point(const std::string& wish,
                                     const std::string& run) {
  const std::optional<int64_t> step = wished_step(wish);
  if (wish != kAuto && !step) return point_at(wish, run);
  if (run.empty())
    throw UsageError(
        cat("--resume ", wish,
            ": expected --run with the folder of the run to resume"));
  const std::string folder = checkpoint_folder(run);
  require_reachable(folder);
  if (step) return point_of_step(folder, *step);
  if (!has_checkpoint(folder)) {
    refuse_what_is_left(run);
    return std::nullopt;
  }
  return newest_point(folder, true);
}

}  // namespace

std::optional<ResumePoint> find_resume_point(const std::string& wish,
                                             const std::string& run,
                                             bool begins_missing) {
  std::optional<ResumePoint> point = any_point(wish, run);
  if (point) point->request.begins_missing = begins_missing;
  if (point && !point->has_run_state)
    refuse_weights_alone(wish, point->request.folder, point->name);
  return point;
}

std::optional<Settings> unfinished_settings(const std::string& run) {
  const std::optional<RunSummary> summary = summary_in(run);
  if (!summary || summary->has_ended()) return std::nullopt;
  return saved_settings(summary->config.dump(), cat("unfinished run ", run));
}

void require_run_or_data(const TrainConfig& config) {
  if (config.origin("data.path") != "default" ||
      is_there(config.run + "/summary.json") ||
      is_there(config.run + "/metrics.jsonl"))
    return;
  throw UsageError(
      cat("--resume auto: --run ", quoted(config.run, 300),
          " holds no run to resume; check the name, or start a run there with "
          "--data PATH (--data synthetic: the built-in language)"));
}

// It follows another error, which a folder that is gone must not hide.
std::string resume_hint(const std::string& run) try {
  if (run.empty() || !has_checkpoint(checkpoint_folder(run))) return "";
  const auto newest = resume_order(Folder::open(checkpoint_folder(run)));
  if (newest.empty()) return "";
  return cat("the newest checkpoint is of step ", newest.front().step,
             "; canzona train --run ", printable(run),
             " --resume auto resumes from it");
} catch (const std::exception&) {
  return "";
}

TrainConfig resumed_config(const ConfigArguments& arguments,
                           const ResumePoint& point, int64_t launched) {
  const TrainConfig saved = make_settled_config(point.saved);
  const TrainConfig config = read_config(
      arguments,
      {.saved = point.saved, .has_weights = true, .launched = launched});
  require_resumable(saved, config, point.name, point.request.begins_missing);
  return config;
}

namespace {

// Links that are not modelled count as fast as memory.
std::string rates_text(const MachineLimits& limits,
                       const PlanOptions& options) {
  return cat(
      "measured here: ", flops_text(limits.flops_per_second),
      "/s per rank, copies of ",
      human_bytes(static_cast<int64_t>(limits.copy_bytes_per_second)), "/s; ",
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
    return measure_fp32_rate(world, *make_cpu_engine());
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
  if (config.qk_clip.tau > 0) {
    settings.qk_clip = {.tau = config.qk_clip.tau,
                        .alpha = config.qk_clip.alpha,
                        .queries_alone = config.qk_clip.group == "q_only"};
    settings.decoder.notes_logits = true;
  }
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
  settings.runtime.wire = config.wire == "bf16" ? DType::kBf16 : DType::kFp32;
  settings.runtime.overlap = parse_overlap(config.planner["overlap"]);
  settings.reuse = config.reuse;
  return settings;
}

int64_t staging_bytes(const TrainJob& job, int32_t rank) {
  const TrainSettings& settings = job.settings;
  const bool staged =
      settings.saving.every > 0 && settings.saving.store.background;
  return staged ? given_bytes(job.plan, rank, settings.runtime, job.device) : 0;
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

}  // namespace

int64_t checkpoint_bytes(const TrainJob& job) {
  const TrainSaving& saving = job.settings.saving;
  if (saving.every == 0) return 0;
  int64_t bytes = 0;
  for (int32_t r = 0; r < job.plan.mesh.world(); ++r)
    bytes += given_bytes(job.plan, r, job.settings.runtime, job.device);
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
  const auto calls = [&](int32_t stage) {
    return stage_calls(plan.model, plan.mesh, stage,
                       tasks_of(settings, plan.mesh, stage));
  };
  WireBytes most;
  for (const WireBytes& rank :
       planned_bytes(plan, settings.runtime.wire, calls).ranks)
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
  job.device = config.device;
  if (device_kind(job.device).has_own_memory)
    check_device_training(job.settings, mesh);
  job.link = link_of(config);
  TrainPlan made = plan_training(config, job.settings, mesh, limits);
  require_sound(made.plan);
  if (made.ranking)
    made.ranking->rates = rates_text(*limits, made.plan.options);
  job.plan = std::move(made.plan);
  job.ranking = std::move(made.ranking);
  job.chose_collectives =
      parse_reach(config.planner["collectives"]) == Reach::kAuto;
  job.settings.initial = initial_weights(config, job.plan.model, job.notes);
  job.ranks = predict(job.plan);
  for (int32_t r = 0; r < mesh.world(); ++r) {
    job.activations_of.push_back(training_memory(job.settings, job.plan, r));
    job.staging_of.push_back(staging_bytes(job, r));
  }
  job.activations = job.activations_of[static_cast<size_t>(job.fullest_rank())];
  require_room_for_saving(job,
                          planner_options_of(config, mesh).memory_cap_bytes);
  job.settings.flops_per_token =
      flops_per_token(job.plan.model, job.settings.decoder);
  if (limits) {
    set_product_rate(limits->flops_per_second, job);
    predict_at({.flops_per_second = limits->flops_per_second,
                .copy_bytes_per_second = limits->copy_bytes_per_second},
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
  const int32_t fullest = job.fullest_rank();
  const int64_t needed =
      ranks_here * (device_kind(job.device).has_own_memory
                        ? job.staging_of[static_cast<size_t>(fullest)]
                        : job.most_bytes());
  const int64_t there = available_memory();
  if (needed <= there || there == 0) return;
  throw UsageError(
      cat("the run needs ", human_bytes(needed), " (", ranks_here,
          ranks_here == 1 ? " rank of " : " ranks of ",
          human_bytes(needed / ranks_here), "), but this machine has ",
          human_bytes(there),
          " free; try model.recompute=layer, a smaller batch.micro, or more "
          "machines"));
}

void settle_zero(const TrainJob& job, TrainConfig& config) {
  const ZeroOptions& zero = job.plan.options.zero;
  if (chooses_zero(config)) config.planner["zero"] = to_string(zero.sizes);
  if (chooses_experts(config))
    config.planner["zero-experts"] =
        zero.experts.z1 > 0 ? to_string(zero.experts) : "";
}

}  // namespace canzona::cli
