// A TcpWorld is shared by the groups of one process: it knows where the other
// ranks are, and has the abort state and the connections that others have
// opened. Internal to this folder.
//
// Rank 0 listens at the meeting point. The others connect with their rank, the
// job's token and the port at which they listen themselves, and learn where
// everybody is. That first connection stays open: over it a rank says goodbye
// or why it aborts, and rank 0 tells the others. If it closes without a
// goodbye, the process has died.
//
// Each pair of ranks has a connection per group, which the lower rank opens
// with the first message, beginning with the group's key. A thread of this
// object accepts connections and reads the first ones; any thread may call the
// rest.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "canzona/comm/tcp/sockets.h"
#include "canzona/comm/tcp/tcp_session.h"
#include "canzona/comm/transport.h"

namespace canzona::comm {

class TcpWorld {
 public:
  // Throws UsageError on meeting another job, a second rank of this number or
  // another number of ranks; throws PeerLost, naming the ranks that do not come
  // in time.
  explicit TcpWorld(TcpOptions options);
  ~TcpWorld();
  TcpWorld(const TcpWorld&) = delete;
  TcpWorld& operator=(const TcpWorld&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.num_ranks; }
  const std::vector<std::string>& nodes() const { return nodes_; }
  Gate* gate() const { return options_.gate; }

  // Registers a group, which is woken when a connection has arrived for it.
  // take() then returns the connection that rank `from` of the world has
  // opened, if any.
  void add_group(uint64_t key, WakeUp& wake_up);
  struct Arrival {
    Socket socket;
    bool left = false;  // the other side has nothing more to send
  };
  std::optional<Arrival> take(uint64_t key, int from);
  // Refuses further connections of this group.
  void remove_group(uint64_t key);

  // Begins a connection to a rank of the world. An Opening is what a group's
  // connection begins with.
  Socket begin_connection_to(int world_rank) const;
  struct Opening {
    uint64_t magic = 0;
    uint64_t job = 0;
    uint64_t key = 0;
    int32_t from = 0;
    int32_t leaves = 0;
  };
  Opening opening(uint64_t key, bool leaves) const;

  void abort(std::string_view reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  std::string abort_reason() const;
  // Called after a rank is found to be gone: waits a moment for its reason.
  // Returns true if the world is aborted.
  bool listen();

  // Call it after the last operation of all ranks.
  void finish();

 private:
  struct Card;
  struct Note;
  struct Line;  // the first connection of a rank
  struct Guest;

  void gather();
  void come();
  void set_cards(const std::vector<Card>& cards);
  void run();
  bool is_full() const { return guests_.size() >= most_guests_; }
  bool is_late(const Guest& guest) const;
  void wait_for_guests(std::vector<struct pollfd>& files, Deadline until);
  void accept_guests();
  void read_guests();
  bool read_guest(Guest& guest);
  void read_line(Line& line);
  void take_note(Line& line, const Note& note);
  void lose(const Line& line);
  bool set_reason(std::string_view reason);
  void tell(const Note& note, int but_for);

  TcpOptions options_;
  uint64_t job_ = 0;
  Socket listener_;
  std::vector<Endpoint> endpoints_;
  std::vector<std::string> nodes_;
  std::vector<int64_t> processes_;

  mutable std::mutex lines_mutex_;  // for writing to them
  std::vector<Line> lines_;         // rank 0: one per other rank; others: one
  std::vector<Guest> guests_;       // whose opening is incomplete
  size_t most_guests_;

  std::mutex groups_mutex_;
  std::map<uint64_t, WakeUp*> groups_;
  std::map<std::pair<uint64_t, int>, Arrival> arrived_;
  std::set<uint64_t> closed_;

  std::atomic<bool> aborted_ = false;
  std::atomic<bool> finished_ = false;
  mutable std::mutex reason_mutex_;
  std::string reason_;

  WakeUp wake_up_;
  std::thread thread_;
};

// A group whose messages pass over sockets. Internal to this folder.
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

}  // namespace canzona::comm
