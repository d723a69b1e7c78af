#include "canzona/saving/run_saver.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/shard_writer.h"
#include "canzona/checkpoint/store.h"
#include "canzona/comm/from_all.h"
#include "canzona/plan/plan.h"
#include "canzona/saving/staging.h"

namespace canzona {
using namespace saving;
namespace {

// The form on the wire.
struct OutcomeRecord {
  static constexpr size_t kMostText = 1000;
  RankOutcome::Kind kind = RankOutcome::Kind::kDone;
  int32_t size = 0;
  std::array<char, kMostText> text = {};
};

}  // namespace

RankOutcome outcome_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const PeerLost&) {
    throw;
  } catch (const UsageError& error) {
    return {RankOutcome::Kind::kUsage, error.what()};
  } catch (const DataLost& error) {
    return {RankOutcome::Kind::kRefused, error.what()};
  } catch (const StorageError& error) {
    return {RankOutcome::Kind::kStorage, error.what()};
  } catch (const NumericalError& error) {
    return {RankOutcome::Kind::kNumerical, error.what()};
  } catch (const std::exception& error) {
    return {RankOutcome::Kind::kOther, error.what()};
  }
}

RankOutcome first_failure(Communicator& world, const RankOutcome& own,
                          const Call& call) {
  OutcomeRecord record{.kind = own.kind};
  const size_t size = std::min(own.text.size(), OutcomeRecord::kMostText);
  record.size = static_cast<int32_t>(size);
  std::copy_n(own.text.begin(), size, record.text.begin());
  for (const OutcomeRecord& other : one_from_all(world, record, call))
    if (other.kind != RankOutcome::Kind::kDone)
      return {other.kind,
              std::string(other.text.data(), static_cast<size_t>(other.size))};
  return {};
}

void throw_failure(const RankOutcome& outcome) {
  switch (outcome.kind) {
    case RankOutcome::Kind::kDone:
      return;
    case RankOutcome::Kind::kUsage:
      throw UsageError(outcome.text);
    case RankOutcome::Kind::kRefused:
      throw CheckpointRefused(outcome.text);
    case RankOutcome::Kind::kStorage:
      throw StorageError(outcome.text);
    case RankOutcome::Kind::kNumerical:
      throw NumericalError(outcome.text);
    case RankOutcome::Kind::kOther:
      throw Error(outcome.text);
  }
}

void at_first(Communicator& world, const std::function<void()>& body) {
  RankOutcome own;
  if (world.rank() == 0) own = outcome_of(body);
  require_all(world, own);
}

namespace {

using SteadyClock = std::chrono::steady_clock;

// Disks may be slow and differ in speed. A rank that is gone ends the wait; one
// that is stopped is noticed where steps wait for it, or by the heartbeat of
// threads that wait for a save (RunSaver::State::settle).
constexpr Call kWritten = {.label = "checkpoint written",
                           .deadline = std::chrono::hours(24 * 7)};

// The heartbeat period of threads that wait for a save.
constexpr std::chrono::milliseconds kBeatEvery{200};

// Does the work in a low-priority thread: with no processor to spare it gets a
// tenth of one, and all of them while steps wait for it. The calling thread
// only waits, and talks to other ranks at normal priority.
RankOutcome outcome_beside_steps(const std::function<void()>& work) {
  RankOutcome outcome;
  std::thread([&] {
    constexpr int kNice = 10;
    const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
    static_cast<void>(::setpriority(PRIO_PROCESS, thread, kNice));
    outcome = outcome_of(work);
  }).join();
  return outcome;
}

// Counts the ranks on this rank's host, including itself.
int64_t ranks_on_this_host(Communicator& world) {
  std::array<char, 65> own = {};
  static_cast<void>(::gethostname(own.data(), own.size() - 1));
  return std::ranges::count(one_from_all(world, own), own);
}

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

}  // namespace

// Work in another thread, and how it ended.
class BackgroundTask {
 public:
  explicit BackgroundTask(std::function<void()> body)
      : thread_([this, body = std::move(body)] {
          try {
            outcome_ = outcome_of(body);
          } catch (const std::exception& error) {
            outcome_ = {RankOutcome::Kind::kOther, error.what()};
          }
          {
            const std::lock_guard lock(mutex_);
            has_ended_ = true;
          }
          ended_.notify_all();
        }) {}
  ~BackgroundTask() { join(); }
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Waits at most this long.
  bool has_ended(std::chrono::milliseconds time = {}) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, time, [this] { return has_ended_; });
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  // Requires has_ended().
  const RankOutcome& outcome() const { return outcome_; }

 private:
  RankOutcome outcome_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;  // last, because it uses the other members
};

// A box that this rank contributes, and where it is copied before it is
// written.
struct GivenBox {
  RankState state;
  int64_t staged = -1;  // element of the staging memory; -1: not copied
};

struct RunSaver::State {
  State(Runtime& the_runtime, Communicator& the_world,
        const SaveSettings& the_settings);
  ~State() { cancelled = true; }

  void find_boxes();
  void open_store();
  int64_t own_bytes() const { return shard_bytes(sources()); }

  std::vector<BoxSource> sources() const;
  std::span<const float> values_of(const GivenBox& box) const;
  void require_finite() const;
  BoxSource source_of(const GivenBox& box) const;
  void copy_to_staging();
  void begin(int64_t step, const std::vector<SideFile>& side_files);
  void start_writing();
  RankOutcome write();
  RankOutcome commit();
  void put_in_store(const std::vector<std::string>& records);
  void end_flight(const RankOutcome& outcome);
  void settle();
  void wait();
  std::optional<SavedStep> take_result();

  Runtime& runtime;
  Communicator& world;
  // For the writing threads to agree, so that no step waits for them.
  const std::unique_ptr<Communicator> writers;
  const SaveSettings settings;
  std::vector<GivenBox> boxes;
  StagingMemory staging;
  int64_t steps_done = 0;
  int64_t all_bytes = 0;                   // bytes of a checkpoint from all
                                           // ranks
  std::unique_ptr<CheckpointStore> store;  // on rank 0

  // A save in flight; it belongs to the task while there is one.
  struct Flight {
    SavedStep saved;
    SteadyClock::time_point begin;
    std::string folder_name;
    std::vector<SideFile> side_files;
    std::optional<PendingCheckpoint> pending;  // on rank 0
    std::string record;
  };
  std::optional<Flight> flight;
  // True if all ranks know that no save is in flight; the same on every rank.
  bool is_settled = true;
  std::deque<SavedStep> results;
  std::atomic<bool> cancelled = false;
  std::unique_ptr<BackgroundTask> task;  // last, because it uses the other
                                         // members
};

RunSaver::State::State(Runtime& the_runtime, Communicator& the_world,
                       const SaveSettings& the_settings)
    : runtime(the_runtime),
      world(the_world),
      writers(the_world.split(0, the_world.rank(), "saving")),
      settings(the_settings) {
  find_boxes();
  const std::vector<int64_t> bytes = one_from_all(world, own_bytes());
  for (const int64_t b : bytes) all_bytes += b;
  at_first(world, [&] { open_store(); });
}

void RunSaver::State::find_boxes() {
  int64_t staged = 0;
  runtime.for_each_state([&](const RankState& state) {
    if (!state.given) return;
    GivenBox box{state};
    if (settings.background || state.values.empty()) {
      box.staged = staged;
      staged += state.elements;
    }
    boxes.push_back(std::move(box));
  });
  staging = StagingMemory(staged, copy_threads(ranks_on_this_host(world)));
}

// Requires space for all checkpoints that exist before the first is removed.
void RunSaver::State::open_store() {
  store = std::make_unique<CheckpointStore>(settings.folder, settings.owner);
  const int64_t present = std::ssize(list_checkpoints(store->folder()));
  const int64_t wanted =
      settings.keep_last == 0 ? 1 : settings.keep_last + 1 - present;
  store->require_space(all_bytes, std::max<int64_t>(wanted, 1));
}

std::span<const float> RunSaver::State::values_of(const GivenBox& box) const {
  return box.staged < 0 ? std::span<const float>(box.state.values)
                        : staging.part(box.staged, box.state.elements);
}

// A checkpoint that cannot be resumed from must not replace a good one.
void RunSaver::State::require_finite() const {
  for (const GivenBox& box : boxes)
    if (box.state.state.empty() &&
        !std::ranges::all_of(values_of(box),
                             [](float x) { return std::isfinite(x); }))
      throw NumericalError(cat("weights of ", quoted(box.state.owner),
                               " are not finite, so they are not saved"));
}

BoxSource RunSaver::State::source_of(const GivenBox& box) const {
  const std::span<const float> values = values_of(box);
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return {.tensor = tensor_of(box.state),
          .box = box_of(box.state),
          .fill = [this, bytes](int64_t offset, std::span<std::byte> to) {
            if (cancelled.load(std::memory_order_relaxed))
              throw Error("the run has ended");
            std::memcpy(to.data(), bytes + offset, to.size());
          }};
}

std::vector<BoxSource> RunSaver::State::sources() const {
  std::vector<BoxSource> sources;
  for (const GivenBox& box : boxes) sources.push_back(source_of(box));
  if (world.rank() == 0)
    sources.push_back({.tensor = steps_tensor(),
                       .box = {},
                       .data = std::as_bytes(std::span(&steps_done, 1))});
  return sources;
}

void RunSaver::State::copy_to_staging() {
  runtime.wait_all_params();
  steps_done = runtime.steps_done();
  std::vector<StagedCopy> copies;
  for (const GivenBox& box : boxes) {
    if (box.staged < 0) continue;
    if (box.state.values.empty())
      runtime.get_state(box.state,
                        staging.part(box.staged, box.state.elements));
    else
      copies.push_back({box.state.values, box.staged});
  }
  staging.copy(copies);
}

// Creates the folder first: if the disk is full, nothing is copied.
void RunSaver::State::begin(int64_t step,
                            const std::vector<SideFile>& side_files) {
  const auto now = SteadyClock::now();
  settle();
  wait();
  flight.emplace();
  flight->begin = now;
  flight->saved = {.step = step, .bytes = all_bytes};
  RankOutcome own;
  if (world.rank() == 0) {
    flight->side_files = side_files;
    own = outcome_of([&] {
      store->require_space(all_bytes);
      flight->pending.emplace(store->begin(step));
      flight->folder_name = flight->pending->folder_name();
    });
  }
  const RankOutcome first = first_failure(world, own);
  if (first.failed()) return end_flight(first);
  flight->folder_name = from_first(world, flight->folder_name);
  copy_to_staging();
  start_writing();
  if (!settings.background) {
    settle();
    wait();
  }
  const double pause = largest_of(world, seconds_since(now));
  (flight ? flight->saved : results.back()).pause_seconds = pause;
}

void RunSaver::State::start_writing() {
  is_settled = false;
  task = std::make_unique<BackgroundTask>([this] {
    RankOutcome first = first_failure(*writers, write(), kWritten);
    if (!first.failed()) first = commit();
    throw_failure(first);
  });
}

RankOutcome RunSaver::State::write() {
  const ShardOrigin origin{
      .step = flight->saved.step, .rank = world.rank(), .world = world.size()};
  const auto work = [&] {
    require_finite();
    flight->record = write_shard(
        open_pending(settings.folder, flight->folder_name), origin, sources(),
        settings.background ? Hashing::kInTurn : Hashing::kBeside);
  };
  return settings.background ? outcome_beside_steps(work) : outcome_of(work);
}

// Commits as soon as all ranks have written, wherever their steps are.
RankOutcome RunSaver::State::commit() {
  const std::vector<std::vector<char>> rows =
      to_first<char>(*writers, flight->record, kWritten);
  RankOutcome own;
  if (world.rank() == 0) {
    std::vector<std::string> records;
    for (const std::vector<char>& row : rows)
      records.emplace_back(row.begin(), row.end());
    own = outcome_of([&] { put_in_store(records); });
  }
  return first_failure(*writers, own, kWritten);
}

// Pruning may have to read older checkpoints.
void RunSaver::State::put_in_store(const std::vector<std::string>& records) {
  for (const SideFile& file : flight->side_files)
    flight->pending->add_side_file(file.name, file.text);
  flight->pending->commit(records, runtime.plan().digest);
  if (settings.keep_last == 0) return;
  const RankOutcome pruned = outcome_of([&] {
    const PruneReport report = store->prune(settings.keep_last);
    for (const std::string& name : report.damaged)
      flight->saved.notes.push_back(cat(name, " is damaged"));
  });
  if (pruned.failed())
    flight->saved.notes.push_back(
        cat("older checkpoints could not be removed: ", pruned.text));
}

// No rank does steps while a save is awaited, so a rank that has stopped would
// not be noticed. The waiting ranks therefore exchange heartbeats: however long
// the disks take, all ranks join each heartbeat within the deadline or are
// named.
void RunSaver::State::settle() {
  while (!is_settled) {
    const int waits = flight && !task->has_ended(kBeatEvery) ? 1 : 0;
    const std::vector<int> all =
        one_from_all(world, waits, {.label = "waiting for a save"});
    is_settled = std::ranges::count(all, 1) == 0;
  }
}

void RunSaver::State::wait() {
  if (!flight) return;
  task->join();
  end_flight(task->outcome());
}

void RunSaver::State::end_flight(const RankOutcome& outcome) {
  flight->saved.failure = outcome.text;
  flight->saved.not_finite = outcome.kind == RankOutcome::Kind::kNumerical;
  task.reset();
  flight->saved.seconds = seconds_since(flight->begin);
  results.push_back(std::move(flight->saved));
  flight.reset();
}

std::optional<SavedStep> RunSaver::State::take_result() {
  if (results.empty()) return {};
  SavedStep first = std::move(results.front());
  results.pop_front();
  return first;
}

RunSaver::RunSaver(Runtime& runtime, Communicator& world,
                   const SaveSettings& settings)
    : state_(std::make_unique<State>(runtime, world, settings)) {}

RunSaver::~RunSaver() = default;

int64_t RunSaver::staging_bytes() const {
  return state_->staging.elements() * kBytesPerFp32;
}

void RunSaver::save(int64_t step, const std::vector<SideFile>& side_files) {
  state_->begin(step, side_files);
}

std::optional<SavedStep> RunSaver::poll() {
  if (state_->flight && state_->task->has_ended()) state_->wait();
  return state_->take_result();
}

std::optional<SavedStep> RunSaver::finish() {
  state_->settle();
  state_->wait();
  return state_->take_result();
}

int64_t given_bytes(const Plan& plan, int32_t rank,
                    const RuntimeOptions& options, const std::string& device) {
  int64_t elements = 0;
  for (const RankInPart& at : parts_of_rank(plan, rank)) {
    const PlanPart& part = plan.parts[index(at.part)];
    const Coordinates own = in_grid(part, at.rank);
    const RankLayout layout = lay_out_rank(part, own);
    const Kept kept = kept_by(part, own, layout);
    const auto facts = make_rule_facts(part.rule, part.rule_options);
    const RuleSet rules(part, *facts, {options.adamw, options.groups}, device);
    const std::vector<Round> rounds =
        make_rounds(part, own, kept, facts->gather_fields());
    const UpdatePlan updates =
        plan_updates(part, layout, kept, rounds, rules.facts(), 1);
    for (const StateBox& box :
         state_boxes(part, at.rank, {own, layout, kept, updates}))
      if (box.given) elements += box.elements;
  }
  return elements * kBytesPerFp32;
}

}  // namespace canzona
