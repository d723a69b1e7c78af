#include "canzona/runtime/lent/lent_rank.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

// The options in force are part of the plan: another device would run a
// different algorithm from the one that the plan priced.
std::unique_ptr<Rule> rule_on(const PlacedGroup& group, Engine& engine) {
  const auto planned = group.options.find("device");
  const std::string device = engine.kind();
  if (planned != group.options.end() && planned->second != device)
    throw UsageError(cat("the plan is for rule ", group.rule, " on device ",
                         planned->second, ", but this rank is on ", device));
  return make_rule(group.rule, group.options, DType::kFp32, device);
}

}  // namespace

uint64_t hash_of_options(const Rule& rule) {
  uint64_t hash = 0;
  for (const auto& [name, value] : rule.facts().options())
    for (const std::string* text : {&name, &value})
      for (const char c : *text)
        hash = bits_at(hash, static_cast<unsigned char>(c));
  return hash;
}

LentRank::LentRank(const PlacedPlan& the_plan, int32_t rank,
                   std::vector<Engine*> the_engines, Lanes* the_lanes)
    : plan(the_plan),
      schedule(make_placed_schedule(the_plan, rank,
                                    the_engines.at(0)->batch_width())),
      engines(std::move(the_engines)),
      engine(*engines[0]),
      lanes(the_lanes),
      is_immediate(engine.make_lane() == nullptr),
      gradients(the_plan.tensors.size()),
      steps(the_plan.tensors.size()),
      rates(the_plan.groups.size()) {
  for (const PlacedGroup& group : plan.groups) {
    options.push_back(group.options);
    rules.push_back(rule_on(group, engine));
    hashes.push_back(hash_of_options(*rules.back()));
    CANZONA_CHECK(
        rules.back()->facts().gather_fields() <= static_cast<int>(kMostFields),
        "fields of rule ", group.rule);
  }
  for (const PlacedMatrix& matrix : plan.matrices)
    dims.push_back({matrix.rows, matrix.cols});
  for (const std::vector<int32_t>& states : schedule.states_of)
    CANZONA_CHECK(states.size() <= kMostShardStates, states.size(), " states");
}

Run LentRank::weights(int32_t t, int64_t at) const {
  if (tensor(t).dtype == ParameterDtype::kBf16)
    return run_of(memory.masters[index(t)] + at);
  return advanced(Run{memory.weights[index(t)], DType::kFp32}, at);
}

uint16_t* LentRank::rounded(int32_t t, int64_t at) const {
  if (tensor(t).dtype != ParameterDtype::kBf16) return nullptr;
  return reinterpret_cast<uint16_t*>(memory.weights[index(t)]) + at;
}

Run LentRank::gradient(int32_t t, int64_t at) const {
  const LentGradient& gradient = gradients[index(t)];
  return advanced(Run{gradient.data, gradient.dtype}, at);
}

Shard LentRank::shard(int32_t t, const Dims& whole, int64_t at, int64_t count,
                      Run* states) const {
  size_t filled = 0;
  for (int32_t s : schedule.states_of[index(t)]) {
    const PlacedState& state = schedule.states[index(s)];
    states[filled++] =
        run_of(memory.states[index(state.memory)] + state.at + at);
  }
  return {.whole = whole,
          .count = count,
          .weights = weights(t, at),
          .states = {states, filled},
          .rounded = rounded(t, at)};
}

void LentRank::level_scratch() {
  if (lanes == nullptr) return;
  int64_t most = 0;
  for (int i = 0; i < lanes->num_lanes(); ++i)
    most = std::max(most, lanes->lane(i).arena().reserved());
  for (int i = 0; i < lanes->num_lanes(); ++i)
    lanes->lane(i).arena().reserve(most);
}

namespace {

// Larger than the bits of any fp32 number.
constexpr int64_t kFirstCode = int64_t{1} << 32;

template <class T>
void clear_number(Engine& engine, T* numbers, int64_t count = 1) {
  engine.set_zero(reinterpret_cast<std::byte*>(numbers),
                  count * static_cast<int64_t>(sizeof(T)));
}

}  // namespace

LentGradients::LentGradients(LentRank& rank)
    : rank_(rank),
      memory_(rank.engine.memory()),
      numbers_(memory_.take_array<GradientNumbers>(1)),
      found_(memory_.take_array<int32_t>(1)),
      code_(memory_.take_array<int64_t>(1)) {
  std::vector<std::vector<Extent>> stored;
  for (int32_t t = 0; t < std::ssize(rank.plan.tensors); ++t)
    stored.push_back({{0, stored_elements(rank.plan, t, rank.schedule.rank)}});
  looked_ = parts_of(stored);
  counted_ = parts_of(rank.schedule.counted);
  const size_t most = std::max(looked_.size(), counted_.size());
  runs_.reserve(most);
  codes_.reserve(most);
  bits_.resize(most);
  sums_.resize(most);
  rank.skip = &numbers_->skip;
  clear_number(rank.engine, numbers_);
}

// Parts are small enough to be distributed over the lanes.
std::vector<LentGradients::Part> LentGradients::parts_of(
    const std::vector<std::vector<Extent>>& extents) const {
  const int64_t most = rank_.is_immediate ? int64_t{1} << 18 : int64_t{1} << 40;
  std::vector<Part> parts;
  for (size_t t = 0; t < extents.size(); ++t)
    for (const Extent& e : extents[t])
      for (int64_t i = 0; i < e.count; i += most)
        parts.push_back({static_cast<int32_t>(t),
                         {e.first + i, std::min(most, e.count - i)}});
  return parts;
}

// The first tensor has the largest code.
int64_t LentGradients::code_of(int32_t tensor) const {
  return kFirstCode + std::ssize(rank_.plan.tensors) - tensor;
}

int32_t LentGradients::tensor_of(int64_t code) const {
  if (code < kFirstCode || code == kUnlikeCode) return -1;
  return static_cast<int32_t>(kFirstCode + std::ssize(rank_.plan.tensors) -
                              code);
}

void LentGradients::begin() {
  has_squares_ = has_norm_ = false;
  clear_number(rank_.engine, numbers_);
  clear_number(rank_.engine, rank_.memory.numbers, kLentNumbers);
}

void LentGradients::collect(const std::vector<Part>& parts) {
  runs_.clear();
  codes_.clear();
  for (const Part& part : parts) {
    if (!rank_.has_gradient(part.tensor)) continue;
    runs_.push_back(
        {rank_.gradient(part.tensor, part.extent.first), part.extent.count});
    codes_.push_back(code_of(part.tensor));
  }
}

// Encodes which tensors have gradients, and the learning rates and options of
// the groups, as a number and its negative.
void LentGradients::put_likeness() {
  constexpr uint64_t kSeed = 0x6c656e74, kMask = (uint64_t{1} << 62) - 1;
  uint64_t sum = 0;
  for (size_t g = 0; g < rank_.rates.size(); ++g)
    sum += bits_at(kSeed + g + rank_.hashes[g],
                   std::bit_cast<uint64_t>(rank_.rates[g]));
  for (size_t t = 0; t < rank_.gradients.size(); ++t)
    if (rank_.gradients[t].data != nullptr) sum += bits_at(kSeed, t);
  const auto likeness = static_cast<int64_t>(sum & kMask);
  const int64_t both[] = {likeness, -likeness};
  rank_.engine.put_numbers(shared() + 1, both);
}

void LentGradients::look() {
  collect(looked_);
  put_likeness();
  if (rank_.is_immediate)
    look_now();
  else
    issue_look();
}

void LentGradients::look_now() {
  rank_.for_each(std::ssize(runs_), [this](Engine& lane, int64_t i) {
    bits_[index(i)] = lane.largest_bits({&runs_[index(i)], 1});
  });
  int64_t largest = 0;
  for (size_t i = 0; i < runs_.size(); ++i)
    largest = std::max<int64_t>(
        largest, bits_[i] >= kInfinityBits ? codes_[i] : bits_[i]);
  shared()[0] = largest;
}

// Searches for a code only where a number is not finite.
void LentGradients::issue_look() {
  Engine& engine = rank_.engine;
  clear_number(engine, found_);
  clear_number(engine, code_);
  engine.find_largest(numbers_, runs_);
  const auto find = [&] { engine.find_nonfinite(found_, runs_); };
  engine.guard(&numbers_->is_finite, std::cref(find));
  engine.keep_first_code(code_, found_, codes_);
  engine.raise(shared(), &numbers_->largest);
  engine.raise(shared(), code_);
}

// Scales by the largest magnitude over all ranks.
void LentGradients::squares() {
  has_squares_ = true;
  collect(counted_);
  rank_.engine.judge_shared(numbers_, shared(), kInfinityBits);
  if (rank_.is_immediate) {
    if (numbers_->largest > 0 && numbers_->largest < kInfinityBits) {
      const int exponent =
          squares_exponent(static_cast<uint32_t>(numbers_->largest));
      rank_.for_each(std::ssize(runs_), [&](Engine& lane, int64_t i) {
        sums_[index(i)] = lane.sum_of_squares({&runs_[index(i)], 1}, exponent);
      });
      WideSum sum;
      for (size_t i = 0; i < runs_.size(); ++i) sum.add(sums_[i]);
      numbers_->squares[0] = sum.low;
      numbers_->squares[1] = sum.high;
    }
  } else {
    rank_.engine.add_squares(numbers_, runs_);
  }
  rank_.engine.split_squares(limbs(), numbers_);
}

// Takes the sums over all ranks.
void LentGradients::take_squares() {
  rank_.engine.judge_shared(numbers_, shared(), kInfinityBits);
  rank_.engine.join_squares(numbers_, limbs());
  has_norm_ = true;
}

void LentGradients::clip(double limit) {
  take_squares();
  Engine& engine = rank_.engine;
  engine.clip(numbers_, limit);
  collect(looked_);
  const auto scale = [&](Engine& lane, int64_t i) {
    const Engine::Stretch& s = runs_[index(i)];
    lane.scale_by({const_cast<std::byte*>(s.run.data), s.run.dtype},
                  &numbers_->factor, s.count);
  };
  const auto scale_all = [&] { rank_.for_each(std::ssize(runs_), scale); };
  if (!rank_.is_immediate)
    engine.guard(&numbers_->is_whole, std::cref(scale_all));
  else if (numbers_->is_whole == 0)
    scale_all();
}

void LentGradients::judge(bool skip) {
  if (has_squares_ && !has_norm_) {
    take_squares();
    rank_.engine.clip(numbers_, 0);
  }
  rank_.engine.judge_shared(numbers_, shared(),
                            skip ? int64_t{kInfinityBits} : kUnlikeCode);
}

GradientNumbers LentGradients::read() {
  GradientNumbers numbers;
  rank_.engine.download(reinterpret_cast<std::byte*>(&numbers),
                        reinterpret_cast<const std::byte*>(numbers_),
                        sizeof(numbers));
  return numbers;
}

}  // namespace canzona
