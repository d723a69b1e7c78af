// What the threads of a simulated iteration share: time, ports, the processor,
// and the record of the iteration under way.
#pragma once

#include "canzona/sim/issuer.h"
#include "canzona/sim/iteration.h"

namespace canzona {

struct IterationState {
  explicit IterationState(const IterationWork& the_work)
      : work(the_work),
        ports(the_work.links),
        processor(events, the_work.slowdown) {}
  IterationState(const IterationState&) = delete;
  IterationState& operator=(const IterationState&) = delete;

  const ModuleWork& module(int32_t number) const {
    return work.modules[static_cast<size_t>(number)];
  }
  // Positions count the uses of all micro-batches.
  size_t num_positions() const {
    return work.uses.size() * static_cast<size_t>(work.num_micro_batches);
  }
  const ModuleUse& use(size_t position) const {
    return work.uses[position % work.uses.size()];
  }
  bool gathers(size_t position) const {
    return !module(use(position).module).gather.empty();
  }

  const IterationWork& work;
  EventQueue events;
  Ports ports;
  Processor processor;
  double begin = 0;  // of the iteration
  IterationTime record;
};

// An issuer whose bytes are counted.
class CountedIssuer {
 public:
  explicit CountedIssuer(IterationState& state)
      : state_(state),
        issuer_(state.events, state.ports, state.processor,
                state.work.copy_bytes_per_second, state.work.meetings) {}

  bool is_busy() const { return issuer_.is_busy(); }

  template <class Done>
  void start(const Transfer& transfer, Done done) {
    state_.record.bytes = state_.record.bytes + transfer.bytes;
    issuer_.start(transfer, done);
  }
  // Two levels of one operation; either may be empty.
  template <class Done>
  void start(const Transfer& first, const Transfer& second, Done done) {
    if (second.empty()) return start(first, done);
    if (first.empty()) return start(second, done);
    start(first, [this, &second, done] { start(second, done); });
  }

 private:
  IterationState& state_;
  Issuer issuer_;
};

}  // namespace canzona
