// A Transport passes bytes between the ranks of one group: messages that are
// posted, then polled until they have passed. Collectives are written once, on
// top of this interface.
//
//   transport.post_receive(peer, arrival);
//   transport.post_send(peer, piece);
//   while (!transport.poll()) transport.pause(deadline);
//
// At most one message to and one from each peer is in flight at a time, and
// messages of a pair stay in order. The buffers belong to the caller and must
// stay valid until poll() has returned true or retract() has returned. One
// thread at a time; any thread may call abort().
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/flight_record.h"
#include "canzona/comm/wire_ops.h"

namespace canzona {

// A lane is a queue of work on an asynchronous device: what is issued to it
// happens in the order of the calls, and the host does not wait. comm knows no
// devices; on a GPU a lane is a stream.
//
//   lane.wait_for(gradients_are_there);   // a mark of another lane
//   group.reduce_scatter_v(…);            // only issued: the group has a lane
//   lane.record(sums_are_there);
//   compute.wait_for(sums_are_there);     // a lane, too
//
// A communicator whose transport has a lane does all its memory work on it:
// operations return as soon as they are issued, and errors that appear later
// are thrown to whoever waits for a mark. One thread at a time may issue to a
// lane; any thread may query marks.

// A point in a lane's work. It counts as reached if it was never recorded. It
// may be recorded again; waits that have been issued before still refer to the
// earlier point.
class Mark {
 public:
  virtual ~Mark() = default;
  virtual bool reached() const = 0;
  virtual void wait() const = 0;  // blocks this thread
};

// A number in this process that a lane can write and wait for. It only grows,
// modulo 2^32.
using LaneWord = std::atomic<uint32_t>;
inline bool has_come_to(const LaneWord& word, uint32_t value) {
  return static_cast<int32_t>(word.load(std::memory_order_acquire) - value) >=
         0;
}

class Lane {
 public:
  virtual ~Lane() = default;

  // Memory operations that are issued to this lane and may not have ended when
  // they return. They live as long as the lane.
  virtual const WireOps& ops() const = 0;

  virtual std::unique_ptr<Mark> make_mark() const = 0;
  // Records the mark after everything issued so far. The mark must belong to
  // the same device.
  virtual void record(Mark& mark) = 0;
  // Makes work that is issued from now on wait for the mark.
  virtual void wait_for(const Mark& mark) = 0;

  // Returns a word, initially 0, that lives as long as the lane; null if the
  // lane has none.
  virtual LaneWord* make_word() { return nullptr; }
  // Sets the word to `value` after everything issued so far.
  virtual void write(LaneWord& word, uint32_t value);
  // Makes work that is issued from now on wait until the word has reached
  // `value`. Whatever sets it must be issued before this call or need no lane.
  virtual void wait_for(const LaneWord& word, uint32_t value);

  // Returns the device's own handle (a cudaStream_t), for libraries that issue
  // to it themselves; null if it has none.
  virtual void* native() { return nullptr; }
};

class Lane;
class LinkUse;

// Describes an operation to whoever watches over a lane.
struct IssuedOperation {
  Operation operation = Operation::kBarrier;
  int64_t sequence = 0;
  Label label = {};
  std::chrono::nanoseconds time{0};
};

// SharedUse says what the memory registered by the members of a group has in
// common.
struct SharedUse {
  bool same_bytes = false;   // on all members
  bool same_places = false;  // an operation uses the same offsets on all
                             // members
};

using Deadline = std::chrono::steady_clock::time_point;

// Returns now + time; a very long time does not overflow.
inline Deadline deadline_after(std::chrono::nanoseconds time) {
  const Deadline now = std::chrono::steady_clock::now();
  return time < Deadline::max() - now ? now + time : Deadline::max();
}

class Transport {
 public:
  // The destructor also leaves the group.
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Tells a transport that copies by itself how to copy from now on; others
  // ignore it. `ops` must outlive the transport.
  virtual void copy_by(const WireOps& ops) { static_cast<void>(ops); }

  // The lane on which messages are enqueued: poll() returns true when
  // everything posted is in the lane's order, and `copy_by` is not called. Null
  // if messages have passed when poll() returns true.
  virtual Lane* lane() { return nullptr; }
  // Returns true if such groups can be made of these ranks. ordered_subgroup()
  // is subgroup() with messages enqueued on `lane`, which the group keeps.
  virtual bool can_order() const { return false; }
  virtual std::unique_ptr<Transport> ordered_subgroup(
      std::span<const int> members, int64_t id, int color, Deadline until,
      std::shared_ptr<Lane> lane);
  // With a lane: says whether messages posted from now on are in host memory
  // and have passed when poll() returns true. Initially off.
  virtual void set_of_host(bool of_host) { static_cast<void>(of_host); }

  // Called when an operation has been completely issued to the lane. It should
  // end there within `time`; whoever watches over the lane reports the ranks
  // that did not come.
  virtual void watch(const IssuedOperation& /*operation*/) {}
  // Returns true if any number of messages to and from a peer may be posted
  // before a poll().
  virtual bool takes_many() const { return false; }
  // Registers memory of the lane's device that messages will often use. All
  // members must call it; the memory must live as long as the transport.
  virtual void register_memory(std::span<std::byte> /*memory*/,
                               SharedUse /*use*/) {}
  // Returns memory that messages pass through faster, here or in groups that
  // are split off with a lane; null if ordinary device memory is as good.
  virtual std::byte* allocate(int64_t /*bytes*/) { return nullptr; }
  virtual void release(std::byte* memory) { static_cast<void>(memory); }

  // Returns true if a rank can read memory that another one shows it, which
  // requires a lane. A look is a message that is read in place: poll() returns
  // true when `*where` is known, work issued then may read it, and end_looks()
  // says that all such work is issued. After that, poll() waits until others
  // have ended their looks at what was shown. Nothing else may be posted in
  // between.
  virtual bool can_show() const { return false; }
  // `wire_bytes` is what the message would take on a link.
  virtual void post_show(int to, std::span<const std::byte> data,
                         int64_t wire_bytes);
  virtual void post_look(int from, int64_t bytes, const std::byte** where);
  virtual void end_looks() {}

  virtual void post_send(int to, std::span<const std::byte> data) = 0;
  virtual void post_receive(int from, std::span<std::byte> data) = 0;

  // Makes progress; returns true once everything posted has passed. Throws
  // UsageError if a message does not have the size that its receiver expects.
  virtual bool poll() = 0;
  // Sleeps until poll() may have something to do, but not past `until`.
  virtual void pause(Deadline until) = 0;
  // Says that messages posted until the next poll() waited for nothing but the
  // messages before them: modelled links let them follow at once, however late
  // the waiting thread wakes up.
  virtual void follow_on() {}

  // The current time of the modelled links, and how long this rank's links have
  // been busy with messages of any group; null without a model.
  virtual std::chrono::nanoseconds link_time() const {
    return std::chrono::nanoseconds{0};
  }
  virtual const LinkUse* links() const { return nullptr; }
  // Counts messages of this group in `use`, too, from now on; null stops that.
  // `use` must outlive the transport.
  virtual void count_links(LinkUse* use) { static_cast<void>(use); }

  // Cancels what has not passed; afterwards no peer reads our buffers.
  virtual void retract() noexcept = 0;

  // Called before an operation's first message; a transport for tests may block
  // here. The texts live until it returns.
  virtual void pass_gate(std::string_view /*group*/, Operation /*operation*/,
                         std::string_view /*label*/) {}

  // For error messages: whether something to or from `peer` has not passed yet,
  // and whether the peer has begun operation `sequence`, as far as this rank
  // can know.
  virtual bool is_pending(int peer) const = 0;
  virtual void enter(int64_t sequence) = 0;
  virtual bool has_entered(int peer, int64_t sequence) const = 0;

  // Returns a peer that has left although something is pending with it, or -1.
  virtual int lost_peer() = 0;

  // Tells the other ranks that this one will post nothing more.
  virtual void leave() noexcept = 0;

  // Ends all groups of all ranks for good; only the first reason is kept.
  virtual void abort(std::string_view reason) = 0;
  virtual bool is_aborted() const = 0;
  virtual std::string abort_reason() const = 0;  // empty if there is none

  // Makes a group of some of these ranks, in the order of their new numbers.
  // All members must call it with the same `id`, which names one split, and
  // `color`. Throws PeerLost if it needs the other members and they do not
  // come.
  virtual std::unique_ptr<Transport> subgroup(std::span<const int> members,
                                              int64_t id, int color,
                                              Deadline until) = 0;

  // Gathers and integer sums by the library behind a transport with a lane, at
  // the next poll(). They return false if the library has no such operation,
  // and messages are used instead. Pieces of a gather must have equal size,
  // with this rank's own in its place in `whole`; sums are in place.
  virtual bool post_own_gather(std::span<std::byte> /*whole*/) { return false; }
  virtual bool post_own_broadcast(int /*root*/, std::span<std::byte> /*data*/) {
    return false;
  }
  virtual bool post_own_integers(Reduction /*reduction*/,
                                 std::span<std::byte> /*data*/) {
    return false;
  }
};

// The messages of one operation on a transport: sends and receives that
// complete by a deadline or throw an error that names the missing ranks.
//
//   exchange.begin(operation, sequence, label, deadline);
//   exchange.receive(peer, arrival);
//   exchange.send(peer, piece);
//   exchange.finish();
//
// Throws PeerLost if a peer is late, gone, or has aborted. One thread at a
// time.
class Exchange {
 public:
  // `name` is the group's. `known_as` are the ranks' numbers in the original
  // group, by which errors name them; if empty, their own numbers.
  Exchange(std::unique_ptr<Transport> transport, std::string name,
           std::vector<int> known_as = {})
      : transport_(std::move(transport)),
        name_(std::move(name)),
        known_as_(std::move(known_as)),
        tokens_(static_cast<size_t>(transport_->size())),
        is_slow_(tokens_.size()) {}

  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }
  const std::string& name() const { return name_; }
  // The deadline of the current operation.
  Deadline deadline() const { return deadline_; }

  void begin(Operation operation, int64_t sequence, const Label& label,
             std::chrono::nanoseconds time);

  // Empty messages are not sent, because the receiver knows the size.
  void send(int to, std::span<const std::byte> data);
  void receive(int from, std::span<std::byte> data);
  // The same for ranks that read each other's memory;
  // `wire_bytes` count as sent.
  void show(int to, std::span<const std::byte> data, int64_t wire_bytes);
  void look(int from, int64_t bytes, const std::byte** where);
  // Waits for everything sent and received since the last call.
  void finish();

  // Exchanges a single byte with every peer and waits for it.
  void meet();

  // Marks the operation as completely issued.
  void end() {
    if (transport_->lane() != nullptr)
      transport_->watch({operation_, sequence_, label_, time_});
  }

  // Counts messages to another node as slow from now on: a node has this many
  // consecutive ranks, as numbered by known_as(). 0: none are slow.
  void set_ranks_per_node(int ranks_per_node);

  // Bytes sent since begin(), without those of checks and meetings.
  const SentBytes& sent() const { return sent_; }
  void forget_sent() { sent_ = {}; }
  // Counts bytes that a library sends on our behalf.
  void count_sent(int to, int64_t bytes) {
    sent_.all += bytes;
    if (is_slow_[static_cast<size_t>(to)]) sent_.slow += bytes;
  }

  int known_as(int rank) const {
    return known_as_.empty() ? rank : known_as_[static_cast<size_t>(rank)];
  }
  // "rank 1 of world: all_gather_v #7 'layers.3 gather 7'".
  std::string where() const;

 private:
  [[noreturn]] void throw_late();
  [[noreturn]] void throw_lost();
  bool is_lost();
  // Returns the peers that have not begun this operation, as errors name them.
  std::vector<int> absent() const;

  std::unique_ptr<Transport> transport_;
  std::string name_;
  std::vector<int> known_as_;
  std::vector<std::byte> tokens_;  // received by a meeting
  Operation operation_ = Operation::kBarrier;
  int64_t sequence_ = 0;
  Label label_;
  std::chrono::nanoseconds time_{0};
  Deadline deadline_;
  std::vector<bool> is_slow_;  // by rank: on another node
  SentBytes sent_;
};

// An Announcement says what a rank is about to do. Ranks compare theirs before
// they do it, because ranks that call different operations would mix up each
// other's bytes.
//
//   check.compare(exchange, announcement, label);   // UsageError names both
//
// Used by one thread at a time, the communicator's.

// All ranks must agree on these values, and in an all-to-all every pair on its
// bytes.
struct Announcement {
  Operation operation = Operation::kBarrier;
  int64_t variant = 0;  // reduction or root
  int64_t total = 0;
  std::span<const int64_t> counts = {};
  std::span<const int64_t> to = {};
  std::span<const int64_t> from = {};
};

class SignatureCheck {
 public:
  // Unless `enabled`, nothing is reserved and compare() must not be called.
  SignatureCheck(int num_ranks, bool enabled);

  bool enabled() const { return !mine_.empty(); }
  void compare(Exchange& exchange, const Announcement& announcement,
               int64_t sequence, const Label& label);

 private:
  // The form on the wire.
  struct Signature {
    int64_t operation = 0;
    int64_t sequence = 0;
    int64_t variant = 0;
    int64_t total = 0;
    int64_t counts = 0;  // a hash
    int64_t to_you = 0;
    int64_t from_you = 0;
    Label label;
  };

  static std::string describe(const Signature& signature);
  static bool agree(const Signature& mine, const Signature& theirs);

  std::vector<Signature> mine_;    // sent to each peer
  std::vector<Signature> theirs_;  // received from each peer
};

}  // namespace canzona
