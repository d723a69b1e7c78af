#include "canzona/runtime/step/gradient_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace canzona {

GradientLook::GradientLook(Rank& rank)
    : rank_(rank),
      planned_(checked_gradients(rank.part, rank.at, rank.layout, rank.kept)) {
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

void GradientLook::scale_and_find_largest(GradientNumbers* numbers,
                                          double factor) {
  scale(planned_.uncounted, factor);
  if (factor == 1)
    rank_.engine.find_largest(numbers, counted_);
  else
    rank_.engine.scale_and_find_largest(numbers, counted_to_scale_, factor);
}

void GradientLook::scale_by(const double* factor) {
  for (const Extent& extent : planned_.scaled)
    rank_.engine.scale_by(run_of(rank_.store.gradients() + extent.first),
                          factor, extent.count);
}

WideSum GradientLook::sum_of_squares(int exponent) {
  if (!counts_squares()) return {};
  return rank_.engine.sum_of_squares(counted_, exponent);
}

namespace {

constexpr int64_t kInSum = int64_t{1} << 61;
constexpr int64_t kInOwn = int64_t{1} << 62;

template <class Number>
std::span<std::byte> bytes_of_number(Number& number) {
  return {reinterpret_cast<std::byte*>(&number), sizeof(number)};
}

}  // namespace

int64_t nonfinite_code(const Rank& rank, int32_t tensor, bool own) {
  return (own ? kInOwn : kInSum) | (int64_t{rank.known_as} << 32) |
         rank.part.tensors[static_cast<size_t>(tensor)];
}

bool say_if_skipped(int64_t largest, const Model& model, StepOutcome& outcome) {
  if (largest < kInSum) return false;
  outcome.skipped = true;
  outcome.nonfinite_tensor =
      model.tensors[static_cast<size_t>(largest & 0x7FFFFFFF)].name;
  outcome.nonfinite_rank =
      largest >= kInOwn ? static_cast<int>((largest >> 32) & 0xFFFFFF) : -1;
  return true;
}

int64_t GradientCheck::largest(Communicator& control, double factor,
                               const std::vector<int32_t>& own_nonfinite) {
  int64_t mine = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    GradientLook& look = parts_[i];
    int64_t found = look.scale_and_look(factor);
    if (found >= kInfinityBits)
      found = nonfinite_code(look.rank(), look.first_nonfinite_tensor(), false);
    if (own_nonfinite[i] >= 0)
      found = nonfinite_code(look.rank(), own_nonfinite[i], true);
    mine = std::max(mine, found);
  }
  const Span span(
      parts_.front().rank().track,
      {word_of(EntryKind::kAllReduce), kLargestLabel, {}, sizeof(mine)});
  control.all_reduce(Reduction::kInt64Max, bytes_of_number(mine),
                     {.label = kLargestLabel});
  return mine;
}

double GradientCheck::norm(Communicator& control, uint32_t largest_bits) {
  if (largest_bits == 0) return 0;
  const int exponent = squares_exponent(largest_bits);
  WideSum mine = {};
  for (GradientLook& look : parts_) mine.add(look.sum_of_squares(exponent));
  uint64_t words[2] = {mine.low, mine.high};
  control.all_reduce(Reduction::kInt128Sum, bytes_of_number(words),
                     {.label = kNormLabel});
  return norm_of_squares({words[0], words[1]}, exponent);
}

void GradientCheck::run(Communicator& control, const Model& model,
                        const StepSettings& settings,
                        const std::vector<int32_t>& own_nonfinite,
                        StepOutcome& outcome) {
  const Span span(parts_.front().rank().track, "check gradients");
  const int64_t largest =
      this->largest(control, settings.gradient_factor, own_nonfinite);
  if (say_if_skipped(largest, model, outcome)) return;
  if (settings.clip_norm <= 0 && !settings.wants_norm) return;
  outcome.gradient_norm = norm(control, static_cast<uint32_t>(largest));
  const double factor = clip_factor(outcome.gradient_norm, settings.clip_norm);
  if (factor == 1) return;
  for (GradientLook& look : parts_) look.scale(factor);
}

OrderedCheck::Part::Part(Rank& rank, const int64_t* own)
    : look(rank), own_code(own) {
  for (const int32_t tensor : look.counted_tensors())
    codes.push_back(nonfinite_code(rank, tensor, false));
}

void OrderedCheck::add(Rank& rank, const int64_t* own_code) {
  parts_.emplace_back(rank, own_code);
  if (numbers_ != nullptr) return;
  memory_ = std::make_unique<Arena>(rank.engine.memory());
  whole_life_ = std::make_unique<Arena::Scope>(*memory_);
  numbers_ = memory_->take_array<GradientNumbers>(1);
  found_ = memory_->take_array<int32_t>(1);
  sum_code_ = memory_->take_array<int64_t>(1);
  for (auto& notice : notices_) notice = rank.engine.make_notice();
}

// Searches for a code only where a sum is not finite.
void OrderedCheck::look(double factor) {
  Engine& engine = rank().engine;
  const auto clear = [&](auto* number) {
    engine.set_zero(reinterpret_cast<std::byte*>(number), sizeof(*number));
  };
  clear(numbers_);
  clear(sum_code_);
  for (Part& part : parts_) part.look.scale_and_find_largest(numbers_, factor);
  engine.if_zero(&numbers_->is_finite, [&] {
    for (Part& part : parts_) {
      engine.find_nonfinite(found_, part.look.counted());
      engine.keep_first_code(sum_code_, found_, part.codes);
    }
  });
  engine.raise(&numbers_->largest, sum_code_);
  for (Part& part : parts_) engine.raise(&numbers_->largest, part.own_code);
}

void OrderedCheck::all_reduce(Reduction reduction, std::byte* data,
                              int64_t bytes, std::string_view label) {
  Courier& courier = rank().groups.check();
  rank().settle(courier);
  courier
      .all_reduce(reduction, {data, static_cast<size_t>(bytes)},
                  {.label = label})
      .order(rank().compute.get());
}

void OrderedCheck::post() {
  const auto* largest = reinterpret_cast<const int32_t*>(&numbers_->largest);
  const auto* norm = reinterpret_cast<const int32_t*>(&numbers_->norm);
  Engine& engine = rank().engine;
  for (const size_t half : {0U, 1U}) {
    notices_[half]->post(engine, largest + half);
    notices_[2 + half]->post(engine, norm + half);
  }
}

void OrderedCheck::issue(const StepSettings& settings) {
  const Span span(rank().track, "check gradients");
  Engine& engine = rank().engine;
  const auto looked = [&] { look(settings.gradient_factor); };
  engine.repeat(std::cref(looked));
  all_reduce(Reduction::kInt64Max,
             reinterpret_cast<std::byte*>(&numbers_->largest),
             sizeof(numbers_->largest), kLargestLabel);
  const bool wants_norm = settings.clip_norm > 0 || settings.wants_norm;
  const auto judged = [&] {
    engine.judge(numbers_);
    if (!wants_norm) return;
    for (Part& part : parts_)
      if (part.look.counts_squares())
        engine.add_squares(numbers_, part.look.counted());
  };
  engine.repeat(std::cref(judged));
  if (wants_norm)
    all_reduce(Reduction::kInt128Sum,
               reinterpret_cast<std::byte*>(numbers_->squares),
               sizeof(numbers_->squares), kNormLabel);
  const auto clipped = [&] {
    if (wants_norm) {
      engine.clip(numbers_, settings.clip_norm);
      engine.if_zero(&numbers_->is_whole, [&] {
        for (Part& part : parts_) part.look.scale_by(&numbers_->factor);
      });
    }
    post();
  };
  engine.repeat(std::cref(clipped));
}

void OrderedCheck::read(const Model& model, StepOutcome& outcome) {
  std::array<uint32_t, kWords> words{};
  for (size_t i = 0; i < kWords; ++i)
    words[i] = static_cast<uint32_t>(notices_[i]->wait());
  constexpr int kHalf = 32;
  const auto whole = [&](size_t low) {
    return (uint64_t{words[low + 1]} << kHalf) | words[low];
  };
  if (say_if_skipped(static_cast<int64_t>(whole(0)), model, outcome)) return;
  outcome.gradient_norm = std::bit_cast<double>(whole(2));
}

}  // namespace canzona
