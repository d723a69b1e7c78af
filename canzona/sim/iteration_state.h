// What the threads of a simulated iteration share: time, ports, the processor,
// and the record of the iteration under way.
#pragma once

#include <string>
#include <utility>

#include "canzona/base/text.h"
#include "canzona/sim/issuer.h"
#include "canzona/sim/iteration.h"

namespace canzona {

struct IterationState {
  IterationState(const IterationWork& the_work, bool spans)
      : work(the_work),
        with_spans(spans),
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

  // A span that ends now.
  void note(SimulatedTrack track, const char* what, int32_t number,
            double begin_time) {
    if (!with_spans || !(events.now() > begin_time)) return;
    record.spans.push_back(
        {track, number < 0 ? std::string(what) : cat(what, " ", number),
         begin_time - begin, events.now() - begin});
  }

  const IterationWork& work;
  const bool with_spans;
  EventQueue events;
  Ports ports;
  Processor processor;
  double begin = 0;  // of the iteration
  IterationTime record;
};

// An issuer whose operations are counted and recorded.
class RecordedIssuer {
 public:
  RecordedIssuer(IterationState& state, SimulatedTrack track)
      : state_(state),
        track_(track),
        issuer_(state.events, state.ports, state.processor,
                state.work.copy_bytes_per_second, state.work.meetings) {}

  bool is_busy() const { return issuer_.is_busy(); }

  template <class Done>
  void start(const Transfer& transfer, const char* what, int32_t module,
             Done done) {
    state_.record.bytes = state_.record.bytes + transfer.bytes;
    const double begin = state_.events.now();
    issuer_.start(transfer, [this, what, module, begin, done] {
      state_.note(track_, what, module, begin);
      done();
    });
  }
  // Two legs of one operation; the second may be empty.
  template <class Done>
  void start(const Transfer& first, const Transfer& second, const char* what,
             int32_t module, Done done) {
    if (second.empty()) return start(first, what, module, done);
    start(first, what, module, [this, &second, what, module, done] {
      start(second, what, module, done);
    });
  }

 private:
  IterationState& state_;
  SimulatedTrack track_;
  Issuer issuer_;
};

}  // namespace canzona
