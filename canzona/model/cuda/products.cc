#include "canzona/model/cuda/products.h"

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/libraries.h"

namespace canzona::model::gpu {
namespace {

template <class T>
constexpr DType kDType = sizeof(T) == 2 ? DType::kBf16 : DType::kFp32;

template <class Byte, class T>
BasicMatrices<Byte> rows_of(T* data, int64_t rows, int64_t cols,
                            int64_t stride) {
  BasicMatrices<Byte> m;
  m.data = reinterpret_cast<Byte*>(data);
  m.dtype = kDType<std::remove_const_t<T>>;
  m.rows = rows;
  m.cols = cols;
  m.row_stride = stride;
  m.count = 1;
  m.matrix_stride = rows * stride;
  return m;
}

// The algorithm assumes that rows begin at multiples of 16 bytes.
template <class View>
void check_wide(const View& m) {
  CANZONA_CHECK(reinterpret_cast<uintptr_t>(m.data) % 16 == 0 &&
                    m.row_stride * size_of(m.dtype) % 16 == 0,
                "a matrix of the decoder begins at ",
                reinterpret_cast<uintptr_t>(m.data) % 16,
                " bytes after a multiple of 16, its rows are ", m.row_stride,
                " apart");
}

}  // namespace

template <class T>
void Products<T>::run(std::string_view name, const Matrices& c,
                      const ConstMatrices& a, Op op_a, const ConstMatrices& b,
                      Op op_b, const float* beta,
                      const ConstMatrices* addend) const {
  check_wide(c);
  check_wide(a);
  check_wide(b);
  const ProductShape shape{.in = a.dtype,
                           .out = c.dtype,
                           .m = c.rows,
                           .n = c.cols,
                           .k = op_a == Op::kNone ? a.cols : a.rows,
                           .op_a = op_a,
                           .op_b = op_b,
                           .wide_a = true,
                           .wide_b = true,
                           .wide_c = true,
                           .is_alone = true};
  LtProducts& products = engine_.lt_products();
  products.prepare(shape);
  const ConstMatrices added = addend == nullptr ? ConstMatrices(c) : *addend;
  if (engine_.dry(name, c, a, b, added, beta)) return;
  products.run(shape, c, one_, a, b, beta, &added);
}

template <class T>
void Products<T>::apply(T* y, const T* x, const Map<T>& map, int64_t rows,
                        const T* addend) const {
  const auto to = rows_of<std::byte>(y, rows, map.out, map.out_stride);
  const auto from = rows_of<const std::byte>(x, rows, map.in, map.in);
  const auto weight =
      rows_of<const std::byte>(map.weight, map.out, map.in, map.in);
  if (addend == nullptr)
    return run("decoder product forward", to, from, Op::kNone, weight,
               Op::kTranspose, zero_);
  const auto added =
      rows_of<const std::byte>(addend, rows, map.out, map.out_stride);
  run("decoder product forward", to, from, Op::kNone, weight, Op::kTranspose,
      one_, &added);
}

template <class T>
void Products<T>::apply_transposed(T* dx, const T* dy, const Map<T>& map,
                                   int64_t rows) const {
  run("decoder product dx", rows_of<std::byte>(dx, rows, map.in, map.in),
      rows_of<const std::byte>(dy, rows, map.out, map.out_stride), Op::kNone,
      rows_of<const std::byte>(map.weight, map.out, map.in, map.in), Op::kNone,
      zero_);
}

template <class T>
void Products<T>::add_gradient(float* gradient, const T* dy, const T* x,
                               const Map<T>& map, int64_t rows) const {
  run("decoder product dw",
      rows_of<std::byte>(gradient, map.out, map.in, map.in),
      rows_of<const std::byte>(dy, rows, map.out, map.out_stride),
      Op::kTranspose, rows_of<const std::byte>(x, rows, map.in, map.in),
      Op::kNone, one_);
}

template class Products<float>;
template class Products<uint16_t>;

}  // namespace canzona::model::gpu
