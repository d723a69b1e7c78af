// Coefficient sets for Newton–Schulz: each step maps every singular value x to
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
  // True: any number of steps makes sense; false: exactly those listed.
  bool open_ended = true;
  int usual_steps = 5;
  // The norm is multiplied by this, for sets without headroom above 1.
  double norm_factor = 1;
  // Why the set must not be used as it is; empty if it may.
  std::string_view hazard;
  // The number of steps that the Gram form may take in bf16 before it must
  // restart. Sets with little headroom above 1 tolerate no rounding of the Gram
  // matrix at all.
  int longest_segment_bf16 = 1;
  int longest_segment_fp16 = 2;
};

const std::vector<CoefficientSet>& coefficient_sets();
// Throws InternalError if there is none.
const CoefficientSet& coefficient_set(std::string_view name);

// Beyond the end of a set, its last step is repeated, or the whole set is.
enum class Overrun { kLast, kCycle };
std::vector<Coefficients> unrolled(const std::vector<Coefficients>& set,
                                   int64_t steps, Overrun overrun);

// Returns the image of one singular value under the steps, in fp64.
double composed(const std::vector<Coefficients>& steps, double x);

// Describes the first x in (0, 1.02] that the steps make negative or larger
// than 1.5; empty if there is none. Values just above 1 count because rounding
// lifts singular values above 1.
std::string first_fault(const std::vector<Coefficients>& steps);

}  // namespace canzona
