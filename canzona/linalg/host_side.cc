#include "canzona/linalg/host_side.h"

#include <typeinfo>

#include "canzona/base/check.h"

namespace canzona::linalg {
namespace {

// Calls work(offset there, offset here, bytes) for the pieces of a layout that
// are contiguous on both sides.
template <class Layout, class Work>
void for_each_piece(const Layout& layout, const Work& work) {
  Layout pieces = layout;
  if (layout.row_stride == layout.row_bytes || layout.rows == 1) {
    pieces.row_bytes = layout.rows * layout.row_bytes;
    pieces.rows = 1;
  }
  if (layout.rows * pieces.row_bytes == 0) return;
  for (int64_t k = 0; k < pieces.count; ++k)
    for (int64_t i = 0; i < pieces.rows; ++i)
      work(k * pieces.matrix_stride + i * pieces.row_stride,
           k * layout.matrix_stride_here() + i * pieces.row_bytes,
           pieces.row_bytes);
}

}  // namespace

// A CPU engine that left a call to its own host side would never end.
HostSide::HostSide(Engine& device) : device_(device), cpu_(make_cpu_engine()) {
  const Engine& cpu = *cpu_;
  CANZONA_CHECK(typeid(cpu) != typeid(device),
                "the CPU engine lacks a call that other devices leave to it");
}

int64_t HostSide::Layout::matrix_stride_here() const {
  constexpr int64_t kAlignment = 64;
  return (rows * row_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <class Byte>
HostSide::Layout HostSide::layout_of(const BasicMatrices<Byte>& there) {
  CANZONA_CHECK(there.places == nullptr, "scattered matrices");
  const int64_t each = size_of(there.dtype);
  return {there.cols * each, there.rows, there.row_stride * each, there.count,
          there.matrix_stride * each};
}

template <class Byte>
BasicMatrices<Byte> HostSide::as_copied(BasicMatrices<Byte> there, Byte* here) {
  BasicMatrices<Byte> copied = there;
  copied.data = here;
  copied.row_stride = there.cols;
  copied.matrix_stride =
      layout_of(there).matrix_stride_here() / size_of(there.dtype);
  return copied;
}

ConstMatrices HostSide::in(ConstMatrices there) {
  return as_copied(there, read(there.data, layout_of(there)));
}

Matrices HostSide::both(Matrices there) {
  in(ConstMatrices(there));
  return out(there);
}

Matrices HostSide::out(Matrices there) {
  return as_copied(there, write(there.data, layout_of(there)));
}

ConstOrders HostSide::in(ConstOrders there) {
  const Layout layout = flat(there.length * there.count * 8);
  there.data = reinterpret_cast<const int64_t*>(
      read(reinterpret_cast<const std::byte*>(there.data), layout));
  return there;
}

Orders HostSide::out(Orders there) {
  const Layout layout = flat(there.length * there.count * 8);
  there.data = reinterpret_cast<int64_t*>(
      write(reinterpret_cast<std::byte*>(there.data), layout));
  return there;
}

ConstRun HostSide::in(ConstRun there, int64_t count) {
  return {read(there.data, flat(count * size_of(there.dtype))), there.dtype};
}

Run HostSide::both(Run there, int64_t count) {
  in(ConstRun(there), count);
  return out(there, count);
}

Run HostSide::out(Run there, int64_t count) {
  return {write(there.data, flat(count * size_of(there.dtype))), there.dtype};
}

const float* HostSide::in(const float* there, int64_t count) {
  return reinterpret_cast<const float*>(in(run_of(there), count).data);
}

uint16_t* HostSide::out(uint16_t* there, int64_t count) {
  const Run run = {reinterpret_cast<std::byte*>(there), DType::kBf16};
  return reinterpret_cast<uint16_t*>(out(run, count).data);
}

const std::byte* HostSide::read(const std::byte* there, const Layout& layout) {
  if (there == nullptr) return nullptr;
  Copy& copy = copy_of(there, layout);
  if (!copy.is_fetched)
    for_each_piece(layout, [&](int64_t from, int64_t to, int64_t bytes) {
      device_.download(copy.here + to, there + from, bytes);
    });
  copy.is_fetched = true;
  return copy.here;
}

std::byte* HostSide::write(std::byte* there, const Layout& layout) {
  if (there == nullptr) return nullptr;
  Copy& copy = copy_of(there, layout);
  copy.back = there;
  return copy.here;
}

HostSide::Copy& HostSide::copy_of(const std::byte* there,
                                  const Layout& layout) {
  for (Copy& copy : copies_)
    if (copy.there == there && copy.layout == layout) return copy;
  Copy& copy = copies_.emplace_back();
  copy.there = there;
  copy.layout = layout;
  copy.here = cpu_->arena().take(layout.count * layout.matrix_stride_here());
  return copy;
}

void HostSide::put_back() {
  for (const Copy& copy : copies_)
    if (copy.back != nullptr)
      for_each_piece(copy.layout, [&](int64_t to, int64_t from, int64_t bytes) {
        device_.upload(copy.back + to, copy.here + from, bytes);
      });
}

}  // namespace canzona::linalg
