// An NcclProgress tracks how far the operations of one group have come on their
// lane. Internal to this folder.
//
//   progress.issued(operation);                 // by the thread that issues
//   if (const auto late = progress.late(now))   // by the watch
//
// Any thread may call.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "canzona/comm/lane.h"
#include "canzona/comm/transport.h"

namespace canzona {

class NcclProgress {
 public:
  // `group` must be the same on all members and different from any other
  // group's.
  NcclProgress(uint64_t group, Lane& lane);

  uint64_t group() const { return group_; }
  void set_name(std::string_view name);
  std::string name() const;

  // Records that an operation has begun; one that was begun but not issued
  // makes this rank late in the eyes of others.
  void begin(int64_t sequence);
  void issued(const IssuedOperation& operation);

  struct Counts {
    int64_t issued = 0;  // the last operation's number
    int64_t ended = 0;
  };
  Counts counts();
  // Returns the first operation that has not ended in its time.
  std::optional<IssuedOperation> late(Deadline now);
  bool is_busy();
  // Describes the first operation that has not ended: "all_gather_v #7 'layer
  // 3' of dp"; "" if all have.
  std::string under_way();

 private:
  struct Entry {
    IssuedOperation operation;
    Deadline deadline = {};
    std::unique_ptr<Mark> mark;
  };

  // Callers must hold mutex_.
  void drop_ended();
  Entry& entry(int64_t number) {
    return ring_[static_cast<size_t>(number) % ring_.size()];
  }

  const uint64_t group_;
  Lane& lane_;
  mutable std::mutex mutex_;
  std::string name_;
  std::vector<Entry> ring_;
  int64_t first_ = 0;  // entries [first_, end_) are in flight
  int64_t end_ = 0;
  Counts counts_;
};

}  // namespace canzona
