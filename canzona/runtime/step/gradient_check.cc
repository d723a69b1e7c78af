#include "canzona/runtime/step/gradient_check.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace canzona {

GradientLook::GradientLook(Rank& rank)
    : rank_(rank),
      planned_(
          checked_gradients(rank.part, rank.place, rank.layout, rank.kept)) {
  for (const Extent& extent : planned_.counted) {
    float* first = rank.store.gradients() + extent.first;
    counted_.push_back({const_run(first), extent.count});
    counted_to_scale_.push_back({run_of(first), extent.count});
  }
}

void GradientLook::scale(const std::vector<Extent>& extents, double factor) {
  if (factor == 1) return;
  for (const Extent& extent : extents)
    rank_.engine.scale(run_of(rank_.store.gradients() + extent.first), factor,
                       extent.count);
}

int32_t GradientLook::first_nonfinite_tensor() {
  for (size_t i = 0; i < counted_.size(); ++i)
    if (rank_.engine.largest_bits({&counted_[i], 1}) >= kInfinityBits)
      return planned_.tensor[i];
  return 0;
}

uint32_t GradientLook::scale_and_look(double factor) {
  scale(planned_.uncounted, factor);
  return factor == 1 ? rank_.engine.largest_bits(counted_)
                     : rank_.engine.scale_and_look(counted_to_scale_, factor);
}

WideSum GradientLook::sum_of_squares(int exponent) {
  if (replica_of(rank_.part, rank_.world_rank) != 0) return {};
  return rank_.engine.sum_of_squares(counted_, exponent);
}

namespace {

// One number for all ranks, the largest of theirs: bits of the largest
// magnitude, or, above all of those, where something was not finite. A rank's
// own gradient is better to know than a sum.
constexpr int64_t kInSum = int64_t{1} << 61;
constexpr int64_t kInOwn = int64_t{1} << 62;
int64_t place_code(int64_t kind, int32_t rank, int32_t tensor) {
  return kind | (int64_t{rank} << 32) | tensor;
}

template <class Number>
std::span<std::byte> bytes_of_number(Number& number) {
  return {reinterpret_cast<std::byte*>(&number), sizeof(number)};
}

}  // namespace

int64_t GradientCheck::largest(Communicator& control, double factor,
                               const std::vector<int32_t>& own_nonfinite) {
  int64_t mine = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    GradientLook& look = parts_[i];
    const int32_t known_as = look.rank().known_as;
    // Of a tensor of the part, in the whole model.
    const auto number = [&](int32_t tensor) {
      return look.rank().part.tensors[static_cast<size_t>(tensor)];
    };
    int64_t found = look.scale_and_look(factor);
    if (found >= kInfinityBits)
      found =
          place_code(kInSum, known_as, number(look.first_nonfinite_tensor()));
    if (own_nonfinite[i] >= 0)
      found = place_code(kInOwn, known_as, number(own_nonfinite[i]));
    mine = std::max(mine, found);
  }
  constexpr std::string_view kLabel = "largest gradient";
  const Span span(parts_.front().rank().track,
                  {word_of(EntryKind::kAllReduce), kLabel, {}, sizeof(mine)});
  control.all_reduce(Reduction::kInt64Max, bytes_of_number(mine),
                     {.label = kLabel});
  return mine;
}

double GradientCheck::norm(Communicator& control, uint32_t largest_bits) {
  if (largest_bits == 0) return 0;
  // The largest magnitude becomes one below 2^31, so that a square fits 62
  // bits and 2^64 of them 126.
  const int exponent = 30 - std::ilogb(std::bit_cast<float>(largest_bits));
  WideSum mine = {};
  for (GradientLook& look : parts_) mine.add(look.sum_of_squares(exponent));
  uint64_t words[2] = {mine.low, mine.high};
  control.all_reduce(Reduction::kInt128Sum, bytes_of_number(words),
                     {.label = "norm of the gradient"});
  const double squares = std::ldexp(static_cast<double>(words[1]), 64) +
                         static_cast<double>(words[0]);
  return std::ldexp(std::sqrt(squares), -exponent);
}

void GradientCheck::run(Communicator& control, const Model& model,
                        const StepSettings& settings,
                        const std::vector<int32_t>& own_nonfinite,
                        StepOutcome& outcome) {
  const Span span(parts_.front().rank().track, "check gradients");
  const int64_t largest =
      this->largest(control, settings.gradient_factor, own_nonfinite);
  if (largest >= kInSum) {
    outcome.skipped = true;
    outcome.nonfinite_tensor =
        model.tensors[static_cast<size_t>(largest & 0x7FFFFFFF)].name;
    outcome.nonfinite_rank =
        largest >= kInOwn ? static_cast<int>((largest >> 32) & 0xFFFFFF) : -1;
    return;
  }
  if (settings.clip_norm <= 0 && !settings.wants_norm) return;
  outcome.gradient_norm = norm(control, static_cast<uint32_t>(largest));
  constexpr double kAboveZero = 1e-6;
  if (settings.clip_norm > 0 && outcome.gradient_norm > settings.clip_norm)
    for (GradientLook& look : parts_)
      look.scale(settings.clip_norm / (outcome.gradient_norm + kAboveZero));
}

}  // namespace canzona
