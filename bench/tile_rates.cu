// Compares the speed of the tile products with cuBLAS's batched products of the
// same operands in the same run. Rates count useful operations: a triangle
// counts half. cuBLAS is loaded if available and always computes everything.
//
//   build-cuda/bench/tile_rates [portable]
#include <cublas_v2.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "canzona/linalg/cuda/tiles/test_tile_product.cuh"

namespace canzona {
namespace {

class Cublas {
 public:
  Cublas() {
    void* library = dlopen("libcublas.so.13", RTLD_NOW);
    if (library == nullptr) {
      std::printf("without cuBLAS: %s\n", dlerror());
      return;
    }
    auto create = reinterpret_cast<decltype(&cublasCreate_v2)>(
        dlsym(library, "cublasCreate_v2"));
    gemm_ =
        reinterpret_cast<Gemm>(dlsym(library, "cublasGemmStridedBatchedEx"));
    if (create(&handle_) != CUBLAS_STATUS_SUCCESS) gemm_ = nullptr;
  }

  bool there() const { return gemm_ != nullptr; }

  // Row-major D = op(A)·op(B) is column-major Dᵀ = op(B)ᵀ·op(A)ᵀ.
  void run(const TileProduct& p, const Tiles& d, int64_t k) const {
    const auto type = p.type == TileType::kBf16 ? CUDA_R_16BF : CUDA_R_16F;
    const float one = 1;
    const float zero = 0;
    const auto status = gemm_(
        handle_, p.order == TileOrder::kABt ? CUBLAS_OP_T : CUBLAS_OP_N,
        p.order == TileOrder::kAtB ? CUBLAS_OP_T : CUBLAS_OP_N,
        static_cast<int>(d.cols), static_cast<int>(d.rows), static_cast<int>(k),
        &one, p.b.data, type, static_cast<int>(p.b.row_stride),
        p.b.matrix_stride, p.a.data, type, static_cast<int>(p.a.row_stride),
        p.a.matrix_stride, &zero, d.data, type, static_cast<int>(d.row_stride),
        d.matrix_stride, static_cast<int>(d.count), CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error("cublasGemmStridedBatchedEx failed");
  }

 private:
  cublasHandle_t handle_ = nullptr;
  using Gemm = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t,
                                  cublasOperation_t, int, int, int, const void*,
                                  const void*, cudaDataType, int, long long,
                                  const void*, cudaDataType, int, long long,
                                  const void*, void*, cudaDataType, int,
                                  long long, int, cublasComputeType_t,
                                  cublasGemmAlgo_t);
  Gemm gemm_ = nullptr;
};

// Returns the milliseconds of `calls` consecutive calls.
float time_of(const std::function<void()>& call, int calls) {
  cudaEvent_t begin, end;
  CANZONA_MUST(cudaEventCreate(&begin));
  CANZONA_MUST(cudaEventCreate(&end));
  CANZONA_MUST(cudaEventRecord(begin));
  for (int i = 0; i < calls; ++i) call();
  CANZONA_MUST(cudaEventRecord(end));
  CANZONA_MUST(cudaEventSynchronize(end));
  float milliseconds = 0;
  CANZONA_MUST(cudaEventElapsedTime(&milliseconds, begin, end));
  CANZONA_MUST(cudaEventDestroy(begin));
  CANZONA_MUST(cudaEventDestroy(end));
  return milliseconds;
}

double median(std::vector<float> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Returns the seconds of one call of each, alternating: the chip's clock
// follows its power, so later calls find it slower.
std::pair<double, double> time_both(const std::function<void()>& ours,
                                    const std::function<void()>& theirs,
                                    int calls) {
  constexpr int kRounds = 8;
  std::vector<float> times[2];
  for (int round = 0; round < kRounds; ++round)
    for (int i = 0; i < 2; ++i) {
      const float time = time_of(i == 0 ? ours : theirs, calls);
      if (round > 0) times[i].push_back(time);
    }
  return {median(times[0]) * 1e-3 / calls, median(times[1]) * 1e-3 / calls};
}

enum class Output { kFull, kTriangle, kTriangleWithC, kFp32, kApply };
constexpr const char* kOutputs[] = {"full", "triangle", "triangle+C", "fp32",
                                    "apply+copy"};

struct Shape {
  const char* name;
  int64_t m, n, k, count;
  TileOrder order;
  Output output;
  bool square;  // A is B
};

Tiles view(const Buffer<uint16_t>& buffer, int64_t rows, int64_t cols,
           int64_t count) {
  return {reinterpret_cast<std::byte*>(buffer.get()),
          rows,
          cols,
          cols,
          count,
          rows * cols};
}

class Timing {
 public:
  Timing(const Shape& s, TileType type, TileKernel kernel)
      : s_(s),
        a_(s.count * s.m * s.k),
        b_(s.square ? 1 : s.count * s.n * s.k),
        d_(s.count * s.m * s.n),
        c_(s.output == Output::kTriangleWithC ? s.count * s.m * s.n : 1),
        floats_(has_floats() ? s.count * s.m * s.n : 1),
        weights_(s.count),
        copies_(s.count),
        scalars_(3) {
    const bool a_across = s.order == TileOrder::kAtB;
    const bool b_across = s.order != TileOrder::kABt;
    const Tiles a =
        view(a_, a_across ? s.k : s.m, a_across ? s.m : s.k, s.count);
    const Tiles b =
        view(b_, b_across ? s.k : s.n, b_across ? s.n : s.k, s.count);
    fill_tiles<<<512, 256>>>(a, type, 1);
    if (!s.square) fill_tiles<<<512, 256>>>(b, type, 2);
    product_ = {type, s.order, a, s.square ? a : b, 0.01F, kernel};
    d_tiles_ = view(d_, s.m, s.n, s.count);
    if (s.output == Output::kTriangleWithC) {
      addend_ = {view(c_, s.m, s.n, s.count), 0.5F, 1.0F};
      fill_tiles<<<512, 256>>>(addend_.c, type, 3);
    }
    scalars_.write({0.999F, 0.01F, 1.0F});
    std::vector<float*> weights;
    std::vector<uint16_t*> copies;
    for (int64_t i = 0; i < s.count; ++i) {
      weights.push_back(floats_.get() + (has_floats() ? i * s.m * s.n : 0));
      copies.push_back(d_.get() + i * s.m * s.n);
    }
    weights_.write(weights);
    copies_.write(copies);
  }

  void ours() const {
    switch (s_.output) {
      case Output::kFull:
        return tile_product(product_, d_tiles_, {}, nullptr);
      case Output::kTriangle:
      case Output::kTriangleWithC:
        return symmetric_tile_product(product_, d_tiles_, addend_, nullptr);
      case Output::kFp32:
        return tile_product_fp32(product_, weights_.get(), nullptr);
      case Output::kApply:
        return tile_product_apply(
            product_, {weights_.get(), copies_.get(), scalars_.get()}, nullptr);
    }
  }

  void print(const Cublas& cublas) const {
    const double full = 2.0 * s_.m * s_.n * s_.k * s_.count;
    const bool triangle =
        s_.output == Output::kTriangle || s_.output == Output::kTriangleWithC;
    const double useful = triangle ? full / 2 : full;
    const int calls = static_cast<int>(std::max(1.0, 8e12 / full));
    const auto [mine, theirs] =
        time_both([&] { ours(); },
                  [&] {
                    if (cublas.there()) cublas.run(product_, d_tiles_, s_.k);
                  },
                  calls);
    std::printf(
        "%-22s %-4s %-10s %4ld x %5ld %5ld %5ld  %9.1f us %6.0f  "
        "cublas full %9.1f us %6.0f  ratio %.2f\n",
        s_.name, product_.type == TileType::kBf16 ? "bf16" : "fp16",
        kOutputs[static_cast<int>(s_.output)], s_.count, s_.m, s_.n, s_.k,
        mine * 1e6, useful / mine * 1e-12, theirs * 1e6, full / theirs * 1e-12,
        theirs / mine);
  }

 private:
  bool has_floats() const {
    return s_.output == Output::kFp32 || s_.output == Output::kApply;
  }

  Shape s_;
  Buffer<uint16_t> a_, b_, d_, c_;
  Buffer<float> floats_;
  Buffer<float*> weights_;
  Buffer<uint16_t*> copies_;
  Buffer<float> scalars_;
  TileProduct product_;
  Tiles d_tiles_;
  TileAddend addend_;
};

constexpr auto kABt = TileOrder::kABt;
constexpr auto kAtB = TileOrder::kAtB;
constexpr auto kAB = TileOrder::kAB;
constexpr Shape kShapes[] = {
    {"cube", 8192, 8192, 8192, 1, kABt, Output::kFull, false},
    {"gram, wide", 2048, 2048, 6144, 16, kABt, Output::kTriangle, true},
    {"gram, tall", 2048, 2048, 6144, 16, kAtB, Output::kTriangle, true},
    {"chain", 2048, 2048, 2048, 16, kABt, Output::kTriangle, false},
    {"chain", 2048, 2048, 2048, 32, kABt, Output::kTriangle, false},
    {"chain", 2048, 2048, 2048, 32, kABt, Output::kFull, false},
    {"polynomial", 2048, 2048, 2048, 32, kABt, Output::kTriangleWithC, true},
    {"Q X", 2048, 6144, 2048, 16, kAB, Output::kFull, false},
    {"Q X", 2048, 6144, 2048, 16, kAB, Output::kFp32, false},
    {"Q X", 2048, 6144, 2048, 16, kAB, Output::kApply, false},
    {"X Q", 6144, 2048, 2048, 16, kABt, Output::kFull, false},
    {"X Q", 6144, 2048, 2048, 16, kABt, Output::kApply, false},
    {"expert gram", 768, 768, 2048, 384, kABt, Output::kTriangle, true},
    {"expert chain", 768, 768, 768, 384, kABt, Output::kTriangle, false},
    {"expert chain, full", 768, 768, 768, 384, kABt, Output::kFull, false},
    {"expert polynomial", 768, 768, 768, 384, kABt, Output::kTriangleWithC,
     true},
    {"expert Q X", 768, 2048, 768, 384, kAB, Output::kFull, false},
    {"expert Q X", 768, 2048, 768, 384, kAB, Output::kApply, false},
    {"gram, 1024", 1024, 1024, 2048, 56, kABt, Output::kTriangle, true},
    {"chain, 1024", 1024, 1024, 1024, 56, kABt, Output::kTriangle, false},
    {"gram, large", 5120, 5120, 25600, 1, kABt, Output::kTriangle, true},
    {"chain, large", 5120, 5120, 5120, 2, kABt, Output::kTriangle, false},
};

void time_all(TileKernel kernel) {
  const Cublas cublas;
  for (const TileType type : {TileType::kFp16, TileType::kBf16})
    for (const Shape& shape : kShapes) {
      if (type == TileType::kBf16 && shape.count == 384) continue;
      Timing(shape, type, kernel).print(cublas);
    }
}

}  // namespace
}  // namespace canzona

int main(int argc, char** argv) {
  const bool portable = argc > 1 && std::strcmp(argv[1], "portable") == 0;
  try {
    canzona::time_all(portable ? canzona::linalg::TileKernel::kPortable
                               : canzona::linalg::TileKernel::kAuto);
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
}
