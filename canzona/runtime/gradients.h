// Numbers for models that nobody trains: parameters and gradients made from
// names and positions, so that every mesh, strategy and transport sees the same
// ones. For benchmarks and tests.
//
//   make_parameter(tensor, mesh.tp, place.t, shard);
//   make_gradient({GradientKind::kExact, home, num_homes, step}, tensor,
//                 mesh.tp, place.t, shard);
//   settings.gradient_factor = gradient_factor(GradientKind::kExact, mesh);
//
// Exact: 28 slices of small integers times 2^-20, dealt round-robin over the
// data-parallel ranks; each has the sum of its slices. Every sum is exact,
// so that the mean gradient is the same for every number of ranks.
// Random: another number for every rank, with sums that depend on their order.
//
// Pure; any thread may call, one at a time for an engine's memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "canzona/plan/mesh.h"

namespace canzona {

class Engine;

enum class GradientKind { kExact, kRandom };
std::string_view to_string(GradientKind kind);
// UsageError names what else is allowed.
GradientKind parse_gradient_kind(std::string_view text);

inline constexpr int kGradientSlices = 28;

// Names the owner of a gradient, and its step.
struct GradientShare {
  GradientKind kind = GradientKind::kExact;
  int32_t home = 0;  // among those that share the tensor's buffer
  int32_t num_homes = 1;
  int64_t step = 1;
};

// Sums over data-parallel ranks are multiplied by this.
double gradient_factor(GradientKind kind, const Mesh& mesh);

// `shard` is the one of tp rank `t`; tp 1 makes the whole tensor.
void make_gradient(const GradientShare& share, const Tensor& tensor, int32_t tp,
                   int32_t t, std::span<float> shard);
// Nearly normal, of standard deviation 0.02.
void make_parameter(const Tensor& tensor, int32_t tp, int32_t t,
                    std::span<float> shard);

// The same bits in the memory of an engine, in the order of its work.
void make_gradient(Engine& engine, const GradientShare& share,
                   const Tensor& tensor, int32_t tp, int32_t t, float* shard);
void make_parameter(Engine& engine, const Tensor& tensor, int32_t tp, int32_t t,
                    float* shard);

}  // namespace canzona
