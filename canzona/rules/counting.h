// Counting what one matrix costs. Shapes come from files, so a count may not
// fit 64 bits; what the caller sees then is the rule and the matrix.
#pragma once

#include <string_view>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"

namespace canzona {

inline bool is_empty(MatrixShape shape) {
  return shape.rows == 0 || shape.cols == 0;
}

// a·b·c, checked.
inline Flops cubic(int64_t a, int64_t b, int64_t c) { return Flops(a) * b * c; }

// The result of `count`; its UsageError gets the rule and the matrix in front.
template <class Count>
auto count_for(std::string_view rule, MatrixShape shape, const Count& count) {
  try {
    if (shape.rows < 0 || shape.cols < 0) throw UsageError("negative side");
    return count();
  } catch (const UsageError& error) {
    throw UsageError(
        cat("rule ", rule, ", matrix ", to_string(shape), ": ", error.what()));
  }
}

// The states that `make` returns, once it is sure that their bytes can be
// counted.
template <class Make>
std::vector<StateFact> states_for(std::string_view rule, MatrixShape shape,
                                  const Make& make) {
  return count_for(rule, shape, [&] {
    std::vector<StateFact> states = make();
    Bytes total;
    for (const StateFact& state : states) total += state.bytes();
    return states;
  });
}

}  // namespace canzona
