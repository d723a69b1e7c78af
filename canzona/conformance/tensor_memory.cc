#include "canzona/conformance/tensor_memory.h"

#include <algorithm>
#include <cstring>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"

namespace canzona {
namespace {

void set_identities(Run run, const StateFact& fact) {
  CANZONA_CHECK(fact.shape.size() >= 2 &&
                    fact.shape.back() == fact.shape[fact.shape.size() - 2],
                "identities of state ", fact.name);
  const int64_t n = fact.shape.back();
  const int64_t square = n * n;
  for (int64_t begin = 0; begin < fact.elements(); begin += square)
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = begin + i * n + i;
      if (run.dtype == DType::kFp64)
        reinterpret_cast<double*>(run.data)[at] = 1;
      else
        reinterpret_cast<float*>(run.data)[at] = 1;
    }
}

void check_size(const std::vector<StateFact>& facts, const Dims& dims) {
  int64_t total = checked_mul(num_elements(dims), 4, "elements of a tensor");
  for (const StateFact& fact : facts) {
    total += std::min(fact.elements(), kMaxReplayElements + 1);
    if (total > kMaxReplayElements)
      throw UsageError(cat("a tensor of ", to_string(dims),
                           " needs states of more than ", kMaxReplayElements,
                           " elements"));
  }
}

}  // namespace

Run part_of(Run run, int64_t begin) {
  return {run.data + begin * size_of(run.dtype), run.dtype};
}

TensorMemory::TensorMemory(const Rule& rule, const Dims& dims)
    : scope_(arena_),
      dims_(dims),
      dtype_(rule.dtype()),
      count_(num_elements(dims)),
      facts_(rule.facts().tensor_states(dims)) {
  check_size(facts_, dims);
  weights_ = take(count_);
  grad_ = take(count_);
  update_ = take(count_);
  if (rule.facts().needs_whole_matrix())
    for (int i = 0; i < rule.facts().gather_fields(); ++i)
      fields_.push_back(take(count_));
  for (const StateFact& fact : facts_) {
    states_.push_back(take(fact.elements()));
    if (fact.initially == Initially::kIdentity)
      set_identities(states_.back(), fact);
    const bool with_shard = fact.lives == Lives::kWithShard;
    CANZONA_CHECK(!with_shard || fact.elements() == count_, "state ", fact.name,
                  " of a tensor of ", to_string(dims));
    (with_shard ? shard_states_ : owned_states_).push_back(states_.back());
  }
}

Run TensorMemory::take(int64_t elements) {
  const int64_t bytes = elements * size_of(dtype_);
  const Run run{arena_.take(bytes), dtype_};
  std::memset(run.data, 0, static_cast<size_t>(bytes));
  return run;
}

Shard TensorMemory::shard(int64_t begin, int64_t count,
                          std::vector<Run>& states) const {
  states.clear();
  for (const Run& state : shard_states_)
    states.push_back(part_of(state, begin));
  return {.whole = dims_,
          .count = count,
          .grad = part_of(grad_, begin),
          .weights = part_of(weights_, begin),
          .states = states};
}

void TensorMemory::set(Run run, std::span<const double> values) const {
  if (run.dtype == DType::kFp64) {
    std::copy(values.begin(), values.end(),
              reinterpret_cast<double*>(run.data));
    return;
  }
  std::transform(values.begin(), values.end(),
                 reinterpret_cast<float*>(run.data),
                 [](double x) { return static_cast<float>(x); });
}

std::vector<double> TensorMemory::values(ConstRun run, int64_t count) const {
  if (run.dtype == DType::kFp64) {
    const auto* data = reinterpret_cast<const double*>(run.data);
    return {data, data + count};
  }
  const auto* data = reinterpret_cast<const float*>(run.data);
  return {data, data + count};
}

std::string TensorMemory::difference(const TensorMemory& other) const {
  const auto differ = [&](Run a, Run b, int64_t elements) {
    const auto bytes = static_cast<size_t>(elements * size_of(dtype_));
    return std::memcmp(a.data, b.data, bytes) != 0;
  };
  if (differ(weights_, other.weights_, count_)) return "weights";
  if (differ(grad_, other.grad_, count_)) return "gradient";
  for (size_t i = 0; i < states_.size(); ++i)
    if (differ(states_[i], other.states_[i], facts_[i].elements()))
      return cat("state ", facts_[i].name);
  return "";
}

void step_by_stages(Engine& engine, const Rule& rule, const Step& step,
                    const TensorMemory& memory, DecompositionHook* hook) {
  const int64_t cut = memory.count() / 3;
  const std::pair<int64_t, int64_t> pieces[] = {{0, cut},
                                                {cut, memory.count() - cut}};
  std::vector<Run> states;
  if (rule.facts().needs_whole_matrix()) {
    for (const auto& [begin, count] : pieces) {
      if (count == 0) continue;
      std::vector<Run> fields;
      for (const Run& field : memory.fields())
        fields.push_back(part_of(field, begin));
      rule.prepare(engine, step, memory.shard(begin, count, states), fields);
    }
    const std::vector<ConstRun> gathered(memory.fields().begin(),
                                         memory.fields().end());
    rule.transform(engine, step,
                   {.dims = memory.dims(),
                    .count = 1,
                    .fields = gathered,
                    .out = memory.update(),
                    .states = memory.owned_states(),
                    .phase = 0,
                    .hook = hook});
  }
  for (const auto& [begin, count] : pieces)
    if (count != 0)
      rule.apply(engine, step, memory.shard(begin, count, states),
                 part_of(memory.update(), begin));
}

void step_as_one(Engine& engine, const Rule& rule, const Step& step,
                 const TensorMemory& memory, DecompositionHook* hook) {
  std::vector<Run> states;
  const Shard shard = memory.shard(0, memory.count(), states);
  rule.step_whole(engine, step,
                  {.dims = memory.dims(),
                   .shards = {&shard, 1},
                   .owned = memory.owned_states(),
                   .phase = 0,
                   .hook = hook});
}

}  // namespace canzona
