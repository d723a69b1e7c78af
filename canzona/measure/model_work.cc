#include "canzona/measure/model_work.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/measure/clock.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/gradients.h"

namespace canzona {

TimedWork::TimedWork(const Plan& plan, const Coordinates& at, double seconds)
    : shares_(static_cast<size_t>(num_modules(plan.model)), 0.0) {
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    const Tensor& tensor = plan.model.tensors[t];
    if (holds(plan, at, tensor) && tensor.role != Role::kEmbedding)
      shares_[static_cast<size_t>(module_of(plan.model, tensor))] +=
          static_cast<double>(tensor.elements());
  }
  const double all = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  if (all == 0) shares_.back() = 1;
  for (double& share : shares_) share *= seconds / (all == 0 ? 1 : all);
}

void TimedWork::work(double seconds) {
  if (seconds <= ahead_) {
    ahead_ -= seconds;
    return;
  }
  const double wanted = seconds - ahead_;
  const double begin = wall_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(wanted));
  ahead_ = wall_seconds() - begin - wanted;
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

EngineWork::EngineWork(Runtime& runtime, Engine& engine,
                       const ModuleCompute& compute)
    : runtime_(runtime),
      engine_(engine),
      timed_(runtime.plan(), runtime.coordinates(), compute.seconds),
      multiplies_(compute.tokens > 0),
      weights_(index(num_modules(runtime.plan().model))),
      memory_(engine) {
  if (!multiplies_) return;
  for (int32_t t = 0; t < std::ssize(runtime.plan().model.tensors); ++t)
    add_weight(t, compute);
  make_numbers();
}

void EngineWork::add_weight(int32_t t, const ModuleCompute& compute) {
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
void EngineWork::make_numbers() {
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
      engine_.round_to_bf16(to + done, numbers,
                            std::min(most_weights, count - done));
  };
  fill(weight_, most_weights);
  fill(activations_, most_activations);
}

Matrices EngineWork::activations(int64_t tokens, int64_t width) const {
  return rows_of(activations_, tokens, width);
}
Matrices EngineWork::result(int64_t rows, int64_t cols) const {
  return rows_of(result_, rows, cols);
}
Matrices EngineWork::weight(const Weight& of) const {
  return rows_of(weight_, of.rows, of.cols);
}

void EngineWork::forward(int32_t module) {
  if (!multiplies_) return engine_.idle(timed_.share(module) / 3);
  for (const Weight& w : weights_[index(module)])
    engine_.bf16_product(result(w.tokens, w.rows),
                         activations(w.tokens, w.cols), Op::kNone, weight(w),
                         Op::kTranspose);
}

void EngineWork::backward(int32_t module) {
  if (!multiplies_) return engine_.idle(timed_.share(module) * 2 / 3);
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

}  // namespace canzona
