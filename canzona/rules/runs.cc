#include "canzona/rules/runs.h"

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"

namespace canzona::rules {

HostCopy::HostCopy(Engine& engine, Matrices one) : engine_(engine), one_(one) {
  if (one.data == nullptr) return;
  CANZONA_CHECK(one.count == 1 && one.contiguous(), one.count, " matrices of ",
                one.rows, "x", one.cols, ", ", one.row_stride, " apart");
  bytes_.resize(static_cast<size_t>(one.elements() * size_of(one.dtype)));
  engine_.download(bytes_.data(), one.data, std::ssize(bytes_));
}

Matrices HostCopy::view() {
  Matrices here = one_;
  if (one_.data != nullptr) here.data = bytes_.data();
  return here;
}

void HostCopy::put_back() const {
  if (one_.data == nullptr) return;
  engine_.upload(one_.data, bytes_.data(), std::ssize(bytes_));
}

void on_host(Engine& engine, std::span<const Run> runs, int64_t count,
             const std::function<void(std::span<float* const>)>& work) {
  const DeviceKind* kind = find_device_kind(engine.kind());
  const bool here = kind != nullptr && !kind->has_own_memory;
  const int64_t bytes = count * size_of(DType::kFp32);
  std::vector<std::vector<float>> copies;
  std::vector<float*> addresses;
  if (here) engine.synchronize();
  for (const Run& run : runs) {
    CANZONA_CHECK(run.dtype == DType::kFp32, to_string(run.dtype));
    if (here) {
      addresses.push_back(reinterpret_cast<float*>(run.data));
      continue;
    }
    std::vector<float>& copy = copies.emplace_back(static_cast<size_t>(count));
    engine.download(reinterpret_cast<std::byte*>(copy.data()), run.data, bytes);
    addresses.push_back(copy.data());
  }
  work(addresses);
  for (size_t i = 0; i < copies.size(); ++i)
    engine.upload(runs[i].data,
                  reinterpret_cast<const std::byte*>(copies[i].data()), bytes);
}

namespace {

// Outer index `outer` of each tensor, as a length x inner matrix.
template <class AnyRun>
auto at_place(AnyRun run, const AxisView& view, int64_t outer, int64_t count) {
  const int64_t slab = view.length * view.inner;
  auto each =
      as_matrices(advanced(run, outer * slab), view.length, view.inner, count);
  each.matrix_stride = view.outer * slab;
  return each;
}

// The innermost axis runs along the rows of one outer x length matrix.
template <class AnyRun>
auto as_rows(AnyRun run, const AxisView& view, int64_t count) {
  return as_matrices(run, view.outer, view.length, count);
}

}  // namespace

AxisView view_along(std::span<const int64_t> dims, int axis) {
  CANZONA_CHECK(axis >= 0 && axis < static_cast<int>(dims.size()), "axis ",
                axis, " of ", dims.size());
  const auto along = static_cast<size_t>(axis);
  AxisView view;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i < along) view.outer *= dims[i];
    if (i == along) view.length = dims[i];
    if (i > along) view.inner *= dims[i];
  }
  return view;
}

void add_statistics(Engine& engine, Matrices f, double keep, double add,
                    ConstRun g, std::span<const int64_t> dims, int axis) {
  const AxisView view = view_along(dims, axis);
  if (view.inner == 1) {
    engine.symmetric_product(f, add, as_rows(g, view, f.count), Op::kTranspose,
                             keep);
    return;
  }
  for (int64_t o = 0; o < view.outer; ++o)
    engine.symmetric_product(f, add, at_place(g, view, o, f.count), Op::kNone,
                             o == 0 ? keep : 1.0);
}

void rotate(Engine& engine, Run to, ConstRun from,
            std::span<const int64_t> dims, int axis, ConstMatrices q, Op op) {
  const AxisView view = view_along(dims, axis);
  if (view.inner == 1) {
    const Op other = op == Op::kNone ? Op::kTranspose : Op::kNone;
    engine.product(as_rows(to, view, q.count), 1.0,
                   as_rows(from, view, q.count), Op::kNone, q, other, 0.0);
    return;
  }
  for (int64_t o = 0; o < view.outer; ++o)
    engine.product(at_place(to, view, o, q.count), 1.0, q, op,
                   at_place(from, view, o, q.count), Op::kNone, 0.0);
}

void permute(Engine& engine, Run to, ConstRun from,
             std::span<const int64_t> dims, int axis, ConstOrders orders) {
  const AxisView view = view_along(dims, axis);
  if (view.inner == 1) {
    engine.permute_columns(as_rows(to, view, orders.count),
                           as_rows(from, view, orders.count), orders);
    return;
  }
  const auto slabs = [&](auto run) {
    return as_matrices(run, view.length, view.inner, orders.count * view.outer);
  };
  engine.permute_rows(slabs(to), slabs(from), orders);
}

namespace {

// The last two axes of a block form a plane; the others index the planes.
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

// Returns where plane `number` begins in the tensor.
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

// Plane `number` of each tensor's block.
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

}  // namespace canzona::rules
