// The last operations of one rank over all its groups. It shows what was in
// flight when something failed, and the errors of its threads.
//
//   world.flight_record().write(std::cerr);
//   {"rank":0,"group":"tp","operation":"all_gather_v","sequence":7,
//    "label":"layers.3 gather 7","state":"posted","sent":0,…}
//
// Memory is reserved at the start. Any thread may call.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <ostream>
#include <string_view>
#include <thread>
#include <vector>

#include "canzona/comm/call.h"

namespace canzona {

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
