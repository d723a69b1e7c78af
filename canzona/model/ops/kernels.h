// All loops of table.h. Included once per instruction set by a file that names
// its table.
#pragma once

#include "canzona/model/ops/cross_entropy.h"
#include "canzona/model/ops/norm.h"
#include "canzona/model/ops/soften.h"
#include "canzona/model/ops/swiglu.h"
#include "canzona/model/ops/table.h"

namespace canzona {
namespace {

template <class Real>
constexpr Ops<Real> make_ops() {
  return {add_kernel<Real>,          norm_kernel<Real>,
          add_norm_kernel<Real>,     norm_backward_kernel<Real>,
          turn_kernel<Real>,         turn_backward_kernel<Real>,
          swiglu_kernel<Real>,       swiglu_backward_kernel<Real>,
          soften_kernel<Real>,       soften_backward_kernel<Real>,
          finish_heads_kernel<Real>, gather_heads_kernel<Real>,
          row_largest_kernel<Real>,  row_exponents_kernel<Real>,
          row_shares_kernel<Real>};
}

constexpr OpTable make_op_table(std::string_view name) {
  return {name, make_ops<float>(), make_ops<double>()};
}

}  // namespace
}  // namespace canzona
