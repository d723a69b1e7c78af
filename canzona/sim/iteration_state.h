// State shared by the threads of a simulated iteration: time, ports, the
// processor, and the record of the current iteration.
#pragma once

#include "canzona/base/index.h"
#include "canzona/sim/issuer.h"
#include "canzona/sim/iteration.h"

namespace canzona {

struct IterationState {
  explicit IterationState(const IterationWork& the_work)
      : work(the_work),
        uses(uses_of(the_work.calls)),
        ports(the_work.links),
        processor(events, the_work.slowdown) {}
  IterationState(const IterationState&) = delete;
  IterationState& operator=(const IterationState&) = delete;

  const ModuleWork& module(int32_t number) const {
    return work.modules[index(number)];
  }
  bool gathers(size_t position) const {
    return !module(uses[position].module).gather.empty();
  }

  const IterationWork& work;
  const std::vector<ModuleUse> uses;  // of all micro-batches; positions index
                                      // it
  EventQueue events;
  Ports ports;
  Processor processor;
  double begin = 0;  // of the iteration
  IterationTime record;
};

// An issuer that also counts bytes.
class CountedIssuer {
 public:
  explicit CountedIssuer(IterationState& state)
      : state_(state),
        issuer_(state.events, state.ports, state.processor,
                state.work.copy_bytes_per_second, state.work.meetings) {}

  bool is_busy() const { return issuer_.is_busy(); }

  // Either leg may be empty.
  template <class Done>
  void start(const Legs& legs, Done done) {
    if (legs.second.empty()) return start_leg(legs.first, done);
    if (legs.first.empty()) return start_leg(legs.second, done);
    start_leg(legs.first,
              [this, &legs, done] { start_leg(legs.second, done); });
  }

 private:
  template <class Done>
  void start_leg(const Transfer& transfer, Done done) {
    state_.record.bytes += transfer.bytes;
    issuer_.start(transfer, done);
  }

  IterationState& state_;
  Issuer issuer_;
};

}  // namespace canzona
