#include "canzona/train/runtime_weights.h"

#include <algorithm>

namespace canzona {
namespace {

// Returns the embedding if the model has no head of its own, otherwise -1.
int32_t tied_embedding(const Model& model) {
  int32_t embedding = -1;
  for (int32_t t = 0; t < std::ssize(model.tensors); ++t) {
    const Role role = model.tensors[static_cast<size_t>(t)].role;
    if (role == Role::kHead) return -1;
    if (role == Role::kEmbedding) embedding = t;
  }
  return embedding;
}

// Returns how many elements the first stage lends to the last one; 0 if none.
int64_t shared_elements(const Plan& plan) {
  const int32_t tied = tied_embedding(plan.model);
  if (plan.mesh.pp == 1 || tied < 0) return 0;
  return shard_elements(plan.mesh,
                        plan.model.tensors[static_cast<size_t>(tied)]);
}

}  // namespace

int64_t RuntimeWeights::extra_elements(const Plan& plan,
                                       const Coordinates& at) {
  if (at.stage == plan.mesh.pp - 1) return 2 * shared_elements(plan);
  return at.stage == 0 ? shared_elements(plan) : 0;
}

RuntimeWeights::RuntimeWeights(Communicator& world, Runtime& runtime,
                               Trace* trace)
    : runtime_(runtime), clock_(runtime.plan().model, trace, world.rank()) {
  const Mesh& mesh = runtime.plan().mesh;
  const Coordinates& at = runtime.coordinates();
  const int32_t tied = tied_embedding(runtime.plan().model);
  if (mesh.pp == 1 || tied < 0) return;
  const bool first = at.stage == 0;
  const bool last = at.stage == mesh.pp - 1;
  const int color = first || last ? at.home * mesh.tp + at.t : -1;
  weights_ = std::make_unique<OneWay>(world, color, at.stage, true,
                                      "the embedding, for the head", 1);
  gradients_ = std::make_unique<OneWay>(world, color, at.stage, false,
                                        "the head's gradient", 1);
  if (!first && !last) return;
  shared_ = tied;
  borrows_ = last;
  const auto size = static_cast<size_t>(shared_elements(runtime.plan()));
  if (last) {
    borrowed_.resize(size);
    gradient_.resize(size);
  } else {
    arrived_.resize(size);
  }
}

void RuntimeWeights::refresh() {
  if (shared_ < 0) return;
  if (borrows_) {
    gradient_sent_.wait();
    std::ranges::fill(gradient_, 0.0F);
    weights_->receive(borrowed_);
    return;
  }
  runtime_.wait_params(0);
  weights_->send(runtime_.parameter(shared_).first(arrived_.size())).wait();
  runtime_.release_params(0);
}

const float* RuntimeWeights::parameter(int32_t tensor) {
  if (shares(tensor) && borrows_) return borrowed_.data();
  return runtime_.parameter(tensor).data();
}

float* RuntimeWeights::gradient(int32_t tensor) {
  clock_.gradient_asked();
  if (shares(tensor) && borrows_) return gradient_.data();
  return runtime_.gradient(tensor).data();
}

// Asking for the gradient creates one of zeros if nothing was added.
void RuntimeWeights::ready(int32_t tensor, bool last) {
  if (shares(tensor) && borrows_) {
    if (last) gradient_sent_ = gradients_->send(gradient_);
    return;
  }
  if (shares(tensor) && last) add_head_gradient();
  runtime_.gradient(tensor);
  runtime_.grad_ready(tensor);
}

void RuntimeWeights::add_head_gradient() {
  gradients_->receive(arrived_);
  const std::span<float> own = runtime_.gradient(shared_);
  for (size_t i = 0; i < arrived_.size(); ++i) own[i] += arrived_[i];
}

double RuntimeWeights::waited() const {
  return weights_ == nullptr ? 0 : weights_->waited() + gradients_->waited();
}
double RuntimeWeights::busy() const {
  return weights_ == nullptr ? 0 : weights_->busy() + gradients_->busy();
}

}  // namespace canzona
