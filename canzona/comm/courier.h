// A background worker: one thread that executes a queue of operations, in
// order, on one communicator. All communication that overlaps compute goes
// through a courier.
//
//   Courier courier(*tp, 8);
//   Work gather = courier.all_gather_v(shard, sizes, whole, {.label = "k+1"});
//   Work sum = courier.run(
//       "add up", [&](Communicator& group, const Call& call) {
//         group.reduce_scatter_v(…, call);
//         add(sums, accumulated);
//       }, {.label = "layers.3"});
//   transform(k);
//   gather.wait();
//
// If the communicator enqueues its operations on a lane (transport.h), there is
// no thread: the posting thread issues each operation at once, in order with
// everything else that it issues. A Work is then a mark of the lane, and other
// lanes can wait for it with order().
//
// Every rank must post in the same order, so nothing can deadlock. Posting
// blocks while the queue is full. Errors are sticky: the failed work and all
// later ones rethrow at wait(), the other ranks are told, and nothing more is
// issued.
//
// The communicator and all spans, including counts, belong to the caller and
// must stay valid until the work is done; nobody else may use the communicator
// meanwhile. A Work is a number that may be copied, dropped and queried from
// any thread while the courier lives. Posting allocates nothing. The destructor
// drains the queue; abort() the communicator to end sooner. With a track, every
// collective becomes a span, and labels must live as long as the trace
// (Trace::keep); bodies of run() add their own spans to track().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/comm/transport.h"
#include "canzona/trace/trace.h"

namespace canzona {

class Courier;

class Work {
 public:
  Work() = default;  // already done

  // Returns true once it has ended, successfully or not.
  bool done() const;
  // Rethrows what the operation threw. Throws PeerLost on timeout; the
  // operation then continues under its own deadline.
  void wait(std::chrono::nanoseconds time = std::chrono::nanoseconds::max());
  // Makes work issued to `lane` from now on happen after this one. Without a
  // lane, or if the courier has a thread, this blocks. Rethrows like wait().
  void order(Lane* lane);

 private:
  friend class Courier;
  Work(Courier* courier, int64_t number) : courier_(courier), number_(number) {}

  Courier* courier_ = nullptr;
  int64_t number_ = 0;
};

class Courier {
 public:
  // Holds `capacity` unfinished operations, at least one. `lane` is where the
  // bodies issue their work, if it is not the communicator's own.
  Courier(Communicator& communicator, int64_t capacity, Track* track = nullptr,
          Lane* lane = nullptr);
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // These work as in Communicator.
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

  // Calls body(Communicator&, const Call&) in its turn: collectives, the same
  // on every rank, with the caller's own work in between. The body is copied
  // byte by byte; the label that it gets lives until it returns. An exception
  // in the body ends operations on every rank, as an error in a collective
  // does; `name` and label say what failed.
  template <class Body>
  Work run(std::string_view name, const Body& body, const Call& call = {}) {
    static_assert(std::is_trivially_copyable_v<Body> &&
                  std::is_trivially_destructible_v<Body> &&
                  sizeof(Body) <= kMostBytes);
    Request request{name, Label(call.label), call.deadline, {}, nullptr};
    new (request.body.data()) Body(body);
    request.run = [](const std::byte* bytes, Communicator& to, const Call& c) {
      (*std::launder(reinterpret_cast<const Body*>(bytes)))(to, c);
    };
    return post(request);
  }

  // Returns the work posted last; it ends after all earlier work.
  Work last() {
    return num_posted_ == 0 ? Work() : Work(this, num_posted_ - 1);
  }

  Lane* lane() const { return lane_; }  // null if it has a thread
  Track* track() const { return track_; }
  // Returns the time spent in operations that have ended. Any thread may call.
  std::chrono::nanoseconds busy() const {
    return std::chrono::nanoseconds(busy_.load(std::memory_order_relaxed));
  }
  // Used in a body: time while a Pause lives does not count as busy.
  class Pause {
   public:
    explicit Pause(Courier& courier)
        : courier_(courier), begin_(steady_nanoseconds()) {}
    ~Pause() { courier_.paused_ += steady_nanoseconds() - begin_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Courier& courier_;
    int64_t begin_;
  };

 private:
  friend class Work;

  static constexpr size_t kMostBytes = 128;  // of a body
  struct Request {
    std::string_view name;
    Label label;
    std::chrono::nanoseconds deadline{0};
    alignas(std::max_align_t) std::array<std::byte, kMostBytes> body;
    void (*run)(const std::byte*, Communicator&, const Call&) = nullptr;
  };

  template <class Body>
  Work collective(Operation operation, const Call& call, const Body& body);
  Work post(const Request& request);
  void serve();
  std::exception_ptr issue(const Request& request);
  Request& place(int64_t number) {
    return queue_[static_cast<size_t>(number) % queue_.size()];
  }
  bool is_done(int64_t number);
  void wait(int64_t number, std::chrono::nanoseconds time);
  [[noreturn]] void throw_late(int64_t number, std::string_view label,
                               std::chrono::nanoseconds time) const;
  Work issue_now(const Request& request);
  void order(int64_t number, Lane* lane);
  // Returns the lane's mark of operation `number`, or of a later one, which
  // serves as well.
  Mark& mark(int64_t number) {
    return *marks_[static_cast<size_t>(number) % marks_.size()];
  }
  void rethrow(int64_t number) const {
    if (failure_ != nullptr && number >= failed_)
      std::rethrow_exception(failure_);
  }

  Communicator& communicator_;
  Lane* lane_;
  std::vector<std::unique_ptr<Mark>> marks_;
  Track* track_;
  std::atomic<int64_t> busy_ = 0;  // nanoseconds
  int64_t paused_ = 0;             // in the current operation
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
