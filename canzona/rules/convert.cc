#include "canzona/rules/convert.h"

#include <algorithm>

namespace canzona {
namespace {

template <class To, class From>
void convert_one(Matrices to, ConstMatrices from) {
  for (int64_t row = 0; row < from.rows; ++row) {
    const From* source = from.as<From>() + row * from.row_stride;
    To* target = to.as<To>() + row * to.row_stride;
    std::transform(source, source + from.cols, target,
                   [](From x) { return static_cast<To>(x); });
  }
}

template <class To>
void convert_to(Matrices to, ConstMatrices from) {
  if (from.dtype == DType::kFp64)
    convert_one<To, double>(to, from);
  else
    convert_one<To, float>(to, from);
}

template <class View>
View one_converted(Arena& arena, View from, DType dtype) {
  if (from.dtype == dtype) return from;
  const Matrices to = arena.matrices(dtype, from.rows, from.cols);
  convert(to, from);
  return to;
}

}  // namespace

void convert(Matrices to, ConstMatrices from) {
  CANZONA_CHECK(
      to.rows == from.rows && to.cols == from.cols && to.count == from.count,
      from.rows, "x", from.cols, " into ", to.rows, "x", to.cols);
  for (int64_t i = 0; i < from.count; ++i) {
    if (to.dtype == DType::kFp64)
      convert_to<double>(to.at(i), from.at(i));
    else
      convert_to<float>(to.at(i), from.at(i));
  }
}

Matrices converted(Arena& arena, Matrices from, DType dtype) {
  return one_converted(arena, from, dtype);
}

ConstMatrices converted(Arena& arena, ConstMatrices from, DType dtype) {
  return one_converted(arena, from, dtype);
}

}  // namespace canzona
