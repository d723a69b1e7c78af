// Collectives in the background: one thread that issues what it is given, in
// order, on one communicator.
//
//   Courier courier(*tp, 8);
//   Work gather = courier.all_gather_v(shard, sizes, whole, {.label = "k+1"});
//   transform(k);
//   gather.wait();
//
// Every rank posts the same order, so nothing can deadlock. Posting waits while
// the queue is full. An error stays: its work and all later ones rethrow it at
// wait(), and nothing more is issued.
//
// The communicator and all spans, those of counts too, belong to the caller and
// stay until the work is done; nobody else uses the communicator meanwhile. A
// Work is a number that may be copied, dropped and asked from any thread while
// the courier lives. Posting allocates nothing. The destructor first issues all
// that was posted; abort() the communicator to end sooner. With a track every
// operation becomes a span, and labels live as long as the trace (Trace::keep).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <variant>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/comm/courier_task.h"
#include "canzona/trace/trace.h"

namespace canzona {

class Courier;

class Work {
 public:
  Work() = default;  // done from the start

  // True once it has ended, well or not.
  bool done() const;
  // Rethrows what the operation threw. PeerLost if it has not ended in time;
  // the operation goes on then, under its own deadline.
  void wait(std::chrono::nanoseconds time = std::chrono::nanoseconds::max());

 private:
  friend class Courier;
  Work(Courier* courier, int64_t number) : courier_(courier), number_(number) {}

  Courier* courier_ = nullptr;
  int64_t number_ = 0;
};

class Courier {
 public:
  // Holds `capacity` operations that have not ended, at least one.
  Courier(Communicator& communicator, int capacity, Track* track = nullptr);
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // As in Communicator.
  Work reduce_scatter_v(Reduction reduction, std::span<const std::byte> input,
                        std::span<const int64_t> counts,
                        std::span<std::byte> output, const Call& call = {});
  Work all_reduce(Reduction reduction, std::span<std::byte> data,
                  const Call& call = {});
  Work all_gather_v(std::span<const std::byte> input,
                    std::span<const int64_t> bytes, std::span<std::byte> output,
                    const Call& call = {});
  Work all_to_all_v(const Pieces<const std::byte>& send,
                    const Pieces<std::byte>& receive, const Call& call = {});
  Work broadcast(int root, std::span<std::byte> data, const Call& call = {});
  Work barrier(const Call& call = {});
  // The task's own work, in its turn.
  Work run(CourierTask& task, const Call& call = {});

  // Time spent in operations that have ended. Any thread may ask.
  std::chrono::nanoseconds busy() const {
    return std::chrono::nanoseconds(busy_.load(std::memory_order_relaxed));
  }

 private:
  friend class Work;

  struct ReduceScatter {
    static constexpr Operation kOperation = Operation::kReduceScatter;
    Reduction reduction;
    std::span<const std::byte> input;
    std::span<const int64_t> counts;
    std::span<std::byte> output;
  };
  struct AllReduce {
    static constexpr Operation kOperation = Operation::kAllReduce;
    Reduction reduction;
    std::span<std::byte> data;
  };
  struct AllGather {
    static constexpr Operation kOperation = Operation::kAllGather;
    std::span<const std::byte> input;
    std::span<const int64_t> bytes;
    std::span<std::byte> output;
  };
  struct AllToAll {
    static constexpr Operation kOperation = Operation::kAllToAll;
    Pieces<const std::byte> send;
    Pieces<std::byte> receive;
  };
  struct Broadcast {
    static constexpr Operation kOperation = Operation::kBroadcast;
    int root;
    std::span<std::byte> data;
  };
  struct Barrier {
    static constexpr Operation kOperation = Operation::kBarrier;
  };
  struct Task {
    CourierTask* task;
  };
  using Operands = std::variant<Barrier, ReduceScatter, AllReduce, AllGather,
                                AllToAll, Broadcast, Task>;
  struct Request {
    Operands operands;
    Label label;
    std::string_view kept_label = {};  // the caller's own, for the track
    std::chrono::nanoseconds deadline{0};
  };

  Work post(const Operands& operands, const Call& call);
  void serve();
  void issue(const Request& request);
  void tell(const Request& request, const std::exception_ptr& failure);
  static std::string_view name_of(const Operands& operands);
  void issue_timed(const Request& request);
  Request& place(int64_t number) {
    return queue_[static_cast<size_t>(number) % queue_.size()];
  }
  bool is_done(int64_t number);
  void wait(int64_t number, std::chrono::nanoseconds time);

  Communicator& communicator_;
  Track* track_;
  std::atomic<int64_t> busy_ = 0;  // nanoseconds
  std::mutex mutex_;
  std::condition_variable posted_more_;
  std::condition_variable ended_more_;
  std::vector<Request> queue_;
  int64_t num_posted_ = 0;
  int64_t num_ended_ = 0;
  bool closing_ = false;
  int64_t failed_ = 0;
  std::exception_ptr failure_;
  std::thread thread_;  // last, because it uses all the others
};

}  // namespace canzona
