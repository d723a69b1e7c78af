// A simulated background thread that executes one operation at a time. It packs
// and sends the first part; when a part has arrived it sends the next one and
// copies the one that has arrived meanwhile.
//
//   Issuer gather(events, ports, processor, copy_bytes_per_second);
//   if (!gather.is_busy()) gather.start(transfer, [&] { … });
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "canzona/sim/events.h"
#include "canzona/sim/ports.h"
#include "canzona/sim/processor.h"

namespace canzona {

class Issuer {
 public:
  Issuer(EventQueue& events, Ports& ports, Processor& processor,
         double copy_bytes_per_second, const Meetings& meetings = {})
      : events_(events),
        ports_(ports),
        processor_(processor),
        copy_bytes_per_second_(copy_bytes_per_second),
        meetings_(meetings) {}

  bool is_busy() const { return is_busy_; }

  // Requires that it is not busy; `done` is called at the end.
  void start(const Transfer& transfer, std::function<void()> done);

 private:
  void post();
  void work(double seconds, void (Issuer::*then)());
  void begin_part();
  void await();
  void meet();
  void arrived();
  void finish();

  EventQueue& events_;
  Ports& ports_;
  Processor& processor_;
  double copy_bytes_per_second_;
  Meetings meetings_;
  bool is_busy_ = false;
  PartSeconds part_{};  // the part on the wire
  CopySeconds copies_;
  int64_t num_to_post_ = 0;
  double arrival_ = 0;
  std::function<void()> done_;
};

}  // namespace canzona
