#include "canzona/sim/rank_threads.h"

#include <utility>

#include "canzona/base/check.h"

namespace canzona::sim {

void Issuer::start(const Transfer& transfer, std::function<void()> done) {
  CANZONA_CHECK(!is_busy_, "an operation while one is under way");
  is_busy_ = true;
  done_ = std::move(done);
  part_ = ports_.part_of(transfer);
  copies_ = copy_seconds(transfer, copy_bytes_per_second_);
  num_to_post_ = transfer.parts;
  work(copies_.pack, &Issuer::begin_part);
}

void Issuer::work(double seconds, void (Issuer::*then)()) {
  if (seconds == 0) return (this->*then)();
  events_.at(events_.now() + seconds, [this, then] { (this->*then)(); });
}

void Issuer::post() {
  --num_to_post_;
  arrival_ = ports_.book(part_, events_.now());
}

void Issuer::begin_part() {
  post();
  work(copies_.on_wire, &Issuer::await);
}

void Issuer::await() {
  events_.at(std::max(arrival_, events_.now()), [this] { meet(); });
}

void Issuer::meet() {
  const double seconds =
      is_computing_ ? meetings_.beside_compute : meetings_.idle;
  if (seconds == 0) return arrived();
  events_.at(events_.now() + seconds, [this] { arrived(); });
}

void Issuer::arrived() {
  if (num_to_post_ == 0) return work(copies_.arrived, &Issuer::finish);
  post();
  work(copies_.arrived + copies_.on_wire, &Issuer::await);
}

void Issuer::finish() {
  is_busy_ = false;
  const auto done = std::exchange(done_, nullptr);
  done();
}

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

SimulatedCompute::SimulatedCompute(IterationState& state, SimulatedData& data,
                                   SimulatedGather& gather,
                                   SimulatedScatter& scatter,
                                   int num_iterations)
    : state_(state),
      data_(data),
      gather_(gather),
      scatter_(scatter),
      num_left_(num_iterations) {
  begin_iteration();
}

bool SimulatedCompute::move() {
  if (!is_over()) return false;
  account();
  leave();
  return true;
}

bool SimulatedCompute::is_over() const {
  switch (stage_) {
    case Stage::kBubble:
    case Stage::kCompute:
    case Stage::kStep:
      return is_worked_;
    case Stage::kEnded:
      return false;
    default:
      return is_waiting_over();
  }
}

bool SimulatedCompute::is_waiting_over() const {
  const Overlap overlap = state_.work.overlap;
  switch (stage_) {
    case Stage::kBegun:
      return overlap != Overlap::kNone || !data_.is_publishing();
    case Stage::kParameters:
      return data_.is_published(current().module) && gather_.has(position_);
    case Stage::kSlot:
      return !current().is_backward || scatter_.has_slot(current().module);
    case Stage::kHandOver:
      return overlap != Overlap::kMain || !current().completes() ||
             !scatter_.is_scattering();
    case Stage::kScattered:
      return overlap != Overlap::kNone ||
             (!scatter_.is_scattering() && !data_.is_reducing());
    case Stage::kScatters:
      return !scatter_.is_scattering();
    default:
      return !data_.is_reducing();
  }
}

// Adds the time spent in the stage.
void SimulatedCompute::account() {
  IterationTime& record = state_.record;
  const auto count = [&](double& sum) {
    sum += state_.events.now() - stage_begin_;
  };
  switch (stage_) {
    case Stage::kBegun:
    case Stage::kParameters:
      return count(record.waited_parameters);
    case Stage::kBubble:
      return count(record.bubble_seconds);
    case Stage::kCompute:
      return count(record.compute_seconds);
    case Stage::kSlot:
    case Stage::kHandOver:
    case Stage::kScattered:
      return count(record.waited_gradients);
    case Stage::kScatters:
    case Stage::kReductions:
      return count(record.waited_step);
    case Stage::kStep:
      return count(record.step_seconds);
    case Stage::kEnded:
      return;
  }
}

void SimulatedCompute::leave() {
  switch (stage_) {
    case Stage::kBegun:
      return begin_bubble();
    case Stage::kBubble:
      return begin_use();
    case Stage::kParameters:
      return enter(Stage::kSlot);
    case Stage::kSlot:
      return begin_compute();
    case Stage::kCompute:
      return end_compute();
    case Stage::kHandOver:
      return hand_over();
    case Stage::kScattered:
      return end_use();
    case Stage::kScatters:
      return enter(Stage::kReductions);
    case Stage::kReductions:
      return begin_step();
    case Stage::kStep:
      return end_step();
    case Stage::kEnded:
      return;
  }
}

void SimulatedCompute::enter(Stage stage) {
  stage_ = stage;
  stage_begin_ = state_.events.now();
}

void SimulatedCompute::work_for(double seconds) {
  is_worked_ = false;
  state_.is_computing = true;
  state_.events.at(state_.events.now() + seconds, [this] {
    state_.is_computing = false;
    is_worked_ = true;
  });
}

void SimulatedCompute::begin_iteration() {
  state_.begin = state_.events.now();
  state_.record = {};
  state_.record.bytes = state_.work.step_bytes;
  state_.ports.forget_before(state_.begin);
  position_ = 0;
  first_held_ = 0;
  gather_.begin();
  if (state_.work.overlap == Overlap::kBackground)
    gather_.reach(state_.uses.size());
  enter(Stage::kBegun);
}

void SimulatedCompute::begin_bubble() {
  enter(Stage::kBubble);
  is_worked_ = false;
  state_.events.at(state_.events.now() + state_.work.bubble_seconds,
                   [this] { is_worked_ = true; });
}

void SimulatedCompute::begin_use() {
  if (position_ == state_.uses.size()) return enter(Stage::kScatters);
  if (state_.work.overlap == Overlap::kNone) gather_.reach(position_ + 1);
  if (state_.work.overlap == Overlap::kMain) gather_.reach(position_ + 2);
  enter(Stage::kParameters);
}

void SimulatedCompute::begin_compute() {
  const ModuleUse& use = current();
  const ModuleWork& module = state_.module(use.module);
  if (use.is_backward) scatter_.open(use.module);
  enter(Stage::kCompute);
  if (use.is_beside) return work_for(0);
  work_for(use.is_backward ? module.backward_seconds : module.forward_seconds);
}

void SimulatedCompute::end_compute() {
  for (; !current().is_beside && first_held_ <= position_; ++first_held_)
    gather_.release(first_held_);
  enter(Stage::kHandOver);
}

void SimulatedCompute::hand_over() {
  if (current().completes())
    scatter_.hand_over(current().module, current().is_last);
  enter(Stage::kScattered);
}

void SimulatedCompute::end_use() {
  ++position_;
  begin_use();
}

// Modules leave as they are updated; without overlap, all leave at the end.
void SimulatedCompute::begin_step() {
  enter(Stage::kStep);
  const double seconds = state_.work.step_seconds;
  work_for(seconds);
  data_.publish();
  if (state_.work.overlap == Overlap::kNone) return;
  for (int32_t m = 0; m < std::ssize(state_.work.modules); ++m) {
    const double share = state_.module(m).publish_after;
    if (share < 1)
      state_.events.at(state_.events.now() + share * seconds,
                       [this, m] { data_.may_leave(m); });
  }
}

void SimulatedCompute::end_step() {
  finish_record();
  if (--num_left_ == 0) return enter(Stage::kEnded);
  begin_iteration();
  for (int32_t m = 0; m < std::ssize(state_.work.modules); ++m)
    data_.may_leave(m);
}

void SimulatedCompute::finish_record() {
  IterationTime& record = state_.record;
  const double begin = state_.begin, end = state_.events.now();
  record.seconds = end - begin;
  record.busy_intra_seconds =
      state_.ports.busy(Ports::Which::kIntra, begin, end);
  record.busy_inter_seconds =
      state_.ports.busy(Ports::Which::kInter, begin, end);
  record.busy_seconds = state_.ports.busy(Ports::Which::kAny, begin, end);
}

}  // namespace canzona::sim
