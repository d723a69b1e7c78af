#include "canzona/rules/device_optimizer.h"

#include <algorithm>
#include <map>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/initial_states.h"
#include "canzona/rules/runs.h"

namespace canzona {
// Tensors of one shape, and their states, those of a kind one after another.
struct DeviceOptimizer::Group {
  Dims dims;
  std::vector<Shard> shards;
  std::vector<Run> owned;
  std::vector<int64_t> owned_elements;  // of one tensor
  size_t engine = 0;
};

DeviceOptimizer::DeviceOptimizer(std::unique_ptr<Rule> rule,
                                 std::vector<Tensor> tensors,
                                 std::vector<Engine*> engines,
                                 const Settings& settings)
    : rule_(std::move(rule)),
      tensors_(std::move(tensors)),
      engines_(std::move(engines)),
      settings_(settings),
      memory_(engines_.at(0)->memory()),
      states_(tensors_.size()) {
  make_groups();
  for (const Tensor& tensor : tensors_)
    grads_.push_back({tensor.grad, num_elements(tensor.dims)});
  flag_ = memory_.take_array<int32_t>(1);
  engines_[0]->set_zero(reinterpret_cast<std::byte*>(flag_), sizeof(*flag_));
  notice_ = engines_[0]->make_notice();
  engines_[0]->synchronize();
}

DeviceOptimizer::~DeviceOptimizer() { come_to_rest(); }

// Not a word of what went wrong on the device: somebody has heard it, or will.
void DeviceOptimizer::come_to_rest() noexcept {
  for (Engine* engine : engines_) {
    try {
      engine->synchronize();
    } catch (const std::exception&) {
      continue;
    }
  }
}

// After an error, which is what the caller is to hear: what was posted before
// it must not be taken for the next step's.
void DeviceOptimizer::start_afresh() noexcept {
  come_to_rest();
  try {
    notice_ = engines_[0]->make_notice();
  } catch (const std::exception&) {
    return;  // the device is lost, as the next step will say
  }
}

// By work, since the largest batches are to begin first.
void DeviceOptimizer::make_groups() {
  std::map<Dims, std::vector<size_t>> by_dims;
  for (size_t t = 0; t < tensors_.size(); ++t)
    by_dims[tensors_[t].dims].push_back(t);
  std::vector<std::pair<int64_t, Dims>> order;
  for (const auto& [dims, members] : by_dims)
    order.emplace_back(
        -num_elements(dims) * static_cast<int64_t>(members.size()), dims);
  std::sort(order.begin(), order.end());
  for (const auto& [elements, dims] : order) add_group(dims, by_dims.at(dims));
}

void DeviceOptimizer::add_group(const Dims& dims, std::vector<size_t> members) {
  Engine& engine = *engines_[0];
  const auto count = static_cast<int64_t>(members.size());
  Group group{dims, {}, {}, {}, groups_.size() % engines_.size()};
  for (const StateFact& fact : rule_->facts().tensor_states(dims)) {
    const Run all{
        memory_.take(count * fact.elements() * size_of(rule_->dtype())),
        rule_->dtype()};
    fill_initially(engine, fact, all, count);
    const bool with_shard = fact.lives == Lives::kWithShard;
    if (!with_shard) {
      group.owned.push_back(all);
      group.owned_elements.push_back(fact.elements());
    }
    for (int64_t i = 0; i < count; ++i) {
      TensorStates& states = states_[members[static_cast<size_t>(i)]];
      const Run one = advanced(all, i * fact.elements());
      states.facts.push_back(fact);
      states.runs.push_back(one);
      (with_shard ? states.with_shard : states.with_owner).push_back(one);
    }
  }
  groups_.push_back(std::move(group));
  for (size_t t : members)
    groups_.back().shards.push_back({.whole = tensors_[t].dims,
                                     .count = num_elements(tensors_[t].dims),
                                     .grad = tensors_[t].grad,
                                     .weights = tensors_[t].weights,
                                     .states = states_[t].with_shard,
                                     .rounded = tensors_[t].rounded});
}

void DeviceOptimizer::step(double learning_rate) {
  settle();
  const Step next{steps_done_ + 1, learning_rate};
  try {
    if (settings_.repeats)
      engines_[0]->repeat([&] { issue(next); });
    else
      issue(next);
  } catch (const std::exception&) {
    start_afresh();
    throw;
  }
  unsettled_ = true;
}

void DeviceOptimizer::issue(const Step& step) {
  Engine& lead = *engines_[0];
  if (!settings_.checks_gradients) return step_groups(step);
  lead.find_nonfinite(flag_, grads_);
  notice_->post(lead, flag_);
  lead.if_zero(flag_, [&] { step_groups(step); });
}

void DeviceOptimizer::step_groups(const Step& step) {
  Engine& lead = *engines_[0];
  for (size_t i = 1; i < engines_.size(); ++i) engines_[i]->wait_for(lead);
  for (const Group& group : groups_)
    step_group(*engines_[group.engine], step, group);
  for (size_t i = 1; i < engines_.size(); ++i) lead.wait_for(*engines_[i]);
}

void DeviceOptimizer::step_group(Engine& engine, const Step& step,
                                 const Group& group) {
  const int64_t each = std::max<int64_t>(1, num_elements(group.dims));
  const auto at_once =
      static_cast<size_t>(std::max<int64_t>(1, settings_.most_elements / each));
  std::vector<Run> owned(group.owned.size());
  for (size_t begin = 0; begin < group.shards.size(); begin += at_once) {
    const size_t size = std::min(at_once, group.shards.size() - begin);
    for (size_t i = 0; i < owned.size(); ++i)
      owned[i] = advanced(group.owned[i], static_cast<int64_t>(begin) *
                                              group.owned_elements[i]);
    rule_->step_whole(engine, step,
                      {.dims = group.dims,
                       .shards = {group.shards.data() + begin, size},
                       .owned = owned});
  }
}

void DeviceOptimizer::settle() {
  if (!unsettled_) return;
  unsettled_ = false;
  const int32_t bad = settings_.checks_gradients ? notice_->wait() : 0;
  skipped_ = bad != 0;
  if (skipped_)
    nonfinite_ = tensors_[static_cast<size_t>(bad - 1)].name;
  else
    ++steps_done_;
}

bool DeviceOptimizer::last_step_skipped() {
  settle();
  return skipped_;
}

int64_t DeviceOptimizer::steps_done() {
  settle();
  return steps_done_;
}

}  // namespace canzona
