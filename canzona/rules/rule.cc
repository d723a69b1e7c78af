#include "canzona/rules/rule.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/strips.h"

namespace canzona {
using namespace rules;

namespace rules {
#define CANZONA_RULE(rule) \
  std::unique_ptr<Rule> make_##rule##_rule(const RuleOptions&, DType);
#include "canzona/rules/rules.def"
#undef CANZONA_RULE
}  // namespace rules

int64_t num_elements(const Dims& dims) {
  int64_t product = 1;
  for (int64_t d : dims) product *= d;
  return product;
}

std::string to_string(const Dims& dims) {
  std::vector<std::string> parts;
  parts.reserve(dims.size());
  for (int64_t d : dims) parts.push_back(std::to_string(d));
  return join(parts, "x");
}

int64_t WholeTensors::elements() const {
  int64_t sum = 0;
  for (const Shard& shard : shards) sum += shard.count;
  return sum;
}

int64_t WholeTensors::count() const {
  const int64_t each = num_elements(dims);
  return each == 0 ? std::ssize(shards) : elements() / each;
}

float* restored(Engine& engine, const StoredWeights& weights, int64_t count) {
  if (weights.remainder == nullptr) return elements<float>(weights.exact);
  auto* masters = engine.arena().take_array<float>(count);
  engine.join_masters(masters, weights.rounded, weights.remainder, count);
  return masters;
}

void store(Engine& engine, const StoredWeights& weights, const float* from,
           int64_t count) {
  if (weights.remainder != nullptr)
    return engine.split_masters(weights.rounded, weights.remainder, from,
                                count);
  if (elements<float>(weights.exact) != from)
    engine.copy(as_row(weights.exact, count), as_row(run_of(from), count));
  if (weights.rounded != nullptr)
    engine.round_weights(weights.rounded, from, count);
}

namespace {

template <class AnyRun>
AnyRun advanced_if_any(AnyRun run, int64_t elements) {
  return run.data == nullptr ? run : advanced(run, elements);
}

// Calls work(run, at) with the shard in runs whose weights are restored, and
// stores these afterwards if they may have changed. Caches of a CPU hold a run.
template <class Work>
void for_restored_runs(Engine& engine, const Shard& shard, bool changes,
                       const Work& work) {
  CANZONA_CHECK_EQ(shard.group_rows, 0, "rows of a group");
  const int64_t most = int64_t{1} << (engine.batch_width() == 1 ? 15 : 26);
  for (int64_t at = 0; at < shard.count; at += most) {
    const Arena::Scope scope(engine.arena());
    Run states[kMostShardStates];
    for (size_t s = 0; s < shard.states.size(); ++s)
      states[s] = advanced(shard.states[s], at);
    const int64_t count = std::min(most, shard.count - at);
    const StoredWeights stored{{}, shard.rounded + at, shard.remainder + at};
    float* weights = restored(engine, stored, count);
    work(Shard{.whole = shard.whole,
               .count = count,
               .grad = advanced_if_any(shard.grad, at),
               .weights = run_of(weights),
               .states = {states, shard.states.size()}},
         at);
    if (changes) store(engine, stored, weights, count);
  }
}

}  // namespace

void Rule::prepare_stored(Engine& engine, const Step& step, const Shard& shard,
                          std::span<const Run> fields) const {
  if (shard.remainder == nullptr || !prepares_from_weights())
    return prepare(engine, step, shard, fields);
  for_restored_runs(engine, shard, false, [&](const Shard& run, int64_t at) {
    Run parts[kMostFields];
    for (size_t f = 0; f < fields.size(); ++f)
      parts[f] = advanced(fields[f], at);
    prepare(engine, step, run, {parts, fields.size()});
  });
}

void Rule::apply_stored(Engine& engine, const Step& step, const Shard& shard,
                        ConstRun update) const {
  if (shard.remainder == nullptr) return apply(engine, step, shard, update);
  for_restored_runs(engine, shard, true, [&](const Shard& run, int64_t at) {
    apply(engine, step, run, advanced_if_any(update, at));
  });
}

void Rule::step_stored(Engine& engine, const Step& step,
                       const WholeTensors& tensors) const {
  if (std::ranges::none_of(tensors.shards, [](const Shard& shard) {
        return shard.remainder != nullptr;
      }))
    return step_whole(engine, step, tensors);
  CANZONA_CHECK(!tensors.as_sent, "masters as remainders, rounded as sent");
  if (facts().needs_whole_matrix())
    return Rule::step_whole(engine, step, tensors);
  for (const Shard& shard : tensors.shards)
    apply_stored(engine, step, shard, {});
}

std::unique_ptr<SharedTransform> Rule::share(Engine&, Arena&, MatrixShape,
                                             const TeamSeat&) const {
  return nullptr;
}

void Rule::step_whole(Engine& engine, const Step& step,
                      const WholeTensors& tensors) const {
  const Arena::Scope scope(engine.arena());
  const auto num_fields = static_cast<size_t>(facts().gather_fields());
  CANZONA_CHECK(num_fields <= kMostFields, "fields ", num_fields);
  const int64_t elements = tensors.elements();
  Run fields[kMostFields];
  for (size_t i = 0; i < num_fields; ++i) fields[i] = take(engine, elements);
  step_by_stages(engine, step, tensors, {fields, num_fields},
                 take(engine, elements));
}

void Rule::step_by_stages(Engine& engine, const Step& step,
                          const WholeTensors& tensors,
                          std::span<const Run> fields, Run update) const {
  ConstRun gathered[kMostFields];
  std::copy(fields.begin(), fields.end(), gathered);
  int64_t done = 0;
  for (const Shard& shard : tensors.shards) {
    if (!facts().needs_whole_matrix()) break;
    Run parts[kMostFields];
    for (size_t i = 0; i < fields.size(); ++i)
      parts[i] = advanced(fields[i], done);
    prepare_stored(engine, step, shard, {parts, fields.size()});
    done += shard.count;
  }
  transform_and_apply(engine, step, tensors, {gathered, fields.size()}, update);
}

void Rule::transform_and_apply(Engine& engine, const Step& step,
                               const WholeTensors& tensors,
                               std::span<const ConstRun> fields,
                               Run update) const {
  if (facts().needs_whole_matrix())
    transform(engine, step,
              {.dims = tensors.dims,
               .count = tensors.count(),
               .fields = fields,
               .out = update,
               .states = tensors.owned,
               .phase = tensors.phase,
               .hook = tensors.hook});
  int64_t done = 0;
  for (const Shard& shard : tensors.shards) {
    apply_stored(engine, step, shard, advanced(update, done));
    done += shard.count;
  }
}

std::unique_ptr<Rule> make_rule(std::string_view name, const RuleOptions& given,
                                DType dtype, std::string_view device) {
  if (dtype != DType::kFp32 && dtype != DType::kFp64)
    throw UsageError(cat("rule ", name, ": states cannot be in ",
                         to_string(dtype), "; expected fp32 or fp64"));
  const RuleOptions options = with_device(name, given, device);
#define CANZONA_RULE(rule) \
  if (name == #rule) return make_##rule##_rule(options, dtype);
#include "canzona/rules/rules.def"
#undef CANZONA_RULE
  make_rule_facts(name, options);  // names the rule that was not found
  throw InternalError(cat("rule ", name, " has facts but no arithmetic"));
}

double decay_fraction(const DecayOptions& decay, double learning_rate) {
  const double rate = learning_rate;
  if (decay.form == "decoupled") return decay.weight_decay * rate;
  if (decay.form == "independent") return decay.weight_decay;
  if (decay.form == "palm") return decay.weight_decay * rate * rate;
  if (decay.form == "corrected" || decay.form == "peak_independent") {
    const double peak = decay.peak_learning_rate;
    if (peak == 0) return 0;
    const double share = decay.form == "corrected" ? rate / peak : 1 / peak;
    return decay.weight_decay * rate * share;
  }
  CANZONA_CHECK(decay.form == "l2", "decay form ", decay.form);
  return 0;
}

double l2_factor(const DecayOptions& decay) {
  return decay.form == "l2" ? decay.weight_decay : 0;
}

Apply apply_coefficients(const DecayOptions& decay, const Step& step,
                         double factor) {
  Apply apply;
  apply.step = step.learning_rate * factor;
  const double keep = 1 - decay_fraction(decay, step.learning_rate);
  (decay.order == "after" ? apply.keep_after : apply.keep_before) = keep;
  return apply;
}

}  // namespace canzona
