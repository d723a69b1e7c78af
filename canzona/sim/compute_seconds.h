// Estimates a module's compute time from its shapes.
//
//   std::vector<PassSeconds> modules = compute_seconds(
//       model, {.tokens = 8192, .length = 4096, .width = 5120,
//               .flops_per_second = 300e12 * 0.5});
//
// Forward takes 2 flops per weight and token, backward 4; attention takes 6 ·
// length · width per token and layer (causal: half of the full square), divided
// in the same ratio; recomputation repeats every forward. An embedding is
// looked up and costs nothing; a tied head multiplies by it, in the head's
// module. Only the experts that a token visits count. Norms, biases and
// everything else bound by memory belong in a rate that was measured.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/shapes/tensor.h"

namespace canzona {

// Computes how much longer the slowest of many ranks takes than the mean.
//
//   slowest_of(256, 0.02)   // 1.056: of 256 ranks that differ by 2 %
//
// Ranks are assumed to be normally distributed and to wait for the slowest. All
// functions are pure.

// Standard deviations relative to the mean: of the time that cards take for the
// same work, which is permanent; and of the lengths of sequences, which are
// drawn anew for every micro-batch.
struct RankSpread {
  double compute = 0;
  double length = 0;
  friend bool operator==(const RankSpread&, const RankSpread&) = default;
};

// Returns the expected maximum of `count` standard normal numbers, by Blom's
// formula.
double expected_largest(int64_t count);

// 1 + spread · expected_largest(count).
double slowest_of(int64_t count, double spread);

struct ComputeLoad {
  int64_t tokens = 0;  // of one micro-batch on one data-parallel rank
  int64_t length = 0;  // of a sequence
  int64_t width = 0;   // query heads × head size
  double flops_per_second = 0;
  int64_t experts_per_token = 0;  // if there are experts
  int32_t tensor_parallel = 1;    // ranks that share every product
  bool recompute = false;
};

struct PassSeconds {
  double forward = 0;
  double backward = 0;
};

// Returns times by module: embedding, layers, and the head with everything
// else. Throws UsageError for loads that make no sense.
std::vector<PassSeconds> compute_seconds(const Model& model,
                                         const ComputeLoad& load);

// Returns the number of weights that a token is multiplied by in each module.
std::vector<double> weights_per_token(const Model& model,
                                      int64_t experts_per_token);

}  // namespace canzona
