#include "canzona/measure/stand_in.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/measure/clock.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/gradients.h"

namespace canzona::measure {

std::vector<double> module_shares(const Plan& plan, const Coordinates& at,
                                  double seconds) {
  std::vector<double> shares(index(num_modules(plan.model)), 0.0);
  for (const Tensor& tensor : plan.model.tensors)
    if (holds(plan, at, tensor) && tensor.role != Role::kEmbedding)
      shares[index(module_of(plan.model, tensor))] +=
          static_cast<double>(tensor.elements());
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (all == 0) shares.back() = 1;
  for (double& share : shares) share *= seconds / (all == 0 ? 1 : all);
  return shares;
}

namespace {

Matrices rows_of(const Run& run, int64_t rows, int64_t cols) {
  return {run.data, run.dtype, rows, cols, cols, 1, rows * cols, nullptr};
}

int64_t tokens_of(const Model& model, const Tensor& tensor, int64_t tokens) {
  if (tensor.expert < 0 || model.num_experts == 0) return tokens;
  const int64_t visited = std::max<int64_t>(model.experts_per_token, 1);
  return std::max<int64_t>(tokens * visited / model.num_experts, 1);
}

}  // namespace

StandIn::StandIn(Runtime& runtime, Engine& engine, const ModuleCompute& compute)
    : runtime_(runtime),
      engine_(engine),
      multiplies_(compute.tokens > 0),
      shares_(module_shares(runtime.plan(), runtime.coordinates(),
                            compute.seconds)),
      weights_(shares_.size()),
      memory_(engine) {
  if (!multiplies_) return;
  if (!runtime.only_issues())
    throw UsageError(
        "products can only simulate forward and backward if ranks do not wait "
        "for the GPU; these wait for every collective");
  for (int32_t t = 0; t < std::ssize(runtime.plan().model.tensors); ++t)
    add_weight(t, compute);
  make_numbers();
}

void StandIn::add_weight(int32_t t, const ModuleCompute& compute) {
  const Model& model = runtime_.plan().model;
  const Tensor& tensor = model.tensors[index(t)];
  if (!runtime_.holds(t) || tensor.role == Role::kEmbedding || tensor.frozen ||
      tensor.shape.size() < 2)
    return;
  const int64_t elements = runtime_.shard_elements(t);
  if (elements == 0) return;
  Weight weight{t, tensor.rows(), tensor.cols(),
                tokens_of(model, tensor, compute.tokens)};
  if (tensor.cut == Cut::kColumns)
    weight.cols = elements / weight.rows;
  else
    weight.rows = elements / weight.cols;
  weights_[index(module_of(model, tensor))].push_back(weight);
}

// Fills all buffers with the numbers of the largest shard, repeated as needed.
void StandIn::make_numbers() {
  int64_t most_weights = 0, most_activations = 0;
  int32_t largest = -1;
  for (const auto& module : weights_)
    for (const Weight& weight : module) {
      most_activations = std::max(
          most_activations, weight.tokens * std::max(weight.rows, weight.cols));
      if (weight.rows * weight.cols <= most_weights) continue;
      most_weights = weight.rows * weight.cols;
      largest = weight.tensor;
    }
  if (largest < 0) return;
  weight_ = memory_.take(most_weights, DType::kBf16);
  activations_ = memory_.take(most_activations, DType::kBf16);
  result_ = memory_.take(std::max(most_weights, most_activations));
  auto* numbers = reinterpret_cast<float*>(result_.data);
  const Plan& plan = runtime_.plan();
  make_parameter(engine_, plan.model.tensors[index(largest)], plan.mesh.tp,
                 runtime_.coordinates().t, numbers);
  const auto fill = [&](const Run& run, int64_t count) {
    auto* to = reinterpret_cast<uint16_t*>(run.data);
    for (int64_t done = 0; done < count; done += most_weights)
      engine_.round_weights(to + done, numbers,
                            std::min(most_weights, count - done));
  };
  fill(weight_, most_weights);
  fill(activations_, most_activations);
}

Matrices StandIn::activations(int64_t tokens, int64_t width) const {
  return rows_of(activations_, tokens, width);
}
Matrices StandIn::result(int64_t rows, int64_t cols) const {
  return rows_of(result_, rows, cols);
}
Matrices StandIn::weight(const Weight& of) const {
  return rows_of(weight_, of.rows, of.cols);
}

// If a sleep lasts too long, the next one is shortened by that.
void StandIn::pass(double seconds) {
  if (runtime_.only_issues()) return engine_.idle(seconds);
  if (seconds <= ahead_) {
    ahead_ -= seconds;
    return;
  }
  const double wanted = seconds - ahead_;
  const double begin = wall_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(wanted));
  ahead_ = wall_seconds() - begin - wanted;
}

void StandIn::forward(int32_t module) {
  if (!multiplies_) return pass(shares_[index(module)] / 3);
  for (const Weight& w : weights_[index(module)])
    engine_.bf16_product(result(w.tokens, w.rows),
                         activations(w.tokens, w.cols), Op::kNone, weight(w),
                         Op::kTranspose);
}

void StandIn::backward(int32_t module) {
  if (!multiplies_) return pass(shares_[index(module)] * 2 / 3);
  for (const Weight& w : weights_[index(module)]) {
    engine_.bf16_product(result(w.tokens, w.cols),
                         activations(w.tokens, w.rows), Op::kNone, weight(w),
                         Op::kNone);
    engine_.bf16_product(
        matrices(runtime_.gradient(w.tensor).data(), w.rows, w.cols),
        activations(w.tokens, w.rows), Op::kTranspose,
        activations(w.tokens, w.cols), Op::kNone);
  }
}

void set_first_parameter(Runtime& runtime, Engine& engine, int32_t tensor) {
  const Plan& plan = runtime.plan();
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  auto* shard = arena.take_array<float>(runtime.shard_elements(tensor));
  make_parameter(engine, plan.model.tensors[index(tensor)], plan.mesh.tp,
                 runtime.coordinates().t, shard);
  runtime.set_parameter_there(tensor, shard);
}

}  // namespace canzona::measure
