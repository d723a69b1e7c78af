#include "canzona/runtime/runtime.h"

#include <algorithm>
#include <array>
#include <exception>
#include <unordered_map>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/runtime/digest/rank_digest.h"
#include "canzona/runtime/rank_part.h"
#include "canzona/runtime/rank_values.h"
#include "canzona/runtime/step/gradient_check.h"

namespace canzona {
using namespace runtime;

// The rank's parts, with the number that each tensor has in one of them.
struct Runtime::Parts {
  Parts(const Plan& plan, Communicator& world, Engine& engine,
        const RuntimeOptions& options);
  // A rank that unwinds leaves operations that the others still wait for.
  // Posted operations may still read counts and memory of the parts.
  ~Parts();

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

  // Calls body(part, number of the tensor in it). Throws UsageError if the
  // tensor is on other ranks.
  template <class Body>
  decltype(auto) guarded(int32_t tensor, const Body& body) {
    return guarded([&]() -> decltype(auto) {
      const LocalTensor& local = get(tensor);
      return body(*local.part, local.number);
    });
  }

  struct LocalTensor {
    RankPart* part = nullptr;  // null: on other ranks
    int32_t number = 0;
  };
  const LocalTensor& find(int32_t tensor) const {
    return tensors.at(index(tensor));
  }
  const LocalTensor& get(int32_t tensor) const;
  int64_t shard_elements(int32_t tensor) const;
  template <class Number>
  std::span<Number> parameter(int32_t tensor, DType dtype) const;
  const std::string& name_of(int32_t tensor) const {
    return plan.model.tensors[index(tensor)].name;
  }

  RankPart& first() const { return *all.front(); }
  void abort(const std::string& reason) const {
    first().rank.groups.abort(reason);
  }
  // True if calls only issue work.
  bool is_ordered() const { return first().rank.compute != nullptr; }
  // True if the part has the module. Uses of a module that no part has are
  // announced to the first part, which reports the error.
  bool serves(const RankPart& part, int32_t module) const;

  void wait_all_params() const {
    for (const auto& part : all) part->publisher.wait_all();
  }
  void finish_gradients() const {
    for (const auto& part : all) part->finish_gradients();
  }
  void issue_step(const StepSettings& settings);
  void check_gradients(const StepSettings& settings);
  // Reduces numbers of the check over all ranks.
  void reduce(Reduction reduction, int64_t first_number, int64_t count,
              std::string_view label);
  void update(const StepSettings& settings, int64_t step) const;
  // They must outlive the step.
  void set_row_factors(const StepSettings& settings) const;
  // The outcome of the last step; waits for it if necessary.
  const StepOutcome& outcome();
  // The digest summed over all ranks, each element counted by one of them.
  std::string sum_digests(LogicalDigest (*of_rank)(Rank&)) const;

  const Plan& plan;
  const Coordinates at;  // in the mesh
  const int exceptions = std::uncaught_exceptions();
  std::unique_ptr<Communicator> of_experts;  // with this ep coordinate
  std::vector<std::unique_ptr<RankPart>> all;
  std::vector<LocalTensor> tensors;                       // of the whole model
  std::unordered_map<std::string_view, int32_t> numbers;  // by name
  Track* track = nullptr;  // of the calling thread
  GradientRuns gradients;
  std::unique_ptr<GradientCheck> check;  // the engines are the first part's
  StepOutcome last;
  bool outcome_is_on_its_way = false;
  std::vector<int32_t> uses;  // kept across steps to avoid allocation
  int64_t steps_done = 0;
};

namespace {

// Ranks with different plans would deadlock.
void require_same_plan(const Plan& plan, Communicator& world) {
  if (world.size() != plan.mesh.world())
    throw UsageError(
        cat("the plan is for ", counted_text(plan.mesh.world(), "rank"), " (",
            to_string(plan.mesh), "), but there are ", world.size()));
  const std::string& own = plan.digest;
  const auto size = static_cast<int64_t>(own.size());
  const std::vector<int64_t> bytes(index(world.size()), size);
  std::string all(index(size) * bytes.size(), ' ');
  world.all_gather_v(std::as_bytes(std::span(own)), bytes,
                     std::as_writable_bytes(std::span(all)),
                     {.label = "digest of the plan"});
  for (size_t r = 0; r < bytes.size(); ++r) {
    const std::string_view other =
        std::string_view(all).substr(r * own.size(), own.size());
    if (other != own)
      throw UsageError(cat("rank ", world.rank(), " holds plan ", own,
                           ", but rank ", r, " holds ", other));
  }
}

}  // namespace

Runtime::Parts::Parts(const Plan& the_plan, Communicator& world, Engine& engine,
                      const RuntimeOptions& options)
    : plan(the_plan),
      at(coordinates_of(plan.mesh, world.rank())),
      tensors(plan.model.tensors.size()) {
  check_dtype(options.wire, "wire of gradients");
  require_same_plan(plan, world);
  require_alike_members(plan, world, engine);
  check_groups(plan, options.groups);
  if (options.trace != nullptr)
    track = options.trace->add_track(world.rank(), "compute");
  for (const RankInPart& in : parts_of_rank(plan, world.rank())) {
    const PlanPart& part = plan.parts[index(in.part)];
    if (part.of_experts)
      of_experts = world.split(at.ep, world.rank(), "experts");
    all.push_back(std::make_unique<RankPart>(
        part, part.of_experts ? *of_experts : world, engine, options, track,
        part.of_experts ? "experts: " : ""));
    for (size_t i = 0; i < part.tensors.size(); ++i)
      tensors[index(part.tensors[i])] = {all.back().get(),
                                         static_cast<int32_t>(i)};
  }
  std::vector<const Rank*> ranks;
  for (const auto& part : all) ranks.push_back(&part->rank);
  gradients = gradient_runs(ranks);
  check = std::make_unique<GradientCheck>(
      first().rank.engines,
      GradientCheck::Settings{.in_place = true, .posts = is_ordered()});
  for (const auto& part : all) part->rank.engines.skip = check->skip();
  for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t)
    numbers.emplace(name_of(t), t);
}

Runtime::Parts::~Parts() {
  if (std::uncaught_exceptions() > exceptions)
    abort(cat("rank ", at.rank, " left after an error"));
  for (const auto& part : all) part->close();
}

const Runtime::Parts::LocalTensor& Runtime::Parts::get(int32_t tensor) const {
  const LocalTensor& found = find(tensor);
  if (found.part == nullptr)
    throw UsageError(cat("tensor ", quoted(name_of(tensor)),
                         " has no shard on rank ", at.rank));
  return found;
}

int64_t Runtime::Parts::shard_elements(int32_t tensor) const {
  const LocalTensor& local = get(tensor);
  const Rank& rank = local.part->rank;
  return stored_shard(rank, rank.layout.parameters, local.number).count;
}

template <class Number>
std::span<Number> Runtime::Parts::parameter(int32_t tensor, DType dtype) const {
  const LocalTensor& local = get(tensor);
  if (plan.options.parameters != dtype)
    throw UsageError(cat("parameter ", quoted(name_of(tensor)),
                         ": the plan keeps parameters in ",
                         to_string(plan.options.parameters), ", not in ",
                         to_string(dtype)));
  return {reinterpret_cast<Number*>(local.part->parameter(local.number)),
          index(shard_elements(tensor))};
}

bool Runtime::Parts::serves(const RankPart& part, int32_t module) const {
  return part.gathers(module) ||
         (&part == &first() && std::ranges::none_of(all, [&](const auto& any) {
           return any->gathers(module);
         }));
}

// The number of a step depends on how the previous one ended, so its outcome is
// read here, and no earlier.
void Runtime::Parts::issue_step(const StepSettings& settings) {
  outcome();
  for (const auto& part : all)
    if (part->gatherer != nullptr) part->gatherer->require_over();
  wait_all_params();
  finish_gradients();
  last = {};
  {
    const Stopwatch watch(last.seconds);
    const Span issued(is_ordered() ? track : nullptr, "issue the step");
    const Span span(first().rank.track, "step");
    check_gradients(settings);
    for (const auto& part : all) {
      part->reducer.begin();
      if (part->scatterer != nullptr) part->scatterer->begin();
    }
    if (last.skipped) return;
    update(settings, steps_done + 1);
    if (!is_ordered()) ++steps_done;
  }
  if (first().rank.options.overlap == Overlap::kNone) wait_all_params();
}

void Runtime::Parts::check_gradients(const StepSettings& settings) {
  const Span span(first().rank.track, "check gradients");
  check->look(gradients, settings.gradient_factor);
  for (const auto& part : all) check->report(part->reducer.own_code());
  reduce(Reduction::kInt64Max, 0, 1, kLargestLabel);
  if (settings.clip_norm > 0 || settings.wants_norm) {
    check->squares();
    reduce(Reduction::kInt64Sum, GradientCheck::kFirstLimb,
           GradientCheck::kNumLimbs, kNormLabel);
    check->clip(settings.clip_norm);
  }
  check->judge(kInfinityBits);
  outcome_is_on_its_way = true;
  if (!is_ordered()) outcome();
}

void Runtime::Parts::reduce(Reduction reduction, int64_t first_number,
                            int64_t count, std::string_view label) {
  Rank& rank = first().rank;
  auto* there = reinterpret_cast<std::byte*>(check->numbers() + first_number);
  const int64_t bytes = count * static_cast<int64_t>(sizeof(int64_t));
  if (is_ordered()) {
    Courier& courier = rank.groups.check();
    rank.settle(courier);
    courier.all_reduce(reduction, {there, index(bytes)}, {.label = label})
        .order(rank.compute.get());
    return;
  }
  const Span span(rank.track,
                  {word_of(EntryKind::kAllReduce), label, {}, bytes});
  std::array<int64_t, GradientCheck::kNumNumbers> here{};
  const std::span<std::byte> words(reinterpret_cast<std::byte*>(here.data()),
                                   index(bytes));
  rank.engine.download(words.data(), there, bytes);
  rank.groups.control().all_reduce(reduction, words, {.label = label});
  rank.engine.upload(there, words.data(), bytes);
}

const StepOutcome& Runtime::Parts::outcome() {
  if (!std::exchange(outcome_is_on_its_way, false)) return last;
  const GradientNumbers read = check->read();
  const NonfinitePlace place = place_of_code(read.largest);
  last.skipped = place.tensor >= 0;
  if (last.skipped) {
    last.nonfinite_tensor = plan.model.tensors[index(place.tensor)].name;
    last.nonfinite_rank = place.rank;
    return last;
  }
  last.gradient_norm = read.norm;
  if (is_ordered()) ++steps_done;
  return last;
}

void Runtime::Parts::set_row_factors(const StepSettings& settings) const {
  for (const auto& part : all) part->rank.row_factors.clear();
  for (const RowFactors& rows : settings.row_factors) {
    const Tensor& tensor = plan.model.tensors.at(index(rows.tensor));
    if (std::ssize(rows.factors) != tensor.rows())
      throw UsageError(cat("step: ", rows.factors.size(),
                           " row factors of tensor ", quoted(tensor.name),
                           ", which has ", tensor.rows(), " rows"));
    if (!first().rank.wire_ops().is_host())
      throw UsageError("step: row factors need an engine on the host");
    const LocalTensor& local = find(rows.tensor);
    if (local.part != nullptr)
      local.part->rank.row_factors[local.number] = rows.factors;
  }
}

// AdamW's update overlaps with the first gather.
void Runtime::Parts::update(const StepSettings& settings, int64_t step) const {
  const double adamw = settings.adamw_learning_rate < 0
                           ? settings.learning_rate
                           : settings.adamw_learning_rate;
  set_row_factors(settings);
  for (const auto& part : all) part->begin_step(step, settings.learning_rate);
  for (const auto& part : all)
    part->elements.run(step, {settings.learning_rate, adamw});
  for (const auto& part : all) part->finish_step(step, settings.learning_rate);
}

std::string Runtime::Parts::sum_digests(LogicalDigest (*of_rank)(Rank&)) const {
  LogicalDigest sum;
  for (const auto& part : all) sum.add(of_rank(part->rank));
  first().rank.groups.control().all_reduce(Reduction::kInt64Sum,
                                           std::as_writable_bytes(sum.words()),
                                           {.label = "digest"});
  return sum.text();
}

Runtime::Runtime(const Plan& plan, Communicator& world, Engine& engine,
                 const RuntimeOptions& options)
    : parts_(std::make_unique<Parts>(plan, world, engine, options)) {}

Runtime::~Runtime() = default;

const Plan& Runtime::plan() const { return parts_->plan; }
const Coordinates& Runtime::coordinates() const { return parts_->at; }
bool Runtime::only_issues() const { return parts_->is_ordered(); }

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
  const auto& [part, number] = parts_->find(tensor);
  return part != nullptr && part->holds(number);
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
  return parts_->guarded(tensor, [&](RankPart& part, int32_t number) {
    return std::span(part.gradient(number), index(shard_elements(tensor)));
  });
}

void Runtime::set_parameter(int32_t tensor, std::span<const float> shard) {
  parts_->guarded(tensor, [&](RankPart& part, int32_t number) {
    write_shard(part.rank, number, shard);
  });
}
void Runtime::set_parameter_there(int32_t tensor, const float* shard) {
  parts_->guarded(tensor, [&](RankPart& part, int32_t number) {
    write_shard_there(part.rank, number, shard);
  });
}
std::vector<Extent> Runtime::kept_runs(int32_t tensor) const {
  const auto& [part, number] = parts_->get(tensor);
  std::vector<Extent> runs;
  for (const ExtentCopy& piece :
       part->rank.layout.parameters.pieces[index(number)])
    runs.push_back(piece.source());
  return runs;
}
bool Runtime::keeps_first(int32_t tensor) const {
  const auto& [part, number] = parts_->find(tensor);
  return part != nullptr && part->holds(number) &&
         keeps_first_copy(part->rank.part, part->rank.world_rank, number);
}
void Runtime::get_kept(int32_t tensor, std::span<float> values) {
  parts_->guarded(tensor, [&](RankPart& part, int32_t number) {
    read_kept(part.rank, number, values);
  });
}
void Runtime::get_parameter(int32_t tensor, std::span<float> shard) {
  parts_->guarded(tensor, [&](RankPart& part, int32_t number) {
    read_shard(part.rank, number, shard);
  });
}

void Runtime::begin_iteration(std::span<const int32_t> uses,
                              int64_t num_micro_batches) {
  parts_->guarded([&] {
    if (num_micro_batches < 0)
      throw UsageError(cat("begin_iteration: ", num_micro_batches,
                           " micro-batches; expected 0 or more"));
    for (const auto& part : parts_->all) {
      parts_->uses.clear();
      for (int32_t module : uses)
        if (parts_->serves(*part, module)) parts_->uses.push_back(module);
      part->begin_iteration(parts_->uses, num_micro_batches);
    }
  });
}
void Runtime::wait_params(int32_t module) {
  parts_->guarded([&] {
    for (const auto& part : parts_->all) {
      if (part->gatherer == nullptr)
        part->publisher.wait(module);
      else if (parts_->serves(*part, module))
        part->gatherer->wait(module);
    }
  });
}
void Runtime::release_params(int32_t module) {
  parts_->guarded([&] {
    for (const auto& part : parts_->all)
      if (part->gatherer != nullptr && parts_->serves(*part, module))
        part->gatherer->release(module);
  });
}
void Runtime::wait_all_params() {
  parts_->guarded([&] { parts_->wait_all_params(); });
}
void Runtime::hold_params(bool held) {
  for (const auto& part : parts_->all) part->publisher.hold(held);
}
void Runtime::grad_ready(int32_t tensor) {
  parts_->guarded(
      tensor, [](RankPart& part, int32_t number) { part.grad_ready(number); });
}
void Runtime::wait_gradients() {
  parts_->guarded([&] { parts_->finish_gradients(); });
}
void Runtime::zero_gradients() {
  for (const auto& part : parts_->all) part->zero_gradients();
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

void Runtime::for_each_state(const std::function<void(const RankState&)>& use) {
  wait_all_params();
  for (size_t p = 0; p < parts_->all.size(); ++p) {
    Rank& rank = parts_->all[p]->rank;
    rank.settle();
    for (StateBox& box : boxes_of(rank)) {
      const std::span<float> values = host_values(rank, box);
      use({std::move(box), p, values});
    }
  }
}
void Runtime::get_state(const RankState& state, std::span<float> values) {
  parts_->guarded(
      [&] { read_box(parts_->all[state.part]->rank, state, values); });
}
void Runtime::set_state(const RankState& state, std::span<const float> values) {
  parts_->guarded(
      [&] { write_box(parts_->all[state.part]->rank, state, values); });
}
void Runtime::take_over(int64_t steps_done) {
  if (steps_done < 0)
    throw UsageError(
        cat("take_over: ", steps_done, " steps done; expected 0 or more"));
  parts_->guarded([&] {
    parts_->outcome();
    for (const auto& part : parts_->all) part->publish_weights();
    parts_->steps_done = steps_done;
  });
}

int64_t Runtime::steps_done() const {
  parts_->outcome();
  return parts_->steps_done;
}
RuntimeTimes Runtime::times() const {
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  RuntimeTimes times;
  for (const auto& part : parts_->all) {
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
    for (const auto& part : parts_->all) sum += part->rank.groups.sent();
  });
  return sum;
}
Groups::Sent Runtime::sent_slow() {
  wait_all_params();
  Groups::Sent sum;
  parts_->guarded([&] {
    for (const auto& part : parts_->all) sum += part->rank.groups.sent_slow();
  });
  return sum;
}
RankMemory Runtime::memory() const {
  RankMemory sum;
  for (const auto& part : parts_->all) {
    sum += part->rank.store.memory();
    sum.staging += Bytes(part->rank.groups.sum_staging());
  }
  return sum;
}

namespace {

// Adds the most slots of one kind of pool that were taken.
template <class Mover>
void add_most(const std::unique_ptr<Mover>& of, int64_t& slots, int64_t& now,
              int32_t& usual, int32_t& large) {
  usual = large = 0;
  if (of == nullptr) return;
  usual = static_cast<int32_t>(of->pool().most_taken(false));
  large = static_cast<int32_t>(of->pool().most_taken(true));
  slots += usual + large;
  now += of->pool().num_taken();
}

}  // namespace

Runtime::PoolUse Runtime::pool_use() const {
  PoolUse sum;
  for (const auto& part : parts_->all) {
    const RankStore& store = part->rank.store;
    PoolSizes used = store.pools();
    add_most(part->gatherer, sum.gather_slots, sum.slots_now, used.gather_slots,
             used.large_gather_slots);
    add_most(part->scatterer, sum.scatter_slots, sum.slots_now,
             used.scatter_slots, used.large_scatter_slots);
    sum.bytes +=
        used.gather_bytes(store.parameter_bytes()) + used.scatter_bytes();
  }
  return sum;
}

std::string Runtime::parameter_digest() {
  wait_all_params();
  return parts_->guarded(
      [&] { return parts_->sum_digests(digest_parameters); });
}
std::string Runtime::state_digest() {
  return parts_->guarded([&] { return parts_->sum_digests(digest_states); });
}

}  // namespace canzona
