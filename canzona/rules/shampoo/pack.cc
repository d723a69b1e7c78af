#include "canzona/rules/shampoo/pack.h"

namespace canzona {
namespace {

// The last two axes of a block are a matrix, the others say which.
struct Slabs {
  int64_t rows = 1;
  int64_t cols = 1;
  int64_t row_stride = 1;  // in the tensor
  int64_t count = 1;
};

Slabs slabs_of(const Blocking& blocking, const TensorBlock& block) {
  const int last = blocking.order() - 1;
  Slabs slabs;
  slabs.cols = block.sizes[last];
  slabs.row_stride = blocking.sizes()[last];
  if (last > 0) slabs.rows = block.sizes[last - 1];
  for (int axis = 0; axis < last - 1; ++axis) slabs.count *= block.sizes[axis];
  return slabs;
}

// Where slab `number` begins in the tensor.
int64_t slab_start(const Blocking& blocking, const TensorBlock& block,
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

template <class Views, class AnyRun>
Views slab_view(AnyRun run, int64_t start, const Slabs& slabs,
                int64_t row_stride) {
  return {run.data + start * size_of(run.dtype),
          run.dtype,
          slabs.rows,
          slabs.cols,
          row_stride,
          1,
          slabs.rows * row_stride};
}

}  // namespace

void pack(Engine& engine, Run packed, ConstRun tensor, const Blocking& blocking,
          const TensorBlock& block) {
  const Slabs slabs = slabs_of(blocking, block);
  for (int64_t i = 0; i < slabs.count; ++i) {
    engine.copy(slab_view<Matrices>(packed, i * slabs.rows * slabs.cols, slabs,
                                    slabs.cols),
                slab_view<ConstMatrices>(tensor, slab_start(blocking, block, i),
                                         slabs, slabs.row_stride));
  }
}

void unpack(Engine& engine, Run tensor, ConstRun packed,
            const Blocking& blocking, const TensorBlock& block) {
  const Slabs slabs = slabs_of(blocking, block);
  for (int64_t i = 0; i < slabs.count; ++i) {
    engine.copy(slab_view<Matrices>(tensor, slab_start(blocking, block, i),
                                    slabs, slabs.row_stride),
                slab_view<ConstMatrices>(packed, i * slabs.rows * slabs.cols,
                                         slabs, slabs.cols));
  }
}

}  // namespace canzona
