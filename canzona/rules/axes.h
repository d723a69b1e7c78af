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
#pragma once

#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/rules/blocks.h"

namespace canzona {

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

}  // namespace canzona
