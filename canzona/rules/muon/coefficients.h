// Coefficient sets of Newton–Schulz: each step maps every singular value x to
// a·x + b·x³ + c·x⁵.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace canzona {

struct Coefficients {
  double a = 0;
  double b = 0;
  double c = 0;
  friend bool operator==(const Coefficients&, const Coefficients&) = default;
};

struct CoefficientSet {
  std::string_view name;
  std::vector<Coefficients> steps;
  // Any number of steps makes sense; otherwise exactly those listed.
  bool open_ended = true;
  int usual_steps = 5;
  // The norm is enlarged by this factor, for sets without room above 1.
  double norm_factor = 1;
  // The reason why the set must not be used as it is; empty: it may.
  std::string_view hazard;
  // The Gram form may take this many steps in bf16 before it must start anew.
  // Sets with little room above 1 stand no rounding of the Gram matrix at all.
  int longest_segment_bf16 = 1;
  int longest_segment_fp16 = 2;
};

const std::vector<CoefficientSet>& coefficient_sets();
// InternalError if there is none.
const CoefficientSet& coefficient_set(std::string_view name);

// After the last of a set it is repeated, or all of them are.
enum class Overrun { kLast, kCycle };
std::vector<Coefficients> unrolled(const std::vector<Coefficients>& set,
                                   int64_t steps, Overrun overrun);

// Returns what the steps make of one singular value, in fp64.
double composed(const std::vector<Coefficients>& steps, double x);

// The first x in (0, 1.02] that the steps turn round (below zero) or blow up
// (above 1.5), as a sentence; empty if there is none. Rounding lifts singular
// values above 1, so what happens just there counts.
std::string first_fault(const std::vector<Coefficients>& steps);

}  // namespace canzona
