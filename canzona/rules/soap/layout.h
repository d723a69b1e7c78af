// How SOAP sees a tensor: its axes after merging, which of them have a factor,
// the blocks that long axes are cut into, and where all of that lies in the
// states. One list of states for facts and arithmetic alike:
//
//   exp_avg, exp_avg_sq                     as the tensor; the first if beta1
//   per axis L, Q_L (, eigenvalues_L)       factor, basis, its eigenvalues
//   grafting_avg_sq                         as the tensor, if grafting
//   refresh_failures                        one number per factor
//
// Axes of a matrix or vector are called L and R, those of other tensors 0, 1,
// 2 (F_0, Q_0). Where sides are cut, factors of equal length are one stack, in
// the order of blocks, the last dim running fastest; those of shorter blocks at
// the end of an axis are named "…_edge".
//
// Nothing here allocates: a layout is made anew for every call.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/rules/factor_layout.h"
#include "canzona/rules/soap/options.h"

namespace canzona {

class SoapLayout {
 public:
  // UsageError if the tensor has too many dims or counts do not fit 64 bits.
  SoapLayout(const SoapOptions& options, std::span<const int64_t> dims);

  const FactorLayout& factors() const { return factors_; }
  const Blocking& blocking() const { return factors_.blocking(); }

  // Places in the list of states.
  int exp_avg_sq() const { return exp_avg_sq_; }
  int grafting() const { return factors_.end_state(); }
  int refresh_failures() const { return refresh_failures_; }

 private:
  int exp_avg_sq_;
  FactorLayout factors_;  // each with its basis and perhaps eigenvalues
  int refresh_failures_;
};

}  // namespace canzona
