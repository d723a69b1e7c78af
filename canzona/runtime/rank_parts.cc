#include "canzona/runtime/rank_parts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/rules/optimizer.h"
#include "canzona/runtime/groups.h"

namespace canzona {
namespace {

StoredWeights weights_of(const Rank& rank, const StateBox& box) {
  return rank.store.weights_at(box.parameter, box.at);
}

bool is_bf16(const Rank& rank, const StateBox& box) {
  return box.buffer == StateBuffer::kParameters && rank.store.rounded();
}

void require_count(const StateBox& box, size_t count) {
  if (!std::cmp_equal(count, box.elements))
    throw UsageError(cat(count, " values for a box of ", quoted(box.name()),
                         ", which has ", box.elements));
}

}  // namespace

std::byte* memory_of(const Rank& rank, const StateBox& box) {
  switch (box.buffer) {
    case StateBuffer::kParameters:
      return rank.store.parameter(box.at);
    case StateBuffer::kMasters:
      return reinterpret_cast<std::byte*>(
          restored(rank.engine, weights_of(rank, box), box.elements));
    case StateBuffer::kStates:
      return reinterpret_cast<std::byte*>(rank.store.states() + box.at);
  }
  throw InternalError("unknown buffer of states");
}

std::vector<StateBox> states_of(const Rank& rank) {
  return state_boxes(rank.part, rank.world_rank,
                     {rank.at, rank.layout, rank.kept, rank.updates});
}

std::span<float> host_values(const Rank& rank, const StateBox& box) {
  const bool is_restored = box.buffer == StateBuffer::kMasters &&
                           rank.store.keeps_remainders();
  if (is_bf16(rank, box) || is_restored || !rank.wire_ops().is_host())
    return {};
  return {reinterpret_cast<float*>(memory_of(rank, box)), index(box.elements)};
}

void get_state(Rank& rank, const StateBox& box, std::span<float> values) {
  require_count(box, values.size());
  const Arena::Scope scope(rank.engine.arena());
  const std::byte* memory = memory_of(rank, box);
  auto* to = reinterpret_cast<std::byte*>(values.data());
  if (!is_bf16(rank, box)) {
    rank.engine.download(to, memory, box.elements * kBytesPerFp32);
    return;
  }
  // Downloads into the second half, from which each number is widened in place.
  std::byte* halves = to + box.elements * kBytesPerBf16;
  rank.engine.download(halves, memory, box.elements * kBytesPerBf16);
  constexpr int kHalf = 16;
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, halves + i * sizeof(half), sizeof(half));
    values[i] = std::bit_cast<float>(uint32_t{half} << kHalf);
  }
}

void set_state(Rank& rank, const StateBox& box, std::span<const float> values) {
  require_count(box, values.size());
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  const int64_t bytes = box.elements * kBytesPerFp32;
  Arena& arena = rank.engine.arena();
  const Arena::Scope scope(arena);
  if (box.buffer == StateBuffer::kStates ||
      (box.buffer == StateBuffer::kParameters && !rank.store.rounded())) {
    rank.engine.upload(memory_of(rank, box), from, bytes);
  } else {
    auto* wide = arena.take_array<float>(box.elements);
    rank.engine.upload(reinterpret_cast<std::byte*>(wide), from, bytes);
    if (box.buffer == StateBuffer::kMasters)
      store(rank.engine, weights_of(rank, box), wide, box.elements);
    else
      rank.engine.round_weights(
          reinterpret_cast<uint16_t*>(memory_of(rank, box)), wide,
          box.elements);
  }
  rank.settle();
}

// Of masters that were written in place; remainders were written with their
// weights.
void round_weights(Rank& rank) {
  if (!rank.store.rounded() || rank.store.keeps_remainders()) return;
  const auto round = [&](const StoredWeights& weights, int64_t count) {
    store(rank.engine, weights, elements<float>(weights.exact), count);
  };
  for (const KeptMatrix& matrix : rank.kept.matrices)
    for (const Piece& piece : matrix.pieces)
      round(rank.store.weights(piece), piece.elements());
  for (const KeptElements& elements : rank.kept.elements)
    round(rank.store.weights(elements), elements.in_shard.count);
  rank.settle();
}

namespace {

void fill_states(Rank& rank) {
  for (const std::vector<UpdateBatch>& batches : rank.updates.batches)
    for (const UpdateBatch& batch : batches)
      for (const KeptState& state : batch.owned)
        fill_initially(rank.engine, *state.fact,
                       run_of(rank.store.states() + state.first),
                       static_cast<int64_t>(batch.members.size()));
  for (const std::vector<SharedStates>& round : rank.updates.shared)
    for (const SharedStates& states : round)
      for (const KeptState& state : states.own)
        fill_initially(rank.engine, *state.fact,
                       run_of(rank.store.states() + state.first), 1);
  rank.settle();
}

std::vector<Message> gradient_messages(const RankPart& own) {
  const Rank& rank = own.rank;
  if (own.gatherer != nullptr && lie_alike(rank.part))
    return own.gatherer->messages();
  return messages_of(rank.part, rank.world_rank, rank.modules,
                     Resting::kGradients);
}

}  // namespace

RankPart::RankPart(const PlanPart& part, Communicator& world, Engine& engine,
                   const RuntimeOptions& options, Track* track,
                   const std::string& prefix)
    : rank(part, world, engine, options, track, prefix),
      reducer(rank),
      publisher(rank),
      elements(rank, publisher) {
  if (part.grid.tp == 1)
    local = std::make_unique<LocalUpdate>(rank, publisher);
  else
    exchanged = std::make_unique<ExchangedUpdate>(rank, publisher);
  fill_states(rank);
  if (rank.groups.parameters() != nullptr)
    gatherer = std::make_unique<Gatherer>(rank, publisher);
  if (rank.groups.gradients() != nullptr)
    scatterer =
        std::make_unique<Scatterer>(rank, reducer, gradient_messages(*this));
}

bool RankPart::holds(int32_t tensor) const {
  return rank.layout.parameters.tensors.at(index(tensor)).bucket >= 0;
}

std::byte* RankPart::parameter(int32_t tensor) const {
  if (gatherer != nullptr) return gatherer->parameter(tensor);
  return rank.store.parameter(
      stored_shard(rank, rank.layout.parameters, tensor).first);
}

float* RankPart::gradient(int32_t tensor) {
  if (rank.part.model.tensors.at(index(tensor)).frozen)
    return rank.store.gradients() + rank.layout.gradients.forgotten;
  if (scatterer != nullptr) return scatterer->gradient(tensor);
  return rank.store.gradients() +
         stored_shard(rank, rank.layout.gradients, tensor).first;
}

void RankPart::begin_iteration(std::span<const int32_t> uses,
                               int64_t num_micro_batches) {
  reducer.expect(num_micro_batches);
  if (scatterer != nullptr) scatterer->expect(num_micro_batches);
  if (gatherer != nullptr) gatherer->begin(uses);
}

void RankPart::grad_ready(int32_t tensor) {
  if (rank.part.model.tensors.at(index(tensor)).frozen) return;
  if (!holds(tensor))
    throw UsageError(cat("grad_ready: tensor ",
                         quoted(rank.tensor(tensor).name),
                         " has no shard on rank ", rank.known_as));
  if (scatterer != nullptr)
    scatterer->ready(tensor);
  else
    reducer.ready(tensor);
}

void RankPart::finish_gradients() {
  if (scatterer != nullptr) scatterer->finish();
  reducer.finish();
}

void RankPart::zero_gradients() {
  rank.engine.set_zero(reinterpret_cast<std::byte*>(rank.store.gradients()),
                       rank.layout.gradients.num_elements * kBytesPerFp32);
}

void RankPart::begin_step(int64_t step, double learning_rate) {
  publisher.begin();
  if (exchanged != nullptr) exchanged->begin(step, learning_rate);
}

void RankPart::update_elements(int64_t step, const ElementRates& rates) {
  elements.run(step, rates);
}

void RankPart::finish_step(int64_t step, double learning_rate) {
  if (local != nullptr)
    local->run(step, learning_rate);
  else
    exchanged->finish();
  if (rank.compute == nullptr) rank.settle();
  // Broadcast weights are part of the step.
  if (rank.part.traffic == Traffic::kBroadcast) publisher.wait_all();
}

void RankPart::publish_weights() {
  publisher.begin();
  round_weights(rank);
  for (size_t k = 0; k < rank.kept.matrices.size(); ++k) publisher.updated(k);
  publisher.updated_elements();
  publisher.wait_all();
}

void RankPart::close() {
  gatherer.reset();
  scatterer.reset();
  rank.groups.close();
  rank.drain();
}

std::chrono::nanoseconds RankPart::busy() const {
  std::chrono::nanoseconds busy = rank.groups.busy();
  if (gatherer != nullptr) busy += gatherer->busy();
  if (scatterer != nullptr) busy += scatterer->busy();
  return busy;
}

Runtime::PoolUse RankPart::pool_use() const {
  Runtime::PoolUse use;
  const auto most = [&](const auto& owner, int32_t& usual, int32_t& large) {
    usual = large = 0;
    if (owner == nullptr) return 0;
    usual = static_cast<int32_t>(owner->pool().most_taken(false));
    large = static_cast<int32_t>(owner->pool().most_taken(true));
    use.slots_now += owner->pool().num_taken();
    return usual + large;
  };
  PoolSizes used = rank.store.pools();
  use.gather_slots = most(gatherer, used.gather_slots, used.large_gather_slots);
  use.scatter_slots =
      most(scatterer, used.scatter_slots, used.large_scatter_slots);
  use.bytes =
      used.gather_bytes(rank.store.parameter_bytes()) + used.scatter_bytes();
  return use;
}

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

RankParts::RankParts(const Plan& the_plan, Communicator& world, Engine& engine,
                     const RuntimeOptions& options)
    : plan(the_plan),
      at(coordinates_of(plan.mesh, world.rank())),
      tensors_(plan.model.tensors.size()) {
  check_dtype(options.wire, "wire of gradients");
  require_same_plan(plan, world);
  require_alike_members(plan, world, engine);
  check_groups(plan, options.groups);
  Track* track = options.trace == nullptr
                     ? nullptr
                     : options.trace->add_track(world.rank(), "compute");
  track_ = track;
  for (const RankInPart& in : parts_of_rank(plan, world.rank())) {
    const PlanPart& part = plan.parts[index(in.part)];
    if (part.of_experts)
      of_experts_ = world.split(at.ep, world.rank(), "experts");
    parts_.push_back(std::make_unique<RankPart>(
        part, part.of_experts ? *of_experts_ : world, engine, options, track,
        part.of_experts ? "experts: " : ""));
    for (size_t i = 0; i < part.tensors.size(); ++i)
      tensors_[index(part.tensors[i])] = {parts_.back().get(),
                                          static_cast<int32_t>(i)};
  }
  std::vector<const Rank*> ranks;
  for (const auto& part : parts_) ranks.push_back(&part->rank);
  gradients_ = gradient_runs(ranks);
  check_ = std::make_unique<GradientCheck>(
      first().rank.engines,
      GradientCheck::Settings{.in_place = true, .posts = is_ordered()});
  for (const auto& part : parts_) part->rank.engines.skip = check_->skip();
}

const RankParts::LocalTensor& RankParts::get(int32_t tensor) const {
  const LocalTensor& found = find(tensor);
  if (found.part == nullptr)
    throw UsageError(cat("tensor ",
                         quoted(plan.model.tensors[index(tensor)].name),
                         " has no shard on rank ", at.rank));
  return found;
}

bool RankParts::is_known(int32_t module) const {
  return std::ranges::any_of(
      parts_, [&](const auto& part) { return part->gathers(module); });
}

void RankParts::begin_iteration(std::span<const int32_t> uses,
                                int64_t num_micro_batches) {
  for (const auto& part : parts_) {
    uses_.clear();
    for (int32_t module : uses)
      if (serves(*part, module)) uses_.push_back(module);
    part->begin_iteration(uses_, num_micro_batches);
  }
}

void RankParts::wait_params(int32_t module) const {
  for (const auto& part : parts_) {
    if (part->gatherer == nullptr)
      part->publisher.wait(module);
    else if (serves(*part, module))
      part->gatherer->wait(module);
  }
}

void RankParts::release_params(int32_t module) const {
  for (const auto& part : parts_)
    if (part->gatherer != nullptr && serves(*part, module))
      part->gatherer->release(module);
}

void RankParts::wait_all_params() const {
  for (const auto& part : parts_) part->publisher.wait_all();
}

void RankParts::finish_gradients() const {
  for (const auto& part : parts_) part->finish_gradients();
}

// The number of a step depends on how the previous one ended, so its outcome is
// read here, and no earlier.
void RankParts::issue_step(const StepSettings& settings) {
  outcome();
  for (const auto& part : parts_)
    if (part->gatherer != nullptr) part->gatherer->require_over();
  wait_all_params();
  finish_gradients();
  outcome_ = {};
  {
    const Stopwatch watch(outcome_.seconds);
    const Span issued(is_ordered() ? track_ : nullptr, "issue the step");
    const Span span(first().rank.track, "step");
    check_gradients(settings);
    for (const auto& part : parts_) {
      part->reducer.begin();
      if (part->scatterer != nullptr) part->scatterer->begin();
    }
    if (outcome_.skipped) return;
    update(settings, steps_done_ + 1);
    if (!is_ordered()) ++steps_done_;
  }
  if (first().rank.options.overlap == Overlap::kNone) wait_all_params();
}

void RankParts::check_gradients(const StepSettings& settings) {
  const Span span(first().rank.track, "check gradients");
  check_->look(gradients_, settings.gradient_factor);
  for (const auto& part : parts_) check_->report(part->reducer.own_code());
  reduce(Reduction::kInt64Max, 0, 1, kLargestLabel);
  if (settings.clip_norm > 0 || settings.wants_norm) {
    check_->squares();
    reduce(Reduction::kInt64Sum, GradientCheck::kFirstLimb,
           GradientCheck::kNumLimbs, kNormLabel);
    check_->clip(settings.clip_norm);
  }
  check_->judge(kInfinityBits);
  outcome_is_on_its_way_ = true;
  if (!is_ordered()) outcome();
}

void RankParts::reduce(Reduction reduction, int64_t first_number, int64_t count,
                       std::string_view label) {
  Rank& rank = first().rank;
  auto* there = reinterpret_cast<std::byte*>(check_->numbers() + first_number);
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
  control().all_reduce(reduction, words, {.label = label});
  rank.engine.upload(there, words.data(), bytes);
}

const StepOutcome& RankParts::outcome() {
  if (!std::exchange(outcome_is_on_its_way_, false)) return outcome_;
  const GradientNumbers numbers = check_->read();
  const NonfinitePlace place = place_of_code(numbers.largest);
  outcome_.skipped = place.tensor >= 0;
  if (outcome_.skipped) {
    outcome_.nonfinite_tensor = plan.model.tensors[index(place.tensor)].name;
    outcome_.nonfinite_rank = place.rank;
    return outcome_;
  }
  outcome_.gradient_norm = numbers.norm;
  if (is_ordered()) ++steps_done_;
  return outcome_;
}

void RankParts::take_over(int64_t steps_done) {
  outcome();
  for (const auto& part : parts_) part->publish_weights();
  steps_done_ = steps_done;
}

void RankParts::set_row_factors(const StepSettings& settings) const {
  for (const auto& part : parts_) part->rank.row_factors.clear();
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
void RankParts::update(const StepSettings& settings, int64_t step) const {
  const double adamw = settings.adamw_learning_rate < 0
                           ? settings.learning_rate
                           : settings.adamw_learning_rate;
  set_row_factors(settings);
  for (const auto& part : parts_)
    part->begin_step(step, settings.learning_rate);
  for (const auto& part : parts_)
    part->update_elements(step, {settings.learning_rate, adamw});
  for (const auto& part : parts_)
    part->finish_step(step, settings.learning_rate);
}

std::string RankParts::text_of(LogicalDigest digest) const {
  control().all_reduce(Reduction::kInt64Sum,
                       std::as_writable_bytes(digest.words()),
                       {.label = "digest"});
  return digest.text();
}

}  // namespace canzona
