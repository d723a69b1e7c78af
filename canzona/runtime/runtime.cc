#include "canzona/runtime/runtime.h"

#include <exception>
#include <unordered_map>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/runtime/digest/rank_digest.h"
#include "canzona/runtime/rank_parts.h"

namespace canzona {

struct Runtime::Parts : RankParts {
  using RankParts::RankParts;

  // Aborts on an error, so that other ranks do not wait for this one.
  template <class Body>
  decltype(auto) guarded(const Body& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      abort(cat("rank ", at.rank, ": ", error.what()));
      throw;
    }
  }

  int64_t shard_elements(int32_t tensor) const {
    const LocalTensor& local = get(tensor);
    const Rank& rank = local.part->rank;
    return stored_shard(rank, rank.layout.parameters, local.number).count;
  }

  template <class Number>
  std::span<Number> parameter(int32_t tensor, DType dtype) {
    const LocalTensor& local = get(tensor);
    if (plan.options.parameters != dtype)
      throw UsageError(cat("parameter ", quoted(name_of(tensor)),
                           ": the plan keeps parameters in ",
                           to_string(plan.options.parameters), ", not in ",
                           to_string(dtype)));
    return {reinterpret_cast<Number*>(local.part->parameter(local.number)),
            index(shard_elements(tensor))};
  }

  const std::string& name_of(int32_t tensor) const {
    return plan.model.tensors[index(tensor)].name;
  }

  int exceptions = std::uncaught_exceptions();
  std::unordered_map<std::string_view, int32_t> numbers;  // by name
};

Runtime::Runtime(const Plan& plan, Communicator& world, Engine& engine,
                 const RuntimeOptions& options)
    : parts_(std::make_unique<Parts>(plan, world, engine, options)) {
  for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t)
    parts_->numbers.emplace(parts_->name_of(t), t);
}

// A rank that unwinds leaves operations that the others still wait for. Posted
// operations may still read counts and memory of the parts.
Runtime::~Runtime() {
  if (std::uncaught_exceptions() > parts_->exceptions)
    parts_->abort(cat("rank ", parts_->at.rank, " left after an error"));
  for (const auto& part : parts_->all()) part->close();
}

const Plan& Runtime::plan() const { return parts_->plan; }
const Coordinates& Runtime::coordinates() const { return parts_->at; }
bool Runtime::only_issues() const {
  return parts_->first().rank.compute != nullptr;
}

int32_t Runtime::tensor(std::string_view name) const {
  const auto found = parts_->numbers.find(name);
  if (found != parts_->numbers.end()) return found->second;
  std::vector<std::string> names;
  for (const Tensor& tensor : plan().model.tensors)
    names.push_back(tensor.name);
  throw UsageError(cat("tensor ", quoted(name),
                       ": the plan has no tensor of this name",
                       did_you_mean(name, names)));
}
bool Runtime::holds(int32_t tensor) const {
  const RankParts::LocalTensor& at = parts_->find(tensor);
  return at.part != nullptr && at.part->holds(at.number);
}
int64_t Runtime::shard_elements(int32_t tensor) const {
  return parts_->shard_elements(tensor);
}
std::span<float> Runtime::parameter(int32_t tensor) {
  return parts_->parameter<float>(tensor, DType::kFp32);
}
std::span<uint16_t> Runtime::bf16_parameter(int32_t tensor) {
  return parts_->parameter<uint16_t>(tensor, DType::kBf16);
}
std::span<float> Runtime::gradient(int32_t tensor) {
  return parts_->guarded([&]() -> std::span<float> {
    const RankParts::LocalTensor& at = parts_->get(tensor);
    return {at.part->gradient(at.number), index(shard_elements(tensor))};
  });
}

void Runtime::set_parameter(int32_t tensor, std::span<const float> shard) {
  parts_->guarded([&] {
    const RankParts::LocalTensor& at = parts_->get(tensor);
    canzona::set_parameter(at.part->rank, at.number, shard);
  });
}
void Runtime::set_parameter_there(int32_t tensor, const float* shard) {
  parts_->guarded([&] {
    const RankParts::LocalTensor& at = parts_->get(tensor);
    canzona::set_parameter_there(at.part->rank, at.number, shard);
  });
}
std::vector<Extent> Runtime::kept_runs(int32_t tensor) const {
  const RankParts::LocalTensor& at = parts_->get(tensor);
  std::vector<Extent> runs;
  for (const ExtentCopy& piece :
       at.part->rank.layout.parameters.pieces[index(at.number)])
    runs.push_back(piece.source());
  return runs;
}
bool Runtime::keeps_first(int32_t tensor) const {
  const RankParts::LocalTensor& at = parts_->find(tensor);
  return at.part != nullptr && at.part->holds(at.number) &&
         keeps_first_copy(at.part->rank.part, at.part->rank.world_rank,
                          at.number);
}
void Runtime::get_kept(int32_t tensor, std::span<float> values) {
  parts_->guarded([&] {
    const RankParts::LocalTensor& at = parts_->get(tensor);
    get_kept_parameter(at.part->rank, at.number, values);
  });
}
void Runtime::get_parameter(int32_t tensor, std::span<float> shard) {
  parts_->guarded([&] {
    const RankParts::LocalTensor& at = parts_->get(tensor);
    get_whole_parameter(at.part->rank, at.number, shard);
  });
}
void Runtime::begin_iteration(std::span<const int32_t> uses,
                              int64_t num_micro_batches) {
  parts_->guarded([&] {
    if (num_micro_batches < 0)
      throw UsageError(cat("begin_iteration: ", num_micro_batches,
                           " micro-batches; expected 0 or more"));
    parts_->begin_iteration(uses, num_micro_batches);
  });
}
void Runtime::release_params(int32_t module) {
  parts_->guarded([&] { parts_->release_params(module); });
}
void Runtime::grad_ready(int32_t tensor) {
  parts_->guarded([&] {
    const RankParts::LocalTensor& at = parts_->get(tensor);
    at.part->grad_ready(at.number);
  });
}
void Runtime::wait_gradients() {
  parts_->guarded([&] { parts_->finish_gradients(); });
}
StepOutcome Runtime::step(const StepSettings& settings) {
  issue_step(settings);
  return outcome();
}
void Runtime::issue_step(const StepSettings& settings) {
  parts_->guarded([&] { parts_->issue_step(settings); });
}
StepOutcome Runtime::outcome() {
  return parts_->guarded([&] { return parts_->outcome(); });
}
void Runtime::zero_gradients() {
  for (const auto& part : parts_->all()) part->zero_gradients();
}
void Runtime::wait_params(int32_t module) {
  parts_->guarded([&] { parts_->wait_params(module); });
}
void Runtime::wait_all_params() {
  parts_->guarded([&] { parts_->wait_all_params(); });
}

void Runtime::hold_params(bool held) {
  for (const auto& part : parts_->all()) part->publisher.hold(held);
}

void Runtime::for_each_state(const std::function<void(const RankState&)>& use) {
  wait_all_params();
  for (size_t p = 0; p < parts_->all().size(); ++p) {
    Rank& rank = parts_->all()[p]->rank;
    rank.settle();
    for (StateBox& box : states_of(rank)) {
      const std::span<float> values = host_values(rank, box);
      use({std::move(box), p, values});
    }
  }
}
void Runtime::get_state(const RankState& state, std::span<float> values) {
  parts_->guarded([&] {
    canzona::get_state(parts_->all()[state.part]->rank, state, values);
  });
}
void Runtime::set_state(const RankState& state, std::span<const float> values) {
  parts_->guarded([&] {
    canzona::set_state(parts_->all()[state.part]->rank, state, values);
  });
}
void Runtime::take_over(int64_t steps_done) {
  if (steps_done < 0)
    throw UsageError(
        cat("take_over: ", steps_done, " steps done; expected 0 or more"));
  parts_->guarded([&] { parts_->take_over(steps_done); });
}

int64_t Runtime::steps_done() const { return parts_->steps_done(); }
RuntimeTimes Runtime::times() const {
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  RuntimeTimes times;
  for (const auto& part : parts_->all()) {
    part->rank.add_waits();
    const RuntimeTimes& own = part->rank.times;
    times.waited_for_gradients += own.waited_for_gradients;
    times.waited_in_step += own.waited_in_step;
    times.waited_for_parameters += own.waited_for_parameters;
    times.links_exposed += own.links_exposed;
    times.exchange_exposed += own.exchange_exposed;
    times.links_busy += seconds(part->busy());
    times.exchange_busy += seconds(part->rank.groups.exchange_busy());
  }
  const Groups& groups = parts_->first().rank.groups;
  times.links_modelled = groups.has_links();
  // Ports belong to the rank, whichever part uses them.
  if (times.links_modelled) times.links_busy = seconds(groups.links_busy());
  return times;
}
Groups::Sent Runtime::sent() {
  wait_all_params();
  Groups::Sent sum;
  parts_->guarded([&] {
    for (const auto& part : parts_->all()) sum += part->rank.groups.sent();
  });
  return sum;
}
Groups::Sent Runtime::sent_slow() {
  wait_all_params();
  Groups::Sent sum;
  parts_->guarded([&] {
    for (const auto& part : parts_->all()) sum += part->rank.groups.sent_slow();
  });
  return sum;
}
RankMemory Runtime::memory() const {
  RankMemory sum;
  for (const auto& part : parts_->all()) {
    sum += part->rank.store.memory();
    sum.staging += Bytes(part->rank.groups.sum_staging());
  }
  return sum;
}

Runtime::PoolUse Runtime::pool_use() const {
  PoolUse sum;
  for (const auto& part : parts_->all()) {
    const PoolUse use = part->pool_use();
    sum.gather_slots += use.gather_slots;
    sum.scatter_slots += use.scatter_slots;
    sum.bytes += use.bytes;
    sum.slots_now += use.slots_now;
  }
  return sum;
}

std::string Runtime::parameter_digest() {
  wait_all_params();
  return parts_->guarded([&] {
    LogicalDigest sum;
    for (const auto& part : parts_->all())
      sum.add(digest_parameters(part->rank));
    return parts_->text_of(sum);
  });
}
std::string Runtime::state_digest() {
  return parts_->guarded([&] {
    LogicalDigest sum;
    for (const auto& part : parts_->all()) sum.add(digest_states(part->rank));
    return parts_->text_of(sum);
  });
}

}  // namespace canzona
