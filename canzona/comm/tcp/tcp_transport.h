// A group whose messages pass over sockets. Internal to this folder.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/tcp/tcp_world.h"
#include "canzona/comm/transport.h"

namespace canzona {

class TcpTransport final : public Transport {
 public:
  // `world_ranks` are in the order of the group's numbers; `key` must differ
  // from that of any other group of these ranks.
  TcpTransport(std::shared_ptr<TcpWorld> world, std::vector<int> world_ranks,
               uint64_t key);
  ~TcpTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  void copy_by(const WireOps& ops) override;

  void post_send(int to, std::span<const std::byte> data) override;
  void post_receive(int from, std::span<std::byte> data) override;
  bool poll() override;
  void pause(Deadline until) override;
  void retract() noexcept override;
  void pass_gate(std::string_view group, Operation operation,
                 std::string_view label) override;

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
  // A message on the wire: its size, then its bytes.
  struct Flow {
    std::byte* data = nullptr;
    size_t bytes = 0;
    size_t done = 0;  // of the size and the bytes together
    uint64_t size = 0;
    bool active = false;
  };
  struct Peer {
    Socket socket;
    bool connecting = false;
    size_t opened = 0;     // bytes of the opening sent so far
    bool ended = false;    // nothing more comes
    bool refuses = false;  // nothing more can be sent
    bool heard = false;    // since the operation began
    Flow in, out;
  };

  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  void begin(int rank, Flow& flow, std::byte* data, size_t bytes);
  void copy_to_itself();
  // Returns true if messages can pass now.
  bool is_connected(int rank);
  bool has_opened(Peer& with);
  void send(Peer& with);
  void receive(int from, Peer& with);
  void end_flow(Flow& flow);
  void say_goodbye(int rank, Peer& with);

  std::shared_ptr<TcpWorld> world_;
  std::vector<int> world_ranks_;
  uint64_t key_;
  int rank_ = 0;
  std::vector<Peer> peers_;
  std::vector<struct pollfd> files_;  // for pause()
  WakeUp wake_up_;
  TcpWorld::Opening opening_;
  int num_pending_ = 0;
  int num_pauses_ = 0;
  bool has_left_ = false;
};

}  // namespace canzona
