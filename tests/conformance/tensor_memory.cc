#include "tests/conformance/tensor_memory.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/shampoo/facts.h"
#include "canzona/rules/soap/facts.h"

namespace canzona::tests {
namespace {

void check_size(const std::vector<StateFact>& facts, const Dims& dims) {
  int64_t total = checked_mul(num_elements(dims), 4, "elements of a tensor");
  for (const StateFact& fact : facts) {
    total += std::min(fact.elements(), kMaxReplayElements + 1);
    if (total > kMaxReplayElements)
      throw UsageError(cat("a tensor of ", canzona::to_string(dims),
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
                  "state ", fact.name, " of a tensor of ",
                  canzona::to_string(dims));
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

namespace {

Dims row_major(std::span<const int64_t> dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

// A whole state, or one matrix of a stack.
StateView contiguous(size_t state, Dims dims, int64_t place = 0) {
  const int64_t elements = num_elements(dims);
  const Dims strides = row_major(dims);
  return {state, place * elements, std::move(dims), strides};
}

// A block of a state that is as large as the tensor.
StateView block_of(int state, const Blocking& blocking, int64_t number) {
  const TensorBlock block = blocking.block(number);
  const std::span<const int64_t> sizes = block.sizes.span();
  StateView view{static_cast<size_t>(state), 0,
                 Dims(sizes.begin(), sizes.end()),
                 row_major(blocking.sizes().span())};
  for (size_t i = 0; i < sizes.size(); ++i)
    view.offset += block.start.span()[i] * view.strides[i];
  return view;
}

// Returns state number `kind` among those that each factor has: a square or a
// row.
std::optional<StateView> factor_of(const FactorLayout& factors, int64_t block,
                                   int axis, int kind, bool square = true) {
  if (!factors.has_factor(axis) || kind >= factors.states_per_kind())
    return std::nullopt;
  const FactorPlace at = factors.place(factors.blocking().block(block), axis);
  const int64_t n = at.side;
  return contiguous(static_cast<size_t>(at.first_state + kind),
                    square ? Dims{n, n} : Dims{n}, at.place);
}

// "factor_left" → 0 if it begins with "factor_" and ends with an axis's name.
std::optional<int> axis_after(const StateNames& names, std::string_view what,
                              std::string_view kind) {
  if (!what.starts_with(kind)) return std::nullopt;
  what.remove_prefix(kind.size());
  for (int axis = 0; axis < names.order(); ++axis)
    if (what == names.axis_name(axis)) return axis;
  return std::nullopt;
}

// Returns the number of axes before this one that have factors; nothing if it
// has none itself.
std::optional<int> place_among_factors(const FactorLayout& factors, int axis) {
  if (!factors.has_factor(axis)) return std::nullopt;
  int place = 0;
  for (int before = 0; before < axis; ++before)
    place += factors.has_factor(before) ? 1 : 0;
  return place;
}

// States of Muon and AdamW under the names of fixtures.
class PlainNames final : public StateNames {
 public:
  explicit PlainNames(std::vector<StateFact> facts)
      : facts_(std::move(facts)) {}

  std::optional<StateView> find(int64_t, std::string_view what) const override {
    for (size_t i = 0; i < facts_.size(); ++i)
      if (facts_[i].name == what) return contiguous(i, facts_[i].shape);
    return std::nullopt;
  }

 private:
  std::vector<StateFact> facts_;
};

class SoapNames final : public StateNames {
 public:
  SoapNames(const RuleOptions& options, const Dims& dims)
      : soap_(read_soap_options(options)), layout_(soap_, dims) {}

  int64_t num_blocks() const override {
    return layout_.blocking().num_blocks();
  }
  int order() const override { return layout_.blocking().order(); }
  // Ignored dims are not counted.
  std::string axis_name(int axis) const override {
    if (soap_.ignored_axes.none()) return StateNames::axis_name(axis);
    const auto place = place_among_factors(layout_.factors(), axis);
    return place ? StateNames::axis_name(*place) : "";
  }

  std::optional<StateView> find(int64_t block,
                                std::string_view what) const override {
    if (what == "exp_avg" && soap_.has_first_moment()) return moment(block, 0);
    if (what == "exp_avg_sq") return moment(block, layout_.exp_avg_sq());
    if (what == "graft" && soap_.has_grafting_moment())
      return moment(block, layout_.grafting());
    const FactorLayout& factors = layout_.factors();
    if (auto axis = axis_after(*this, what, "factor_"))
      return factor_of(factors, block, *axis, 0);
    if (auto axis = axis_after(*this, what, "basis_"))
      return factor_of(factors, block, *axis, 1);
    if (auto axis = axis_after(*this, what, "eigval_"))
      return factor_of(factors, block, *axis, 2, false);
    return std::nullopt;
  }

 private:
  StateView moment(int64_t block, int state) const {
    return block_of(state, layout_.blocking(), block);
  }

  SoapOptions soap_;
  SoapLayout layout_;
};

class ShampooNames final : public StateNames {
 public:
  ShampooNames(const RuleOptions& options, const Dims& dims)
      : options_(options), layout_(options_, dims) {}

  int64_t num_blocks() const override { return blocking().num_blocks(); }
  int order() const override { return blocking().order(); }
  // Axes without factors are not counted.
  std::string axis_name(int axis) const override {
    const auto place = place_among_factors(layout_.factors(), axis);
    return place ? std::to_string(*place) : "";
  }

  std::optional<StateView> find(int64_t block,
                                std::string_view what) const override {
    if (what == "filtered_grad") return moment(block, layout_.filtered_grad());
    if (what == "graft") return moment(block, layout_.grafting());
    if (what == "momentum") return moment(block, layout_.momentum());
    if (auto axis = axis_after(*this, what, "factor_"))
      return factor_of(layout_.factors(), block, *axis, 0);
    if (auto axis = axis_after(*this, what, "inv_root_"))
      return factor_of(layout_.factors(), block, *axis, 1);
    return std::nullopt;
  }

 private:
  const Blocking& blocking() const { return layout_.blocking(); }

  std::optional<StateView> moment(int64_t block, int state) const {
    if (state == ShampooLayout::kNone) return std::nullopt;
    return block_of(state, blocking(), block);
  }

  ShampooOptions options_;
  ShampooLayout layout_;
};

}  // namespace

std::vector<double> gather(const TensorMemory& memory, const StateView& view) {
  const StateFact& fact = memory.states()[view.state];
  const std::vector<double> state =
      memory.values(memory.state(view.state), fact.elements());
  std::vector<double> values;
  const int64_t count = num_elements(view.dims);
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    int64_t at = view.offset;
    for (size_t d = view.dims.size(); d-- > 0;) {
      at += rest % view.dims[d] * view.strides[d];
      rest /= view.dims[d];
    }
    values.push_back(state.at(static_cast<size_t>(at)));
  }
  return values;
}

std::string StateNames::axis_name(int axis) const {
  if (order() > 2) return std::to_string(axis);
  return axis == 0 ? "left" : "right";
}

std::unique_ptr<StateNames> make_state_names(const Rule& rule,
                                             const Dims& dims) {
  const RuleFacts& facts = rule.facts();
  if (facts.name() == "soap")
    return std::make_unique<SoapNames>(facts.options(), dims);
  if (facts.name() == "shampoo")
    return std::make_unique<ShampooNames>(facts.options(), dims);
  return std::make_unique<PlainNames>(facts.tensor_states(dims));
}

}  // namespace canzona::tests
