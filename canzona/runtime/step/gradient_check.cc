#include "canzona/runtime/step/gradient_check.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "canzona/base/error.h"

namespace canzona::runtime {
namespace {

constexpr int64_t kInSum = int64_t{1} << 61;
constexpr int64_t kInOwn = int64_t{1} << 62;
constexpr int kRankBits = 24;
constexpr int64_t kMostTensors = (int64_t{1} << 30) - 1;

template <class T>
void clear_number(Engine& engine, T* numbers, int64_t count = 1) {
  engine.set_zero(reinterpret_cast<std::byte*>(numbers),
                  count * static_cast<int64_t>(sizeof(T)));
}

// Views are read-only where they are examined.
Run writable(const ConstRun& run) {
  return {const_cast<std::byte*>(run.data), run.dtype};
}

}  // namespace

int64_t nonfinite_code(int32_t tensor, int32_t rank, bool own) {
  return (own ? kInOwn : kInSum) | (kMostTensors - tensor) << kRankBits | rank;
}

NonfinitePlace place_of_code(int64_t code) {
  if (code < kInSum || code == kUnlikeCode) return {};
  const int64_t place = code & (kInSum - 1);
  const int64_t rank = place & ((int64_t{1} << kRankBits) - 1);
  return {static_cast<int32_t>(kMostTensors - (place >> kRankBits)),
          code >= kInOwn ? static_cast<int32_t>(rank) : -1};
}

GradientCheck::GradientCheck(StepEngines& engines, const Settings& settings)
    : engines_(engines),
      settings_(settings),
      memory_(engines.lead.memory()),
      numbers_(memory_.take_array<GradientNumbers>(1)),
      found_(memory_.take_array<int32_t>(1)),
      code_(memory_.take_array<int64_t>(1)),
      shared_(settings.numbers != nullptr
                  ? settings.numbers
                  : memory_.take_array<int64_t>(kNumNumbers)) {
  engines.skip = skip();
  clear_number(engines.lead, numbers_);
  if (!settings.posts || engines.is_immediate) return;
  for (auto& notice : notices_) notice = engines.lead.make_notice();
}

template <class Work>
void GradientCheck::run(const Work& work) const {
  if (settings_.in_place)
    engines_.lead.repeat(std::cref(work));
  else
    work();
}

void GradientCheck::begin() {
  runs_ = nullptr;
  clear();
  is_begun_ = true;
}

void GradientCheck::clear() {
  clear_number(engines_.lead, numbers_);
  clear_number(engines_.lead, shared_, kNumNumbers);
}

void GradientCheck::look(const GradientRuns& runs, double factor) {
  runs_ = &runs;
  const bool is_begun = std::exchange(is_begun_, false);
  const auto scale = [&](Engine& lane, int64_t i) {
    const Engine::Stretch& s = runs.unlooked[index(i)];
    lane.scale(writable(s.run), factor, s.count);
  };
  run([&] {
    if (!is_begun) clear();
    if (factor != 1) engines_.for_each(std::ssize(runs.unlooked), scale);
    if (engines_.is_immediate)
      look_now(factor);
    else
      issue_look(factor);
  });
}

void GradientCheck::look_now(double factor) {
  const std::vector<Engine::Stretch>& looked = runs_->looked;
  bits_.resize(looked.size());
  engines_.for_each(std::ssize(looked), [&](Engine& lane, int64_t i) {
    const Engine::Stretch& s = looked[index(i)];
    const Engine::ScaledStretch scaled{writable(s.run), s.count};
    bits_[index(i)] = factor == 1 ? lane.largest_bits({&s, 1})
                                  : lane.scale_and_look({&scaled, 1}, factor);
  });
  for (size_t i = 0; i < looked.size(); ++i)
    shared_[0] = std::max<int64_t>(
        shared_[0], bits_[i] >= kInfinityBits ? runs_->codes[i] : bits_[i]);
}

// Searches for a code only where a number is not finite.
void GradientCheck::issue_look(double factor) {
  Engine& engine = engines_.lead;
  const std::vector<Engine::Stretch>& looked = runs_->looked;
  clear_number(engine, found_);
  clear_number(engine, code_);
  if (factor == 1) {
    engine.find_largest(numbers_, looked);
  } else {
    scaled_.clear();
    for (const Engine::Stretch& s : looked)
      scaled_.push_back({writable(s.run), s.count});
    engine.scale_and_find_largest(numbers_, scaled_, factor);
  }
  const auto find = [&] { engine.find_nonfinite(found_, looked); };
  if (settings_.in_place)
    engine.if_zero(&numbers_->is_finite, std::cref(find));
  else
    engine.guard(&numbers_->is_finite, std::cref(find));
  engine.keep_first_code(code_, found_, runs_->codes);
  engine.raise(shared_, &numbers_->largest);
  engine.raise(shared_, code_);
}

void GradientCheck::compare(int64_t likeness) {
  const int64_t both[] = {likeness, -likeness};
  engines_.lead.put_numbers(shared_ + 1, both);
}

void GradientCheck::squares() {
  const std::vector<Engine::Stretch>& counted = runs_->counted;
  Engine& engine = engines_.lead;
  run([&] {
    engine.judge_shared(numbers_, shared_, kInfinityBits);
    if (!engines_.is_immediate) {
      engine.add_squares(numbers_, counted);
    } else if (numbers_->largest > 0 && numbers_->largest < kInfinityBits) {
      const int exponent =
          squares_exponent(static_cast<uint32_t>(numbers_->largest));
      sums_.resize(counted.size());
      engines_.for_each(std::ssize(counted), [&](Engine& lane, int64_t i) {
        sums_[index(i)] =
            lane.sum_of_squares({&counted[index(i)], 1}, exponent);
      });
      WideSum sum;
      for (const WideSum& each : sums_) sum.add(each);
      numbers_->squares[0] = sum.low;
      numbers_->squares[1] = sum.high;
    }
    engine.split_squares(shared_ + kFirstLimb, numbers_);
  });
}

void GradientCheck::clip(double limit) {
  Engine& engine = engines_.lead;
  const auto scale = [&](Engine& lane, int64_t i) {
    const Engine::Stretch& s = runs_->clipped[index(i)];
    lane.scale_by(writable(s.run), &numbers_->factor, s.count);
  };
  const auto scale_all = [&] {
    engines_.for_each(std::ssize(runs_->clipped), scale);
  };
  run([&] {
    engine.judge_shared(numbers_, shared_, kInfinityBits);
    engine.join_squares(numbers_, shared_ + kFirstLimb);
    engine.clip(numbers_, limit);
    if (limit <= 0) return;
    if (engines_.is_immediate) {
      if (numbers_->is_whole == 0) scale_all();
    } else if (settings_.in_place) {
      engine.if_zero(&numbers_->is_whole, std::cref(scale_all));
    } else {
      engine.guard(&numbers_->is_whole, std::cref(scale_all));
    }
  });
}

void GradientCheck::judge(int64_t least) {
  run([&] {
    engines_.lead.judge_shared(numbers_, shared_, least);
    if (notices_[0] != nullptr) post();
  });
}

void GradientCheck::post() {
  const auto* largest = reinterpret_cast<const int32_t*>(&numbers_->largest);
  const auto* norm = reinterpret_cast<const int32_t*>(&numbers_->norm);
  for (const size_t half : {0U, 1U}) {
    notices_[half]->post(engines_.lead, largest + half);
    notices_[2 + half]->post(engines_.lead, norm + half);
  }
}

GradientNumbers GradientCheck::read() {
  GradientNumbers numbers;
  if (notices_[0] == nullptr) {
    engines_.lead.download(reinterpret_cast<std::byte*>(&numbers),
                           reinterpret_cast<const std::byte*>(numbers_),
                           sizeof(numbers));
    return numbers;
  }
  const auto whole = [&](size_t low) {
    const auto word = [&](size_t i) {
      return uint64_t{static_cast<uint32_t>(notices_[i]->wait())};
    };
    const uint64_t lower = word(low);
    return word(low + 1) << 32 | lower;
  };
  numbers.largest = static_cast<int64_t>(whole(0));
  numbers.norm = std::bit_cast<double>(whole(2));
  return numbers;
}

}  // namespace canzona::runtime
