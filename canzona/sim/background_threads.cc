#include "canzona/sim/background_threads.h"

namespace canzona {

SimulatedData::SimulatedData(IterationState& state)
    : state_(state),
      issuer_(state),
      published_(state.work.modules.size(), true),
      may_leave_(state.work.modules.size(), false) {}

void SimulatedData::reduce(int32_t module) {
  if (state_.module(module).reduce.empty()) return;
  ++num_reducing_;
  waiting_.push_back({false, module});
}

void SimulatedData::publish() {
  for (const ModuleUse& use : state_.uses) begin_publishing(use.module);
}

void SimulatedData::begin_publishing(int32_t module) {
  const auto m = index(module);
  if (!published_[m] || state_.module(module).publish.empty()) return;
  published_[m] = may_leave_[m] = false;
  ++num_publishing_;
  waiting_.push_back({true, module});
}

bool SimulatedData::move() {
  if (issuer_.is_busy() || waiting_.empty()) return false;
  const auto [publishes, module] = waiting_.front();
  if (publishes && !may_leave_[index(module)]) return false;
  waiting_.pop_front();
  const ModuleWork& work = state_.module(module);
  if (publishes) {
    issuer_.start(work.publish, [this, m = module] {
      published_[index(m)] = true;
      --num_publishing_;
    });
  } else {
    issuer_.start(work.reduce, [this] { --num_reducing_; });
  }
  return true;
}

void SimulatedGather::begin() {
  reach_ = 0;
  next_ = 0;
  num_gathered_ = 0;
}

bool SimulatedGather::move() {
  if (issuer_.is_busy()) return false;
  while (next_ < reach_ && !state_.gathers(next_)) ++next_;
  if (next_ >= reach_ || slots_taken_ == state_.work.gather_slots) return false;
  const int32_t module = state_.uses[next_].module;
  if (!data_.is_published(module)) return false;
  ++slots_taken_;
  ++next_;
  issuer_.start(state_.module(module).gather,
                [this, end = next_] { num_gathered_ = end; });
  return true;
}

bool SimulatedScatter::has_slot(int32_t module) const {
  return state_.module(module).scatter.empty() || is_open_[index(module)] ||
         slots_taken_ < state_.work.scatter_slots;
}

void SimulatedScatter::open(int32_t module) {
  const auto m = index(module);
  if (state_.module(module).scatter.empty() || is_open_[m]) return;
  is_open_[m] = true;
  ++slots_taken_;
}

void SimulatedScatter::hand_over(int32_t module, bool last) {
  if (state_.module(module).scatter.empty()) {
    if (last) data_.reduce(module);
    return;
  }
  is_open_[index(module)] = false;
  ++num_unfinished_;
  waiting_.push_back({module, last});
}

bool SimulatedScatter::move() {
  if (issuer_.is_busy() || waiting_.empty()) return false;
  const Waiting gradient = waiting_.front();
  waiting_.pop_front();
  issuer_.start(state_.module(gradient.module).scatter, [this, gradient] {
    --num_unfinished_;
    --slots_taken_;
    if (gradient.last) data_.reduce(gradient.module);
  });
  return true;
}

}  // namespace canzona
