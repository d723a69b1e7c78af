#include "canzona/linalg/cuda/algebra/blends.cuh"

namespace canzona::linalg {
namespace {

constexpr int kThreads = kSumThreads;
constexpr int kLoadChunk = 8 * kPerBlock;  // summed by one block

// Returns the larger magnitude; a NaN stays a NaN.
struct Larger {
  __device__ double operator()(double a, double b) const {
    const double x = fabs(a), y = fabs(b);
    if (!(x == x)) return x;
    return x < y || !(y == y) ? y : x;
  }
};

// Adds the squares of all groups, or takes their largest magnitude (kPeak).
template <bool kPeak, class Real>
__device__ double add_groups(double total, const Group<Real> (&u)[kRounds],
                             double peak) {
#pragma unroll
  for (int r = 0; r < kRounds; ++r)
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const double value = static_cast<double>(u[r].at[i]);
      if constexpr (kPeak) {
        total = Larger()(total, value);
      } else {
        const double scaled = value * peak;
        total += scaled * scaled;
      }
    }
  return total;
}

// Reduces each chunk to its largest magnitude (kPeak) or to the sum of the
// squares of peak·u.
template <class Real, bool kPeak>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(BlendSource<Real> source, int64_t partials,
                  const double* peaks, double* out) {
  const int64_t matrix = blockIdx.y;
  const Places<Real> at(source, matrix);
  const double peak = peaks == nullptr ? 1.0 : peaks[matrix];
  double total = 0;
  for (int part = 0; part < kLoadChunk / kPerBlock; ++part) {
    Group<Real> u[kRounds];
    const int64_t begin =
        static_cast<int64_t>(blockIdx.x) * kLoadChunk + part * kPerBlock;
    if (begin >= source.elements) break;
    read_blends(source, at, begin, source.elements, u);
    total = add_groups<kPeak>(total, u, peak);
  }
  total = kPeak ? over_block(total, Larger()) : over_block(total, Add());
  if (threadIdx.x == 0) out[matrix * partials + blockIdx.x] = total;
}

// A chunk of a strip. Its elements are counted row by row; what lies between
// the strip's rows in the matrix does not count.
struct StripChunk {
  int64_t origin;  // where the strip's row with the first element begins
  int64_t stride;
  int64_t left;  // elements to the end of the strip
  uint32_t cols;
  uint32_t col;  // of the first element

  __device__ StripChunk(const StripCuts& cuts, int strip, int64_t partial) {
    const int64_t width = cuts.begin[strip + 1] - cuts.begin[strip];
    const int64_t elements = width * cuts.rows;
    // A strip of a matrix that came tall is contiguous, like one long row.
    const int64_t row_cols = cuts.tall ? elements : width;
    const int64_t first = (partial - cuts.first_partial[strip]) * kLoadChunk;
    const int64_t row = first / row_cols;
    stride = cuts.tall ? elements : cuts.begin[cuts.count];
    origin = cuts.begin[strip] * (cuts.tall ? cuts.rows : 1) + row * stride;
    left = elements - first;
    cols = static_cast<uint32_t>(row_cols);
    col = static_cast<uint32_t>(first - row * row_cols);
  }

  __device__ int64_t place(uint32_t i) const {
    const uint32_t from_row = col + i;
    const uint32_t row = from_row < cols ? 0 : from_row / cols;
    return origin + row * stride + (from_row - row * cols);
  }
  __device__ bool allows_vectors() const {
    return cols % kGroup == 0 && stride % kGroup == 0 && origin % kGroup == 0;
  }
  // `from(place)` is the address from which a place is counted.
  template <class Real, class From>
  __device__ void read(Group<Real>& to, const From& from, uint32_t i,
                       bool vector) const {
    if (vector && i + kGroup <= left) {
      const int64_t first = place(i);
      to.read(from(first) + first, 0, kGroup, true);
      return;
    }
#pragma unroll
    for (uint32_t k = 0; k < kGroup; ++k) {
      const int64_t one = i + k < left ? place(i + k) : 0;
      to.at[k] = i + k < left ? from(one)[one] : Real{0};
    }
  }
};

__device__ int strip_of_partial(const StripCuts& cuts, int64_t partial) {
  int strip = 0;
  while (partial >= cuts.first_partial[strip + 1]) ++strip;
  return strip;
}

// Does the same as reduce_kernel strip by strip, with one peak per strip.
template <class Real, bool kPeak>
__global__ void __launch_bounds__(kThreads)
    reduce_strips_kernel(BlendSource<Real> source, StripCuts cuts,
                         const double* peaks, double* out) {
  const int64_t matrix = blockIdx.y;
  const int strip = strip_of_partial(cuts, blockIdx.x);
  const StripChunk chunk(cuts, strip, blockIdx.x);
  const Places<Real> at(source, matrix);
  const bool vector = at.vector && chunk.allows_vectors();
  const double peak =
      peaks == nullptr ? 1.0 : peaks[matrix * cuts.count + strip];
  double total = 0;
  for (int part = 0; part < kLoadChunk / kPerBlock; ++part) {
    if (part * kPerBlock >= chunk.left) break;
    Group<Real> u[kRounds], b[kRounds];
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const uint32_t i =
          part * kPerBlock + (r * kThreads + threadIdx.x) * kGroup;
      chunk.read(
          u[r], [&](int64_t p) { return at.grad(p); }, i, vector);
      if (at.momenta != nullptr)
        chunk.read(
            b[r], [&](int64_t p) { return at.momentum(p); }, i, vector);
    }
    blend_groups(source, at, b, u);
    total = add_groups<kPeak>(total, u, peak);
  }
  total = kPeak ? over_block(total, Larger()) : over_block(total, Add());
  if (threadIdx.x == 0)
    out[matrix * cuts.first_partial[cuts.count] + blockIdx.x] = total;
}

// Returns the power of two that brings the largest number near 1.
__device__ double peak_of(double largest) {
  const bool plain = largest > 0 && largest < INFINITY;
  return plain ? ldexp(1.0, max(-1000, min(1000, -ilogb(largest)))) : 1.0;
}

// Each block reduces the partials of one strip to its peak (kPeak) or to its
// part of the norm.
template <bool kPeak>
__global__ void __launch_bounds__(kThreads)
    finish_strips_kernel(const double* partials, StripCuts cuts, double* peaks,
                         NormPart* parts) {
  const int strip = static_cast<int>(blockIdx.x);
  const double* own = partials + blockIdx.y * cuts.first_partial[cuts.count] +
                      cuts.first_partial[strip];
  const int64_t num = cuts.first_partial[strip + 1] - cuts.first_partial[strip];
  double total = 0;
  for (int64_t i = threadIdx.x; i < num; i += kThreads) {
    if constexpr (kPeak)
      total = Larger()(total, own[i]);
    else
      total += own[i];
  }
  total = kPeak ? over_block(total, Larger()) : over_block(total, Add());
  if (threadIdx.x != 0) return;
  const int64_t place = int64_t{blockIdx.y} * cuts.count + strip;
  if constexpr (kPeak)
    peaks[place] = peak_of(total);
  else
    parts[place] = {total, peaks == nullptr ? 1.0 : peaks[place]};
}

__global__ void __launch_bounds__(kThreads)
    peak_kernel(const double* partials, int64_t num_partials, double* peaks) {
  double largest = 0;
  for (int64_t i = threadIdx.x; i < num_partials; i += kThreads)
    largest = Larger()(largest, partials[blockIdx.x * num_partials + i]);
  largest = over_block(largest, Larger());
  if (threadIdx.x != 0) return;
  peaks[blockIdx.x] = peak_of(largest);
}

// Returns one over the enlarged norm of numbers whose squares add up to `sum`
// after multiplication by `peak`.
__device__ double scale_of(double sum, double peak, const ScaleRule& rule) {
  const double enlarged = rule.factor * sqrt(sum);
  const double epsilon = rule.epsilon * peak;
  const double divisor =
      rule.add_epsilon ? enlarged + epsilon : fmax(enlarged, epsilon);
  // A scale of 0 would hide an infinity.
  const bool is_finite = sum < INFINITY;
  return !is_finite ? NAN : sum == 0 ? 0 : peak / divisor;
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(const double* partials, int64_t num_partials,
                 const double* peaks, ScaleRule rule, double* scales) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < num_partials; i += kThreads)
    sum += partials[blockIdx.x * num_partials + i];
  sum = over_block(sum, Add());
  if (threadIdx.x != 0) return;
  const double peak = peaks == nullptr ? 1.0 : peaks[blockIdx.x];
  scales[blockIdx.x] = scale_of(sum, peak, rule);
}

// Each thread scales one matrix. It brings the squares of all strips to the
// smallest peak, which is that of the largest numbers, and adds them in the
// order of base/sum_order.h.
__global__ void __launch_bounds__(kThreads)
    scale_parts_kernel(const NormPart* parts, int strips, int64_t count,
                       ScaleRule rule, double* scales) {
  const int64_t matrix = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (matrix >= count) return;
  parts += matrix * strips;
  double peak = INFINITY;
  for (int s = 0; s < strips; ++s)
    if (parts[s].squares != 0) peak = fmin(peak, parts[s].norm);
  if (peak == INFINITY) peak = 1;
  double sums[Strips::kMostSums];
  for (int s = 0; s < strips; ++s) {
    const double ratio = peak / parts[s].norm;
    int p = __popc(s);
    sums[p] = parts[s].squares * ratio * ratio;
    for (; p > __popc(s + 1) - 1; --p)
      sums[p - 1] = __dadd_rn(sums[p - 1], sums[p]);
  }
  scales[matrix] = scale_of(sums[0], peak, rule);
}

// A block for each row of the blends.
template <class Real>
__global__ void __launch_bounds__(kThreads)
    row_norms_kernel(BlendSource<Real> source, double* norms) {
  const int64_t rows = source.rows;
  for (int64_t row = blockIdx.x; row < rows * source.count; row += gridDim.x) {
    Places<Real> at(source, row / rows);
    const int64_t first = row % rows * source.cols;
    at.grads += first;  // rows in groups are not made even
    if (at.momenta != nullptr) at.momenta += first;
    at.vector = at.vector && source.cols % kGroup == 0;
    double total = 0;
    for (int64_t begin = 0; begin < source.cols; begin += kPerBlock) {
      Group<Real> u[kRounds];
      read_blends(source, at, begin, source.cols, u);
      total = add_groups<false>(total, u, 1.0);
    }
    total = over_block(total, Add());
    if (threadIdx.x == 0) norms[row] = sqrt(total);
  }
}

// Each block works on one matrix.
template <class Real>
__global__ void __launch_bounds__(kThreads)
    even_rows_kernel(EvenWork<Real> work, int64_t rows, double floor,
                     ScaleRule rule) {
  const double* norms = work.norms + blockIdx.x * rows;
  Real* factors = work.factors + blockIdx.x * rows;
  double squares = 0;
  for (int64_t i = threadIdx.x; i < rows; i += kThreads)
    squares = add(squares, mul(norms[i], norms[i]));
  squares = over_block(squares, Add());
  __syncthreads();
  const double each = sqrt(squares) / sqrt(static_cast<double>(rows));
  double sum = 0;
  for (int64_t i = threadIdx.x; i < rows; i += kThreads) {
    const double divisor = fmax(norms[i], floor);
    factors[i] = static_cast<Real>(divisor == 0 ? 0 : each / divisor);
    const double even = mul(static_cast<double>(factors[i]), norms[i]);
    sum = add(sum, mul(even, even));
  }
  sum = over_block(sum, Add());
  if (threadIdx.x == 0) work.scales[blockIdx.x] = scale_of(sum, 1.0, rule);
}

}  // namespace

int64_t num_scale_partials(int64_t elements) {
  return (elements + kLoadChunk - 1) / kLoadChunk;
}

template <class Real>
void launch_scales(const BlendSource<Real>& source, const ScaleRule& rule,
                   const ScaleWork& work, cudaStream_t stream) {
  const int64_t partials = num_scale_partials(source.elements);
  const dim3 grid(static_cast<unsigned>(partials),
                  static_cast<unsigned>(source.count));
  const auto count = static_cast<unsigned>(source.count);
  const double* peaks = nullptr;
  // Squares of fp32 never leave the range of fp64; those of fp64 may.
  if constexpr (sizeof(Real) == 8) {
    reduce_kernel<Real, true><<<grid, kThreads, 0, stream>>>(
        source, partials, nullptr, work.partials);
    peak_kernel<<<count, kThreads, 0, stream>>>(work.partials, partials,
                                                work.peaks);
    peaks = work.peaks;
  }
  reduce_kernel<Real, false>
      <<<grid, kThreads, 0, stream>>>(source, partials, peaks, work.partials);
  scale_kernel<<<count, kThreads, 0, stream>>>(work.partials, partials, peaks,
                                               rule, work.scales);
  check_launch("the norms of a batch");
}

template <class Real>
void launch_even_scales(const BlendSource<Real>& source, double floor,
                        const ScaleRule& rule, const EvenWork<Real>& work,
                        cudaStream_t stream) {
  const int64_t rows = source.rows;
  if (rows * source.count == 0) return;
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>(rows * source.count, 65535));
  row_norms_kernel<<<blocks, kThreads, 0, stream>>>(source, work.norms);
  even_rows_kernel<<<static_cast<unsigned>(source.count), kThreads, 0,
                     stream>>>(work, rows, floor, rule);
  check_launch("the norms of rows");
}

StripCuts StripCuts::of(const Operand& x) {
  StripCuts cuts;
  cuts.count = x.strips.count;
  cuts.tall = x.tall;
  cuts.rows = x.rows;
  for (int s = 0; s < cuts.count; ++s) {
    cuts.begin[s] = x.strips.begin(s);
    cuts.begin[s + 1] = x.strips.end(s, x.cols);
    cuts.first_partial[s + 1] =
        cuts.first_partial[s] +
        num_scale_partials((cuts.begin[s + 1] - cuts.begin[s]) * cuts.rows);
  }
  return cuts;
}

template <class Real>
void launch_parts(const BlendSource<Real>& source, const StripCuts& cuts,
                  const PartWork& work, cudaStream_t stream) {
  const dim3 chunks(static_cast<unsigned>(cuts.num_partials()),
                    static_cast<unsigned>(source.count));
  const dim3 strips(static_cast<unsigned>(cuts.count),
                    static_cast<unsigned>(source.count));
  double* peaks = nullptr;
  if constexpr (sizeof(Real) == 8) {
    peaks = work.peaks;
    reduce_strips_kernel<Real, true>
        <<<chunks, kThreads, 0, stream>>>(source, cuts, nullptr, work.partials);
    finish_strips_kernel<true>
        <<<strips, kThreads, 0, stream>>>(work.partials, cuts, peaks, nullptr);
  }
  reduce_strips_kernel<Real, false>
      <<<chunks, kThreads, 0, stream>>>(source, cuts, peaks, work.partials);
  finish_strips_kernel<false>
      <<<strips, kThreads, 0, stream>>>(work.partials, cuts, peaks, work.parts);
  check_launch("the norms of strips");
}

void launch_scales_of_parts(const NormPart* parts, int strips, int64_t count,
                            const ScaleRule& rule, double* scales,
                            cudaStream_t stream) {
  scale_parts_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(
      parts, strips, count, rule, scales);
  check_launch("the norms of a batch by strips");
}

template void launch_scales(const BlendSource<float>&, const ScaleRule&,
                            const ScaleWork&, cudaStream_t);
template void launch_scales(const BlendSource<double>&, const ScaleRule&,
                            const ScaleWork&, cudaStream_t);
template void launch_even_scales(const BlendSource<float>&, double,
                                 const ScaleRule&, const EvenWork<float>&,
                                 cudaStream_t);
template void launch_even_scales(const BlendSource<double>&, double,
                                 const ScaleRule&, const EvenWork<double>&,
                                 cudaStream_t);
template void launch_parts(const BlendSource<float>&, const StripCuts&,
                           const PartWork&, cudaStream_t);
template void launch_parts(const BlendSource<double>&, const StripCuts&,
                           const PartWork&, cudaStream_t);

}  // namespace canzona::linalg
