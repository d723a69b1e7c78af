#include "canzona/rules/soap/block_copy.h"

namespace canzona {
namespace {

// The last two axes are a matrix; planes are what the others count.
struct Planes {
  int64_t rows = 1;
  int64_t cols = 1;
  int64_t tensor_stride = 1;  // from row to row
  int64_t count = 1;
};

Planes planes_of(const SoapLayout& layout, const SoapBlock& block) {
  const auto last = static_cast<size_t>(block.order - 1);
  Planes planes;
  planes.cols = block.length[last];
  planes.tensor_stride = layout.axis(block.order - 1).length;
  if (last > 0) planes.rows = block.length[last - 1];
  for (size_t i = 0; i + 1 < last; ++i) planes.count *= block.length[i];
  return planes;
}

// The first element of a plane in the tensor.
int64_t plane_start(const SoapLayout& layout, const SoapBlock& block,
                    int64_t plane) {
  int64_t start = 0;
  int64_t stride = 1;
  for (int i = block.order - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    int64_t coordinate = block.start[at];
    if (i < block.order - 2) {
      coordinate += plane % block.length[at];
      plane /= block.length[at];
    }
    start += coordinate * stride;
    stride *= layout.axis(i).length;
  }
  return start;
}

template <class Views, class AnyRun>
Views plane_of(AnyRun run, int64_t start, const Planes& planes,
               int64_t row_stride) {
  return {run.data + start * size_of(run.dtype),
          run.dtype,
          planes.rows,
          planes.cols,
          row_stride,
          1,
          planes.rows * row_stride};
}

}  // namespace

void copy_out(Engine& engine, Run block_run, ConstRun tensor,
              const SoapLayout& layout, const SoapBlock& block) {
  const Planes planes = planes_of(layout, block);
  for (int64_t i = 0; i < planes.count; ++i)
    engine.copy(plane_of<Matrices>(block_run, i * planes.rows * planes.cols,
                                   planes, planes.cols),
                plane_of<ConstMatrices>(tensor, plane_start(layout, block, i),
                                        planes, planes.tensor_stride));
}

void copy_back(Engine& engine, Run tensor, ConstRun block_run,
               const SoapLayout& layout, const SoapBlock& block) {
  const Planes planes = planes_of(layout, block);
  for (int64_t i = 0; i < planes.count; ++i)
    engine.copy(
        plane_of<Matrices>(tensor, plane_start(layout, block, i), planes,
                           planes.tensor_stride),
        plane_of<ConstMatrices>(block_run, i * planes.rows * planes.cols,
                                planes, planes.cols));
}

}  // namespace canzona
