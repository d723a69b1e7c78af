#include "canzona/conformance/tensor_memory.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

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

TensorMemory::TensorMemory(Engine& engine, const Rule& rule, const Dims& dims)
    : engine_(engine),
      rule_(rule),
      memory_(engine),
      count_(num_elements(dims)),
      whole_(rule, dims),
      in_two_(rule, dims) {
  check_size(rule.facts().tensor_states(dims), dims);
  weights_ = memory_.zeros(count_, rule.dtype());
  grad_ = memory_.zeros(count_, rule.dtype());
  update_ = memory_.zeros(count_, rule.dtype());
  if (rule.facts().needs_whole_matrix())
    for (int i = 0; i < rule.facts().gather_fields(); ++i)
      fields_.push_back(memory_.zeros(count_, rule.dtype()));
  states_ = std::move(make_states(engine, rule, dims, 1, memory_.arena())[0]);
  for (const StateFact& fact : states_.facts)
    CANZONA_CHECK(fact.lives == Lives::kWithOwner || fact.elements() == count_,
                  "state ", fact.name, " of a tensor of ", to_string(dims));
  const int64_t cut = count_ / 3;
  add_piece(whole_, 0, count_);
  if (cut > 0) add_piece(in_two_, 0, cut);
  add_piece(in_two_, cut, count_ - cut);
  for (Run state : states_.with_owner) {
    whole_.add_owned(state);
    in_two_.add_owned(state);
  }
}

void TensorMemory::add_piece(TensorBatch& batch, int64_t begin,
                             int64_t count) const {
  std::vector<Run> states;
  for (Run state : states_.with_shard) states.push_back(advanced(state, begin));
  batch.add({.whole = batch.dims(),
             .count = count,
             .grad = advanced(grad_, begin),
             .weights = advanced(weights_, begin),
             .states = states});
}

void TensorMemory::set(Run run, std::span<const double> values) const {
  if (run.dtype == DType::kFp64)
    memory_.set(run, std::vector<double>(values.begin(), values.end()));
  else
    memory_.set(run, std::vector<float>(values.begin(), values.end()));
}

std::vector<double> TensorMemory::values(ConstRun run, int64_t count) const {
  if (run.dtype == DType::kFp64) return memory_.get<double>(run.data, count);
  const std::vector<float> here = memory_.get<float>(run.data, count);
  return {here.begin(), here.end()};
}

bool TensorMemory::same_bits(Run run, const TensorMemory& other, Run its_run,
                             int64_t elements) const {
  const int64_t bytes = elements * size_of(run.dtype);
  return memory_.get<std::byte>(run.data, bytes) ==
         other.memory_.get<std::byte>(its_run.data, bytes);
}

std::string TensorMemory::difference(const TensorMemory& other) const {
  if (!same_bits(weights_, other, other.weights_, count_)) return "weights";
  if (!same_bits(grad_, other, other.grad_, count_)) return "gradient";
  for (size_t i = 0; i < states_.runs.size(); ++i)
    if (const StateFact& fact = states_.facts[i];
        !same_bits(state(i), other, other.state(i), fact.elements()))
      return cat("state ", fact.name);
  return "";
}

}  // namespace canzona
