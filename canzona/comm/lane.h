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
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "canzona/comm/wire_ops.h"

namespace canzona {

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

}  // namespace canzona
