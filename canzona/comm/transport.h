// A Transport passes bytes between the ranks of one group: messages that are
// posted, then polled until they have passed. Collectives are written once, on
// top of this; a transport is one class.
//
//   transport.post_receive(peer, arrival);
//   transport.post_send(peer, piece);
//   while (!transport.poll()) transport.pause(deadline);
//
// At most one message to and one from each peer is on its way at a time, and
// messages of a pair pass in order. The buffers belong to the caller and stay
// until poll() has said true or retract() has returned. One thread at a time;
// abort() from any.
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

// For whoever watches over a lane.
struct IssuedOperation {
  Operation operation = Operation::kBarrier;
  int64_t sequence = 0;
  Label label = {};
  std::chrono::nanoseconds time{0};
};

// SharedUse says in what the memory is alike that the members of a group
// register.
struct SharedUse {
  bool same_bytes = false;   // all have as many
  bool same_places = false;  // an operation uses the same ones on all of them
};

using Deadline = std::chrono::steady_clock::time_point;

// A time may be as good as for ever: no overflow.
inline Deadline deadline_after(std::chrono::nanoseconds time) {
  const Deadline now = std::chrono::steady_clock::now();
  return time < Deadline::max() - now ? now + time : Deadline::max();
}

class Transport {
 public:
  // Leaves, too.
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Tells a transport that copies by itself how to do it from now on; others
  // ignore it. `ops` outlives the transport.
  virtual void copy_by(const WireOps& ops) { static_cast<void>(ops); }

  // The lane to which messages are only issued: poll() says true when all that
  // was posted has its place in the lane's order, and `copy_by` is not called.
  // Null where they have passed by then.
  virtual Lane* lane() { return nullptr; }
  // True if such groups can be made of these ranks: ordered_subgroup() is
  // subgroup() whose messages are issued to `lane`, which it keeps.
  virtual bool can_order() const { return false; }
  virtual std::unique_ptr<Transport> ordered_subgroup(
      std::span<const int> members, int64_t id, int color, Deadline until,
      std::shared_ptr<Lane> lane);
  // With a lane: whether messages posted from now on lie in memory of the host
  // and have passed when poll() says so. Off at first.
  virtual void set_of_host(bool of_host) { static_cast<void>(of_host); }

  // An operation has been issued to the lane whole. It should end there within
  // `time`; whoever watches over the lane tells who did not come.
  virtual void watch(const IssuedOperation& operation) {
    static_cast<void>(operation);
  }
  // True if any number of messages to and from a peer may be posted before a
  // poll().
  virtual bool takes_many() const { return false; }
  // Memory of the lane's device that messages will often pass from and to. All
  // members call it; it stays until the transport ends.
  virtual void register_memory(std::span<std::byte> memory, SharedUse use) {
    static_cast<void>(memory);
    static_cast<void>(use);
  }
  // Memory that messages pass through more quickly, here or in groups that are
  // split off with a lane; null: the device's own is as good.
  virtual std::byte* allocate(int64_t bytes) {
    static_cast<void>(bytes);
    return nullptr;
  }
  virtual void release(std::byte* memory) { static_cast<void>(memory); }

  // True if a rank can read memory that another shows it, which takes a lane. A
  // look is a message that is read where it lies: poll() says true when
  // `*where` is known, what is issued then may read it, and end_looks() says
  // that all of that is issued. Afterwards poll() waits until others have ended
  // their looks at what was shown. Nothing else is posted in between.
  virtual bool can_show() const { return false; }
  // `wire_bytes`: what the message would take on a link.
  virtual void post_show(int to, std::span<const std::byte> data,
                         int64_t wire_bytes);
  virtual void post_look(int from, int64_t bytes, const std::byte** where);
  virtual void end_looks() {}

  virtual void post_send(int to, std::span<const std::byte> data) = 0;
  virtual void post_receive(int from, std::span<std::byte> data) = 0;

  // Moves what can be moved; true once everything posted has passed. Throws
  // UsageError if a message has another size than its receiver expects.
  virtual bool poll() = 0;
  // Sleeps until poll() may have something to do, but not past `until`.
  virtual void pause(Deadline until) = 0;
  // Messages that are posted until the next poll() waited for nothing but the
  // messages before them: modelled links let them follow at once, however late
  // the thread that waited wakes up.
  virtual void follow_on() {}

  // The time of modelled links, and how long this rank's have been busy,
  // whichever group their messages belong to; null without a model.
  virtual std::chrono::nanoseconds link_time() const {
    return std::chrono::nanoseconds{0};
  }
  virtual const LinkUse* links() const { return nullptr; }
  // From now on, messages of this group are counted there, too; null: no more.
  // It outlives the transport.
  virtual void count_links(LinkUse* use) { static_cast<void>(use); }

  // Takes back what has not passed; afterwards no peer reads our buffers.
  virtual void retract() noexcept = 0;

  // Called before an operation's first message; a transport for tests may hold
  // it back. The texts live until it returns.
  virtual void pass_gate(std::string_view group, Operation operation,
                         std::string_view label) {
    static_cast<void>(group);
    static_cast<void>(operation);
    static_cast<void>(label);
  }

  // For messages: whether something to or from `peer` has not passed yet, and
  // whether it has begun operation `sequence`, as far as this rank can know.
  virtual bool is_pending(int peer) const = 0;
  virtual void enter(int64_t sequence) = 0;
  virtual bool has_entered(int peer, int64_t sequence) const = 0;

  // A peer that has left although something is pending with it, or -1.
  virtual int lost_peer() = 0;

  // The other ranks learn that this one will post nothing more.
  virtual void leave() noexcept = 0;

  // Ends all groups of all ranks, for good; the first reason stays.
  virtual void abort(std::string_view reason) = 0;
  virtual bool is_aborted() const = 0;
  virtual std::string abort_reason() const = 0;  // empty if there is none

  // A group of some of these ranks, in the order of the new numbers. All
  // members call it, with the same `id`, which names one split, and `color`.
  // PeerLost if that takes others' help and they do not come.
  virtual std::unique_ptr<Transport> subgroup(std::span<const int> members,
                                              int64_t id, int color,
                                              Deadline until) = 0;

  // Moves and sums of integers by the library behind a transport with a lane,
  // at the next poll(). False if it has none for this: messages do it then. The
  // pieces of a gather have one size, and this rank's lies in its place of
  // `whole`; sums are in place.
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

  // Sums of fp32 by the library behind a transport, if it has any: quick, and
  // in an order that is its own. All ranks prepare once, with `until` as above;
  // poll() tells when a posted sum is there. `counts` stay until then.
  virtual bool has_own_sums() const { return false; }
  // True for a group of the host's memory beside groups of a lane, if only
  // those have sums of their own: nobody asks this one for any.
  virtual bool is_beside_lanes() const { return false; }
  virtual void prepare_own_sums(Deadline until);
  virtual void post_own_all_reduce(std::span<float> data);
  virtual void post_own_reduce_scatter(const float* input,
                                       std::span<const int> counts,
                                       float* output);
};

}  // namespace canzona
