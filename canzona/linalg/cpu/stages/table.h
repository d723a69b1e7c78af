// One set of kernels per instruction set.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "canzona/linalg/stages.h"

namespace canzona::linalg {

// Typed pointers and coefficients of a stage.
template <class Real>
struct StageKernels {
  struct Momentum {
    const Real* grad;
    const Real* weights;
    Real* momentum;
    Real* out;
    Real l2, keep, add, from_grad, from_momentum;
  };
  struct Adam {
    const Real* grad;
    Real* m;
    Real* v;
    Real* out;      // null: apply
    Real* weights;  // null: out
    Real m_keep, m_add, v_keep, v_add, from_moment, from_grad;
    Real root_scale, epsilon;
    Real keep_before, step, keep_after;
  };

  void (*momentum)(const Momentum& a, int64_t count);
  void (*apply)(Real* weights, const Real* update, Real keep_before, Real step,
                Real keep_after, int64_t count);
  void (*apply_cautiously)(Real* weights, const Real* update, Real keep_before,
                           Real step, Real keep_after, int64_t count);
  void (*adam)(const Adam& a, int64_t count);
  void (*axpby)(Real* y, Real alpha, const Real* x, Real beta, int64_t count);
  bool (*all_finite)(const Real* x, int64_t count);
};

// Sums of the lower 32 bits of numbers, and of the bits above them.
struct SplitSum {
  uint64_t low = 0;
  uint64_t high = 0;
};

struct StageTable {
  std::string_view name;
  StageKernels<float> fp32;
  StageKernels<double> fp64;
  void (*round_to_bf16)(uint16_t* to, const float* from, int64_t count);
  void (*round_weights)(uint16_t* to, const float* from, int64_t count);
  void (*split_masters)(uint16_t* weights, uint16_t* remainders,
                        const float* from, int64_t count);
  void (*join_masters)(float* to, const uint16_t* weights,
                       const uint16_t* remainders, int64_t count);
  void (*widen_bf16)(float* to, const uint16_t* from, int64_t count);
  void (*add)(float* sum, const float* a, const float* b, int64_t count);
  // The largest |x| as bits.
  uint32_t (*largest_bits)(const float* x, int64_t count);
  // Sets x = factor·x and returns the largest |x| afterwards.
  uint32_t (*scale_and_look)(float* x, float factor, int64_t count);
  // Sums trunc((x·scale)²), at most 2^62 each and at most 2^32 of them.
  SplitSum (*sum_squares)(const float* x, double scale, int64_t count);
};

const StageTable& portable_stages();
const StageTable& avx2_stages();    // only on x86_64
const StageTable& avx512_stages();  // only on x86_64

// Returns those that this CPU supports, best first.
std::span<const StageTable* const> usable_stages();

}  // namespace canzona::linalg
