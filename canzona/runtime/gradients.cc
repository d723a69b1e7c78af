#include "canzona/runtime/gradients.h"

#include <bit>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/runtime/digest/logical_digest.h"
#include "canzona/runtime/fill_shard.h"

namespace canzona {
namespace {

// Streams of one tensor: parameters, slices, and random numbers of each home.
enum Stream : uint64_t { kParameters, kSlices, kRandomOfHome };

uint64_t seed_of(std::string_view name, uint64_t stream, int64_t step) {
  return bits_at(bits_at(name_seed(name), stream), static_cast<uint64_t>(step));
}

// A slice's element is two bits, which stand for -3, -1, 1 or 3.
class ExactSum {
 public:
  explicit ExactSum(const GradientShare& share) {
    for (int s = share.home; s < kGradientSlices; s += share.num_homes) {
      mask_ |= uint64_t{3} << (2 * s);
      offset_ -= 3;
    }
  }
  float operator()(uint64_t bits) const {
    constexpr uint64_t kEveryFour = 0x3333333333333333ULL;
    constexpr uint64_t kEveryEight = 0x0F0F0F0F0F0F0F0FULL;
    uint64_t sums = bits & mask_;
    sums = (sums & kEveryFour) + ((sums >> 2) & kEveryFour);
    sums = (sums & kEveryEight) + ((sums >> 4) & kEveryEight);
    const auto sum = static_cast<int>((sums * 0x0101010101010101ULL) >> 56);
    return static_cast<float>(2 * sum + offset_) * 0x1p-20F;
  }

 private:
  uint64_t mask_ = 0;  // of this share's slices
  int offset_ = 0;
};

// Of many magnitudes, so that the order of additions shows.
float random_number(uint64_t bits) {
  const auto upper = static_cast<int64_t>(bits >> 40) - (int64_t{1} << 23);
  const auto exponent = static_cast<uint32_t>(127 - 33 - (bits & 7));
  return static_cast<float>(upper) * std::bit_cast<float>(exponent << 23);
}

// The sum of four uniform numbers of 16 bits.
float nearly_normal(uint64_t bits) {
  constexpr double kDeviation = 37837.2;  // 2^16 · sqrt(4 / 12)
  constexpr auto kScale = static_cast<float>(0.02 / kDeviation);
  const auto sum =
      static_cast<int64_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                           (bits >> 32 & 0xFFFF) + (bits >> 48));
  return static_cast<float>(sum - 131070) * kScale;
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
  if (share.kind == GradientKind::kExact) {
    const uint64_t seed = seed_of(tensor.name, kSlices, share.step);
    const ExactSum sum(share);
    fill_shard(tensor, tp, t, shard,
               [&](uint64_t i) { return sum(bits_at(seed, i)); });
    return;
  }
  const auto home = static_cast<uint64_t>(share.home);
  const uint64_t seed = seed_of(tensor.name, kRandomOfHome + home, share.step);
  fill_shard(tensor, tp, t, shard,
             [&](uint64_t i) { return random_number(bits_at(seed, i)); });
}

void make_parameter(const Tensor& tensor, int32_t tp, int32_t t,
                    std::span<float> shard) {
  const uint64_t seed = seed_of(tensor.name, kParameters, 0);
  fill_shard(tensor, tp, t, shard,
             [&](uint64_t i) { return nearly_normal(bits_at(seed, i)); });
}

}  // namespace canzona
