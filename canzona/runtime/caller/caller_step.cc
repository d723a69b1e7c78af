#include "canzona/runtime/caller/caller_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/caller_capture.h"
#include "canzona/runtime/caller/caller_rank.h"
#include "canzona/runtime/caller/caller_updates.h"

namespace canzona::runtime {
namespace {

constexpr int64_t kRoomAlignment = 64;

// True if teams of one plan can share a matrix by either: rooms and exchanges
// are the same. What a refresh costs may differ.
bool shares_alike(const StripFacts& a, const StripFacts& b) {
  return a.strips == b.strips && a.has_helper() == b.has_helper() &&
         a.segments == b.segments && a.norm_bytes == b.norm_bytes &&
         a.sum_elements == b.sum_elements &&
         a.rounded_bytes == b.rounded_bytes &&
         a.factor_bytes == b.factor_bytes &&
         a.factors_at_refresh == b.factors_at_refresh;
}

void require_number(size_t given, size_t wanted, std::string_view what) {
  if (given == wanted) return;
  throw UsageError(cat(given, " ", what, "; expected ", wanted));
}

bool is_aligned_to(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) ==
         0;
}

[[noreturn]] void refuse_address(const void* address, int64_t bytes,
                                 std::string_view what) {
  const int64_t least = std::max<int64_t>(bytes, 8);
  throw UsageError(
      cat(what, " at an address that is ",
          reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(least),
          " modulo ", least, "; expected a multiple of ", bytes, " bytes"));
}

double number_at(const std::byte* data, DType dtype) {
  if (dtype == DType::kFp64) {
    double wide = 0;
    std::memcpy(&wide, data, sizeof(wide));
    return wide;
  }
  float narrow = 0;
  std::memcpy(&narrow, data, sizeof(narrow));
  return narrow;
}

void require_aligned(const void* address, int64_t bytes,
                     std::string_view what) {
  if (!is_aligned_to(address, bytes)) refuse_address(address, bytes, what);
}

}  // namespace

struct CallerStep::Parts {
  Parts(const StoragePlan& plan, int32_t number, std::vector<Engine*> engines,
        Lanes* lanes)
      : rank(plan, number, std::move(engines), lanes),
        gradients(rank),
        check(rank, {}),
        updates(rank) {
    rank.lead.synchronize();
  }

  enum class State { kUnbound, kIdle, kBegun, kRunning };

  CallerRank rank;
  CallerGradients gradients;
  GradientCheck check;
  CallerUpdates updates;
  State state = State::kUnbound;
  size_t next = 0;  // next action
  bool has_outcome = false;
  std::vector<std::unique_ptr<CapturedPart>> captured;
  // In this step.
  bool has_looked = false, has_squares = false, is_clipped = false;

  void require(State wanted, std::string_view call, std::string_view when) {
    if (state == wanted) return;
    abandon();
    throw UsageError(
        cat("a step on the caller's memory: ", call, " must be called ", when));
  }
  void require_begun(std::string_view call) {
    require(State::kBegun, call, "between begin and the first action");
  }
  void require_looked(std::string_view call) {
    require_begun(call);
    if (has_looked) return;
    abandon();
    throw UsageError(cat("a step on the caller's memory: ", call,
                         " must be called after look"));
  }
  void abandon() {
    if (state != State::kUnbound) state = State::kIdle;
  }
  void check_memory(const CallerMemory& memory) const;
  void check_addresses(const CallerMemory& memory) const;
  void check_gradients(std::span<const CallerGradient> given,
                       std::span<const int64_t> steps) const;
  void check_rates(std::span<const double> rates) const;
  void skip_collectives();
  // The parts of a captured step.
  bool begin_replay(const std::vector<CallerGradient>& recorded,
                    const CallerReplay& replay,
                    std::span<const std::byte> live);
  void update_captured(const CallerReplay& replay);
};

void CallerStep::Parts::check_memory(const CallerMemory& memory) const {
  const RankSchedule& schedule = rank.schedule;
  const size_t num = rank.plan.tensors.size();
  require_number(memory.weights.size(), num, "addresses of weights");
  require_number(memory.masters.size(), num, "addresses of masters");
  require_number(memory.states.size(), schedule.memories.size(),
                 "addresses of states");
  for (int32_t t = 0; t < std::ssize(rank.plan.tensors); ++t) {
    const CutTensor& tensor = rank.tensor(t);
    if (stored_elements(rank.plan, t, schedule.rank) == 0) continue;
    if (memory.weights[index(t)] == nullptr)
      throw UsageError(cat("tensor ", quoted(tensor.name), ": no weights"));
    if (tensor.dtype == DType::kBf16 && memory.masters[index(t)] == nullptr)
      throw UsageError(cat("tensor ", quoted(tensor.name),
                           ": bf16 weights without masters (",
                           to_string(rank.plan.options.master), ")"));
  }
  for (const ScheduledState& one : schedule.states)
    if (schedule.memories[index(one.memory)] > 0 &&
        memory.states[index(one.memory)] == nullptr)
      throw UsageError(cat("tensor ", quoted(rank.tensor(one.tensor).name),
                           ": no memory for state ", one.name));
  if (schedule.slot_elements > 0 && memory.slots == nullptr)
    throw UsageError(cat("no memory for slots; expected ",
                         schedule.slot_elements, " elements"));
  if (schedule.room_bytes > 0 && memory.rooms == nullptr)
    throw UsageError(cat("no memory for rooms of teams; expected ",
                         schedule.room_bytes, " bytes"));
  if (memory.numbers == nullptr)
    throw UsageError(
        cat("no memory for numbers; expected ", GradientCheck::kNumNumbers));
  check_addresses(memory);
}

void CallerStep::Parts::check_addresses(const CallerMemory& memory) const {
  constexpr int64_t kFloat = sizeof(float);
  for (int32_t t = 0; t < std::ssize(rank.plan.tensors); ++t) {
    const CutTensor& tensor = rank.tensor(t);
    const bool wide = tensor.dtype == DType::kFp32;
    const std::string name = cat("tensor ", quoted(tensor.name));
    require_aligned(memory.weights[index(t)], wide ? kFloat : kFloat / 2,
                    cat(name, ": weights"));
    require_aligned(
        memory.masters[index(t)],
        std::max<int64_t>(1, master_bytes_per_element(
                                 tensor.dtype, rank.plan.options.master)),
        cat(name, ": masters"));
  }
  for (const float* states : memory.states)
    require_aligned(states, kFloat, "states");
  require_aligned(memory.slots, kFloat, "slots");
  require_aligned(memory.rooms, kRoomAlignment, "rooms of teams");
  require_aligned(memory.numbers, sizeof(int64_t), "numbers");
}

void CallerStep::Parts::check_gradients(std::span<const CallerGradient> given,
                                        std::span<const int64_t> steps) const {
  for (size_t t = 0; t < given.size(); ++t) {
    if (given[t].data == nullptr) continue;
    const CutTensor& tensor = rank.plan.tensors[t];
    if (given[t].dtype != DType::kFp32 && given[t].dtype != DType::kBf16)
      throw UsageError(cat("tensor ", quoted(tensor.name), ": a gradient in ",
                           to_string(given[t].dtype),
                           "; expected fp32 or bf16"));
    const auto number = static_cast<int32_t>(t);
    const int64_t bytes = size_of(given[t].dtype);
    if (!is_aligned_to(given[t].data, bytes) &&
        stored_elements(rank.plan, number, rank.schedule.rank) > 0)
      refuse_address(given[t].data, bytes,
                     cat("tensor ", quoted(tensor.name), ": a gradient"));
    if (steps[t] < 1)
      throw UsageError(cat("tensor ", quoted(tensor.name), ": update number ",
                           steps[t], "; expected 1 or more"));
  }
}

void CallerStep::Parts::check_rates(std::span<const double> rates) const {
  for (size_t g = 0; g < rates.size(); ++g)
    if (!std::isfinite(rates[g]) || rates[g] < 0)
      throw UsageError(cat("group ", g, ", rule ", rank.plan.groups[g].rule,
                           ": learning rate ", rates[g],
                           "; expected a finite number of at least 0"));
}

CallerStep::CallerStep(const StoragePlan& plan, int32_t rank,
                       std::vector<Engine*> engines, Lanes* lanes)
    : parts_(std::make_unique<Parts>(plan, rank, std::move(engines), lanes)) {}
CallerStep::CallerStep(const StoragePlan& plan, int32_t rank, Engine& engine)
    : CallerStep(plan, rank, std::vector<Engine*>{&engine}, nullptr) {}
CallerStep::CallerStep(const StoragePlan& plan, int32_t rank,
                       std::vector<Engine*> engines)
    : CallerStep(plan, rank, std::move(engines), nullptr) {}
CallerStep::CallerStep(const StoragePlan& plan, int32_t rank, Lanes& lanes)
    : CallerStep(plan, rank, std::vector<Engine*>{&lanes.lane(0)}, &lanes) {}

// The device may still use memory that is released here.
CallerStep::~CallerStep() {
  try {
    for (Engine* engine : parts_->rank.all) engine->synchronize();
  } catch (const std::exception&) {
    return;  // the device is lost; the caller has seen the error
  }
}

const RankSchedule& CallerStep::schedule() const {
  return parts_->rank.schedule;
}

void CallerStep::bind(CallerMemory memory) {
  parts_->check_memory(memory);
  parts_->check.bind(memory.numbers);
  parts_->rank.memory = std::move(memory);
  parts_->updates.rebind();
  parts_->state = Parts::State::kIdle;
}

namespace {

// Returns "constraint=hyperball instead of none" for all options that change.
std::string changes_of(const RuleOptions& before, const RuleOptions& after) {
  std::vector<std::string> changes;
  for (const auto& [name, value] : after) {
    const auto was = before.find(name);
    if (was != before.end() && was->second != value)
      changes.push_back(cat(name, "=", value, " instead of ", was->second));
  }
  return join(changes, ", ");
}

}  // namespace

void CallerStep::set_options(int32_t group, const RuleOptions& changed) {
  CallerRank& rank = parts_->rank;
  if (group < 0 || group >= std::ssize(rank.rules))
    throw UsageError(
        cat("group ", group, "; expected 0 to ", rank.rules.size() - 1));
  RuleOptions options = rank.options[index(group)];
  for (const auto& [name, value] : changed) {
    if (name == "device" && value != rank.lead.kind())
      throw UsageError(cat("option device=", value, ": this step runs on ",
                           rank.lead.kind()));
    options[name] = value;
  }
  const std::string& rule = rank.plan.groups[index(group)].rule;
  auto made = make_rule(rule, options, DType::kFp32, rank.lead.kind());
  const RuleFacts& before = rank.rules[index(group)]->facts();
  for (const OwnedMatrix& m : rank.plan.matrices) {
    if (rank.tensor(m.tensor).group != group) continue;
    const auto old = before.tensor_states({m.rows, m.cols});
    const auto now = made->facts().tensor_states({m.rows, m.cols});
    bool same = old.size() == now.size() &&
                before.gather_fields() == made->facts().gather_fields();
    for (size_t s = 0; same && s < old.size(); ++s)
      same = old[s].name == now[s].name && old[s].shape == now[s].shape &&
             old[s].lives == now[s].lives;
    if (!same)
      throw UsageError(cat(
          "rule ", rule, ": ",
          changes_of(before.options(), made->facts().options()),
          ": the matrices' owners need other states or fields for that than ",
          "were planned; choose it when the optimizer is made"));
    if (!m.team.empty() &&
        !shares_alike(before.strips({m.rows, m.cols}),
                      made->facts().strips({m.rows, m.cols})))
      throw UsageError(cat("rule ", rule, ": these options change how ranks ",
                           "share the ", m.rows, "×", m.cols, " matrices of ",
                           "tensor ", quoted(rank.tensor(m.tensor).name),
                           "; make a new plan, or plan with teams=off"));
  }
  rank.options[index(group)] = std::move(options);
  rank.hashes[index(group)] = hash_of_options(*made);
  rank.rules[index(group)] = std::move(made);
  parts_->updates.rebind();
}

void CallerStep::begin(std::span<const CallerGradient> gradients,
                       std::span<const int64_t> steps,
                       std::span<const double> rates) {
  CallerRank& rank = parts_->rank;
  parts_->require(Parts::State::kIdle, "begin",
                  "after bind, and after the previous step has ended");
  require_number(gradients.size(), rank.gradients.size(), "gradients");
  require_number(steps.size(), rank.steps.size(), "step numbers");
  require_number(rates.size(), rank.rates.size(), "learning rates");
  parts_->check_gradients(gradients, steps);
  parts_->check_rates(rates);
  std::ranges::copy(gradients, rank.gradients.begin());
  std::ranges::copy(steps, rank.steps.begin());
  std::ranges::copy(rates, rank.rates.begin());
  parts_->check.begin();
  parts_->has_looked = parts_->has_squares = parts_->is_clipped = false;
  parts_->state = Parts::State::kBegun;
  parts_->next = 0;
  parts_->has_outcome = true;
}

void CallerStep::look() {
  parts_->require_begun("look");
  parts_->check.look(parts_->gradients.runs());
  parts_->has_looked = true;
  parts_->check.compare(parts_->gradients.likeness());
}
void CallerStep::squares() {
  parts_->require_looked("squares");
  parts_->check.squares();
  parts_->has_squares = true;
}
void CallerStep::clip(double limit) {
  parts_->require_looked("clip");
  parts_->check.clip(limit);
  parts_->is_clipped = true;
}
void CallerStep::judge(bool skip) {
  parts_->require_begun("judge");
  if (parts_->has_squares && !parts_->is_clipped) parts_->check.clip(0);
  parts_->check.judge(skip ? int64_t{kInfinityBits} : kUnlikeCode);
}

void CallerStep::Parts::skip_collectives() {
  const auto& actions = rank.schedule.actions;
  while (next < actions.size() && !actions[next].is_compute()) ++next;
}

void CallerStep::run(int32_t number) {
  Parts& parts = *parts_;
  if (parts.state == Parts::State::kBegun) parts.state = Parts::State::kRunning;
  parts.require(Parts::State::kRunning, "run", "after begin");
  parts.skip_collectives();
  const auto& actions = parts.rank.schedule.actions;
  if (std::cmp_not_equal(number, parts.next)) {
    const std::string expected =
        parts.next == actions.size()
            ? "the end"
            : cat(parts.next, ", ", quoted(actions[parts.next].label));
    parts.abandon();
    throw UsageError(cat("a step on the caller's memory: action ", number,
                         " is out of order; expected ", expected));
  }
  try {
    parts.updates.run(actions[parts.next++]);
  } catch (...) {
    parts.abandon();
    throw;
  }
}

// Sets what a replay's scalars are made from, and counts it. `live`: rates that
// were read from the device, 8 bytes each.
bool CallerStep::Parts::begin_replay(
    const std::vector<CallerGradient>& recorded, const CallerReplay& replay,
    std::span<const std::byte> live) {
  rank.gradients = recorded;
  for (size_t t = 0; t < recorded.size(); ++t)
    if (recorded[t].data != nullptr)
      rank.steps[t] = static_cast<int64_t>(*replay.counts[t] += 1);
  for (size_t g = 0; g < replay.rates.size(); ++g) {
    const CallerReplay::Rate& rate = replay.rates[g];
    rank.rates[g] = rate.number;
    if (rate.live == nullptr) continue;
    rank.rates[g] = number_at(live.data(), rate.dtype);
    live = live.subspan(sizeof(double));
  }
  return std::ranges::all_of(
      rank.rates, [](double rate) { return std::isfinite(rate) && rate >= 0; });
}

void CallerStep::Parts::update_captured(const CallerReplay& replay) {
  if (replay.limit > 0) {
    check.squares();
    check.clip(replay.limit);
  }
  check.judge(replay.skip ? int64_t{kInfinityBits} : kUnlikeCode);
  for (const ScheduleEntry& entry : rank.schedule.actions)
    if (entry.is_compute()) updates.run(entry);
}

void CallerStep::capture(std::span<const CallerGradient> gradients,
                         const CallerReplay& replay) {
  Parts& parts = *parts_;
  CallerRank& rank = parts.rank;
  if (rank.plan.world > 1)
    throw UsageError(cat("a step of ", rank.plan.world,
                         " ranks cannot be captured; only one of a rank that "
                         "shares nothing"));
  require_number(replay.counts.size(), rank.steps.size(), "counts of updates");
  std::vector<int64_t> steps;
  for (const float* count : replay.counts)
    steps.push_back(1 + static_cast<int64_t>(*count));
  std::vector<double> rates;
  CapturedWork work;
  for (const CallerReplay::Rate& rate : replay.rates) {
    rates.push_back(rate.number);
    if (rate.live != nullptr)
      work.reads.push_back({rate.live, size_of(rate.dtype)});
  }
  begin(gradients, steps, rates);
  const std::vector<CallerGradient> captured = rank.gradients;
  work.first = [&parts] {
    parts.check.begin();
    parts.check.look(parts.gradients.runs());
  };
  work.then = [&parts, replay] { parts.update_captured(replay); };
  work.before = [&parts, captured, replay](std::span<const std::byte> live) {
    return parts.begin_replay(captured, replay, live);
  };
  work.after = [captured, replay](bool skipped, bool refused) {
    if (!skipped) return;
    for (size_t t = 0; t < captured.size(); ++t)
      if (captured[t].data != nullptr) *replay.counts[t] -= 1;
    *replay.skipped += 1;
    *replay.refused += refused ? 1 : 0;
  };
  work.refusal = parts.check.numbers();
  work.skip = rank.skip;
  try {
    parts.captured.push_back(add_to_capture(rank.lead, std::move(work)));
  } catch (...) {
    parts.abandon();
    throw;
  }
  parts.abandon();
}

bool CallerStep::needs(int32_t number, int64_t step) const {
  const auto& actions = parts_->rank.schedule.actions;
  if (number < 0 || number >= std::ssize(actions) ||
      !is_of_team(actions[index(number)].purpose))
    throw UsageError(cat("a step on the caller's memory: action ", number,
                         " is no exchange of a team"));
  return parts_->updates.needs(actions[index(number)], step);
}

void CallerStep::end() {
  Parts& parts = *parts_;
  if (parts.state == Parts::State::kBegun) parts.state = Parts::State::kRunning;
  parts.require(Parts::State::kRunning, "end", "after begin");
  parts.skip_collectives();
  const auto& actions = parts.rank.schedule.actions;
  parts.abandon();
  if (parts.next < actions.size())
    throw UsageError(
        cat("a step on the caller's memory: end was called before action ",
            parts.next, ", ", quoted(actions[parts.next].label)));
  parts.rank.level_scratch();
}

void CallerStep::abandon() { parts_->abandon(); }

CallerOutcome CallerStep::outcome() {
  if (!parts_->has_outcome)
    throw UsageError(
        "a step on the caller's memory: outcome must be called after begin");
  const GradientNumbers numbers = parts_->check.read();
  const bool is_finite = numbers.largest < kInfinityBits;
  return {.skipped = numbers.skip != 0,
          .nonfinite_tensor = place_of_code(numbers.largest).tensor,
          .unlike = numbers.largest == kUnlikeCode,
          .norm = is_finite || !parts_->has_squares
                      ? numbers.norm
                      : std::numeric_limits<double>::infinity()};
}

}  // namespace canzona::runtime
