#include "canzona/train/train_rank.h"

#include "canzona/base/index.h"
#include "canzona/saving/rank_outcome.h"
#include "canzona/train/model_source.h"
#include "canzona/train/parameters.h"

namespace canzona {

TrainRank::TrainRank(const TrainSettings& settings, const Plan& plan,
                     const Batches& batches, Communicator& world,
                     Engine& engine)
    : settings_(settings),
      runtime_(plan, world, engine, settings.runtime),
      micro_batches_(batches, settings.decoder, settings.global_batch,
                     runtime_.coordinates().home, plan.mesh.homes()),
      stage_(settings, micro_batches_, runtime_, world, engine),
      guard_(world) {
  if (settings.initial == nullptr)
    set_parameters(plan);
  else  // Some ranks may read intact data and others damaged data: all refuse.
    require_all(world, outcome_of([&] { set_parameters(plan); }));
}

void TrainRank::set_parameters(const Plan& plan) {
  std::vector<float> shard;
  const std::vector<Tensor>& tensors = plan.model.tensors;
  for (int32_t t = 0; t < std::ssize(tensors); ++t) {
    if (!runtime_.holds(t)) continue;
    shard.resize(index(runtime_.shard_elements(t)));
    if (settings_.initial != nullptr)
      read_shard(*settings_.initial, tensors[index(t)], plan.mesh.tp,
                 runtime_.coordinates().t, shard);
    else
      make_initial(plan.model, tensors[index(t)], settings_.seed, plan.mesh.tp,
                   runtime_.coordinates().t, shard);
    runtime_.set_parameter(t, shard);
  }
}

std::vector<double> TrainRank::learn(int64_t step) {
  std::vector<double> losses = stage_.learn(step);
  runtime_.wait_gradients();
  return losses;
}

StepOutcome TrainRank::update(int64_t step) {
  StepSettings update;
  update.learning_rate = settings_.learning_rate(step);
  update.adamw_learning_rate = settings_.adamw_learning_rate(step);
  update.gradient_factor = static_cast<double>(settings_.decoder.micro_batch) /
                           static_cast<double>(settings_.global_batch);
  update.clip_norm = settings_.clip_norm;
  update.wants_norm = true;
  StepOutcome outcome = runtime_.step(update);
  runtime_.zero_gradients();
  return outcome;
}

// Time that compute waits in its own sums is never hidden.
TrainRank::Times TrainRank::times() const {
  const RuntimeTimes times = runtime_.times();
  return {times.waited() + stage_.waited(),
          times.links_busy + (times.links_modelled ? 0 : stage_.busy()),
          times.links_exposed + stage_.waited(), times};
}

SentBytes TrainRank::sent() {
  return {.all = runtime_.sent().total(), .slow = runtime_.sent_slow().total()};
}

}  // namespace canzona
