// Work that stands in for a model's forward and backward.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/linalg/engine_memory.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

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

// Stands in for forward and backward on an asynchronous engine: matrix products
// of the modules' own shapes, or idling for a given time.
//
//   EngineWork work(runtime, engine, {.tokens = 4096});
//   runtime.wait_params(module);
//   work.forward(module);           // only issued
//   work.backward(module);          // writes the module's gradients
//
// With products, each matrix W of a module is multiplied in bf16 with this many
// tokens: Y = X·Wᵀ forward, dX = dY·W and dW = dYᵀ·X backward. W, X and dY are
// constant; dW goes to the runtime's gradient. Embedding lookups take none, and
// an expert gets its share of the tokens. With a time, modules share it as in
// TimedWork.

struct ModuleCompute {
  int64_t tokens = 0;  // above 0: products with this many
  double seconds = 0;  // otherwise: forward and backward of all modules
};

class EngineWork {
 public:
  // Runtime and engine must outlive it.
  EngineWork(Runtime& runtime, Engine& engine, const ModuleCompute& compute);

  void forward(int32_t module);
  // Call it between wait_params() and grad_ready().
  void backward(int32_t module);

 private:
  struct Weight {
    int32_t tensor = 0;
    int64_t rows = 0, cols = 0;  // of the shard: out, in
    int64_t tokens = 0;
  };

  void add_weight(int32_t tensor, const ModuleCompute& compute);
  void make_numbers();
  Matrices activations(int64_t tokens, int64_t width) const;
  Matrices result(int64_t rows, int64_t cols) const;
  Matrices weight(const Weight& of) const;

  Runtime& runtime_;
  Engine& engine_;
  TimedWork timed_;  // for the modules' shares
  const bool multiplies_;
  std::vector<std::vector<Weight>> weights_;  // by module
  EngineMemory memory_;
  Run activations_{}, weight_{}, result_{};
};

// Returns the same options, with waits timed on the engine too.
inline RuntimeOptions with_timed_waits(RuntimeOptions options) {
  options.timed_waits = true;
  return options;
}

// Gives the rank's shard of a tensor its initial numbers, on the engine.
void set_first_parameter(Runtime& runtime, Engine& engine, int32_t tensor);

}  // namespace canzona
