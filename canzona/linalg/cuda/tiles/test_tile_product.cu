// Checks the tile products against fp64 on a GPU, in all orders and outputs,
// including odd sizes: values, exact symmetry, untouched padding, equal bits in
// and out of a batch, and the update of weights operation by operation.
//
//   canzona_cuda_tiles_test [auto|hopper|portable]
//
// Prints one line per failure and a count; exits 1 if there was one.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "canzona/linalg/cuda/tiles/test_tile_product.cuh"
#include "canzona/linalg/cuda/tiles/test_tile_product_folds.cuh"
#include "canzona/linalg/cuda/tiles/test_tile_product_strips.cuh"

namespace canzona::linalg {
namespace {

struct Case {
  int64_t m, n, k, count;
  TileOrder order;
  TileType type;
  TileKernel kernel;
  bool same = false;  // B is A

  bool a_across() const { return order == TileOrder::kAtB; }
  bool b_across() const { return order != TileOrder::kABt; }
  double unit() const { return type == TileType::kBf16 ? 0x1p-8 : 0x1p-11; }
};

int failures = 0;
int checks = 0;

void expect(bool good, const Case& c, const char* what, int64_t where,
            double got, double wanted) {
  ++checks;
  if (good) return;
  if (++failures > 20) return;
  std::printf(
      "FAILED %s: %ld of %ld x %ld x %ld, order %d, type %d, at %ld: "
      "%g, not %g\n",
      what, c.count, c.m, c.n, c.k, static_cast<int>(c.order),
      static_cast<int>(c.type), where, got, wanted);
}

class Checker {
 public:
  explicit Checker(const Case& c)
      : c_(c),
        a_(c.a_across() ? c.k : c.m, c.a_across() ? c.m : c.k, c.count),
        b_(c.b_across() ? c.k : c.n, c.b_across() ? c.n : c.k, c.count),
        addend_(c.m, c.n, c.count) {
    a_.randomize(c.type, 1);
    b_.randomize(c.type, 2);
    addend_.randomize(c.type, 3);
    product_ = {c.type, c.order, a_.tiles(), b().tiles(), 0.75F, c.kernel};
    Buffer<Sums> sums(c.count * c.m * c.n);
    const dim3 grid(static_cast<unsigned>((c.n + 127) / 128),
                    static_cast<unsigned>(c.m), static_cast<unsigned>(c.count));
    reference<<<grid, 128>>>(product_, c.m, c.n, c.k, sums.get());
    CANZONA_MUST(cudaDeviceSynchronize());
    sums_ = sums.read();
    c_bits_ = addend_.read();
  }

  void run() {
    check_halves(false, false);
    check_halves(false, true);
    if (c_.m == c_.n) {
      check_halves(true, false);
      check_halves(true, true);
    }
    check_floats();
  }

 private:
  const Stack& b() const { return c_.same ? a_ : b_; }

  void check_halves(bool triangle, bool with_addend) {
    const Stack d(c_.m, c_.n, c_.count);
    TileAddend addend;
    if (with_addend) addend = {addend_.tiles(), -1.25F, 3.5F};
    launch(d.tiles(), product_, addend, triangle);
    CANZONA_MUST(cudaDeviceSynchronize());
    const auto bits = d.read();
    check_values(bits, d.tiles(), addend, triangle);
    check_padding(bits, d.tiles());
    check_alone(bits, addend, triangle);
  }

  static void launch(const Tiles& d, const TileProduct& product,
                     const TileAddend& addend, bool triangle) {
    if (triangle)
      symmetric_tile_product(product, d, addend, nullptr);
    else
      tile_product(product, d, addend, nullptr);
  }

  void check_values(const std::vector<uint16_t>& bits, const Tiles& d,
                    const TileAddend& addend, bool triangle) const {
    for (int64_t i = 0; i < c_.count * c_.m * c_.n; ++i) {
      const int64_t matrix = i / (c_.m * c_.n);
      const int64_t row = i / c_.n % c_.m;
      const int64_t col = i % c_.n;
      const auto at = [&](int64_t r, int64_t c) {
        return static_cast<size_t>(matrix * d.matrix_stride + r * d.row_stride +
                                   c);
      };
      if (triangle && col > row) {
        expect(bits[at(row, col)] == bits[at(col, row)], c_, "symmetry", i,
               bits[at(row, col)], bits[at(col, row)]);
        continue;
      }
      const Sums sums = sums_[static_cast<size_t>(i)];
      double wanted = product_.alpha * sums.sum;
      double size = sums.size;
      if (addend.c.data != nullptr) {
        const double c = to_float(c_bits_[at(row, col)], c_.type);
        wanted += addend.beta * c;
        size += std::fabs(addend.beta * c);
      }
      if (row == col) wanted += addend.diagonal;
      const double got = to_float(bits[at(row, col)], c_.type);
      expect(std::fabs(got - wanted) <=
                 std::fabs(wanted) * c_.unit() + size * 0x1p-18,
             c_, triangle ? "triangle" : "full", i, got, wanted);
    }
  }

  void check_padding(const std::vector<uint16_t>& bits, const Tiles& d) const {
    for (size_t i = 0; i < bits.size(); ++i) {
      const int64_t inside = static_cast<int64_t>(i) % d.matrix_stride;
      // Anything may be written up to the next multiple of 8 columns.
      if (inside / d.row_stride < d.rows &&
          inside % d.row_stride < (d.cols + 7) / 8 * 8)
        continue;
      expect(bits[i] == 0xFFFF, c_, "padding", static_cast<int64_t>(i), bits[i],
             0xFFFF);
    }
  }

  // The last matrix alone gives the same bits.
  void check_alone(const std::vector<uint16_t>& bits, TileAddend addend,
                   bool triangle) const {
    const int64_t last = c_.count - 1;
    const Stack alone(c_.m, c_.n, 1);
    TileProduct product = product_;
    product.a = aligned(a_, last);
    product.b = c_.same ? product.a : aligned(b_, last);
    if (addend.c.data != nullptr) addend.c = aligned(addend_, last);
    launch(alone.tiles(), product, addend, triangle);
    CANZONA_MUST(cudaDeviceSynchronize());
    const auto single = alone.read();
    const auto start = static_cast<size_t>(last * alone.tiles().matrix_stride);
    for (size_t i = 0; i < single.size(); ++i)
      expect(single[i] == bits[start + i], c_, "alone", static_cast<int64_t>(i),
             single[i], bits[start + i]);
    for (std::byte* copy : copies_) cudaFree(copy);
    copies_.clear();
  }

  // Copies a matrix, because one inside a stack need not be 128-byte aligned.
  Tiles aligned(const Stack& stack, int64_t i) const {
    Tiles one = stack.one(i);
    std::byte* copy = nullptr;
    const auto bytes = static_cast<size_t>(2 * one.matrix_stride);
    CANZONA_MUST(cudaMalloc(&copy, bytes));
    CANZONA_MUST(cudaMemcpy(copy, one.data, bytes, cudaMemcpyDeviceToDevice));
    one.data = copy;
    copies_.push_back(copy);
    return one;
  }

  void check_floats() const {
    const int64_t elements = c_.m * c_.n;
    // Separated by an odd number of elements, so that some are only 4-byte
    // aligned.
    const int64_t apart = elements + 1 + elements % 2;
    Buffer<float> o(c_.count * apart, 0xFF);
    Buffer<float> p(c_.count * apart);
    Buffer<uint16_t> copy(c_.count * apart, 0xFF);
    fill_floats<<<512, 256>>>(p.get(), p.count(), 4);
    const auto before = p.read();
    Buffer<float*> outs(c_.count);
    Buffer<float*> weights(c_.count);
    Buffer<uint16_t*> copies(c_.count);
    const Buffer<float> scalars(4);
    // Some products are rounded to bf16 before they are applied.
    const std::vector<float> values = {0.999F, 0.0213F, 1.0101F,
                                       c_.m % 3 == 1 ? 1.0F : 0.0F};
    scalars.write(values);
    outs.write(addresses(o, apart));
    weights.write(addresses(p, apart));
    copies.write(addresses(copy, apart));
    tile_product_fp32(product_, outs.get(), nullptr);
    tile_product_apply(product_, {weights.get(), copies.get(), scalars.get()},
                       nullptr);
    CANZONA_MUST(cudaDeviceSynchronize());
    compare_floats(o.read(), before, p.read(), copy.read(), values, apart);
  }

  template <class T>
  std::vector<T*> addresses(const Buffer<T>& buffer, int64_t apart) const {
    std::vector<T*> all;
    for (int64_t i = 0; i < c_.count; ++i)
      all.push_back(buffer.get() + i * apart);
    return all;
  }

  void compare_floats(const std::vector<float>& o,
                      const std::vector<float>& before,
                      const std::vector<float>& after,
                      const std::vector<uint16_t>& copy,
                      const std::vector<float>& scalars, int64_t apart) const {
    const int64_t elements = c_.m * c_.n;
    for (int64_t i = 0; i < c_.count * apart; ++i) {
      const auto at = static_cast<size_t>(i);
      const int64_t inside = i % apart;
      if (inside >= elements) {
        expect(
            after[at] == before[at] && copy[at] == 0xFFFF && std::isnan(o[at]),
            c_, "between matrices", i, after[at], before[at]);
        continue;
      }
      const Sums sums =
          sums_[static_cast<size_t>(i / apart * elements + inside)];
      const double wanted = product_.alpha * sums.sum;
      expect(std::fabs(o[at] - wanted) <= sums.size * 0x1p-18, c_, "fp32", i,
             o[at], wanted);
      volatile float kept = before[at] * scalars[0];
      const float update =
          scalars[3] == 0
              ? o[at]
              : to_float(to_bits(o[at], TileType::kBf16), TileType::kBf16);
      volatile float step = scalars[1] * update;
      volatile float moved = kept - step;
      const float p = moved * scalars[2];
      expect(after[at] == p, c_, "weights", i, after[at], p);
      const uint16_t rounded = to_bits(p, TileType::kBf16);
      expect(copy[at] == rounded, c_, "copy", i, copy[at], rounded);
    }
  }

  Case c_;
  Stack a_, b_, addend_;
  TileProduct product_;
  std::vector<Sums> sums_;
  std::vector<uint16_t> c_bits_;
  mutable std::vector<std::byte*> copies_;
};

void check_all(TileKernel kernel) {
  const int64_t shapes[][4] = {
      {1, 1, 1, 1},       {8, 8, 8, 2},        {64, 64, 64, 1},
      {63, 65, 67, 3},    {65, 65, 31, 2},     {130, 258, 70, 2},
      {256, 256, 256, 1}, {300, 521, 200, 3},  {513, 513, 129, 2},
      {640, 640, 512, 3}, {1000, 1000, 100, 1}};
  for (const auto& s : shapes)
    for (const TileOrder order :
         {TileOrder::kABt, TileOrder::kAtB, TileOrder::kAB})
      for (const TileType type : {TileType::kFp16, TileType::kBf16}) {
        Case one{s[0], s[1], s[2], s[3], order, type, kernel};
        Checker(one).run();
        one.same = s[0] == s[1] && order != TileOrder::kAB;
        if (one.same) Checker(one).run();
      }
}

void check_folds(TileKernel kernel) {
  if (!folds(kernel)) return;
  const int64_t shapes[][3] = {{40, 70, 2},   {256, 300, 2},  {300, 330, 3},
                               {513, 600, 2}, {768, 1100, 9}, {1100, 1100, 1},
                               {768, 770, 90}};
  for (const auto& s : shapes)
    for (const TileType type : {TileType::kFp16, TileType::kBf16}) {
      const Case c{s[0], s[1], s[0], s[2], TileOrder::kABt, type, kernel};
      FoldChecker(
          s[0], s[1], s[2], type, kernel,
          [&](const char* what, int64_t place, uint16_t got, uint16_t wanted) {
            expect(got == wanted, c, what, place, got, wanted);
          })
          .run();
    }
}

void check_strips(const int64_t (&s)[3], int strips, TileType type,
                  TileKernel kernel) {
  for (const bool across : {false, true}) {
    const TileOrder order = across ? TileOrder::kAtB : TileOrder::kABt;
    const Case c{s[0], s[0], s[1], s[2], order, type, kernel};
    StripChecker(
        s[0], s[1], s[2], across, strips, type, kernel,
        [&](bool good, const char* what, int64_t place, double got,
            double wanted) { expect(good, c, what, place, got, wanted); })
        .run();
  }
}

void check_strips(TileKernel kernel) {
  const int64_t shapes[][3] = {{1, 520, 2},   {64, 512, 3},   {70, 777, 2},
                               {257, 600, 2}, {300, 1100, 3}, {640, 1024, 2}};
  for (const auto& s : shapes)
    for (const int strips : {1, 2, 4, 8})
      for (const TileType type : {TileType::kFp16, TileType::kBf16})
        check_strips(s, strips, type, kernel);
  // This gives more blocks than a GPU computes at a time.
  check_strips({300, 1100, 90}, 4, TileType::kFp16, kernel);
}

TileKernel kernel_of(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "hopper") == 0)
    return TileKernel::kHopper;
  if (argc > 1 && std::strcmp(argv[1], "portable") == 0)
    return TileKernel::kPortable;
  return TileKernel::kAuto;
}

}  // namespace
}  // namespace canzona::linalg

int main(int argc, char** argv) {
  try {
    canzona::linalg::check_all(canzona::linalg::kernel_of(argc, argv));
    canzona::linalg::check_folds(canzona::linalg::kernel_of(argc, argv));
    canzona::linalg::check_strips(canzona::linalg::kernel_of(argc, argv));
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
  std::printf("%d checks, %d failures\n", canzona::linalg::checks,
              canzona::linalg::failures);
  return canzona::linalg::failures == 0 ? 0 : 1;
}
