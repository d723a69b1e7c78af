// Memory of a device that works later than it is told to: what is issued to a
// lane happens in the order of the calls, and nobody waits for it. comm knows
// no device; a lane is a stream of one.
//
//   lane.wait_for(gradients_are_there);   // a mark of another lane
//   group.reduce_scatter_v(…);            // only issued: the group has a lane
//   lane.record(sums_are_there);
//   compute.wait_for(sums_are_there);     // a lane, too
//
// A communicator whose transport has a lane does all that it does to memory on
// it: its operations return as soon as they are issued, and errors that show
// only later reach whoever waits for a mark. One thread at a time issues to a
// lane; marks may be asked by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "canzona/comm/wire_ops.h"

namespace canzona {

// A point in a lane's work. Reached if it was never recorded. It may be
// recorded again; whoever waits by then waits for the point before.
class Mark {
 public:
  virtual ~Mark() = default;
  virtual bool reached() const = 0;
  virtual void wait() const = 0;  // this thread does
};

// A number of this process that a lane can write and wait for. It only grows,
// modulo 2^32.
using LaneWord = std::atomic<uint32_t>;
inline bool has_come_to(const LaneWord& word, uint32_t value) {
  return static_cast<int32_t>(word.load(std::memory_order_acquire) - value) >=
         0;
}

class Lane {
 public:
  virtual ~Lane() = default;

  // Memory operations that are issued here and may not have ended when they
  // return. They live as long as the lane.
  virtual const WireOps& ops() const = 0;

  virtual std::unique_ptr<Mark> make_mark() const = 0;
  // After all that was issued so far. The mark is of the same device.
  virtual void record(Mark& mark) = 0;
  // Work that is issued from now on happens after the mark.
  virtual void wait_for(const Mark& mark) = 0;

  // A word, 0 at first, that lives as long as the lane; null if it has none.
  virtual LaneWord* make_word() { return nullptr; }
  // The word becomes `value` after all that was issued so far.
  virtual void write(LaneWord& word, uint32_t value);
  // Work that is issued from now on happens after the word has come to `value`.
  // Whatever brings it there is issued before this call, or needs no lane.
  virtual void wait_for(const LaneWord& word, uint32_t value);

  // The device's own handle of it, for libraries that issue there themselves (a
  // cudaStream_t); null if it has none.
  virtual void* native() { return nullptr; }
};

}  // namespace canzona
