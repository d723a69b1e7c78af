// An NcclWorld is shared by the groups of one rank: NCCL's communicators, the
// lock under which NCCL is called, and the word that ends them all. For this
// folder's sources.
//
// NCCL is never called by two threads at once: the thread that issues and the
// watch take turns. No call waits, because communicators are non-blocking: what
// has begun is asked for until it is done. Once the world is closed, nobody
// calls NCCL any more but to abort.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "canzona/comm/nccl/nccl_progress.h"
#include "canzona/comm/nccl/nccl_session.h"

namespace canzona {

class NcclWorld {
 public:
  NcclWorld(const NcclApi& nccl, const NcclOptions& options, int rank);

  const NcclOptions& options() const { return options_; }
  int rank() const { return rank_; }

  // Calls function(nccl) unless the world is closed: PeerLost then.
  template <class Function>
  auto call(Function function) {
    const std::lock_guard lock(mutex_);
    if (closed_) throw_closed();
    return function(nccl_);
  }
  // The same for the thread that issues: where NCCL has lost a peer, the watch
  // learns whose process that was and closes the world with its name.
  template <class Function>
  auto call_by_issuer(Function function) {
    try {
      return call(function);
    } catch (const PeerLost&) {
      wait_until_closed();
      throw;
    }
  }
  // Throws what a result means: NCCL's words, and `doing`. In progress is good.
  void require(NcclResult result, std::string_view doing, NcclComm* of);
  // True if what a communicator has begun is done; throws if it has failed.
  bool is_done(NcclComm* comm, std::string_view doing);

  // A communicator of these ranks of the world, who all call it, with a control
  // plane of their own. A set of ranks has two communicators, which its calls
  // get in turn.
  NcclComm* found(const std::vector<int>& ranks, Transport& host,
                  Deadline until);
  int num_communicators() const;

  // The number of ranks that share this rank's device is 1 at first.
  void set_ranks_per_device(int ranks) { ranks_per_device_ = ranks; }
  // Measures communicators by the device's free memory: found() their founding.
  // begin_use() returns the memory that is free before the first
  // messages, or the first collective, of a communicator; -1 otherwise, and
  // where nobody measures. end_use() is told it when they are issued.
  int64_t begin_use(NcclComm* comm, bool messages);
  void end_use(NcclComm* comm, int64_t free_before);
  std::vector<LibraryMemory> memory() const;

  // The memory that messages pass through; never kAuto.
  NcclOptions::Memory memory_kind() const;
  // Memory of the library; null where messages pass through plain memory.
  // std::bad_alloc if the device has not enough.
  std::byte* allocate(int64_t bytes);
  void free(std::byte* memory) noexcept;
  // Registers memory with a communicator, whose ranks, at `host`, all call it;
  // once, however many groups use both. As a window where all have as many
  // bytes, else each for itself. Null where nothing is registered.
  struct Registration;
  Registration* add_registration(NcclComm* comm, std::span<std::byte> memory,
                                 SharedUse use, Transport& host,
                                 Deadline until);
  void end_registration(Registration* of) noexcept;

  // Adds a group's progress for the watch, until it is removed. Groups of one
  // set of ranks are told apart by their number.
  std::shared_ptr<NcclProgress> add_group(const std::vector<int>& ranks,
                                          Lane& lane);
  void remove_group(const std::shared_ptr<NcclProgress>& group);
  template <class Function>
  void for_each_group(Function function) const {
    const std::lock_guard lock(reason_mutex_);
    for (const auto& group : groups_) function(*group);
  }

  // Throws as require() does if a communicator has failed by itself.
  void require_health();

  // Nobody may call NCCL from now on; communicators are aborted by abort_all()
  // alone, on the watch.
  void close(const std::string& reason);
  // Aborts all communicators and waits for the lanes. False if that takes
  // longer than options().patience.
  bool abort_all();
  // The orderly end of all communicators. PeerLost if that takes too long.
  void end_all(Deadline until);

  struct Registration {
    NcclComm* comm = nullptr;
    std::span<std::byte> memory;
    NcclWindow* window = nullptr;  // as the library says, null for some
    void* handle = nullptr;        // of what a rank registers for itself
    bool is_window = false;
    int num_uses = 0;
  };

 private:
  struct SetOfRanks {
    std::array<NcclComm*, 2> comms{};
    int num_founded = 0;
    int num_groups = 0;
  };

  [[noreturn]] void throw_closed();
  // Throws as soon as the world is closed; returns if the watch is not heard of
  // for a while.
  void wait_until_closed();
  NcclConfig config() const;
  // This rank's part of what all that share its device have taken.
  int64_t taken(int64_t free_before, int64_t free_after) const;
  void note_founding(NcclComm* comm, const std::vector<int>& ranks,
                     Transport& host, int64_t free_before, Deadline until);
  // Keeps it in `place` as soon as it has begun.
  NcclComm* make(const std::vector<int>& ranks, NcclComm*& place,
                 Transport& host, Deadline until);
  // For callers that hold mutex_.
  template <class Function>
  void for_each_comm(Function function) const {
    for (const auto& [ranks, set] : sets_)
      for (NcclComm* comm : set.comms)
        if (comm != nullptr) function(comm);
  }
  std::vector<NcclComm*> comms() const;
  // True if the communicator has finished; see is_done().
  bool asks_done(NcclComm* comm, std::string_view doing);

  const NcclApi& nccl_;
  const NcclOptions options_;
  const int rank_;
  mutable std::mutex mutex_;
  std::atomic<bool> closed_ = false;
  std::map<std::vector<int>, SetOfRanks> sets_;
  struct Measured {
    NcclComm* comm = nullptr;
    LibraryMemory memory;
    std::array<bool, 2> used{};  // collectives, messages
  };
  std::vector<Measured> measured_;         // by mutex_, too
  std::list<Registration> registrations_;  // by mutex_, too
  int ranks_per_device_ = 1;
  mutable std::mutex reason_mutex_;  // of both below
  std::string reason_;
  std::vector<std::shared_ptr<NcclProgress>> groups_;
};

}  // namespace canzona
