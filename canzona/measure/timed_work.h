// Stands in for a model's forward and backward for a given time: the rank
// sleeps, as a host does while its accelerator computes, and leaves its core to
// the communicating threads.
//
//   TimedWork work(plan, place, 1.5);   // seconds of an iteration
//   work.begin();
//   work.forward(module);
//   work.backward(module);
//
// A third of the time is forward. Modules share it in proportion to their
// elements; embedding lookups take none. If a sleep lasts too long, the next
// one is shortened by that.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/coordinates.h"

namespace canzona {

class TimedWork {
 public:
  // Uses the modules of the rank's stage.
  TimedWork(const Plan& plan, const Coordinates& at, double seconds);

  // Begins an iteration, which lasts its full time whatever the last one did.
  void begin() { ahead_ = 0; }
  void forward(int32_t module) { work(share(module) / 3); }
  void backward(int32_t module) { work(share(module) * 2 / 3); }
  // Returns the module's share of an iteration.
  double share(int32_t module) const {
    return shares_[static_cast<size_t>(module)];
  }

 private:
  void work(double seconds);

  std::vector<double> shares_;  // seconds, by module
  double ahead_ = 0;            // slept already
};

}  // namespace canzona
