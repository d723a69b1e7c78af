// A Call describes one collective call: its label and how long it may take.
//
//   world.barrier({.label = "end of step 7", .deadline = 5s});
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace canzona {

enum class Operation {
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kAllReduce,
  kBroadcast,
  kBarrier,
  kSplit,
};
inline constexpr int kNumOperations = 7;

constexpr std::string_view to_string(Operation operation) {
  constexpr std::array<std::string_view, kNumOperations> kNames = {
      "reduce_scatter_v", "all_gather_v", "all_to_all_v", "all_reduce",
      "broadcast",        "barrier",      "split"};
  return kNames[static_cast<size_t>(operation)];
}

struct Call {
  std::string_view label = {};           // see Courier for its lifetime with a
                                         // track
  std::chrono::nanoseconds deadline{0};  // 0: the communicator's default
  bool exact = false;  // sums in the fixed order even with fast_reduce
};

// Keeps a label without allocating; longer labels are truncated.
class Label {
 public:
  static constexpr size_t kCapacity = 63;

  Label() = default;
  explicit Label(std::string_view text)
      : size_(static_cast<uint8_t>(std::min(text.size(), kCapacity))) {
    std::copy_n(text.begin(), size_, text_.begin());
  }

  std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, kCapacity> text_{};
  uint8_t size_ = 0;
};

// A TrafficLog counts, for one group, how often this rank called each operation
// and how many bytes it sent. A rank's own piece does not count; bytes that
// leave its node are also counted as slow.
//
//   const TrafficLog::Row& row = world.traffic().of(Operation::kAllReduce);
//   int64_t inside_the_node = row.sent - row.sent_slow;
//
// Nodes are those of CommunicatorOptions::ranks_per_node.
//
// Used by one thread at a time, the communicator's.

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

}  // namespace canzona
