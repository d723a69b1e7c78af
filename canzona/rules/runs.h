// Runs of elements seen as matrices, along an axis, or as blocks.
//
//   Matrices row = as_row(update, count);
//   Run second = advanced(states, elements);        // of the next tensor
//   Matrices q = as_matrices(bases, n, n, 4).at(3)  // the last of four
//
// Views own nothing; the caller knows what a run holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/stages.h"
#include "canzona/rules/blocks.h"

namespace canzona::rules {

// The run starting at element `elements`.
template <class AnyRun>
AnyRun advanced(AnyRun run, int64_t elements) {
  return {run.data + elements * size_of(run.dtype), run.dtype};
}

// Contiguous matrices.
inline Matrices as_matrices(Run run, int64_t rows, int64_t cols,
                            int64_t count = 1) {
  return {run.data, run.dtype, rows, cols, cols, count, rows * cols, nullptr};
}
inline ConstMatrices as_matrices(ConstRun run, int64_t rows, int64_t cols,
                                 int64_t count = 1) {
  return {run.data, run.dtype, rows, cols, cols, count, rows * cols, nullptr};
}

// The matrix at one place of each of `count` contiguous stacks.
struct StackShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stack = 1;
};
inline Matrices across_stacks(Run run, const StackShape& shape, int64_t place,
                              int64_t count) {
  const auto [rows, cols, stack] = shape;
  const int64_t apart = stack * rows * cols;
  Matrices each = as_matrices(run, rows, cols, stack).at(place);
  each.count = count;
  each.matrix_stride = apart;
  return each;
}

inline Matrices as_row(Run run, int64_t count) {
  return as_matrices(run, 1, count);
}
inline ConstMatrices as_row(ConstRun run, int64_t count) {
  return as_matrices(run, 1, count);
}

// Copies and converts matrices between types.
//
//   ConstMatrices wide = in_type(engine, factor, DType::kFp64);
//   copy_as(engine, kept, found);              // rounds to nearest

inline void copy_as(Engine& engine, Matrices to, ConstMatrices from) {
  if (to.dtype == from.dtype)
    engine.copy(to, from);
  else
    engine.convert(to, from);
}

// Returns `from` itself if it has that type, else a copy in the engine's arena.
inline ConstMatrices in_type(Engine& engine, ConstMatrices from, DType dtype) {
  if (from.dtype == dtype) return from;
  const Matrices to =
      engine.arena().matrices(dtype, from.rows, from.cols, from.count);
  engine.convert(to, from);
  return to;
}

// A host copy of one matrix in an engine's memory, for a hook that inspects or
// replaces it.
//
//   HostCopy copy(engine, basis.at(i));
//   hook->basis(part, copy.view(), …);
//   copy.put_back();
//
// Allocates on the heap and waits for the engine. A view without data gives a
// copy without data.
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

// Does an element-wise stage of a rule's own, for which engines have no call.
//
//   on_host(engine, {momentum, update}, count, [&](std::span<float* const> x) {
//     for (int64_t i = 0; i < count; ++i) x[1][i] = std::tanh(x[0][i]);
//   });
//
// `work` gets the fp32 runs, `count` elements each, in this process's memory. A
// CPU has them there; those of another device are copied here and back, and the
// call waits. So a rule with a new stage runs on every device at once, and the
// engines need not know of it until a kernel makes it fast.
void on_host(Engine& engine, std::span<const Run> runs, int64_t count,
             const std::function<void(std::span<float* const>)>& work);
inline void on_host(Engine& engine, std::initializer_list<Run> runs,
                    int64_t count,
                    const std::function<void(std::span<float* const>)>& work) {
  on_host(engine, std::span(runs.begin(), runs.size()), count, work);
}

// Operations along one axis of a tensor. A contiguous tensor, seen along an
// axis of length d, is `outer` contiguous matrices of d x inner elements. For a
// matrix, axis 0 has outer 1 and axis 1 has inner 1.
//
//   add_statistics(engine, f, beta, 1 - beta, g, dims, axis)   F = beta F + …
//   rotate(engine, to, from, dims, axis, q, Op::kTranspose)    Qᵀ on that axis
//
// There are as many tensors, contiguous in memory, as matrices `f` or `q`, or
// orders. `dims` are those of one tensor. Each tensor's result depends on that
// tensor alone. No function allocates.

struct AxisView {
  int64_t outer = 1;
  int64_t length = 1;
  int64_t inner = 1;
};
AxisView view_along(std::span<const int64_t> dims, int axis);

// F = keep·F + add·(sum of G_o·G_oᵀ over the outer index): F is length x length
// and stays exactly symmetric.
void add_statistics(Engine& engine, Matrices f, double keep, double add,
                    ConstRun g, std::span<const int64_t> dims, int axis);

// to = op(Q) applied to every fibre of `from` along the axis. `to` and `from`
// must not be the same run.
void rotate(Engine& engine, Run to, ConstRun from,
            std::span<const int64_t> dims, int axis, ConstMatrices q, Op op);

// Reorders slices along the axis: slice i of `to` is slice order[i] of `from`,
// which is another run. Orders are in the engine's memory.
void permute(Engine& engine, Run to, ConstRun from,
             std::span<const int64_t> dims, int axis, ConstOrders orders);

// Copies between a tensor and one of its blocks (blocks.h), whose elements are
// contiguous in a run of their own.
//
//   copy_out(engine, room, grad, blocking, block);
//   …                                              work on the room
//   copy_back(engine, grad, room, blocking, block);
//
// `count` tensors are contiguous, and so are their blocks. Nothing allocates.
// `room` and the tensors do not overlap and have the same type.

void copy_out(Engine& engine, Run room, ConstRun tensor,
              const Blocking& blocking, const TensorBlock& block,
              int64_t count = 1);
void copy_back(Engine& engine, Run tensor, ConstRun room,
               const Blocking& blocking, const TensorBlock& block,
               int64_t count = 1);

}  // namespace canzona::rules
