// The last operations of one rank over all its groups. It shows what was in
// flight when something failed, and the errors of its threads.
//
//   world.flight_record().write(std::cerr);
//   {"rank":0,"group":"tp","operation":"all_gather_v","sequence":7,
//    "label":"layers.3 gather 7","state":"posted","sent":0,…}
//
// Memory is reserved at the start. Any thread may call.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <ostream>
#include <string_view>
#include <thread>
#include <vector>

namespace canzona {

// A Call describes one collective call: its label and how long it may take.
//
//   world.barrier({.label = "end of step 7", .deadline = 5s});

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

class FlightRecord {
 public:
  enum class State { kPosted, kDone, kFailed };
  // Returns nanoseconds since some fixed time.
  using Clock = std::function<int64_t()>;

  // Keeps `capacity` operations, at least one. Without a clock all times are 0.
  FlightRecord(int rank, int capacity, Clock clock);

  // Returns the number that end() takes.
  int64_t begin(std::string_view group, Operation operation, int64_t sequence,
                const Label& label);
  void end(int64_t number, State state, int64_t sent);

  // Records the calling thread's error, unless one is recorded already.
  void note_error(const std::exception_ptr& error);
  // Rethrows the recorded error if it is another thread's.
  void rethrow_of_other_thread() const;

  // Writes one JSON object per line, oldest first.
  void write(std::ostream& out) const;

 private:
  struct Entry {
    int64_t number = -1;
    Label group;
    Operation operation = Operation::kBarrier;
    int64_t sequence = 0;
    Label label;
    State state = State::kPosted;
    int64_t sent = 0;
    int64_t began = 0;
    int64_t ended = 0;
  };

  int64_t now() const { return clock_ ? clock_() : 0; }
  Entry& entry(int64_t number) {
    return entries_[static_cast<size_t>(number) % entries_.size()];
  }
  void write_entry(std::ostream& out, const Entry& entry) const;

  int rank_;
  Clock clock_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  int64_t next_ = 0;
  std::exception_ptr error_;
  std::thread::id failed_thread_;
};

}  // namespace canzona
