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
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/linalg/engine_memory.h"
#include "canzona/measure/timed_work.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

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
