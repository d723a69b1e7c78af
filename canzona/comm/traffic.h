// How often each operation of one group was called by this rank, and what it
// sent: bytes that leave the rank, so that a rank's own piece is not counted.
//
//   int64_t bytes = world.traffic().of(Operation::kAllReduce).sent;
//   std::cout << traffic_table(world.traffic(), world.name());
//
// One thread at a time, the communicator's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "canzona/comm/call.h"

namespace canzona {

class TrafficLog {
 public:
  struct Row {
    int64_t calls = 0;
    int64_t sent = 0;
  };

  const Row& of(Operation operation) const {
    return rows_[static_cast<size_t>(operation)];
  }
  void count(Operation operation, int64_t sent) {
    Row& row = rows_[static_cast<size_t>(operation)];
    ++row.calls;
    row.sent += sent;
  }

 private:
  std::array<Row, kNumOperations> rows_;
};

// A line for each operation that was called: group, operation, calls, bytes.
std::string traffic_table(const TrafficLog& traffic, std::string_view group);

}  // namespace canzona
