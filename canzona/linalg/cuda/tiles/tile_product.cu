#include "canzona/linalg/cuda/tiles/tile_product.h"

#include <limits>
#include <string_view>

#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/cuda/tiles/kernel_choice.h"
#include "canzona/linalg/cuda/tiles/tile_product_task.h"

namespace canzona::linalg {
namespace {

void check_layout(const Tiles& tiles, const char* name) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
  if (reinterpret_cast<uintptr_t>(tiles.data) % 128 != 0)
    throw UsageError(cat("tile product: ", name,
                         " must be aligned to 128 bytes, but lies at ",
                         static_cast<const void*>(tiles.data)));
  if (tiles.row_stride % 8 != 0 || tiles.row_stride < tiles.cols ||
      (tiles.count > 1 &&
       (tiles.matrix_stride % 8 != 0 || tiles.matrix_stride < 1)))
    throw UsageError(cat("tile product: strides of ", name,
                         " must be multiples of 8 and hold its ", tiles.cols,
                         " columns, but are ", tiles.row_stride, " and ",
                         tiles.matrix_stride));
  if (tiles.rows < 1 || tiles.cols < 1 || tiles.rows > kMost ||
      tiles.cols > kMost)
    throw UsageError(cat("tile product: ", name, " is ", tiles.rows, " x ",
                         tiles.cols, "; expected sides from 1 to ", kMost));
}

void check_shape(const Tiles& tiles, const char* name, int64_t rows,
                 int64_t cols, int64_t count) {
  if (tiles.data == nullptr)
    throw UsageError(cat("tile product: ", name, " is missing"));
  if (tiles.rows != rows || tiles.cols != cols || tiles.count != count)
    throw UsageError(cat("tile product: ", name, " must be ", count, " of ",
                         rows, " x ", cols, ", but is ", tiles.count, " of ",
                         tiles.rows, " x ", tiles.cols));
  check_layout(tiles, name);
}

TileTask make_task(const TileProduct& product) {
  const bool a_across = product.order == TileOrder::kAtB;
  const bool b_across = product.order != TileOrder::kABt;
  TileTask task;
  task.product = product;
  const Tiles& a = product.a;
  const Tiles& b = product.b;
  task.m = a_across ? a.cols : a.rows;
  task.k = a_across ? a.rows : a.cols;
  task.n = b_across ? b.cols : b.rows;
  task.count = a.count;
  check_shape(a, "A", a.rows, a.cols, task.count);
  check_shape(b, "B", b_across ? task.k : task.n, b_across ? task.n : task.k,
              task.count);
  return task;
}

// True if the Hopper kernel has loops for these folds.
bool folds_are_known(const TileTask& task) {
  const bool a = task.product.a.folded;
  const bool b = task.product.b.folded;
  const TileOrder order = task.product.order;
  if (task.triangle) return a == b && (order == TileOrder::kABt || !a);
  return !task.d.folded && (order == TileOrder::kAB || !a) &&
         (order == TileOrder::kABt || !b);
}

void check_folds(const TileTask& task) {
  if (!folds_are_known(task))
    throw UsageError(
        "tile product: no kernel reads these folded operands; see "
        "symmetric_tile_product for those that may be folded");
  for (const Tiles* tiles : {&task.product.a, &task.product.b})
    if (tiles->folded && tiles->rows != tiles->cols)
      throw UsageError(
          cat("tile product: a folded matrix must be square, but is ",
              tiles->rows, " x ", tiles->cols));
}

void check_strips(const TileTask& task) {
  const TileStrips& strips = task.product.strips;
  const bool known = strips.count == 1 || strips.count == 2 ||
                     strips.count == 4 || strips.count == 8;
  if (!known)
    throw UsageError(
        cat("tile product: ", strips.count, " strips, expected 1, 2, 4 or 8"));
  if (!task.in_strips()) return;
  if (task.addend.c.data != nullptr || task.addend.diagonal != 0 ||
      task.floats.scalars != nullptr || task.product.a.folded ||
      task.product.b.folded || task.product.order == TileOrder::kAB)
    throw UsageError(
        "tile product: strips do not support addends, weights, folded operands "
        "or the order kAB");
  if (strips.count > 1 && strips.scratch == nullptr)
    throw UsageError("tile product: strips need scratch, but it is null");
  for (int s = 0; s < strips.count; ++s) {
    const int64_t end = s + 1 < strips.count ? strips.at[s + 1] : task.k;
    if (strips.at[s] % 64 != 0 || strips.at[s] >= end ||
        (s == 0 && strips.at[0] != 0))
      throw UsageError(cat("tile product: strip ", s, " from ", strips.at[s],
                           " to ", end, " of ", task.k,
                           "; expected a multiple of 64 below its end"));
  }
}

bool use_hopper(TileKernel kernel) {
  if (kernel != TileKernel::kAuto) return kernel == TileKernel::kHopper;
  if (kernel_choice() == KernelChoice::kPortable) return false;
  const int major = tile_device_attribute(cudaDevAttrComputeCapabilityMajor);
  if (kernel_choice() == KernelChoice::kTiles && major != 9)
    throw UsageError(
        cat("CANZONA_KERNELS=tiles needs a GPU of compute capability 9.0, this "
            "one has ",
            major, ".x; leave it out"));
  return major == 9;
}

// Blocks of the result are numbered with 32 bits.
void check_size(const TileTask& task) {
  constexpr int64_t kSide = 128;
  const int64_t rows = (task.m + kSide - 1) / kSide;
  const int64_t cols = (task.n + kSide - 1) / kSide;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
  if (rows > kMost / cols / task.count)
    throw UsageError(cat("tile product: ", task.count, " results of ", task.m,
                         " x ", task.n, " are too many for one call"));
}

void run(const TileTask& task, cudaStream_t stream) {
  if (task.count < 1) return;
  check_size(task);
  check_folds(task);
  check_strips(task);
  if (use_hopper(task.product.kernel))
    run_tile_task_hopper(task, stream);
  else
    run_tile_task_portable(task, stream);
}

void run_halves(const TileProduct& product, const Tiles& d,
                const TileAddend& addend, bool triangle, cudaStream_t stream) {
  TileTask task = make_task(product);
  task.d = d;
  task.addend = addend;
  task.triangle = triangle;
  check_shape(d, "D", task.m, task.n, task.count);
  if (addend.c.data != nullptr)
    check_shape(addend.c, "C", task.m, task.n, task.count);
  if (triangle && task.m != task.n)
    throw UsageError(cat("tile product: a symmetric D must be square, but is ",
                         task.m, " x ", task.n));
  run(task, stream);
}

}  // namespace

int64_t tile_strip_floats(int strips) {
  int64_t places = 0;
  for (int s = strips; s > 1; s /= 2) ++places;
  return places * StripTree::kFloatsPerProcessor * tile_multiprocessors();
}

StripTree StripTree::make(const TileTask& task, int64_t step) {
  const TileStrips& strips = task.product.strips;
  StripTree tree{strips.count, {}, strips.scratch};
  for (int s = 0; s < strips.count; ++s) {
    const int64_t end = s + 1 < strips.count ? strips.at[s + 1] : task.k;
    tree.ends[s] = static_cast<int32_t>((end + step - 1) / step);
  }
  return tree;
}

KernelChoice kernel_choice() {
  static const KernelChoice choice = [] {
    const char* text = environment_variable("CANZONA_KERNELS");
    const std::string_view word = text == nullptr ? "auto" : text;
    if (word == "auto") return KernelChoice::kAuto;
    if (word == "tiles") return KernelChoice::kTiles;
    if (word == "portable") return KernelChoice::kPortable;
    if (word == "cublas") return KernelChoice::kCublas;
    throw UsageError(cat("CANZONA_KERNELS is ", quoted(word),
                         ", expected auto, tiles, portable or cublas"));
  }();
  return choice;
}

bool uses_cublas() {
  if (kernel_choice() != KernelChoice::kAuto)
    return kernel_choice() == KernelChoice::kCublas;
  return tile_device_attribute(cudaDevAttrComputeCapabilityMajor) != 9;
}

const char* kernel_name() {
  if (uses_cublas()) return "products by cuBLAS";
  return use_hopper(TileKernel::kAuto) ? "tiles for 9.0" : "portable tiles";
}

void check_tile_call(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would report it
  throw InternalError(cat(what, ": ", cudaGetErrorString(status)));
}

int tile_multiprocessors() {
  int device = 0;
  check_tile_call(cudaGetDevice(&device), "cudaGetDevice");
  return usable_multiprocessors(device);
}

int tile_device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  check_tile_call(cudaGetDevice(&device), "cudaGetDevice");
  check_tile_call(cudaDeviceGetAttribute(&value, attribute, device),
                  "cudaDeviceGetAttribute");
  return value;
}

void tile_product(const TileProduct& product, const Tiles& d,
                  const TileAddend& addend, cudaStream_t stream) {
  run_halves(product, d, addend, false, stream);
}

void symmetric_tile_product(const TileProduct& product, const Tiles& d,
                            const TileAddend& addend, cudaStream_t stream) {
  run_halves(product, d, addend, true, stream);
}

void tile_product_fp32(const TileProduct& product, float* const* out,
                       cudaStream_t stream) {
  TileTask task = make_task(product);
  if (out == nullptr) throw UsageError("tile product: out is null");
  task.floats.weights = out;
  run(task, stream);
}

void symmetric_tile_product_fp32(const TileProduct& product, float* const* out,
                                 cudaStream_t stream) {
  TileTask task = make_task(product);
  if (out == nullptr) throw UsageError("tile product: out is null");
  if (task.m != task.n)
    throw UsageError(cat("tile product: a symmetric O must be square, but is ",
                         task.m, " x ", task.n));
  task.floats.weights = out;
  task.triangle = true;
  run(task, stream);
}

void tile_product_apply(const TileProduct& product, const TileWeights& weights,
                        cudaStream_t stream) {
  TileTask task = make_task(product);
  if (weights.weights == nullptr || weights.scalars == nullptr)
    throw UsageError("tile product: weights or their scalars are null");
  task.floats = weights;
  run(task, stream);
}

}  // namespace canzona::linalg
