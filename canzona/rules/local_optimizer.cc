#include "canzona/rules/local_optimizer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

template <class Real>
void fill(Real* values, const StateFact& fact) {
  std::fill_n(values, fact.elements(), Real{0});
  if (fact.initially == Initially::kZero || fact.elements() == 0) return;
  const int64_t d = fact.shape.back();
  for (int64_t square = 0; square < fact.elements(); square += d * d)
    for (int64_t i = 0; i < d; ++i) values[square + i * (d + 1)] = Real{1};
}

Flops work_of(const Rule& rule, const Dims& dims) {
  MatrixShape shape{1, num_elements(dims)};
  if (dims.size() >= 2) {
    shape = {dims[dims.size() - 2], dims[dims.size() - 1]};
    const int64_t matrix = std::max<int64_t>(1, shape.rows * shape.cols);
    return num_elements(dims) / matrix * rule.facts().work(shape).every_step;
  }
  return rule.facts().work(shape).every_step;
}

}  // namespace

TensorStates make_states(const Rule& rule, const Dims& dims, Arena& arena) {
  TensorStates states;
  states.facts = rule.facts().tensor_states(dims);
  for (const StateFact& fact : states.facts) {
    const Run run{arena.take(fact.elements() * size_of(rule.dtype())),
                  rule.dtype()};
    if (rule.dtype() == DType::kFp64)
      fill(reinterpret_cast<double*>(run.data), fact);
    else
      fill(reinterpret_cast<float*>(run.data), fact);
    states.runs.push_back(run);
    (fact.lives == Lives::kWithShard ? states.with_shard : states.with_owner)
        .push_back(run);
  }
  return states;
}

LocalOptimizer::LocalOptimizer(std::unique_ptr<Rule> rule,
                               std::vector<Tensor> tensors, Lanes& lanes,
                               OnNonfinite policy)
    : rule_(std::move(rule)),
      tensors_(std::move(tensors)),
      lanes_(lanes),
      policy_(policy),
      order_(tensors_.size()),
      finite_(tensors_.size()) {
  std::vector<Flops> work;
  for (const Tensor& tensor : tensors_) {
    states_.push_back(make_states(*rule_, tensor.dims, memory_));
    work.push_back(work_of(*rule_, tensor.dims));
  }
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return work[a] > work[b]; });
}

const LocalOptimizer::Tensor* LocalOptimizer::first_nonfinite() {
  lanes_.for_each(
      static_cast<int64_t>(tensors_.size()), [this](Engine& lane, int64_t i) {
        const auto t = static_cast<size_t>(i);
        finite_[t] =
            lane.all_finite(tensors_[t].grad, num_elements(tensors_[t].dims));
      });
  const auto bad = std::find(finite_.begin(), finite_.end(), 0);
  if (bad == finite_.end()) return nullptr;
  return &tensors_[static_cast<size_t>(bad - finite_.begin())];
}

bool LocalOptimizer::step(double learning_rate) {
  if (policy_ != OnNonfinite::kPropagate) {
    const Tensor* bad = first_nonfinite();
    if (bad != nullptr && policy_ == OnNonfinite::kError)
      throw UsageError(cat("the gradient of ", quoted(bad->name),
                           " is not finite at step ", steps_done_ + 1));
    if (bad != nullptr) return false;
  }
  ++steps_done_;
  lanes_.for_each(static_cast<int64_t>(tensors_.size()),
                  [this, learning_rate](Engine& lane, int64_t i) {
                    const size_t t = order_[static_cast<size_t>(i)];
                    const Tensor& tensor = tensors_[t];
                    const Shard shard{.whole = tensor.dims,
                                      .count = num_elements(tensor.dims),
                                      .grad = tensor.grad,
                                      .weights = tensor.weights,
                                      .states = states_[t].with_shard,
                                      .rounded = tensor.rounded};
                    rule_->step_whole(lane, {steps_done_, learning_rate},
                                      {.dims = tensor.dims,
                                       .shards = {&shard, 1},
                                       .owned = states_[t].with_owner});
                  });
  return true;
}

}  // namespace canzona
