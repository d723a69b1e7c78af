#include "canzona/train/train_rank.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/comm/from_all.h"
#include "canzona/plan/schedule/rank_layout.h"
#include "canzona/runtime/digest/rank_digest.h"
#include "canzona/runtime/gradients.h"
#include "canzona/saving/run_saver.h"
#include "canzona/train/model_source.h"

namespace canzona::train {
namespace {

constexpr double kOutsideLayers = 0.02;

// True for matrices that write to the residual stream, which are exactly those
// that tp cuts by columns.
bool ends_a_block(const Tensor& tensor) { return tensor.cut == Cut::kColumns; }

}  // namespace

double initial_deviation(const Model& model, const Tensor& tensor) {
  if (tensor.role == Role::kEmbedding || tensor.role == Role::kHead)
    return kOutsideLayers;
  const double usual = 1 / std::sqrt(static_cast<double>(tensor.cols()));
  if (!ends_a_block(tensor)) return usual;
  return usual / std::sqrt(2.0 * model.num_layers);
}

void make_initial(const Model& model, const Tensor& tensor, uint64_t seed,
                  int32_t tp, int32_t t, std::span<float> shard,
                  int64_t threads) {
  if (tensor.role == Role::kNorm) {
    std::ranges::fill(shard, 1.0F);
    return;
  }
  const uint64_t stream = bits_at(name_seed(tensor.name), seed);
  const double deviation = initial_deviation(model, tensor);
  const auto number = [&](int64_t i) {
    return static_cast<float>(deviation *
                              normal_at(stream, static_cast<uint64_t>(i)));
  };
  if (tp > 1 || threads == 1) return fill_shard(tensor, tp, t, shard, number);
  const int64_t share = std::ssize(shard) / threads + 1;
  std::vector<std::jthread> workers;
  for (int64_t first = 0; first < std::ssize(shard); first += share)
    workers.emplace_back([=] {
      const int64_t end = std::min(first + share, std::ssize(shard));
      for (int64_t i = first; i < end; ++i) shard[index(i)] = number(i);
    });
}

namespace {

// A rank sends its runs of the tp shard, as extents and values.
struct Sent {
  std::vector<int64_t> runs;  // first and count of each
  std::vector<float> values;
};

Sent sent_by(Runtime& runtime, int32_t tensor) {
  Sent sent;
  if (!runtime.keeps_first(tensor)) return sent;
  int64_t kept = 0;
  for (const Extent& run : runtime.kept_runs(tensor)) {
    sent.runs.insert(sent.runs.end(), {run.first, run.count});
    kept += run.count;
  }
  sent.values.resize(index(kept));
  runtime.get_kept(tensor, sent.values);
  return sent;
}

// Copies a run of a shard to its place in the whole tensor.
void put(const std::vector<ExtentCopy>& shard, const Extent& kept,
         const float* values, std::vector<float>& whole) {
  for (const ExtentCopy& all : shard) {
    const ExtentCopy run = all.from_within(kept);
    std::copy_n(values + run.from - kept.first, run.count,
                whole.data() + run.to);
  }
}

}  // namespace

void gather_whole(Communicator& world, Runtime& runtime, int32_t tensor,
                  const std::function<void(std::span<const float>)>& use) {
  const Plan& plan = runtime.plan();
  const Tensor& what = plan.model.tensors[index(tensor)];
  const Sent own = sent_by(runtime, tensor);
  const auto runs = to_first<int64_t>(world, own.runs);
  const auto values = to_first<float>(world, own.values);
  if (world.rank() != 0) return;
  std::vector<float> whole(index(what.elements()));
  for (int32_t r = 0; r < world.size(); ++r) {
    const auto shard =
        logical_runs(what, plan.mesh.tp, coordinates_of(plan.mesh, r).t);
    const float* next = values[index(r)].data();
    for (size_t i = 0; i < runs[index(r)].size(); i += 2) {
      const Extent kept{runs[index(r)][i], runs[index(r)][i + 1]};
      put(shard, kept, next, whole);
      next += kept.count;
    }
  }
  use(whole);
}

namespace {

Tokenizer tokenizer_of(const TrainConfig& config) {
  const std::string key =
      cat("data.tokenizer (", config.origin("data.tokenizer"), ")");
  try {
    return load_tokenizer(config.data.tokenizer);
  } catch (const UsageError& error) {
    throw UsageError(cat(key, ": ", error.what()));
  }
}

}  // namespace

TokenOptions token_options_of(const TrainConfig& config) {
  TokenOptions options{.vocab = config.model.vocab,
                       .seed = static_cast<uint64_t>(config.seed)};
  // Weights that were trained on tokens are meaningless on bytes.
  constexpr int64_t kBytes = 256;
  options.allows_bytes = config.init.empty() || config.model.vocab <= kBytes;
  if (config.data.tokenizer.empty()) return options;
  options.tokenizer = tokenizer_of(config);
  const int64_t needed = options.tokenizer->vocab();
  if (needed > config.model.vocab)
    throw UsageError(cat("model.vocab ", config.model.vocab, " (",
                         config.origin("model.vocab"), "): the tokenizer ",
                         quoted(config.data.tokenizer, 300), " has ", needed,
                         " tokens; try model.vocab=", needed));
  return options;
}

TrainRank::TrainRank(const TrainSettings& settings, const Plan& plan,
                     const Batches& batches, Communicator& world,
                     Engine& engine)
    : settings_(settings),
      runtime_(plan, world, engine, settings.runtime),
      micro_batches_(batches, settings.decoder, settings.global_batch,
                     runtime_.coordinates().home, plan.mesh.homes()),
      stage_(settings, micro_batches_, runtime_, world, engine),
      guard_(world) {
  if (settings.qk_clip)
    qk_clip_.emplace(*settings.qk_clip, settings.decoder, plan,
                     runtime_.coordinates(), world);
  if (settings.initial == nullptr)
    set_parameters(plan);
  else  // Some ranks may read intact data and others damaged data: all refuse.
    require_all(world, outcome_of([&] { set_parameters(plan); }));
}

void TrainRank::set_parameters(const Plan& plan) {
  std::vector<float> shard;
  const std::vector<Tensor>& tensors = plan.model.tensors;
  // While ranks compute on a device, the cores are free.
  const int64_t threads =
      computes_on_device(plan)
          ? std::clamp<int64_t>(
                std::thread::hardware_concurrency() / plan.mesh.homes(), 1, 16)
          : 1;
  for (int32_t t = 0; t < std::ssize(tensors); ++t) {
    if (!runtime_.holds(t)) continue;
    shard.resize(index(runtime_.shard_elements(t)));
    if (settings_.initial != nullptr)
      read_shard(*settings_.initial, tensors[index(t)], plan.mesh.tp,
                 runtime_.coordinates().t, shard);
    else
      make_initial(plan.model, tensors[index(t)], settings_.seed, plan.mesh.tp,
                   runtime_.coordinates().t, shard, threads);
    runtime_.set_parameter(t, shard);
  }
}

void TrainRank::learn(int64_t step) {
  stage_.learn(step);
  runtime_.wait_gradients();
}

StepOutcome TrainRank::update(int64_t step, StepMetrics& metrics) {
  StepSettings update;
  update.learning_rate = settings_.learning_rate(step);
  update.adamw_learning_rate = settings_.adamw_learning_rate(step);
  update.gradient_factor = static_cast<double>(settings_.decoder.micro_batch) /
                           static_cast<double>(settings_.global_batch);
  update.clip_norm = settings_.clip_norm;
  update.wants_norm = true;
  QkClipped clipped;
  if (qk_clip_) clipped = qk_clip_->look(stage_.largest_logits());
  update.row_factors = std::move(clipped.rows);
  StepOutcome outcome = runtime_.step(update);
  runtime_.zero_gradients();
  if (!qk_clip_ || outcome.skipped) return outcome;
  if (!clipped.fault.empty())
    throw NumericalError(cat("step ", step, ": ", clipped.fault));
  metrics.largest_logit = clipped.largest;
  metrics.clipped_heads = clipped.heads;
  return outcome;
}

// Time that compute waits in its own sums is never hidden.
TrainRank::Times TrainRank::times() const {
  const RuntimeTimes times = runtime_.times();
  return {times.waited() + stage_.waited(),
          times.links_busy + (times.links_modelled ? 0 : stage_.busy())};
}

SentBytes TrainRank::sent() {
  return {.all = runtime_.sent().total(), .slow = runtime_.sent_slow().total()};
}

}  // namespace canzona::train
