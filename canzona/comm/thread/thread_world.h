// A ThreadWorld is shared by threads that act as ranks: it has groups with an
// inbox per rank, and the abort state.
//
// A sender posts a pointer to the receiver's inbox; the receiver copies the
// data, then puts a receipt in the sender's. So a message is copied once. If
// messages are enqueued on a lane, letter and receipt carry marks: the
// receiver's lane waits until the sender's has reached the letter, and the
// sender's waits for the copy. Threads meet only to hand over pointers and
// marks, and never wait for a device. If links are modelled, the lanes also
// wait for a clock (link_model.h).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "canzona/comm/flight_record.h"
#include "canzona/comm/thread/link_model.h"
#include "canzona/comm/transport.h"
#include "canzona/comm/wire_ops.h"

namespace canzona {

// Every collective of every rank passes a Gate before its first message; a test
// can observe, delay or hold it (test_gate.h).
//
//   ThreadWorld::Options options{.gate = &gate};  // of all ranks
//   MpiOptions options{.gate = &gate};            // of this process
//
// The gate belongs to the caller and must outlive the world. Threads of several
// ranks call it concurrently.
class Gate {
 public:
  virtual ~Gate() = default;

  // Returns when the operation may begin. The texts live until then.
  virtual void pass(std::string_view group, Operation operation,
                    std::string_view label, int world_rank) = 0;

  // Called when the world of threads has ended: releases everything that is
  // held and holds nothing again. A process under MPI has nobody to call it.
  virtual void open_for_good() noexcept = 0;
};

class Mark;

// The inbox's own mutex guards everything.
struct Inbox {
  struct Letter {
    enum class State { kNone, kPosted, kTaking };
    State state = State::kNone;
    const std::byte* data = nullptr;
    int64_t bytes = 0;
    std::chrono::nanoseconds ready{0};
    std::shared_ptr<Mark> written = {};  // with a lane: when the data is there
    bool shown = false;                  // to be read in place
    // With a lane and modelled links: the exchange that it belongs to.
    LanePacer::Line* line = nullptr;
    uint32_t exchange = 0;
    int64_t wire_bytes = 0;
  };
  struct Receipt {
    bool given = false;
    std::chrono::nanoseconds arrival{0};
    std::shared_ptr<Mark> taken = {};  // with a lane: when the data has been
                                       // read
  };
  struct Peer {
    Letter letter;    // from this peer
    Receipt receipt;  // for what was sent to it
    bool gone = false;
  };

  explicit Inbox(size_t num_peers) : peers(num_peers) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Peer> peers;
};

struct ThreadGroup {
  explicit ThreadGroup(std::vector<int> world_ranks);

  int size() const { return static_cast<int>(ranks.size()); }
  Inbox& inbox(int rank) { return inboxes[static_cast<size_t>(rank)]; }

  const std::vector<int> ranks;  // numbers in the world
  std::deque<Inbox> inboxes;
  // The last operation that each rank has begun.
  std::vector<std::atomic<int64_t>> entered;
  // Counters of link use, by rank; null if nobody counts.
  std::vector<std::atomic<LinkUse*>> uses;
};

class ThreadWorld {
 public:
  struct Options {
    const WireOps* ops = &cpu_wire_ops();
    std::optional<LinkModel> link = {};
    // By rank; without clocks, links wait in real time. With lanes, only the
    // first clock is used, and only LanePacer::pass_time() advances it.
    std::vector<LinkClock*> clocks = {};
    // For tests. It must outlive the world.
    Gate* gate = nullptr;
    // For tests: called with the pacer of a world that has clocks.
    std::function<void(LanePacer&)> on_pacer = {};
  };

  ThreadWorld(int size, const Options& options);

  const WireOps& ops() const { return *options_.ops; }
  LinkSchedule* schedule() { return schedule_.get(); }
  // Null if no links are modelled.
  LanePacer* pacer() { return pacer_.get(); }
  LinkClock* clock(int world_rank) const;
  Gate* gate() const { return options_.gate; }

  void abort(std::string_view reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  std::string abort_reason() const;  // empty if there is none

  const std::shared_ptr<ThreadGroup>& everyone() const { return everyone_; }
  // Returns the same group to all members that call with the same arguments.
  std::shared_ptr<ThreadGroup> subgroup(const ThreadGroup& parent, int64_t id,
                                        int color,
                                        std::span<const int> members);

 private:
  using Key = std::tuple<const ThreadGroup*, int64_t, int>;
  struct Founding {
    std::shared_ptr<ThreadGroup> group;
    size_t num_missing = 0;
  };

  Options options_;
  std::unique_ptr<LinkSchedule> schedule_;
  std::unique_ptr<LanePacer> pacer_;
  std::shared_ptr<ThreadGroup> everyone_;
  std::atomic<bool> aborted_ = false;
  mutable std::mutex mutex_;  // guards everything below
  std::string reason_;
  std::vector<std::weak_ptr<ThreadGroup>> groups_;
  std::map<Key, Founding> foundings_;
};

// Ranks as threads of one process.
//
//   auto world = std::make_shared<ThreadWorld>(4, ThreadWorld::Options{});
//   Communicator rank_0(make_thread_transport(world, 0), …);
//
// Waiting ranks sleep; none spins. Most callers use run_ranks.h.

// Call it once for each rank of the world; each transport is for one thread.
std::unique_ptr<Transport> make_thread_transport(
    std::shared_ptr<ThreadWorld> world, int rank);

}  // namespace canzona
