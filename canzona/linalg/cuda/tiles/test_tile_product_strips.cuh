// Checks strips of the inner dimension. The expected bits are those of each
// strip multiplied alone, added on the host by halves, then scaled and rounded
// there.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>

#include "canzona/linalg/cuda/tiles/test_tile_product.cuh"

namespace canzona::linalg {
namespace {

class StripChecker {
 public:
  using Expect = std::function<void(bool good, const char* what, int64_t place,
                                    double got, double wanted)>;

  StripChecker(int64_t side, int64_t k, int64_t count, bool across, int strips,
               TileType type, TileKernel kernel, Expect expect)
      : side_(side),
        k_(k),
        count_(count),
        across_(across),
        type_(type),
        expect_(std::move(expect)),
        x_(across ? k : side, across ? side : k, count),
        scratch_(std::max<int64_t>(tile_strip_floats(strips), 1), 0xFF) {
    x_.randomize(type, 9);
    product_ = {type,       across ? TileOrder::kAtB : TileOrder::kABt,
                x_.tiles(), x_.tiles(),
                0.75F,      kernel};
    product_.strips.count = strips;
    product_.strips.scratch = scratch_.get();
    for (int s = 0; s < strips; ++s)
      product_.strips.at[s] = k * s / strips / 64 * 64;
    sums_ = sum_of(0, strips);
  }

  void run() const {
    check_halves(false);
    check_halves(true);
    check_floats(false);
    check_floats(true);
  }

 private:
  // Here alpha is 1, because it is applied after the sum.
  std::vector<float> sum_of(int begin, int end) const {
    if (end - begin > 1) {
      const int middle = (begin + end) / 2;
      std::vector<float> sum = sum_of(begin, middle);
      const std::vector<float> right = sum_of(middle, end);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
      return sum;
    }
    const int64_t first = product_.strips.at[begin];
    const int64_t last =
        end < product_.strips.count ? product_.strips.at[end] : k_;
    TileProduct alone = product_;
    alone.alpha = 1;
    alone.strips = {};
    alone.a.data += 2 * first * (across_ ? alone.a.row_stride : 1);
    (across_ ? alone.a.rows : alone.a.cols) = last - first;
    alone.b = alone.a;
    return floats(
        [&](float* const* out) { tile_product_fp32(alone, out, nullptr); });
  }

  template <class Launch>
  std::vector<float> floats(const Launch& launch) const {
    const Buffer<float> o(count_ * side_ * side_, 0xFF);
    const Buffer<float*> outs(count_);
    std::vector<float*> places;
    for (int64_t i = 0; i < count_; ++i)
      places.push_back(o.get() + i * side_ * side_);
    outs.write(places);
    launch(outs.get());
    CANZONA_MUST(cudaDeviceSynchronize());
    return o.read();
  }

  void check_halves(bool triangle) const {
    const Stack d(side_, side_, count_);
    if (triangle)
      symmetric_tile_product(product_, d.tiles(), {}, nullptr);
    else
      tile_product(product_, d.tiles(), {}, nullptr);
    CANZONA_MUST(cudaDeviceSynchronize());
    const auto bits = d.read();
    for_elements([&](int64_t matrix, int64_t row, int64_t col, float sum) {
      const int64_t at =
          matrix * d.tiles().matrix_stride + row * d.tiles().row_stride + col;
      const uint16_t got = bits[static_cast<size_t>(at)];
      const uint16_t wanted = to_bits(product_.alpha * sum, type_);
      expect_(got == wanted, triangle ? "strips, triangle" : "strips", at, got,
              wanted);
    });
  }

  void check_floats(bool triangle) const {
    const auto got = floats([&](float* const* out) {
      if (triangle)
        symmetric_tile_product_fp32(product_, out, nullptr);
      else
        tile_product_fp32(product_, out, nullptr);
    });
    for_elements([&](int64_t matrix, int64_t row, int64_t col, float sum) {
      if (triangle && col > row) return;
      const int64_t at = (matrix * side_ + row) * side_ + col;
      const float value = got[static_cast<size_t>(at)];
      const float wanted = product_.alpha * sum;
      expect_(std::memcmp(&value, &wanted, sizeof(float)) == 0,
              triangle ? "strips in fp32, triangle" : "strips in fp32", at,
              value, wanted);
    });
  }

  template <class Check>
  void for_elements(const Check& check) const {
    for (int64_t i = 0; i < count_ * side_ * side_; ++i)
      check(i / side_ / side_, i / side_ % side_, i % side_,
            sums_[static_cast<size_t>(i)]);
  }

  int64_t side_, k_, count_;
  bool across_;
  TileType type_;
  Expect expect_;
  Stack x_;
  Buffer<float> scratch_;
  TileProduct product_;
  std::vector<float> sums_;
};

}  // namespace
}  // namespace canzona::linalg
