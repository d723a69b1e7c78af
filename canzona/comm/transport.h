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

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "canzona/comm/call.h"
#include "canzona/comm/wire_ops.h"

namespace canzona {

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
  virtual void watch(const IssuedOperation& operation) {
    static_cast<void>(operation);
  }
  // Returns true if any number of messages to and from a peer may be posted
  // before a poll().
  virtual bool takes_many() const { return false; }
  // Registers memory of the lane's device that messages will often use. All
  // members must call it; the memory must live as long as the transport.
  virtual void register_memory(std::span<std::byte> memory, SharedUse use) {
    static_cast<void>(memory);
    static_cast<void>(use);
  }
  // Returns memory that messages pass through faster, here or in groups that
  // are split off with a lane; null if ordinary device memory is as good.
  virtual std::byte* allocate(int64_t bytes) {
    static_cast<void>(bytes);
    return nullptr;
  }
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
  virtual void pass_gate(std::string_view group, Operation operation,
                         std::string_view label) {
    static_cast<void>(group);
    static_cast<void>(operation);
    static_cast<void>(label);
  }

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
  virtual bool post_own_gather(std::span<std::byte> whole) {
    static_cast<void>(whole);
    return false;
  }
  virtual bool post_own_broadcast(int root, std::span<std::byte> data) {
    static_cast<void>(root);
    static_cast<void>(data);
    return false;
  }
  virtual bool post_own_integers(Reduction reduction,
                                 std::span<std::byte> data) {
    static_cast<void>(reduction);
    static_cast<void>(data);
    return false;
  }

  // fp32 sums by the library behind a transport, if it has them: fast, and in
  // an order of its own. All ranks must prepare once, with `until` as above;
  // poll() says when a posted sum is complete. `counts` must stay valid until
  // then.
  virtual bool has_own_sums() const { return false; }
  // Returns true for a group of host memory beside groups with lanes, if only
  // those have sums of their own: this one is never asked for any.
  virtual bool is_beside_lanes() const { return false; }
  virtual void prepare_own_sums(Deadline until);
  virtual void post_own_all_reduce(std::span<float> data);
  virtual void post_own_reduce_scatter(const float* input,
                                       std::span<const int> counts,
                                       float* output);
};

}  // namespace canzona
