#include "canzona/runtime/testing/test_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "canzona/base/text.h"
#include "canzona/comm/wire_ops.h"

namespace canzona::runtime {
namespace {

std::vector<int64_t> tensor_rows(const Tensor& tensor, const Matrix& matrix) {
  std::vector<int64_t> rows(static_cast<size_t>(matrix.rows));
  std::iota(rows.begin(), rows.end(), matrix.first_row);
  if (matrix.section < 0) return rows;
  const RowRuns& runs =
      tensor.sections[static_cast<size_t>(matrix.section)].rows;
  for (int64_t& row : rows) row = runs.row(row);
  return rows;
}

Reduction reduction_of(DType wire) {
  return wire == DType::kBf16 ? Reduction::kFp32SumOfBf16 : Reduction::kFp32Sum;
}

}  // namespace

Reference::Reference(const Plan& plan, GradientKind gradients,
                     const RuntimeOptions& options)
    : plan_(plan),
      gradients_(gradients),
      wire_(options.wire),
      rules_(plan, *make_rule_facts(plan.rule, plan.rule_options),
             {options.adamw, options.groups}, "cpu") {
  for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t) {
    const int32_t first = plan.first_matrix[static_cast<size_t>(t)];
    const int32_t end = plan.first_matrix[static_cast<size_t>(t) + 1];
    for (int32_t m = first; m < end; ++m) {
      const Matrix& matrix = plan.matrices[static_cast<size_t>(m)];
      add_thing({.name = matrix_name(plan.model, matrix, plan.options.splits),
                 .tensor = t,
                 .rows = tensor_rows(tensor(t), matrix),
                 .cols = matrix.cols,
                 .dims = {matrix.rows, matrix.cols},
                 .phase = plan.phase[static_cast<size_t>(m)]});
    }
    if (first < end) continue;
    add_thing({.name = tensor(t).name,
               .tensor = t,
               .rows = tensor_rows(tensor(t), {t, -1, 0, tensor(t).rows(), 0}),
               .cols = tensor(t).cols(),
               .dims = {tensor(t).elements()}});
  }
}

void Reference::add_thing(Thing thing) {
  std::vector<float> whole(
      static_cast<size_t>(tensor(thing.tensor).elements()));
  make_parameter(tensor(thing.tensor), 1, 0, whole);
  thing.weights = memory_.take_array<float>(thing.count());
  thing.gradient = memory_.take_array<float>(thing.count());
  for (size_t i = 0; i < thing.rows.size(); ++i)
    std::copy_n(whole.data() + thing.rows[i] * thing.cols, thing.cols,
                thing.weights + static_cast<int64_t>(i) * thing.cols);
  thing.states = std::move(make_states(*engine_, *rules_.of(thing.tensor).rule,
                                       thing.dims, 1, memory_)[0]);
  things_.push_back(std::move(thing));
}

std::vector<float> Reference::summed_gradient(int32_t t) {
  const int32_t homes = ep_of(plan_.mesh, plan_.model, tensor(t)) < 0
                            ? plan_.mesh.homes()
                            : plan_.mesh.expert_homes();
  const int64_t count = tensor(t).elements();
  const Reduction reduction = reduction_of(wire_);
  std::vector<std::vector<float>> pieces(static_cast<size_t>(homes));
  std::vector<const std::byte*> on_wire;
  for (int32_t home = 0; home < homes; ++home) {
    std::vector<float>& piece = pieces[static_cast<size_t>(home)];
    piece.resize(static_cast<size_t>(count));
    make_gradient({gradients_, home, homes, steps_done_ + 1}, tensor(t), 1, 0,
                  piece);
    auto* bytes = reinterpret_cast<std::byte*>(piece.data());
    if (is_narrowed(reduction)) {
      std::vector<float> narrow(piece.size());
      auto* wire = reinterpret_cast<std::byte*>(narrow.data());
      cpu_wire_ops().narrow(reduction, wire, bytes, count);
      piece.swap(narrow);
      bytes = wire;
    }
    on_wire.push_back(bytes);
  }
  std::vector<std::byte> scratch(
      static_cast<size_t>(tree_scratch_bytes(reduction, homes, count)));
  std::vector<float> sum(static_cast<size_t>(count));
  tree_sum(cpu_wire_ops(), reduction, on_wire, count,
           reinterpret_cast<std::byte*>(sum.data()), scratch.data());
  return sum;
}

void Reference::take_gradients() {
  std::vector<float> whole;
  int32_t of = -1;
  for (Thing& thing : things_) {
    if (thing.tensor != of) whole = summed_gradient(of = thing.tensor);
    for (size_t i = 0; i < thing.rows.size(); ++i)
      std::copy_n(whole.data() + thing.rows[i] * thing.cols, thing.cols,
                  thing.gradient + static_cast<int64_t>(i) * thing.cols);
  }
}

void Reference::scale(double factor) {
  if (factor == 1) return;
  const auto rounded = static_cast<float>(factor);
  for (Thing& thing : things_)
    for (int64_t i = 0; i < thing.count(); ++i) thing.gradient[i] *= rounded;
}

// A sum of integers: the largest number is scaled to just below 2^31.
double Reference::norm() {
  float largest = 0;
  for (const Thing& thing : things_)
    for (int64_t i = 0; i < thing.count(); ++i)
      largest = std::max(largest, std::abs(thing.gradient[i]));
  if (largest == 0) return 0;
  const int exponent = 30 - std::ilogb(largest);
  Int128 squares = 0;
  for (const Thing& thing : things_)
    for (int64_t i = 0; i < thing.count(); ++i) {
      const double scaled =
          std::ldexp(static_cast<double>(thing.gradient[i]), exponent);
      squares += static_cast<Int128>(scaled * scaled);
    }
  const double high = std::ldexp(static_cast<double>(squares >> 64), 64);
  const auto low = static_cast<double>(static_cast<uint64_t>(squares));
  return std::ldexp(std::sqrt(high + low), -exponent);
}

StepOutcome Reference::step(const StepSettings& settings) {
  StepOutcome outcome;
  take_gradients();
  scale(gradient_factor(gradients_, plan_.mesh));
  if (settings.clip_norm > 0 || settings.wants_norm)
    outcome.gradient_norm = norm();
  if (settings.clip_norm > 0 && outcome.gradient_norm > settings.clip_norm)
    scale(settings.clip_norm / (outcome.gradient_norm + 1e-6));
  ++steps_done_;
  for (Thing& thing : things_) {
    const RuleSet::Entry& entry = rules_.of(thing.tensor);
    const double rate = entry.of_matrices || settings.adamw_learning_rate < 0
                            ? settings.learning_rate
                            : settings.adamw_learning_rate;
    const Shard shard{.whole = thing.dims,
                      .count = thing.count(),
                      .grad = run_of(thing.gradient),
                      .weights = run_of(thing.weights),
                      .states = thing.states.with_shard};
    entry.rule->step_whole(*engine_,
                           {steps_done_, rate * entry.learning_rate_factor},
                           {.dims = thing.dims,
                            .shards = {&shard, 1},
                            .owned = thing.states.with_owner,
                            .phase = thing.phase});
  }
  return outcome;
}

std::vector<uint32_t> Reference::parameter_bits(const Thing& thing) {
  std::vector<uint32_t> bits(static_cast<size_t>(thing.count()));
  if (plan_.options.parameters == DType::kBf16) {
    std::vector<uint16_t> halves(bits.size());
    engine_->round_weights(halves.data(), thing.weights, thing.count());
    std::copy(halves.begin(), halves.end(), bits.begin());
  } else {
    std::transform(thing.weights, thing.weights + thing.count(), bits.begin(),
                   [](float w) { return std::bit_cast<uint32_t>(w); });
  }
  return bits;
}

std::string Reference::parameter_digest() {
  LogicalDigest digest;
  for (const Thing& thing : things_) {
    const uint64_t seed = name_seed(tensor(thing.tensor).name);
    const std::vector<uint32_t> bits = parameter_bits(thing);
    for (size_t i = 0; i < thing.rows.size(); ++i)
      digest.add(seed, thing.rows[i] * thing.cols,
                 std::span(bits).subspan(i * static_cast<size_t>(thing.cols),
                                         static_cast<size_t>(thing.cols)));
  }
  return digest.text();
}

std::string Reference::state_digest() {
  LogicalDigest digest;
  const auto add = [&](const Thing& thing, std::string_view state,
                       const void* values, int64_t count) {
    digest.add(name_seed(cat(thing.name, "/", state)), 0,
               std::span(static_cast<const float*>(values),
                         static_cast<size_t>(count)));
  };
  for (const Thing& thing : things_) {
    for (size_t s = 0; s < thing.states.facts.size(); ++s)
      add(thing, thing.states.facts[s].name, thing.states.runs[s].data,
          thing.states.facts[s].elements());
    if (plan_.options.parameters == DType::kBf16)
      add(thing, "master", thing.weights, thing.count());
  }
  return digest.text();
}

}  // namespace canzona::runtime
