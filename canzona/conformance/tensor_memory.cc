#include "canzona/conformance/tensor_memory.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

std::vector<std::byte> downloaded(Engine& engine, ConstRun run,
                                  int64_t elements) {
  std::vector<std::byte> here(
      static_cast<size_t>(elements * size_of(run.dtype)));
  engine.download(here.data(), run.data, std::ssize(here));
  return here;
}

template <class Real>
std::vector<double> numbers(const std::vector<std::byte>& bytes) {
  const auto* data = reinterpret_cast<const Real*>(bytes.data());
  return {data, data + bytes.size() / sizeof(Real)};
}

template <class Real>
void upload(Engine& engine, Run to, std::span<const double> values) {
  std::vector<Real> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 [](double x) { return static_cast<Real>(x); });
  engine.upload(to.data, reinterpret_cast<const std::byte*>(rounded.data()),
                static_cast<int64_t>(rounded.size() * sizeof(Real)));
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

TensorMemory::TensorMemory(Engine& engine, const Rule& rule, const Dims& dims)
    : engine_(engine),
      arena_(engine.memory()),
      scope_(arena_),
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
    begin_state(states_.back(), fact);
    const bool with_shard = fact.lives == Lives::kWithShard;
    CANZONA_CHECK(!with_shard || fact.elements() == count_, "state ", fact.name,
                  " of a tensor of ", to_string(dims));
    (with_shard ? shard_states_ : owned_states_).push_back(states_.back());
  }
}

Run TensorMemory::take(int64_t elements) {
  const int64_t bytes = elements * size_of(dtype_);
  const Run run{arena_.take(bytes), dtype_};
  engine_.set_zero(run.data, bytes);
  return run;
}

void TensorMemory::begin_state(Run run, const StateFact& fact) {
  if (fact.initially != Initially::kIdentity || fact.elements() == 0) return;
  CANZONA_CHECK(fact.shape.size() >= 2 &&
                    fact.shape.back() == fact.shape[fact.shape.size() - 2],
                "identities of state ", fact.name);
  const int64_t n = fact.shape.back();
  engine_.set_identity(as_matrices(run, n, n, fact.elements() / (n * n)), 1.0);
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
  if (run.dtype == DType::kFp64)
    upload<double>(engine_, run, values);
  else
    upload<float>(engine_, run, values);
}

std::vector<double> TensorMemory::values(ConstRun run, int64_t count) const {
  const std::vector<std::byte> here = downloaded(engine_, run, count);
  return run.dtype == DType::kFp64 ? numbers<double>(here)
                                   : numbers<float>(here);
}

bool TensorMemory::same_bits(Run run, const TensorMemory& other, Run its_run,
                             int64_t elements) const {
  return downloaded(engine_, run, elements) ==
         downloaded(other.engine_, its_run, elements);
}

std::string TensorMemory::difference(const TensorMemory& other) const {
  if (!same_bits(weights_, other, other.weights_, count_)) return "weights";
  if (!same_bits(grad_, other, other.grad_, count_)) return "gradient";
  for (size_t i = 0; i < states_.size(); ++i)
    if (!same_bits(states_[i], other, other.states_[i], facts_[i].elements()))
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
