// Matrices from one type of number to another, or the same.
//
//   ConstMatrices wide = in_type(engine, factor, DType::kFp64);
//   copy_as(engine, kept, found);              // rounded to nearest
#pragma once

#include <cstddef>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona {

inline void copy_as(Engine& engine, Matrices to, ConstMatrices from) {
  if (to.dtype == from.dtype)
    engine.copy(to, from);
  else
    engine.convert(to, from);
}

// A copy in the engine's arena, or the matrices themselves if that is the type
// they have.
inline ConstMatrices in_type(Engine& engine, ConstMatrices from, DType dtype) {
  if (from.dtype == dtype) return from;
  const Matrices to =
      engine.arena().matrices(dtype, from.rows, from.cols, from.count);
  engine.convert(to, from);
  return to;
}

// One matrix of an engine's memory, brought into this process for a hook that
// looks at it or replaces it.
//
//   HostCopy copy(engine, basis.at(i));
//   hook->basis(part, copy.view(), …);
//   copy.put_back();
//
// Takes from the heap and waits for the engine. A view without data gives one
// without data.

class HostCopy {
 public:
  HostCopy(Engine& engine, Matrices one);

  Matrices view();
  void put_back() const;

 private:
  Engine& engine_;
  Matrices one_;
  std::vector<std::byte> bytes_;
};

}  // namespace canzona
