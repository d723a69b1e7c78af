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
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "canzona/comm/mpi/mpi_world.h"
#include "canzona/comm/transport.h"

namespace canzona {

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

  bool has_own_sums() const override { return true; }
  void prepare_own_sums(Deadline until) override;
  void post_own_all_reduce(std::span<float> data) override;
  void post_own_reduce_scatter(const float* input, std::span<const int> counts,
                               float* output) override;

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
  // Indexes requests_: for each peer the receive, then the send; the sum is
  // last.
  size_t place(int rank, bool receive) const {
    return 2 * static_cast<size_t>(rank) + (receive ? 0 : 1);
  }

  // Starts a sum by a function that calls MPI and returns its result.
  template <class Function>
  void post_sum(const char* call, Function function);
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
  MPI_Comm sums_ = MPI_COMM_NULL;  // if sums are prepared
  bool adding_ = false;
  int num_pauses_ = 0;  // since something last moved
  bool has_left_ = false;
};

}  // namespace canzona
