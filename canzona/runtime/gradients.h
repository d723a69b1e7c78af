// Synthetic parameters and gradients, derived from names and positions so that
// every mesh, strategy and transport sees the same ones. For benchmarks and
// tests.
//
//   make_parameter(tensor, mesh.tp, at.t, shard);
//   make_gradient({GradientKind::kExact, home, num_homes, step}, tensor,
//                 mesh.tp, at.t, shard);
//   settings.gradient_factor = gradient_factor(GradientKind::kExact, mesh);
//
// Exact: 28 slices of small integers times 2^-20, dealt round-robin to the
// data-parallel ranks; each rank has the sum of its slices. Every sum is exact,
// so the mean gradient is the same for any number of ranks. Random: a different
// number for every rank, with sums that depend on their order.
//
// Pure functions, callable from any thread, but by one thread at a time for an
// engine's memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/linalg/number_stream.h"
#include "canzona/plan/mesh.h"
#include "canzona/plan/schedule/rank_layout.h"

namespace canzona {
class Engine;
}

namespace canzona::runtime {

// Fills a tp shard of a tensor with numbers that depend on the logical position
// alone, so that every mesh gets the same tensor.
//
//   fill_shard(tensor, mesh.tp, at.t, shard,
//              [&](uint64_t i) { return uniform_at(seed, i); });

// Calls `number(i)` for every logical element i of the shard.
template <class Number>
void fill_shard(const Tensor& tensor, int32_t tp, int32_t t,
                std::span<float> shard, const Number& number) {
  int64_t filled = 0;
  for (const ExtentCopy& run : logical_runs(tensor, tp, t)) {
    float* out = shard.data() + run.from;
    for (int64_t i = 0; i < run.count; ++i)
      out[i] = number(static_cast<uint64_t>(run.to + i));
    filled += run.count;
  }
  CANZONA_CHECK(filled == std::ssize(shard), "the shard of ", tensor.name,
                " has ", filled, " elements, not ", shard.size());
}

// Calls use(from, rows) once for each group of runs that are equally spaced
// both in the shard, where the first one begins at `from`, and in the whole
// tensor. Most runs of a cut tensor are.
template <class Use>
void for_number_rows(std::span<const ExtentCopy> runs, const Use& use) {
  for (size_t i = 0; i < runs.size();) {
    const ExtentCopy& first = runs[i];
    NumberRows rows{static_cast<uint64_t>(first.to), first.count, 1, 0, 0};
    size_t next = i + 1;
    for (; next < runs.size() && runs[next].count == first.count; ++next) {
      const int64_t stream_stride = runs[next].to - runs[next - 1].to;
      const int64_t row_stride = runs[next].from - runs[next - 1].from;
      if (rows.rows == 1) {
        rows.stream_stride = stream_stride;
        rows.row_stride = row_stride;
      } else if (stream_stride != rows.stream_stride ||
                 row_stride != rows.row_stride) {
        break;
      }
      ++rows.rows;
    }
    use(first.from, rows);
    i = next;
  }
}

enum class GradientKind { kExact, kRandom };
std::string_view to_string(GradientKind kind);
// UsageError lists what is allowed.
GradientKind parse_gradient_kind(std::string_view text);

inline constexpr int kGradientSlices = 28;

// Identifies a gradient by its owner and step.
struct GradientShare {
  GradientKind kind = GradientKind::kExact;
  int32_t home = 0;  // among the homes that share the tensor's buffer
  int32_t num_homes = 1;
  int64_t step = 1;
};

// Sums over data-parallel ranks are multiplied by this.
double gradient_factor(GradientKind kind, const Mesh& mesh);

// `shard` is that of tp rank `t`; with tp 1 it is the whole tensor.
void make_gradient(const GradientShare& share, const Tensor& tensor, int32_t tp,
                   int32_t t, std::span<float> shard);
// Approximately normal, with standard deviation 0.02.
void make_parameter(const Tensor& tensor, int32_t tp, int32_t t,
                    std::span<float> shard);

// The same bits in the memory of an engine, ordered with its work.
void make_gradient(Engine& engine, const GradientShare& share,
                   const Tensor& tensor, int32_t tp, int32_t t, float* shard);
void make_parameter(Engine& engine, const Tensor& tensor, int32_t tp, int32_t t,
                    float* shard);

}  // namespace canzona::runtime
