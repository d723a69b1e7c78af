#include "canzona/runtime/gradients.h"

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/rank_layout.h"
#include "canzona/runtime/digest/rank_digest.h"

namespace canzona::runtime {
namespace {

// Streams of one tensor: parameters, slices, and each home's random numbers.
enum Stream : uint64_t { kParameters, kSlices, kRandomOfHome };

uint64_t seed_of(std::string_view name, uint64_t stream, int64_t step) {
  return bits_at(bits_at(name_seed(name), stream), static_cast<uint64_t>(step));
}

NumberStream gradient_stream(const GradientShare& share, const Tensor& tensor) {
  if (share.kind == GradientKind::kRandom) {
    const auto home = static_cast<uint64_t>(share.home);
    return {NumberStream::Kind::kManyMagnitudes,
            seed_of(tensor.name, kRandomOfHome + home, share.step)};
  }
  NumberStream stream{NumberStream::Kind::kSlices,
                      seed_of(tensor.name, kSlices, share.step)};
  for (int s = share.home; s < kGradientSlices; s += share.num_homes) {
    stream.mask |= uint64_t{3} << (2 * s);
    stream.offset -= 3;
  }
  return stream;
}

NumberStream parameter_stream(const Tensor& tensor) {
  return {NumberStream::Kind::kNearlyNormal,
          seed_of(tensor.name, kParameters, 0)};
}

void fill_here(const NumberStream& stream, const Tensor& tensor, int32_t tp,
               int32_t t, std::span<float> shard) {
  fill_shard(tensor, tp, t, shard, [&](uint64_t i) {
    return stream.number(bits_at(stream.seed, i));
  });
}

void fill_there(Engine& engine, const NumberStream& stream,
                const Tensor& tensor, int32_t tp, int32_t t, float* shard) {
  for_number_rows(logical_runs(tensor, tp, t),
                  [&](int64_t from, const NumberRows& rows) {
                    fill_numbers(engine, shard + from, stream, rows);
                  });
}

}  // namespace

std::string_view to_string(GradientKind kind) {
  return kind == GradientKind::kExact ? "exact" : "random";
}

GradientKind parse_gradient_kind(std::string_view text) {
  if (text == "exact") return GradientKind::kExact;
  if (text == "random") return GradientKind::kRandom;
  throw UsageError(cat("gradients ", quoted(text), ": expected exact or random",
                       did_you_mean(text, {"exact", "random"})));
}

double gradient_factor(GradientKind kind, const Mesh& mesh) {
  return 1.0 / (kind == GradientKind::kExact ? kGradientSlices : mesh.homes());
}

void make_gradient(const GradientShare& share, const Tensor& tensor, int32_t tp,
                   int32_t t, std::span<float> shard) {
  fill_here(gradient_stream(share, tensor), tensor, tp, t, shard);
}

void make_parameter(const Tensor& tensor, int32_t tp, int32_t t,
                    std::span<float> shard) {
  fill_here(parameter_stream(tensor), tensor, tp, t, shard);
}

void make_gradient(Engine& engine, const GradientShare& share,
                   const Tensor& tensor, int32_t tp, int32_t t, float* shard) {
  fill_there(engine, gradient_stream(share, tensor), tensor, tp, t, shard);
}

void make_parameter(Engine& engine, const Tensor& tensor, int32_t tp, int32_t t,
                    float* shard) {
  fill_there(engine, parameter_stream(tensor), tensor, tp, t, shard);
}

}  // namespace canzona::runtime
