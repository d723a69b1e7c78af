#include "canzona/rules/block_copy.h"

#include "canzona/rules/runs.h"

namespace canzona {
namespace {

// The last two axes of a block are a plane, the others say which.
struct Planes {
  int64_t rows = 1;
  int64_t cols = 1;
  int64_t row_stride = 1;  // in the tensor
  int64_t count = 1;

  int64_t elements() const { return rows * cols; }
};

Planes planes_of(const Blocking& blocking, const TensorBlock& block) {
  const int last = blocking.order() - 1;
  Planes planes;
  planes.cols = block.sizes[last];
  planes.row_stride = blocking.sizes()[last];
  if (last > 0) planes.rows = block.sizes[last - 1];
  for (int axis = 0; axis < last - 1; ++axis) planes.count *= block.sizes[axis];
  return planes;
}

// Where plane `number` begins in the tensor.
int64_t plane_start(const Blocking& blocking, const TensorBlock& block,
                    int64_t number) {
  int64_t start = 0;
  int64_t stride = 1;
  for (int axis = blocking.order(); axis-- > 0;) {
    int64_t at = block.start[axis];
    if (axis < blocking.order() - 2) {
      at += number % block.sizes[axis];
      number /= block.sizes[axis];
    }
    start += at * stride;
    stride *= blocking.sizes()[axis];
  }
  return start;
}

// Plane `number` of the block of each tensor.
template <class AnyRun>
auto in_room(AnyRun room, const Planes& planes, int64_t number, int64_t count) {
  auto view = as_matrices(advanced(room, number * planes.elements()),
                          planes.rows, planes.cols, count);
  view.matrix_stride = planes.count * planes.elements();
  return view;
}

template <class AnyRun>
auto in_tensor(AnyRun tensor, const Blocking& blocking,
               const TensorBlock& block, int64_t number, int64_t count) {
  const Planes planes = planes_of(blocking, block);
  auto view =
      as_matrices(advanced(tensor, plane_start(blocking, block, number)),
                  planes.rows, planes.cols, count);
  view.row_stride = planes.row_stride;
  view.matrix_stride = blocking.elements();
  return view;
}

}  // namespace

void copy_out(Engine& engine, Run room, ConstRun tensor,
              const Blocking& blocking, const TensorBlock& block,
              int64_t count) {
  const Planes planes = planes_of(blocking, block);
  for (int64_t i = 0; i < planes.count; ++i)
    engine.copy(in_room(room, planes, i, count),
                in_tensor(tensor, blocking, block, i, count));
}

void copy_back(Engine& engine, Run tensor, ConstRun room,
               const Blocking& blocking, const TensorBlock& block,
               int64_t count) {
  const Planes planes = planes_of(blocking, block);
  for (int64_t i = 0; i < planes.count; ++i)
    engine.copy(in_tensor(tensor, blocking, block, i, count),
                in_room(room, planes, i, count));
}

}  // namespace canzona
