// Attention in fp32, written to be right: a warp takes a row of one head and
// adds keys, or queries, one after the other. Nothing of length x length is in
// memory.
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/model/cuda/attention.h"
#include "canzona/model/cuda/lots.cuh"

namespace canzona::model::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
constexpr int kMostPerLane = 8;

__device__ void put(float* to, float x) { *to = x; }
__device__ void put(uint16_t* to, float x) {
  *to = static_cast<uint16_t>(rounded_pair(x, 0));
}

// A head's row, spread over the lanes of a warp.
struct Row {
  float at[kMostPerLane] = {};

  template <class T>
  __device__ void load(const T* from, int64_t dim) {
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i)
      if (lane() + i * kLanes < dim) at[i] = number(from[lane() + i * kLanes]);
  }
  template <class T>
  __device__ void store(T* to, int64_t dim) const {
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i)
      if (lane() + i * kLanes < dim) put(to + lane() + i * kLanes, at[i]);
  }
  __device__ void add(float factor, const Row& other) {
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) at[i] += factor * other.at[i];
  }
  __device__ void scale(float factor) {
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) at[i] *= factor;
  }
  // Every lane gets the product.
  __device__ float dot(const Row& other) const {
    float2 sum = {};
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) sum.x += at[i] * other.at[i];
    return team_sums(sum, kLanes).x;
  }
  __device__ static int64_t lane() { return threadIdx.x % kLanes; }
};

// Finds the rows of a head.
template <class T>
struct Places {
  AttentionShape shape;
  int64_t turned_cols;
  int64_t qkv_cols;
  int64_t heads;
  float scale;

  __device__ int64_t row(int64_t sequence, int64_t t) const {
    return sequence * shape.length + t;
  }
  __device__ int64_t query(int64_t token, int64_t head) const {
    return token * turned_cols + head * shape.head_dim;
  }
  __device__ int64_t key(int64_t token, int64_t group) const {
    return token * turned_cols + (heads + group) * shape.head_dim;
  }
  __device__ int64_t value(int64_t token, int64_t group) const {
    return token * qkv_cols +
           (group * (shape.per_group + 2) + shape.per_group + 1) *
               shape.head_dim;
  }
  __device__ int64_t out(int64_t token, int64_t head) const {
    return (token * heads + head) * shape.head_dim;
  }
  __device__ int64_t log_sum(int64_t sequence, int64_t head, int64_t t) const {
    return (sequence * heads + head) * shape.length + t;
  }
};

// Calls work(sequence, head or group, token of the sequence) for each warp.
template <class Work>
__device__ void for_warp(int64_t sequences, int64_t heads, int64_t length,
                         const Work& work) {
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (item >= sequences * heads * length) return;
  work(item / length / heads, item / length % heads, item % length);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    attend_kernel(AttentionCall<T> call, Places<T> places) {
  const int64_t dim = places.shape.head_dim;
  for_warp(places.shape.sequences, places.heads, places.shape.length,
           [&](int64_t sequence, int64_t head, int64_t t) {
             const int64_t group = head / places.shape.per_group;
             const int64_t token = places.row(sequence, t);
             Row q, k, v, out;
             q.load(call.turned + places.query(token, head), dim);
             float largest = -INFINITY, sum = 0;
             for (int64_t s = 0; s <= t; ++s) {
               const int64_t other = places.row(sequence, s);
               k.load(call.turned + places.key(other, group), dim);
               v.load(call.qkv + places.value(other, group), dim);
               const float score = q.dot(k) * places.scale;
               const float now = fmaxf(largest, score);
               const float keep = expf(largest - now);
               const float p = expf(score - now);
               out.scale(keep);
               out.add(p, v);
               sum = sum * keep + p;
               largest = now;
             }
             out.scale(1 / sum);
             out.store(call.out + places.out(token, head), dim);
             if (Row::lane() == 0)
               call.log_sums[places.log_sum(sequence, head, t)] =
                   largest + logf(sum);
           });
}

// dq, and for each row δ = do·o, which attend_keys_kernel reads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attend_queries_back_kernel(AttentionCall<T> call,
                               AttentionGradients<T> gradients, float* deltas,
                               Places<T> places) {
  const int64_t dim = places.shape.head_dim;
  for_warp(places.shape.sequences, places.heads, places.shape.length,
           [&](int64_t sequence, int64_t head, int64_t t) {
             const int64_t group = head / places.shape.per_group;
             const int64_t token = places.row(sequence, t);
             const int64_t place = places.log_sum(sequence, head, t);
             Row q, k, v, out, d_out, d_query;
             q.load(call.turned + places.query(token, head), dim);
             out.load(call.out + places.out(token, head), dim);
             d_out.load(gradients.out + places.out(token, head), dim);
             const float delta = d_out.dot(out);
             if (Row::lane() == 0) deltas[place] = delta;
             const float log_sum = call.log_sums[place];
             for (int64_t s = 0; s <= t; ++s) {
               const int64_t other = places.row(sequence, s);
               k.load(call.turned + places.key(other, group), dim);
               v.load(call.qkv + places.value(other, group), dim);
               const float p = expf(q.dot(k) * places.scale - log_sum);
               d_query.add(p * (d_out.dot(v) - delta) * places.scale, k);
             }
             d_query.store(gradients.turned + places.query(token, head), dim);
           });
}

// dk and dv: the queries of a group, head by head, token by token.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attend_keys_back_kernel(AttentionCall<T> call,
                            AttentionGradients<T> gradients,
                            const float* deltas, Places<T> places) {
  const int64_t dim = places.shape.head_dim;
  const int64_t per_group = places.shape.per_group;
  for_warp(places.shape.sequences, places.shape.groups, places.shape.length,
           [&](int64_t sequence, int64_t group, int64_t s) {
             const int64_t token = places.row(sequence, s);
             Row q, k, v, d_out, d_key, d_value;
             k.load(call.turned + places.key(token, group), dim);
             v.load(call.qkv + places.value(token, group), dim);
             for (int64_t head = group * per_group;
                  head < (group + 1) * per_group; ++head)
               for (int64_t t = s; t < places.shape.length; ++t) {
                 const int64_t other = places.row(sequence, t);
                 const int64_t place = places.log_sum(sequence, head, t);
                 q.load(call.turned + places.query(other, head), dim);
                 d_out.load(gradients.out + places.out(other, head), dim);
                 const float p =
                     expf(q.dot(k) * places.scale - call.log_sums[place]);
                 d_value.add(p, d_out);
                 d_key.add(p * (d_out.dot(v) - deltas[place]) * places.scale,
                           q);
               }
             d_key.store(gradients.turned + places.key(token, group), dim);
             d_value.store(gradients.qkv + places.value(token, group), dim);
           });
}

template <class T>
class PlainAttention final : public DeviceAttention<T> {
 public:
  PlainAttention(CudaEngine& engine, const AttentionShape& shape, float* deltas)
      : engine_(engine),
        places_{shape, shape.turned_cols(), shape.qkv_cols(), shape.heads(),
                1 / std::sqrt(static_cast<float>(shape.head_dim))},
        deltas_(deltas) {}

  void forward(const AttentionCall<T>& call) override {
    if (engine_.dry("decoder attention", call.turned, call.qkv, call.out,
                    call.log_sums))
      return;
    attend_kernel<<<blocks(places_.heads), kThreads, 0, engine_.stream()>>>(
        call, places_);
    check_launched("attention");
  }
  void backward(const AttentionCall<T>& call,
                const AttentionGradients<T>& gradients) override {
    if (engine_.dry("decoder attention backward", call.turned, call.qkv,
                    call.out, call.log_sums, gradients.out, gradients.turned,
                    gradients.qkv))
      return;
    attend_queries_back_kernel<<<blocks(places_.heads), kThreads, 0,
                                 engine_.stream()>>>(call, gradients, deltas_,
                                                     places_);
    check_launched("attention backward, queries");
    attend_keys_back_kernel<<<blocks(places_.shape.groups), kThreads, 0,
                              engine_.stream()>>>(call, gradients, deltas_,
                                                  places_);
    check_launched("attention backward, keys");
  }
  std::string describe() const override { return "plain attention"; }

 private:
  unsigned blocks(int64_t heads) const {
    return num_blocks(places_.shape.tokens() * heads, kWarps);
  }

  CudaEngine& engine_;
  Places<T> places_;
  float* deltas_;
};

}  // namespace

template <class T>
std::unique_ptr<DeviceAttention<T>> make_plain_attention(
    CudaEngine& engine, const AttentionShape& shape, float* deltas) {
  return std::make_unique<PlainAttention<T>>(engine, shape, deltas);
}

template std::unique_ptr<DeviceAttention<float>> make_plain_attention<float>(
    CudaEngine&, const AttentionShape&, float*);
template std::unique_ptr<DeviceAttention<uint16_t>>
make_plain_attention<uint16_t>(CudaEngine&, const AttentionShape&, float*);

}  // namespace canzona::model::gpu
