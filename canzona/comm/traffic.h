// How often each operation of one group was called by this rank, and what it
// sent: bytes that leave the rank, so that a rank's own piece is not counted,
// and those among them that leave its node, which are the slow ones.
//
//   const TrafficLog::Row& row = world.traffic().of(Operation::kAllReduce);
//   int64_t inside_the_node = row.sent - row.sent_slow;
//   std::cout << traffic_table(world.traffic(), world.name());
//
// Nodes are those of CommunicatorOptions::ranks_per_node.
//
// One thread at a time, the communicator's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "canzona/comm/call.h"

namespace canzona {

struct SentBytes {
  int64_t all = 0;
  int64_t slow = 0;
};

class TrafficLog {
 public:
  struct Row {
    int64_t calls = 0;
    int64_t sent = 0;
    int64_t sent_slow = 0;
  };

  const Row& of(Operation operation) const {
    return rows_[static_cast<size_t>(operation)];
  }
  void count(Operation operation, const SentBytes& sent) {
    Row& row = rows_[static_cast<size_t>(operation)];
    ++row.calls;
    row.sent += sent.all;
    row.sent_slow += sent.slow;
  }

 private:
  std::array<Row, kNumOperations> rows_;
};

// A line for each operation that was called: group, operation, calls, bytes,
// slow ones.
std::string traffic_table(const TrafficLog& traffic, std::string_view group);

}  // namespace canzona
