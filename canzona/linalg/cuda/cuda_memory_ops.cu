// Collectives work on GPU memory with kernels and copies, each on a stream of
// the calling thread and awaited; or, on a lane, on the lane's own stream
// without waiting.
#include <cuda_runtime.h>

#include <algorithm>

#include "canzona/linalg/cuda/cuda_words.h"
#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/cuda/elements.cuh"
#include "canzona/linalg/memory.h"

namespace canzona::linalg {
namespace {

// When a process exits the driver may already be gone, and the stream with it.
class OpsStream {
 public:
  explicit OpsStream(bool waits) : waits_(waits) {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&num_multiprocessors_,
                                      cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
    // A lane's work is short and others wait for it, so it has the highest
    // priority.
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
               "cudaDeviceGetStreamPriorityRange");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                            waits ? least : greatest),
               "cudaStreamCreateWithPriority");
  }
  ~OpsStream() { cudaStreamDestroy(stream_); }
  OpsStream(const OpsStream&) = delete;
  OpsStream& operator=(const OpsStream&) = delete;

  cudaStream_t stream() const { return stream_; }
  int num_multiprocessors() const { return num_multiprocessors_; }
  // Ends a call: it is complete or, on a lane, enqueued.
  void end_call() const {
    if (waits_)
      check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  bool waits_;
  cudaStream_t stream_ = nullptr;
  int num_multiprocessors_ = 0;
};

const OpsStream& thread_stream() {
  thread_local const OpsStream stream(true);
  return stream;
}

struct Plus {
  __device__ float operator()(float a, float b) const { return add(a, b); }
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};
struct Larger {
  __device__ int64_t operator()(int64_t a, int64_t b) const {
    return a > b ? a : b;
  }
};

template <class T, class Join>
struct JoinRuns {
  T* to;
  const T* a;
  const T* b;

  template <int V>
  __device__ void at(int64_t, int64_t j) const {
    auto x = load<V>(a + j);
    const auto y = load<V>(b + j);
    for (int t = 0; t < V; ++t) x.x[t] = Join{}(x.x[t], y.x[t]);
    store<V>(to + j, x);
  }
  __device__ JoinRuns of(int64_t) const { return *this; }
};

struct WidenBf16 {
  float* to;
  const uint16_t* from;

  template <int V>
  __device__ void at(int64_t, int64_t j) const {
    const auto narrow = load<V>(from + j);
    Vector<float, V> wide;
    for (int t = 0; t < V; ++t)
      wide.x[t] = __uint_as_float(static_cast<uint32_t>(narrow.x[t]) << 16);
    store<V>(to + j, wide);
  }
  __device__ WidenBf16 of(int64_t) const { return *this; }
};

template <int V, class Work>
void work_on(const OpsStream& stream, const char* name, const Work& work,
             int64_t count, bool vectors) {
  if (count <= 0) return;
  launch_elements<V>(stream, name, work, {1, count, 1}, vectors);
  stream.end_call();
}

// Sums of many pieces in registers, in the order of base/sum_order.h.

constexpr int kMostPieces = 64;
constexpr int kGroup = 8;   // a complete subtree
constexpr int kLevels = 4;  // above groups
static_assert(kMostPieces / kGroup < 1 << kLevels);

template <int V>
__device__ Vector<float, V> widened(const Vector<float, V>& values) {
  return values;
}
template <int V>
__device__ Vector<float, V> widened(const Vector<uint16_t, V>& values) {
  Vector<float, V> wide;
  for (int t = 0; t < V; ++t)
    wide.x[t] = __uint_as_float(static_cast<uint32_t>(values.x[t]) << 16);
  return wide;
}

// The pieces are passed as a kernel argument. Those in fp32 may have to be
// rounded to bf16 first.
template <class T, bool kRounded = false>
struct TreePieces {
  const T* at[kMostPieces];
  int count;

  template <int V>
  __device__ Vector<float, V> load_at(int piece, int64_t j) const {
    auto values = load<V>(at[piece] + j);
    if constexpr (kRounded)
      for (int t = 0; t < V; ++t)
        values.x[t] =
            __uint_as_float(static_cast<uint32_t>(to_bf16(values.x[t])) << 16);
    return widened(values);
  }
};

template <int V>
__device__ Vector<float, V> added(const Vector<float, V>& a,
                                  const Vector<float, V>& b) {
  Vector<float, V> sum;
  for (int t = 0; t < V; ++t) sum.x[t] = add(a.x[t], b.x[t]);
  return sum;
}

__host__ __device__ constexpr int left_half(int count) {
  int half = 1;
  while (2 * half < count) half *= 2;
  return half;
}

// Adds pieces [first, first + N).
template <int V, int N, class Pieces>
__device__ Vector<float, V> subtree(const Pieces& pieces, int first,
                                    int64_t j) {
  if constexpr (N == 1) {
    return pieces.template load_at<V>(first, j);
  } else {
    constexpr int kLeft = left_half(N);
    const auto left = subtree<V, kLeft>(pieces, first, j);
    return added(left, subtree<V, N - kLeft>(pieces, first + kLeft, j));
  }
}

// Handles the pieces after the complete groups.
template <int V, int N, class Pieces>
__device__ Vector<float, V> rest_of(const Pieces& pieces, int first,
                                    int64_t j) {
  if constexpr (N == kGroup) {
    return {};
  } else {
    if (pieces.count - first == N) return subtree<V, N>(pieces, first, j);
    return rest_of<V, N + 1>(pieces, first, j);
  }
}

// Adds V elements from j on. Groups are combined like the digits of a binary
// counter.
template <int V, class Pieces>
__device__ void add_tree_at(float* sum, const Pieces& pieces, int64_t j) {
  const int groups = pieces.count / kGroup;
  Vector<float, V> partial[kLevels];
  for (int g = 0; g < groups; ++g) {
    auto joined = subtree<V, kGroup>(pieces, g * kGroup, j);
    bool placed = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (placed) continue;
      if ((g >> level) & 1) {
        joined = added(partial[level], joined);
      } else {
        partial[level] = joined;
        placed = true;
      }
    }
  }
  Vector<float, V> total{};
  bool has_total = groups * kGroup < pieces.count;
  if (has_total) total = rest_of<V, 1>(pieces, groups * kGroup, j);
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    if (((groups >> level) & 1) == 0) continue;
    total = has_total ? added(partial[level], total) : partial[level];
    has_total = true;
  }
  store<V>(sum + j, total);
}

// The pieces are read where they were passed, in the argument space.
template <int V, class Pieces>
__global__ void __launch_bounds__(256)
    add_tree_kernel(float* sum, const __grid_constant__ Pieces pieces,
                    int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x * V;
  for (int64_t j = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * V;
       j < count; j += step) {
    if (j + V <= count) {
      add_tree_at<V>(sum, pieces, j);
    } else {
      for (int64_t t = j; t < count; ++t) add_tree_at<1>(sum, pieces, t);
    }
  }
}

template <bool kRounded, class T>
bool add_tree_of(const OpsStream& stream, float* sum,
                 std::span<const T* const> pieces, int64_t count) {
  if (pieces.empty() || pieces.size() > kMostPieces) return false;
  if (count <= 0) return true;
  constexpr int kWide = kVector<T>;
  constexpr int kThreads = 256;
  TreePieces<T, kRounded> arguments{{}, static_cast<int>(pieces.size())};
  bool aligned = is_aligned(sum, kWide * sizeof(float));
  for (size_t i = 0; i < pieces.size(); ++i) {
    arguments.at[i] = pieces[i];
    aligned = aligned && is_aligned(pieces[i], kWide * sizeof(T));
  }
  const int64_t per_block = kThreads * (aligned ? kWide : 1);
  const int64_t most = kBlocksPerMultiprocessor * stream.num_multiprocessors();
  const auto blocks = static_cast<unsigned>(
      std::min((count + per_block - 1) / per_block, 8 * most));
  if (aligned)
    add_tree_kernel<kWide>
        <<<blocks, kThreads, 0, stream.stream()>>>(sum, arguments, count);
  else
    add_tree_kernel<1>
        <<<blocks, kThreads, 0, stream.stream()>>>(sum, arguments, count);
  check_cuda(cudaGetLastError(), "add_tree");
  stream.end_call();
  return true;
}

template <class T, class Join>
void join(const OpsStream& stream, const char* name, T* to, const T* a,
          const T* b, int64_t count) {
  work_on<kVector<T>>(
      stream, name, JoinRuns<T, Join>{to, a, b}, count,
      is_aligned(to, 16) && is_aligned(a, 16) && is_aligned(b, 16));
}

class CudaStreamOps : public MemoryOps {
 public:
  bool is_host() const override { return false; }
  std::byte* allocate(int64_t bytes) const override {
    return cuda_memory().allocate(bytes);
  }
  void release(std::byte* memory) const override {
    cuda_memory().release(memory);
  }

  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    if (bytes <= 0) return;
    check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                               cudaMemcpyDefault, line().stream()),
               "cudaMemcpyAsync");
    line().end_call();
  }

  void add_fp32(float* sum, const float* a, const float* b,
                int64_t count) const override {
    join<float, Plus>(line(), "add_fp32", sum, a, b, count);
  }
  void add_int64(int64_t* sum, const int64_t* a, const int64_t* b,
                 int64_t count) const override {
    join<uint64_t, Plus>(line(), "add_int64", reinterpret_cast<uint64_t*>(sum),
                         reinterpret_cast<const uint64_t*>(a),
                         reinterpret_cast<const uint64_t*>(b), count);
  }
  void max_int64(int64_t* larger, const int64_t* a, const int64_t* b,
                 int64_t count) const override {
    join<int64_t, Larger>(line(), "max_int64", larger, a, b, count);
  }

  void to_bf16(uint16_t* to, const float* from, int64_t count) const override {
    const RoundToBf16 work{to, from};
    work_on<4>(line(), "to_bf16", work, count, work.allows_vectors());
  }
  void from_bf16(float* to, const uint16_t* from,
                 int64_t count) const override {
    work_on<4>(line(), "from_bf16", WidenBf16{to, from}, count,
               is_aligned(to, 16) && is_aligned(from, 8));
  }

  bool add_tree(float* sum, std::span<const float* const> pieces,
                int64_t count) const override {
    return add_tree_of<false>(line(), sum, pieces, count);
  }
  bool add_tree(float* sum, std::span<const uint16_t* const> pieces,
                int64_t count) const override {
    return add_tree_of<false>(line(), sum, pieces, count);
  }
  bool add_rounded_tree(float* sum, std::span<const float* const> pieces,
                        int64_t count) const override {
    return add_tree_of<true>(line(), sum, pieces, count);
  }
  int most_tree_pieces() const override { return kMostPieces; }

 protected:
  virtual const OpsStream& line() const = 0;
};

class CudaMemoryOps final : public CudaStreamOps {
  const OpsStream& line() const override { return thread_stream(); }
};

class CudaLane final : public MemoryLane {
 public:
  CudaLane() = default;
  // Work in flight may still use its words.
  ~CudaLane() override {
    if (!words_.empty()) cudaStreamSynchronize(ops_.own.stream());
  }
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  const MemoryOps& ops() const override { return ops_; }
  std::unique_ptr<Event> make_event() const override {
    return make_cuda_event();
  }
  std::unique_ptr<Event> make_timed_event() const override {
    return make_timed_cuda_event();
  }
  void record_in(Event& event) override {
    record_cuda_event(event, ops_.own.stream());
  }
  void wait_until(const Event& event) override {
    wait_for_cuda_event(event, ops_.own.stream());
  }
  std::atomic<uint32_t>& make_word() override { return words_.make(); }
  void write(std::atomic<uint32_t>& word, uint32_t value) override {
    CudaWords::write(ops_.own.stream(), word, value);
  }
  void wait_until(const std::atomic<uint32_t>& word, uint32_t value) override {
    CudaWords::wait(ops_.own.stream(), word, value);
  }
  void* native() override { return ops_.own.stream(); }

 private:
  struct LaneOps final : CudaStreamOps {
    const OpsStream& line() const override { return own; }
    OpsStream own{false};
  };
  LaneOps ops_;
  CudaWords words_;
};

}  // namespace

std::unique_ptr<MemoryLane> make_cuda_lane() {
  return std::make_unique<CudaLane>();
}

}  // namespace canzona::linalg

namespace canzona {
using namespace linalg;

const MemoryOps& cuda_memory_ops() {
  static const CudaMemoryOps ops;
  cuda_device_info();  // throws UsageError if there is none
  return ops;
}

}  // namespace canzona
