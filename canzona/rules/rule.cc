#include "canzona/rules/rule.h"

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/strips.h"

namespace canzona {

#define CANZONA_RULE(rule) \
  std::unique_ptr<Rule> make_##rule##_rule(const RuleOptions&, DType);
#include "canzona/rules/rules.def"
#undef CANZONA_RULE

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
    prepare(engine, step, shard, {parts, fields.size()});
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
    apply(engine, step, shard, advanced(update, done));
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
