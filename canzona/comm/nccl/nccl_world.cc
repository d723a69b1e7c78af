#include "canzona/comm/nccl/nccl_world.h"

#include <algorithm>
#include <condition_variable>
#include <new>
#include <thread>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"

namespace canzona::comm {

NcclProgress::NcclProgress(uint64_t group, Lane& lane)
    : group_(group), lane_(lane), ring_(64) {
  for (Entry& each : ring_) each.mark = lane.make_mark();
}

void NcclProgress::set_name(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (name_ != name) name_ = name;
}

std::string NcclProgress::name() const {
  const std::lock_guard lock(mutex_);
  return name_;
}

void NcclProgress::begin(int64_t sequence) {
  const std::lock_guard lock(mutex_);
  counts_.issued = sequence - 1;
}

// When all entries are taken, the last operation's mark is moved to this one:
// by the lane's order it is later than all others.
void NcclProgress::issued(const IssuedOperation& operation) {
  const std::lock_guard lock(mutex_);
  counts_.issued = operation.sequence;
  if (std::cmp_equal(end_ - first_, ring_.size())) drop_ended();
  if (std::cmp_less(end_ - first_, ring_.size())) ++end_;
  Entry& last = entry(end_ - 1);
  last.operation = operation;
  last.deadline = deadline_after(operation.time);
  lane_.record(*last.mark);
}

// An operation's time starts when those before it have ended, because a host
// may run far ahead of its device.
void NcclProgress::drop_ended() {
  while (first_ < end_ && entry(first_).mark->reached()) {
    counts_.ended = entry(first_).operation.sequence;
    if (++first_ == end_) return;
    Entry& next = entry(first_);
    next.deadline =
        std::max(next.deadline, deadline_after(next.operation.time));
  }
}

NcclProgress::Counts NcclProgress::counts() {
  const std::lock_guard lock(mutex_);
  drop_ended();
  return counts_;
}

std::optional<IssuedOperation> NcclProgress::late(Deadline now) {
  const std::lock_guard lock(mutex_);
  drop_ended();
  if (first_ == end_ || now < entry(first_).deadline) return {};
  return entry(first_).operation;
}

bool NcclProgress::is_busy() {
  const std::lock_guard lock(mutex_);
  drop_ended();
  return first_ < end_;
}

std::string NcclProgress::under_way() {
  const std::lock_guard lock(mutex_);
  drop_ended();
  if (first_ == end_) return {};
  const IssuedOperation& what = entry(first_).operation;
  return cat(to_string(what.operation), " #", what.sequence, " ",
             quoted(what.label.view()), " of ", name_);
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kLook{50};

// Waits until the messages between the members of a group on the control plane
// have passed.
void finish_founding(Transport& host, Deadline until) {
  while (!host.poll()) {
    if (host.is_aborted())
      throw PeerLost(
          cat("creating an NCCL group was given up: ", host.abort_reason()));
    const int lost = host.lost_peer();
    if (lost >= 0 || Clock::now() >= until)
      throw PeerLost(cat("rank ", lost >= 0 ? lost : 0,
                         " of the group did not join to create it for NCCL"));
    host.pause(until);
  }
}

// Returns true if the library cannot do that, here or for this memory.
bool is_refused(NcclResult result) {
  return result == NcclResult::kInvalidArgument ||
         result == NcclResult::kInvalidUsage;
}

// Copies the first member's value to all of them.
template <class Value>
void send_from_first(Value& value, Transport& host, Deadline until) {
  const auto bytes = std::as_writable_bytes(std::span(&value, 1));
  if (host.rank() != 0) host.post_receive(0, bytes);
  for (int peer = 1; peer < host.size() && host.rank() == 0; ++peer)
    host.post_send(peer, bytes);
  finish_founding(host, until);
}

// Returns the largest of all members' numbers; all of them have come by then.
int64_t largest_in_group(int64_t own, Transport& host, Deadline until) {
  std::vector<int64_t> all(static_cast<size_t>(host.size()), own);
  if (host.rank() != 0) host.post_send(0, std::as_bytes(std::span(&own, 1)));
  for (int peer = 1; peer < host.size() && host.rank() == 0; ++peer)
    host.post_receive(
        peer,
        std::as_writable_bytes(std::span(all))
            .subspan(static_cast<size_t>(peer) * sizeof(own), sizeof(own)));
  finish_founding(host, until);
  int64_t largest = *std::ranges::max_element(all);
  send_from_first(largest, host, until);
  return largest;
}

bool all_have_as_many(int64_t bytes, Transport& host, Deadline until) {
  return largest_in_group(bytes, host, until) ==
         -largest_in_group(-bytes, host, until);
}

}  // namespace

NcclWorld::NcclWorld(const NcclApi& nccl, const NcclOptions& options, int rank)
    : nccl_(nccl), options_(options), rank_(rank) {}

void NcclWorld::throw_closed() {
  const std::lock_guard lock(reason_mutex_);
  throw PeerLost(cat("rank ", rank_, ": NCCL has been given up: ", reason_));
}

// The watch itself waits up to `patience` to hear from the control plane.
void NcclWorld::wait_until_closed() {
  const Deadline until = deadline_after(options_.beat + 2 * options_.patience);
  while (!closed_ && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (closed_) throw_closed();
}

// A communicator has its own error text even if the call was that of a group.
void NcclWorld::require(NcclResult result, std::string_view doing,
                        NcclComm* of) {
  if (result == NcclResult::kSuccess || result == NcclResult::kInProgress)
    return;
  const char* words = nccl_.get_last_error(of);
  const std::string text = cat(
      "rank ", rank_, ": NCCL: ", doing, ": ", nccl_.get_error_string(result),
      words == nullptr ? "" : ": ", words == nullptr ? "" : printable(words));
  switch (result) {
    case NcclResult::kInvalidArgument:
    case NcclResult::kInvalidUsage:
      throw UsageError(text);
    case NcclResult::kUnhandledCudaError:
    case NcclResult::kInternalError:
      throw InternalError(text);
    default:
      throw PeerLost(text);
  }
}

bool NcclWorld::asks_done(NcclComm* comm, std::string_view doing) {
  NcclResult state = NcclResult::kSuccess;
  require(nccl_.comm_get_async_error(comm, &state), doing, comm);
  require(state, doing, comm);
  return state == NcclResult::kSuccess;
}

bool NcclWorld::is_done(NcclComm* comm, std::string_view doing) {
  return call_by_issuer([&](const NcclApi&) { return asks_done(comm, doing); });
}

NcclConfig NcclWorld::config() const {
  NcclConfig config;
  config.blocking = 0;
  return config;
}

bool NcclWorld::registers() const {
  return !options_.plain_memory && nccl_.mem_alloc != nullptr &&
         (nccl_.window_register != nullptr || nccl_.comm_register != nullptr);
}

std::byte* NcclWorld::allocate(int64_t bytes) {
  if (!registers() || bytes <= 0) return nullptr;
  void* memory = nullptr;
  const int64_t free = options_.free_memory ? options_.free_memory() : bytes;
  call([&](const NcclApi& nccl) {
    const NcclResult result =
        nccl.mem_alloc(&memory, static_cast<size_t>(bytes));
    if (result != NcclResult::kSuccess && free <= bytes) throw std::bad_alloc();
    require(result, cat("ncclMemAlloc of ", human_bytes(bytes)), nullptr);
  });
  return static_cast<std::byte*>(memory);
}

// The memory is leaked if NCCL was aborted.
void NcclWorld::free(std::byte* memory) noexcept {
  try {
    call([&](const NcclApi& nccl) { nccl.mem_free(memory); });
  } catch (const std::exception&) {
  }
}

// The library writes a window's handle when it is done, so the registration
// must not move.
NcclWorld::Registration* NcclWorld::add_registration(
    NcclComm* comm, std::span<std::byte> memory, SharedUse use, Transport& host,
    Deadline until) {
  if (!registers()) return nullptr;
  const auto bytes = static_cast<int64_t>(memory.size());
  const bool window = nccl_.window_register != nullptr &&
                      (use.same_bytes || all_have_as_many(bytes, host, until));
  if (bytes == 0) return nullptr;
  Registration* of = nullptr;
  bool added = false;
  call([&](const NcclApi& nccl) {
    for (Registration& there : registrations_)
      if (there.comm == comm && there.memory.data() == memory.data() &&
          there.memory.size() == memory.size())
        of = &there;
    if (of == nullptr) {
      if (!window && nccl.comm_register == nullptr) return;
      of = &registrations_.emplace_back();
      of->comm = comm;
      of->memory = memory;
      of->is_window = window;
      const NcclResult result =
          window ? nccl.window_register(
                       comm, memory.data(), memory.size(), &of->window,
                       use.same_places ? NcclApi::kSymmetric : 0)
                 : nccl.comm_register(comm, memory.data(), memory.size(),
                                      &of->handle);
      if (is_refused(result)) {
        registrations_.pop_back();
        of = nullptr;
        return;
      }
      require(result, window ? "ncclCommWindowRegister" : "ncclCommRegister",
              comm);
      added = true;
    }
    ++of->num_uses;
  });
  while (added && !is_done(comm, "registering memory")) {
    if (host.is_aborted())
      throw PeerLost(
          cat("registering memory was given up: ", host.abort_reason()));
    if (Clock::now() >= until)
      throw PeerLost(cat("rank ", rank_,
                         ": NCCL: registering memory did not finish in time: "
                         "not all ranks have joined"));
    std::this_thread::sleep_for(kLook);
  }
  return of;
}

// An aborted communicator has already freed its windows.
void NcclWorld::end_registration(Registration* of) noexcept {
  try {
    NcclComm* comm = of->comm;
    const bool ended = call([&](const NcclApi& nccl) {
      if (--of->num_uses > 0) return false;
      if (of->is_window && of->window != nullptr)
        nccl.window_deregister(comm, of->window);
      if (!of->is_window) nccl.comm_deregister(comm, of->handle);
      registrations_.remove_if([&](const Registration& r) { return &r == of; });
      return true;
    });
    const Deadline until = deadline_after(options_.patience);
    while (ended && !is_done(comm, "ending a registration") &&
           Clock::now() < until)
      std::this_thread::sleep_for(kLook);
  } catch (const std::exception&) {
  }
}

// Once the world is closed, `place` is invalid.
NcclComm* NcclWorld::make(NcclComm*& place, Transport& host, Deadline until) {
  NcclId id{};
  if (host.rank() == 0)
    call([&](const NcclApi& nccl) {
      require(nccl.get_unique_id(&id), "ncclGetUniqueId", nullptr);
    });
  send_from_first(id, host, until);
  const std::string doing = cat("creating a group of ", host.size(), " ranks");
  NcclComm* comm = nullptr;
  call([&](const NcclApi& nccl) {
    NcclConfig wanted = config();
    const NcclResult result = nccl.comm_init_rank_config(&comm, host.size(), id,
                                                         host.rank(), &wanted);
    place = comm;
    require(result, doing, nullptr);
  });
  while (!is_done(comm, doing)) {
    if (host.is_aborted())
      throw PeerLost(cat(doing, " given up: ", host.abort_reason()));
    if (Clock::now() >= until)
      throw PeerLost(
          cat("rank ", rank_, ": NCCL: ", doing,
              " did not finish in time: not all of them have joined"));
    std::this_thread::sleep_for(kLook);
  }
  return comm;
}

NcclComm* NcclWorld::found(const std::vector<int>& ranks, Transport& host,
                           Deadline until) {
  if (ranks.size() < 2) return nullptr;
  NcclComm** place = nullptr;
  NcclComm* there = nullptr;
  call([&](const NcclApi&) {
    SetOfRanks& set = sets_[ranks];
    place =
        &set.comms[static_cast<size_t>(set.num_founded++) % set.comms.size()];
    there = *place;
  });
  return there != nullptr ? there : make(*place, host, until);
}

std::vector<NcclComm*> NcclWorld::comms() const {
  std::vector<NcclComm*> all;
  for_each_comm([&](NcclComm* comm) { all.push_back(comm); });
  return all;
}

int NcclWorld::num_communicators() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(comms().size());
}

std::shared_ptr<NcclProgress> NcclWorld::add_group(
    const std::vector<int>& ranks, Lane& lane) {
  uint64_t number = ranks.size();
  {
    const std::lock_guard lock(mutex_);
    for (const int rank : ranks)
      number = bits_at(number, static_cast<uint64_t>(rank));
    number = bits_at(number, static_cast<uint64_t>(sets_[ranks].num_groups++));
  }
  auto group = std::make_shared<NcclProgress>(number, lane);
  const std::lock_guard lock(reason_mutex_);
  groups_.push_back(group);
  return group;
}

void NcclWorld::remove_group(const std::shared_ptr<NcclProgress>& group) {
  const std::lock_guard lock(reason_mutex_);
  std::erase(groups_, group);
}

void NcclWorld::require_health() {
  call([&](const NcclApi&) {
    for_each_comm([&](NcclComm* comm) { asks_done(comm, "an operation"); });
  });
}

void NcclWorld::close(const std::string& reason) {
  {
    const std::lock_guard lock(reason_mutex_);
    if (reason_.empty()) reason_ = reason;
  }
  closed_ = true;
}

// Each is aborted on a thread of its own: the kernels of one may be queued
// behind those of another and would wait for them.
bool NcclWorld::abort_all() {
  const Deadline until = deadline_after(options_.patience);
  // A thread inside NCCL leaves it soon, and no other enters.
  std::unique_lock lock(mutex_, std::defer_lock);
  while (!lock.try_lock()) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  struct Count {
    std::mutex mutex;
    std::condition_variable changed;
    size_t aborted = 0;
  };
  const auto count = std::make_shared<Count>();
  const std::vector<NcclComm*> all = comms();
  sets_.clear();
  for (NcclComm* comm : all)
    std::thread([abort = nccl_.comm_abort, comm, count] {
      abort(comm);
      const std::lock_guard counting(count->mutex);
      ++count->aborted;
      count->changed.notify_all();
    }).detach();
  std::unique_lock counting(count->mutex);
  if (!count->changed.wait_until(counting, until,
                                 [&] { return count->aborted == all.size(); }))
    return false;
  const auto busy = [&] {
    bool any = false;
    for_each_group([&](NcclProgress& of) { any = any || of.is_busy(); });
    return any;
  };
  while (busy()) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void NcclWorld::end_all(Deadline until) {
  std::vector<NcclComm*> all;
  call([&](const NcclApi& nccl) {
    all = comms();
    for (NcclComm* comm : all)
      require(nccl.comm_finalize(comm), "ncclCommFinalize", comm);
  });
  for (NcclComm* comm : all)
    while (!is_done(comm, "ncclCommFinalize")) {
      if (Clock::now() >= until)
        throw PeerLost(cat(
            "rank ", rank_,
            ": NCCL's groups did not end: not all of their ranks have joined"));
      std::this_thread::sleep_for(kLook);
    }
  call([&](const NcclApi& nccl) {
    for (NcclComm* comm : all)
      require(nccl.comm_destroy(comm), "ncclCommDestroy", comm);
    sets_.clear();
  });
}

}  // namespace canzona::comm
