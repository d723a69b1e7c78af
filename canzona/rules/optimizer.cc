#include "canzona/rules/optimizer.h"

#include <algorithm>
#include <functional>
#include <map>

#include "canzona/base/equal_batches.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"

namespace canzona {
using namespace rules;

void fill_initially(Engine& engine, const StateFact& fact, Run run,
                    int64_t tensors) {
  const int64_t elements = tensors * fact.elements();
  engine.set_zero(run.data, elements * size_of(run.dtype));
  if (fact.initially == Initially::kZero || elements == 0) return;
  const int64_t d = fact.shape.back();
  const int64_t most = engine.batch_width();
  const int64_t squares = elements / (d * d);
  for (int64_t i = 0; i < squares; i += most)
    engine.set_identity(as_matrices(advanced(run, i * d * d), d, d,
                                    std::min(most, squares - i)),
                        1.0);
}

std::vector<TensorStates> make_states(Engine& engine, const Rule& rule,
                                      const Dims& dims, size_t tensors,
                                      Arena& arena) {
  const auto count = static_cast<int64_t>(tensors);
  std::vector<TensorStates> all(tensors);
  for (const StateFact& fact : rule.facts().tensor_states(dims)) {
    const DType dtype = rule.dtype();
    Run run{arena.take(count * fact.elements() * size_of(dtype)), dtype};
    fill_initially(engine, fact, run, count);
    for (TensorStates& one : all) {
      one.facts.push_back(fact);
      one.runs.push_back(run);
      (fact.lives == Lives::kWithShard ? one.with_shard : one.with_owner)
          .push_back(run);
      run = advanced(run, fact.elements());
    }
  }
  return all;
}

void TensorBatch::add(const Shard& shard) {
  const Run* before = states_.data();
  states_.insert(states_.end(), shard.states.begin(), shard.states.end());
  shards_.push_back({.whole = dims_,
                     .count = shard.count,
                     .grad = shard.grad,
                     .weights = shard.weights,
                     .states = std::span(states_).last(shard.states.size()),
                     .rounded = shard.rounded,
                     .remainder = shard.remainder});
  if (states_.data() == before) return;
  const Run* next = states_.data();
  for (Shard& moved : shards_) {
    moved.states = {next, moved.states.size()};
    next += moved.states.size();
  }
}

void TensorBatch::step(Engine& engine, const Step& step) const {
  const auto work = [&] { issue(engine, step); };
  engine.repeat(std::cref(work));
}

namespace {

Flops work_of(const Rule& rule, const Dims& dims) {
  MatrixShape shape{1, num_elements(dims)};
  if (dims.size() >= 2) shape = {dims[dims.size() - 2], dims.back()};
  const int64_t matrix = std::max<int64_t>(1, shape.rows * shape.cols);
  return num_elements(dims) / matrix * rule.facts().work(shape).every_step;
}

std::vector<Engine*> engines_of(Lanes& lanes) {
  std::vector<Engine*> engines;
  for (int i = 0; i < lanes.num_lanes(); ++i) engines.push_back(&lanes.lane(i));
  return engines;
}

}  // namespace

Optimizer::Optimizer(std::unique_ptr<Rule> rule, std::vector<Tensor> tensors,
                     Lanes& lanes, const OptimizerSettings& settings)
    : Optimizer(std::move(rule), std::move(tensors), engines_of(lanes),
                settings) {
  lanes_ = &lanes;
}

Optimizer::Optimizer(std::unique_ptr<Rule> rule, std::vector<Tensor> tensors,
                     std::vector<Engine*> engines,
                     const OptimizerSettings& settings)
    : rule_(std::move(rule)),
      tensors_(std::move(tensors)),
      engines_(std::move(engines)),
      settings_(settings),
      memory_(engines_.at(0)->memory()),
      states_(tensors_.size()),
      finite_(tensors_.size()) {
  for (const Tensor& tensor : tensors_)
    grads_.push_back({tensor.grad, num_elements(tensor.dims)});
  make_batches();
  flag_ = memory_.take_array<int32_t>(1);
  engines_[0]->set_zero(reinterpret_cast<std::byte*>(flag_), sizeof(*flag_));
  notice_ = engines_[0]->make_notice();
  engines_[0]->synchronize();
}

Optimizer::~Optimizer() { come_to_rest(); }

// Ignores errors of the device: the caller has seen them, or the next step will
// report them.
void Optimizer::come_to_rest() noexcept {
  for (Engine* engine : engines_) {
    try {
      engine->synchronize();
    } catch (const std::exception&) {
      continue;
    }
  }
}

// Called after an error, which the caller is to receive; what was posted before
// it must not be mistaken for the next step's notice.
void Optimizer::start_afresh() noexcept {
  come_to_rest();
  try {
    notice_ = engines_[0]->make_notice();
  } catch (const std::exception&) {
    return;  // the device is lost; the next step reports it
  }
}

// Batches are in descending order of work, so that the largest ones start
// first.
void Optimizer::make_batches() {
  std::vector<Dims> shapes;
  for (const Tensor& tensor : tensors_) shapes.push_back(tensor.dims);
  const auto most = [this](const Dims& dims) {
    const int64_t each = std::max<int64_t>(1, num_elements(dims));
    return std::clamp<int64_t>(settings_.most_elements / each, 1,
                               engines_[0]->batch_width());
  };
  auto batches = equal_batches(shapes, most);
  const auto work = [&](const std::vector<size_t>& batch) {
    return work_of(*rule_, shapes[batch[0]]) * std::ssize(batch);
  };
  std::stable_sort(
      batches.begin(), batches.end(),
      [&](const auto& a, const auto& b) { return work(a) > work(b); });
  std::map<Dims, size_t> number;
  for (const std::vector<size_t>& members : batches) {
    add_batch(members);
    const auto shape =
        number.try_emplace(shapes[members[0]], number.size()).first;
    engine_of_.push_back(engines_[shape->second % engines_.size()]);
  }
}

void Optimizer::add_batch(const std::vector<size_t>& members) {
  const Dims& dims = tensors_[members[0]].dims;
  TensorBatch& batch = batches_.emplace_back(*rule_, dims);
  std::vector<TensorStates> states =
      make_states(*engines_[0], *rule_, dims, members.size(), memory_);
  for (Run owned : states[0].with_owner) batch.add_owned(owned);
  for (size_t i = 0; i < members.size(); ++i) {
    const Tensor& tensor = tensors_[members[i]];
    batch.add({.whole = dims,
               .count = num_elements(dims),
               .grad = tensor.grad,
               .weights = tensor.weights,
               .states = states[i].with_shard,
               .rounded = tensor.rounded});
    states_[members[i]] = std::move(states[i]);
  }
}

void Optimizer::step(double learning_rate) {
  settle();
  const Step next{steps_done_ + 1, learning_rate};
  const auto work = [&] { issue(next); };
  try {
    if (settings_.repeats && lanes_ == nullptr)
      engines_[0]->repeat(std::cref(work));
    else
      work();
  } catch (const std::exception&) {
    start_afresh();
    throw;
  }
  unsettled_ = true;
  if (settings_.on_nonfinite == OnNonfinite::kError && last_step_skipped())
    throw UsageError(cat("the gradient of ", quoted(nonfinite_),
                         " is not finite at step ", next.step));
}

void Optimizer::issue(const Step& step) {
  if (settings_.on_nonfinite == OnNonfinite::kPropagate)
    return step_batches(step);
  look_at_gradients();
  notice_->post(*engines_[0], flag_);
  engines_[0]->if_zero(flag_, [this, &step] { step_batches(step); });
}

void Optimizer::look_at_gradients() {
  if (lanes_ == nullptr) return engines_[0]->find_nonfinite(flag_, grads_);
  lanes_->for_each(std::ssize(grads_), [this](Engine& lane, int64_t i) {
    const auto t = static_cast<size_t>(i);
    finite_[t] = lane.all_finite(grads_[t].run, grads_[t].count);
  });
  const auto bad = std::find(finite_.begin(), finite_.end(), 0);
  const auto first = static_cast<int32_t>(
      bad == finite_.end() ? 0 : bad - finite_.begin() + 1);
  engines_[0]->upload(reinterpret_cast<std::byte*>(flag_),
                      reinterpret_cast<const std::byte*>(&first),
                      sizeof(first));
}

void Optimizer::step_batches(const Step& step) {
  if (lanes_ != nullptr)
    return lanes_->for_each(
        std::ssize(batches_), [this, &step](Engine& lane, int64_t i) {
          batches_[static_cast<size_t>(i)].issue(lane, step);
        });
  Engine& lead = *engines_[0];
  for (size_t i = 1; i < engines_.size(); ++i) engines_[i]->wait_for(lead);
  for (size_t i = 0; i < batches_.size(); ++i)
    batches_[i].issue(*engine_of_[i], step);
  for (size_t i = 1; i < engines_.size(); ++i) lead.wait_for(*engines_[i]);
}

void Optimizer::settle() {
  if (!unsettled_) return;
  unsettled_ = false;
  const bool looks = settings_.on_nonfinite != OnNonfinite::kPropagate;
  const int32_t bad = looks ? notice_->wait() : 0;
  skipped_ = bad != 0;
  if (skipped_)
    nonfinite_ = tensors_[static_cast<size_t>(bad - 1)].name;
  else
    ++steps_done_;
}

bool Optimizer::last_step_skipped() {
  settle();
  return skipped_;
}

int64_t Optimizer::steps_done() {
  settle();
  return steps_done_;
}

}  // namespace canzona
