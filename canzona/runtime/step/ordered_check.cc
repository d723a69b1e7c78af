#include "canzona/runtime/step/ordered_check.h"

#include <bit>
#include <functional>

namespace canzona {

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

// A code is looked for only where a sum is not finite.
void OrderedCheck::look(double factor) {
  Engine& engine = rank().engine;
  const auto clear = [&](auto* number) {
    engine.set_zero(reinterpret_cast<std::byte*>(number), sizeof(*number));
  };
  clear(numbers_);
  clear(sum_code_);
  for (Part& part : parts_) {
    part.look.scale(factor);
    engine.find_largest(numbers_, part.look.counted());
  }
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
