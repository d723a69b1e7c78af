// An MpiWorld is shared by the groups of one process: it has the abort state,
// the watch over other processes, and the gate to MPI. Internal to this folder.
//
// A group is a number, unique among the groups of its ranks, which messages
// carry in their tags. An MPI communicator for each would do as well, but
// creating one blocks without a deadline, and Open MPI 4.1 loses messages if
// another thread polls meanwhile.
//
// After a failure, messages may be in flight that MPI cannot cancel: it would
// still read and write their buffers whenever it is called. So the gate is
// closed for good before the failed operation returns, after which its buffers
// belong to the caller again. MPI is never finalized then.
//
// Any thread may call.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/mpi/process_watch.h"
#include "canzona/comm/transport.h"

namespace canzona::comm {

// The kinds of a group's messages, as encoded in their tags.
enum class MpiKind : int { kMessage, kContinuation, kLeaving };
inline constexpr int kNumMpiKinds = 3;

// Throws PeerLost with MPI's text if a call has failed, because it is
// connections that fail.
void require_mpi(int result, const char* call);

class MpiWorld {
 public:
  // MPI must be initialized, and every rank must construct this at the same
  // time.
  explicit MpiWorld(const MpiOptions& options);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::vector<std::string>& nodes() const { return nodes_; }
  const MpiOptions& options() const { return options_; }
  // The messages of all groups go through this communicator.
  MPI_Comm messages() const { return messages_; }
  // Numbers of groups are below this.
  int64_t most_groups() const { return most_groups_; }

  // Serializes the creation of groups; the holder may change last_group. Throws
  // PeerLost if the lock is not free in time.
  std::unique_lock<std::timed_mutex> lock_founding(Deadline until);
  int64_t last_group = 0;

  // Calls a function that uses MPI, or returns false without calling it once
  // the gate is closed.
  template <class Function>
  bool call_mpi(Function function) {
    std::shared_lock lock(gate_);
    if (closed_) return false;
    const CallWatch::Call call(*call_watch_);
    function();
    return true;
  }

  // Tells all ranks, then closes the gate.
  void abort(std::string_view reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  std::string abort_reason() const;

  // Called regularly by threads that wait: checks whether another rank has
  // aborted, and aborts if one is gone.
  void look();
  // Called after a rank has left or ended: waits a moment for its reason.
  // Returns true if the world is aborted.
  bool listen();

  // A message that the sender does not wait for.
  using Letter = std::array<int64_t, 2>;
  void send_letter(int to, int tag, const Letter& letter);

  // Call it after the last operation of all ranks.
  void finalize();
  // Explains to the user why MPI may not return: "rank 2 is stopped (process
  // 4711 on node7)". Only ranks of this machine can be named. Any thread may
  // call.
  std::string missing_ranks() const;

 private:
  using Notice = std::array<char, 512>;
  struct Sent {
    Letter letter;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void meet_everyone();
  std::string name_of_process(int rank) const;
  bool set_reason(std::string_view reason);
  void send_notices(std::string_view reason);
  // Callers must hold looking_.
  bool read_notice();
  bool hear();

  MpiOptions options_;
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm notices_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  std::vector<std::string> nodes_;
  std::vector<int64_t> processes_;
  int64_t most_groups_ = 0;
  std::timed_mutex founding_;

  std::shared_mutex gate_;
  bool closed_ = false;  // changes under the gate's exclusive lock

  std::atomic<bool> aborted_ = false;
  mutable std::mutex reason_mutex_;
  std::string reason_;

  std::mutex looking_;  // guards everything below
  ProcessWatch watch_;
  std::chrono::steady_clock::time_point next_watch_;
  Notice arriving_{};
  MPI_Request notice_ = MPI_REQUEST_NULL;

  std::mutex letters_mutex_;
  std::list<Sent> letters_;

  std::unique_ptr<CallWatch> call_watch_;  // last, because its thread uses the
                                           // other members
};

// Ranks as processes that communicate through MPI. Only mpi_session.cc uses
// this directly.
//
// A message is a non-blocking send and receive, or several in sequence for a
// long one, polled by the calling thread: nothing moves while nobody polls. A
// waiting thread spins for some microseconds and then sleeps with backoff, up
// to a tenth of a millisecond, to leave the cores to compute.
//
// This differs from ranks as threads: a small message is complete for its
// sender as soon as MPI holds a copy, and a rank learns only from messages that
// a peer has entered an operation. A peer counts as absent if something is
// pending with it and nothing has arrived.
class MpiTransport final : public Transport {
 public:
  // The group's ranks are given by their numbers in the world. `number` must
  // differ from that of any other group of any of these ranks.
  MpiTransport(std::shared_ptr<MpiWorld> world, std::vector<int> world_ranks,
               int64_t number);
  ~MpiTransport() override { leave(); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }

  // Throws UsageError for device memory: MPI reads and writes the host's.
  void copy_by(const WireOps& ops) override;
  void post_send(int to, std::span<const std::byte> data) override;
  void post_receive(int from, std::span<std::byte> data) override;
  void pass_gate(std::string_view group, Operation operation,
                 std::string_view label) override;
  bool poll() override;
  void pause(Deadline until) override;
  void retract() noexcept override;

  bool is_pending(int peer) const override;
  void enter(int64_t sequence) override;
  bool has_entered(int peer, int64_t sequence) const override;
  int lost_peer() override;
  void leave() noexcept override;

  void abort(std::string_view reason) override { world_->abort(reason); }
  bool is_aborted() const override { return world_->aborted(); }
  std::string abort_reason() const override { return world_->abort_reason(); }
  std::unique_ptr<Transport> subgroup(std::span<const int> members, int64_t id,
                                      int color, Deadline until) override;

 private:
  // A message in flight; [0, begun) has been passed to MPI.
  struct Flow {
    std::byte* data = nullptr;
    size_t bytes = 0;
    size_t begun = 0;
    bool active = false;
    int64_t passed = 0;  // messages before this one
  };
  struct Peer {
    Flow in;
    Flow out;
    bool heard = false;  // from, in this operation
    bool left = false;
    MpiWorld::Letter at_leaving{};  // how many messages it sent to us and
                                    // received
  };

  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  // Indexes requests_: for each peer the receive, then the send.
  size_t place(int rank, bool receive) const {
    return 2 * static_cast<size_t>(rank) + (receive ? 0 : 1);
  }

  void post(int rank, Flow& flow, bool receive);
  void start_part(int rank, Flow& flow, bool receive);
  void end_part(size_t place, const MPI_Status& status);
  void require_size(int from, const Flow& flow, const MPI_Status& status) const;
  int find_lost() const;
  int tag_of(MpiKind kind) const;
  void read_letters();
  void wait_for_members(Deadline until);
  int64_t agree_on_number(std::span<const int> members, Deadline until);

  std::shared_ptr<MpiWorld> world_;
  std::vector<int> world_ranks_;
  int64_t number_;
  size_t part_bytes_;
  int rank_ = 0;
  std::vector<Peer> peers_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<int> ended_;
  int num_pending_ = 0;
  int num_pauses_ = 0;  // since something last moved
  bool has_left_ = false;
};

}  // namespace canzona::comm
