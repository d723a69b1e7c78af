// Work of a given duration in the place of a model's forward and backward: the
// rank sleeps, as a host does while its accelerator computes, and leaves its
// core to the threads that communicate.
//
//   TimedWork work(plan, place, 1.5);   // seconds of an iteration
//   work.begin();
//   work.forward(module);
//   work.backward(module);
//
// A third of the time is forward. Modules share it by their elements; looking
// up embeddings takes none. If one sleep lasts too long, the next is shorter by
// that.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/coordinates.h"

namespace canzona {

class TimedWork {
 public:
  // Takes the modules of a rank's stage.
  TimedWork(const Plan& plan, const Coordinates& at, double seconds);

  // A new iteration: it lasts its time whatever the last one did.
  void begin() { ahead_ = 0; }
  void forward(int32_t module) { work(share(module) / 3); }
  void backward(int32_t module) { work(share(module) * 2 / 3); }
  // The module's share of an iteration.
  double share(int32_t module) const {
    return shares_[static_cast<size_t>(module)];
  }

 private:
  void work(double seconds);

  std::vector<double> shares_;  // seconds, by module
  double ahead_ = 0;            // slept already
};

}  // namespace canzona
