#include "canzona/model/cuda/lots.cuh"
#include "canzona/model/cuda/stages.h"

namespace canzona::model::gpu {
namespace {

constexpr int kThreads = 256;

// A team of lanes, a power of two, takes a head. A lane has a lot of the head's
// first half and their partners in the rotation, from the second.
struct Halves {
  Lot low, high;

  template <class T>
  __device__ void load(const T* head, int64_t half) {
    low = high = {};
    if (place() >= half) return;
    low = load_lot(head + place());
    high = load_lot(head + half + place());
  }
  template <class T>
  __device__ void store(T* head, int64_t half) const {
    if (place() >= half) return;
    store_lot(head + place(), low);
    store_lot(head + half + place(), high);
  }
  __device__ static int64_t place() { return int64_t{threadIdx.x} * kLot; }
};

// The angles of a token; `sign` -1 turns back.
__device__ void rotate(Halves& head, const float* cosines, const float* sines,
                       int64_t half, float sign) {
  if (Halves::place() >= half) return;
  const Lot c = load_lot(cosines + Halves::place()),
            s = load_lot(sines + Halves::place());
  for (int i = 0; i < kLot; ++i) {
    const float a = head.low.at[i], b = head.high.at[i];
    head.low.at[i] = a * c.at[i] - sign * b * s.at[i];
    head.high.at[i] = b * c.at[i] + sign * a * s.at[i];
  }
}

// Head h of a token in a row of qkv: queries first, then keys.
template <class T>
__device__ int64_t raw_offset(const Heads<T>& heads, unsigned h) {
  const auto per_group = static_cast<unsigned>(heads.per_group);
  const unsigned queries = static_cast<unsigned>(heads.groups) * per_group;
  const unsigned group = h < queries ? h / per_group : h - queries;
  const unsigned in_group = h < queries ? h % per_group : per_group;
  return (group * (per_group + 2) + in_group) * heads.head_dim;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    turn_kernel(T* turned, const T* qkv, Heads<T> heads, int64_t qkv_cols) {
  // 64-bit divisions would cost more than the rest.
  const auto per_token =
      static_cast<unsigned>(heads.groups * (heads.per_group + 1));
  const int64_t queries = heads.groups * heads.per_group;
  const int64_t half = heads.head_dim / 2;
  const unsigned item = blockIdx.x * blockDim.y + threadIdx.y;
  const unsigned token = item / per_token, h = item % per_token;
  // Lanes without a head stay for the sums of their warp.
  const int64_t end = token < heads.tokens ? half : 0;
  Halves x;
  x.load(qkv + token * qkv_cols + raw_offset(heads, h), end);
  if (heads.query_norm != nullptr) {
    float2 sums = {};
    for (int i = 0; i < kLot; ++i) {
      sums.x += x.low.at[i] * x.low.at[i] + x.high.at[i] * x.high.at[i];
    }
    sums = team_sums(sums, static_cast<int>(blockDim.x));
    const float r =
        rsqrtf(sums.x / static_cast<float>(heads.head_dim) + heads.epsilon);
    Halves w;
    w.load(h < queries ? heads.query_norm : heads.key_norm, half);
    for (int i = 0; i < kLot; ++i) {
      x.low.at[i] *= r * w.low.at[i];
      x.high.at[i] *= r * w.high.at[i];
    }
  }
  const int64_t place = token % static_cast<unsigned>(heads.length) * half;
  rotate(x, heads.cosines + place, heads.sines + place, end, 1);
  x.store(turned + item * heads.head_dim, end);
}

// Queries or keys of a strip of tokens.
struct HeadStrip {
  int64_t first_token = 0;
  int64_t end_token = 0;
  int64_t first_head = 0;
  int64_t num_heads = 0;
};

// Adds the strip's part of the norm's gradient to `weight_sums`.
template <class T>
__device__ void turn_strip_back(T* qkv_gradient, const T* qkv,
                                const T* turned_gradient, const Heads<T>& heads,
                                int64_t qkv_cols, const HeadStrip& strip,
                                const T* weight, Halves& weight_sums) {
  const int64_t per_token = heads.groups * (heads.per_group + 1);
  const int64_t half = heads.head_dim / 2;
  const auto num_heads = static_cast<unsigned>(strip.num_heads);
  const unsigned items =
      static_cast<unsigned>(strip.end_token - strip.first_token) * num_heads;
  for (unsigned first = 0; first < items; first += blockDim.y) {
    const unsigned item = first + threadIdx.y;
    const int64_t token = strip.first_token + item / num_heads;
    const auto h = static_cast<unsigned>(strip.first_head) + item % num_heads;
    const int64_t end = item < items ? half : 0;
    const int64_t raw = token * qkv_cols + raw_offset(heads, h);
    Halves d;
    d.load(turned_gradient + (token * per_token + h) * heads.head_dim, end);
    const int64_t place = static_cast<unsigned>(token) %
                          static_cast<unsigned>(heads.length) * half;
    rotate(d, heads.cosines + place, heads.sines + place, end, -1);
    if (weight != nullptr) {
      Halves x, w;
      x.load(qkv + raw, end);
      w.load(weight, half);
      float2 sums = {};
      for (int i = 0; i < kLot; ++i) {
        const float low = x.low.at[i], high = x.high.at[i];
        sums.x += low * low + high * high;
        sums.y += low * d.low.at[i] * w.low.at[i] +
                  high * d.high.at[i] * w.high.at[i];
      }
      sums = team_sums(sums, static_cast<int>(blockDim.x));
      const float mean = 1 / static_cast<float>(heads.head_dim);
      const float r = rsqrtf(sums.x * mean + heads.epsilon);
      const float k = r * r * r * (sums.y * mean);
      const auto back = [&](float& gradient, float& sum, float value,
                            float gain) {
        const float g = gradient * r;
        sum += g * value;
        gradient = g * gain - value * k;
      };
      for (int i = 0; i < kLot; ++i) {
        back(d.low.at[i], weight_sums.low.at[i], x.low.at[i], w.low.at[i]);
        back(d.high.at[i], weight_sums.high.at[i], x.high.at[i], w.high.at[i]);
      }
    }
    d.store(qkv_gradient + raw, end);
  }
}

// A block takes a strip of tokens. Its teams' sums are added in order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    turn_back_kernel(T* qkv_gradient, const T* qkv, const T* turned_gradient,
                     Heads<T> heads, int64_t qkv_cols, float* partial) {
  extern __shared__ float team_gains[];  // teams x head_dim
  const int64_t dim = heads.head_dim;
  const int64_t queries = heads.groups * heads.per_group;
  const int64_t begin = int64_t{blockIdx.x} * kStrip;
  const int64_t end = min(begin + kStrip, heads.tokens);
  for (int kind = 0; kind < 2; ++kind) {
    const HeadStrip strip = {begin, end, kind == 0 ? 0 : queries,
                             kind == 0 ? queries : heads.groups};
    Halves sums = {};
    turn_strip_back(qkv_gradient, qkv, turned_gradient, heads, qkv_cols, strip,
                    kind == 0 ? heads.query_norm : heads.key_norm, sums);
    if (heads.query_norm == nullptr) continue;
    __syncthreads();
    sums.store(team_gains + threadIdx.y * dim, dim / 2);
    __syncthreads();
    for (int64_t j = threadIdx.y * blockDim.x + threadIdx.x; j < dim;
         j += kThreads) {
      float sum = 0;
      for (unsigned team = 0; team < blockDim.y; ++team)
        sum += team_gains[team * dim + j];
      partial[int64_t{blockIdx.x} * 2 * dim + kind * dim + j] = sum;
    }
  }
}

dim3 team_block(int64_t half) {
  unsigned team = 1;
  while (team * kLot < half) team *= 2;
  return dim3(team, kThreads / team);
}

}  // namespace

template <class T>
void turn(CudaEngine& engine, T* turned, const T* qkv, const Heads<T>& heads) {
  if (engine.dry("decoder turn", turned, qkv, heads.query_norm, heads.key_norm,
                 heads.tokens, heads.length, heads.groups, heads.per_group,
                 heads.head_dim))
    return;
  const dim3 block = team_block(heads.head_dim / 2);
  const int64_t items = heads.tokens * heads.groups * (heads.per_group + 1);
  turn_kernel<<<num_blocks(items, block.y), block, 0, engine.stream()>>>(
      turned, qkv, heads, heads.qkv_cols());
  check_launched("turn");
}

template <class T>
void turn_back(CudaEngine& engine, T* qkv_gradient, const T* qkv,
               const T* turned_gradient, const Heads<T>& heads,
               float* query_norm_gradient, float* key_norm_gradient,
               float* partial) {
  const int64_t dim = heads.head_dim;
  const int64_t strips = num_strips(heads.tokens);
  if (!engine.dry("decoder turn back", qkv_gradient, qkv, turned_gradient,
                  heads.query_norm, heads.key_norm, partial, heads.tokens,
                  heads.length, heads.groups, heads.per_group, dim)) {
    const dim3 block = team_block(dim / 2);
    const auto shared = block.y * static_cast<size_t>(dim) * sizeof(float);
    turn_back_kernel<<<static_cast<unsigned>(strips), block, shared,
                       engine.stream()>>>(qkv_gradient, qkv, turned_gradient,
                                          heads, heads.qkv_cols(), partial);
    check_launched("turn back");
  }
  if (heads.query_norm == nullptr) return;
  add_columns(engine, query_norm_gradient, partial, strips, dim, 2 * dim);
  add_columns(engine, key_norm_gradient, partial + dim, strips, dim, 2 * dim);
}

#define CANZONA_TURN(T)                                              \
  template void turn<T>(CudaEngine&, T*, const T*, const Heads<T>&); \
  template void turn_back<T>(CudaEngine&, T*, const T*, const T*,    \
                             const Heads<T>&, float*, float*, float*);
CANZONA_TURN(float)
CANZONA_TURN(uint16_t)
#undef CANZONA_TURN

}  // namespace canzona::model::gpu
