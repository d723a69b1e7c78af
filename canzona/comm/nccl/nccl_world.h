// An NcclWorld is shared by the groups of one rank: it has NCCL's
// communicators, the lock under which NCCL is called, and the abort state.
// Internal to this folder.
//
// NCCL is never called by two threads at once: the issuing thread and the watch
// take turns. No call blocks, because communicators are non-blocking:
// operations are polled until they are done. Once the world is closed, NCCL is
// called only to abort.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/nccl/nccl_session.h"
#include "canzona/comm/transport.h"

namespace canzona::comm {

// An NcclProgress tracks how far the operations of one group have come on their
// lane. Internal to this folder.
//
//   progress.issued(operation);                 // by the thread that issues
//   if (const auto late = progress.late(now))   // by the watch
//
// Any thread may call.
class NcclProgress {
 public:
  // `group` must be the same on all members and different from any other
  // group's.
  NcclProgress(uint64_t group, Lane& lane);

  uint64_t group() const { return group_; }
  void set_name(std::string_view name);
  std::string name() const;

  // Records that an operation has begun; one that was begun but not issued
  // makes this rank late in the eyes of others.
  void begin(int64_t sequence);
  void issued(const IssuedOperation& operation);

  struct Counts {
    int64_t issued = 0;  // the last operation's number
    int64_t ended = 0;
  };
  Counts counts();
  // Returns the first operation that has not ended in its time.
  std::optional<IssuedOperation> late(Deadline now);
  bool is_busy();
  // Describes the first operation that has not ended: "all_gather_v #7 'layer
  // 3' of dp"; "" if all have.
  std::string under_way();

 private:
  struct Entry {
    IssuedOperation operation;
    Deadline deadline = {};
    std::unique_ptr<Mark> mark;
  };

  // Callers must hold mutex_.
  void drop_ended();
  Entry& entry(int64_t number) {
    return ring_[static_cast<size_t>(number) % ring_.size()];
  }

  const uint64_t group_;
  Lane& lane_;
  mutable std::mutex mutex_;
  std::string name_;
  std::vector<Entry> ring_;
  int64_t first_ = 0;  // entries [first_, end_) are in flight
  int64_t end_ = 0;
  Counts counts_;
};

class NcclWorld {
 public:
  NcclWorld(const NcclApi& nccl, const NcclOptions& options, int rank);

  const NcclOptions& options() const { return options_; }
  int rank() const { return rank_; }

  // Calls function(nccl); throws PeerLost if the world is closed.
  template <class Function>
  auto call(Function function) {
    const std::lock_guard lock(mutex_);
    if (closed_) throw_closed();
    return function(nccl_);
  }
  // The same for the issuing thread: if NCCL has lost a peer, the watch finds
  // out whose process it was and closes the world with its name.
  template <class Function>
  auto call_by_issuer(Function function) {
    try {
      return call(function);
    } catch (const PeerLost&) {
      wait_until_closed();
      throw;
    }
  }
  // Throws with NCCL's text and `doing` unless the result is success or in
  // progress.
  void require(NcclResult result, std::string_view doing, NcclComm* of);
  // Returns true if the communicator has finished what it began; throws if it
  // failed.
  bool is_done(NcclComm* comm, std::string_view doing);

  // Returns a communicator of these ranks of the world, which must all call
  // this; `host` is their group on the control plane. A set of ranks has two
  // communicators, which successive calls get in turn.
  NcclComm* found(const std::vector<int>& ranks, Transport& host,
                  Deadline until);
  int num_communicators() const;

  // Allocates memory of the library; returns null if messages are staged in
  // plain memory. Throws std::bad_alloc if the device does not have enough.
  std::byte* allocate(int64_t bytes);
  void free(std::byte* memory) noexcept;
  // Registers memory with a communicator, once however many groups use both.
  // All its ranks, connected by `host`, must call this. The memory becomes a
  // window if all ranks have the same number of bytes; otherwise each rank
  // registers its own. Returns null if nothing is registered.
  struct Registration;
  Registration* add_registration(NcclComm* comm, std::span<std::byte> memory,
                                 SharedUse use, Transport& host,
                                 Deadline until);
  void end_registration(Registration* of) noexcept;

  // Adds a group's progress to what the watch looks at, until it is removed.
  // Groups of the same ranks are told apart by their number.
  std::shared_ptr<NcclProgress> add_group(const std::vector<int>& ranks,
                                          Lane& lane);
  void remove_group(const std::shared_ptr<NcclProgress>& group);
  template <class Function>
  void for_each_group(Function function) const {
    const std::lock_guard lock(reason_mutex_);
    for (const auto& group : groups_) function(*group);
  }

  // Throws like require() if a communicator itself has failed.
  void require_health();

  // Forbids all further calls of NCCL; communicators are aborted by abort_all()
  // alone, on the watch's thread.
  void close(const std::string& reason);
  // Aborts all communicators and waits for the lanes. Returns false if that
  // takes longer than options().patience.
  bool abort_all();
  // Destroys all communicators in an orderly way. Throws PeerLost if that takes
  // too long.
  void end_all(Deadline until);

  struct Registration {
    NcclComm* comm = nullptr;
    std::span<std::byte> memory;
    NcclWindow* window = nullptr;  // the library may return null
    void* handle = nullptr;        // if each rank registers its own
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
  // Throws as soon as the world is closed; returns if nothing is heard from the
  // watch for a while.
  void wait_until_closed();
  NcclConfig config() const;
  // True if messages are staged in the library's memory.
  bool registers() const;
  // Stores the communicator in `place` as soon as its creation has begun.
  NcclComm* make(NcclComm*& place, Transport& host, Deadline until);
  // Callers must hold mutex_.
  template <class Function>
  void for_each_comm(Function function) const {
    for (const auto& [ranks, set] : sets_)
      for (NcclComm* comm : set.comms)
        if (comm != nullptr) function(comm);
  }
  std::vector<NcclComm*> comms() const;
  // Returns true if the communicator has finished; see is_done().
  bool asks_done(NcclComm* comm, std::string_view doing);

  const NcclApi& nccl_;
  const NcclOptions options_;
  const int rank_;
  mutable std::mutex mutex_;
  std::atomic<bool> closed_ = false;
  std::map<std::vector<int>, SetOfRanks> sets_;
  std::list<Registration> registrations_;  // guarded by mutex_, too
  mutable std::mutex reason_mutex_;        // guards both below
  std::string reason_;
  std::vector<std::shared_ptr<NcclProgress>> groups_;
};

// A group whose messages NCCL executes on a lane, paired with a group of the
// same ranks on the control plane. Only nccl_session.cc uses this directly.
//
// Without a lane it is just the control plane's group. With one, the next
// poll() issues everything posted as one NCCL group (ncclGroupStart …
// ncclGroupEnd). poll() returns true once NCCL has enqueued it on the lane,
// which takes longer when ranks connect for the first time.
class NcclTransport final : public Transport {
 public:
  // `host` is the same group on the control plane; `world_ranks` are its ranks'
  // numbers in the world.
  NcclTransport(std::shared_ptr<NcclWorld> world,
                std::unique_ptr<Transport> host, std::vector<int> world_ranks);
  ~NcclTransport() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void copy_by(const WireOps& ops) override;
  Lane* lane() override { return lane_.get(); }
  bool can_order() const override { return lane_ == nullptr; }
  std::unique_ptr<Transport> ordered_subgroup(
      std::span<const int> members, int64_t id, int color, Deadline until,
      std::shared_ptr<Lane> lane) override;
  void set_of_host(bool of_host) override { of_host_ = of_host; }
  void watch(const IssuedOperation& operation) override;
  bool takes_many() const override { return lane_ != nullptr; }
  void register_memory(std::span<std::byte> memory, SharedUse use) override;
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* memory) override;

  void post_send(int to, std::span<const std::byte> data) override;
  void post_receive(int from, std::span<std::byte> data) override;
  bool poll() override;
  void pause(Deadline until) override;
  void retract() noexcept override;

  void pass_gate(std::string_view group, Operation operation,
                 std::string_view label) override;
  bool is_pending(int peer) const override;
  void enter(int64_t sequence) override;
  bool has_entered(int peer, int64_t sequence) const override {
    return host_->has_entered(peer, sequence);
  }
  int lost_peer() override { return host_->lost_peer(); }
  void leave() noexcept override { host_->leave(); }

  void abort(std::string_view reason) override { host_->abort(reason); }
  bool is_aborted() const override { return host_->is_aborted(); }
  std::string abort_reason() const override { return host_->abort_reason(); }
  // A subgroup of a group with a lane has the same lane.
  std::unique_ptr<Transport> subgroup(std::span<const int> members, int64_t id,
                                      int color, Deadline until) override;

  bool post_own_gather(std::span<std::byte> whole) override;
  bool post_own_broadcast(int root, std::span<std::byte> data) override;
  bool post_own_integers(Reduction reduction,
                         std::span<std::byte> data) override;

 private:
  // One NCCL call to be made by the next poll().
  struct Posted {
    enum class Kind : uint8_t {
      kSend,
      kReceive,
      kAllGather,
      kBroadcast,
      kAllReduce
    };
    Kind kind = Kind::kSend;
    const void* from = nullptr;
    void* to = nullptr;
    size_t count = 0;
    int peer = 0;  // or root
    NcclType type = NcclType::kUint8;
    NcclReduction reduction = NcclReduction::kSum;
  };

  void issue_on(std::shared_ptr<Lane> lane, Deadline until);
  // Returns true if messages posted now are for the control plane.
  bool is_of_host() const { return lane_ == nullptr || of_host_; }
  void post(const Posted& call) { posted_.push_back(call); }
  NcclResult issue(const NcclApi& nccl, const Posted& call) const;
  void issue_all();

  std::shared_ptr<NcclWorld> world_;
  std::unique_ptr<Transport> host_;
  std::vector<int> world_ranks_;
  std::shared_ptr<Lane> lane_;
  bool of_host_ = false;
  void* stream_ = nullptr;
  NcclComm* comm_ = nullptr;  // null for a single rank
  std::shared_ptr<NcclProgress> progress_;
  std::vector<Posted> posted_;
  bool issuing_ = false;
  void end_registrations() noexcept;

  std::vector<NcclWorld::Registration*> registrations_;
};

}  // namespace canzona::comm
