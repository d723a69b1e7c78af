// Stands in for a model's forward and backward on one rank.
//
//   StandIn work(runtime, engine, {.seconds = 1.5});
//   runtime.wait_params(module);
//   work.forward(module);
//   work.backward(module);   // between wait_params and grad_ready
//
// For a given time: the rank sleeps, as a host does while its accelerator
// computes, and leaves its core to the communicating threads. If calls only
// issue work, the engine idles instead. A third of the time is forward; modules
// share it in proportion to their elements; embedding lookups take none.
//
// Or by matrix products of the modules' own shapes, if calls only issue work:
// each matrix W of a module is multiplied in bf16 with this many tokens: Y =
// X·Wᵀ forward, dX = dY·W and dW = dYᵀ·X backward. W, X and dY are constant; dW
// goes to the runtime's gradient. An expert gets its share of the tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/runtime/runtime.h"

namespace canzona::measure {

// The work of one micro-batch.
struct ModuleCompute {
  int64_t tokens = 0;  // above 0: products with this many
  double seconds = 0;  // otherwise: forward and backward of all modules
};

// Returns the share of each module in the time of a rank's stage.
std::vector<double> module_shares(const Plan& plan, const Coordinates& at,
                                  double seconds);

class StandIn {
 public:
  // Runtime and engine must outlive it. Throws UsageError if products are asked
  // for, but calls do not only issue work.
  StandIn(Runtime& runtime, Engine& engine, const ModuleCompute& compute);

  // Begins an iteration, which lasts its full time whatever the last one did.
  void begin() { ahead_ = 0; }
  void forward(int32_t module);
  void backward(int32_t module);

 private:
  struct Weight {
    int32_t tensor = 0;
    int64_t rows = 0, cols = 0;  // of the shard: out, in
    int64_t tokens = 0;
  };

  void pass(double seconds);
  void add_weight(int32_t tensor, const ModuleCompute& compute);
  void make_numbers();
  Matrices activations(int64_t tokens, int64_t width) const;
  Matrices result(int64_t rows, int64_t cols) const;
  Matrices weight(const Weight& of) const;

  Runtime& runtime_;
  Engine& engine_;
  const bool multiplies_;
  std::vector<double> shares_;                // seconds, by module
  double ahead_ = 0;                          // slept already
  std::vector<std::vector<Weight>> weights_;  // by module
  EngineMemory memory_;
  Run activations_{}, weight_{}, result_{};
};

// Gives the rank's shard of a tensor its initial numbers, on the engine.
void set_first_parameter(Runtime& runtime, Engine& engine, int32_t tensor);

}  // namespace canzona::measure
