#include "canzona/comm/courier.h"

#include <algorithm>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

void Lane::write(LaneWord& /*word*/, uint32_t /*value*/) {
  throw InternalError("this lane has no words");
}
void Lane::wait_for(const LaneWord& /*word*/, uint32_t /*value*/) {
  throw InternalError("this lane has no words");
}

bool Work::done() const {
  return courier_ == nullptr || courier_->is_done(number_);
}

void Work::wait(std::chrono::nanoseconds time) {
  if (courier_ != nullptr) courier_->wait(number_, time);
}

void Work::order(Lane* lane) {
  if (courier_ != nullptr) courier_->order(number_, lane);
}

Courier::Courier(Communicator& communicator, int64_t capacity, Track* track,
                 Lane* lane)
    : communicator_(communicator),
      lane_(lane != nullptr ? lane : communicator.lane()),
      track_(track),
      queue_(static_cast<size_t>(std::max<int64_t>(capacity, 1))) {
  if (lane_ == nullptr) {
    thread_ = std::thread([this] { serve(); });
    return;
  }
  for (size_t i = 0; i < queue_.size(); ++i)
    marks_.push_back(lane_->make_mark());
  queue_.resize(1);
}

Courier::~Courier() {
  if (lane_ != nullptr) return;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  posted_more_.notify_one();
  thread_.join();
}

// The lane's queue is unbounded, so nothing waits for the device here.
Work Courier::issue_now(const Request& request) {
  const int64_t number = num_posted_++;
  if (failure_ == nullptr) {
    failure_ = issue(request);
    failed_ = number;
    if (failure_ == nullptr) lane_->record(mark(number));
  }
  return {this, number};
}

void Courier::order(int64_t number, Lane* lane) {
  if (lane_ == nullptr || lane == nullptr)
    return wait(number, std::chrono::nanoseconds::max());
  rethrow(number);
  if (lane != lane_) lane->wait_for(mark(number));
}

Work Courier::post(const Request& request) {
  if (lane_ != nullptr) return issue_now(request);
  std::unique_lock lock(mutex_);
  ended_more_.wait(lock, [&] {
    return std::cmp_less(num_posted_ - num_ended_, queue_.size());
  });
  const int64_t number = num_posted_++;
  place(number) = request;
  lock.unlock();
  posted_more_.notify_one();
  return {this, number};
}

// A slot is reused only after its operation has ended, so it may be read
// without the lock.
void Courier::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_more_.wait(lock,
                      [&] { return closing_ || num_ended_ < num_posted_; });
    if (num_ended_ == num_posted_) return;
    if (failure_ == nullptr) {
      const Request& request = place(num_ended_);
      lock.unlock();
      std::exception_ptr failure = issue(request);
      lock.lock();
      failure_ = std::move(failure);
      failed_ = num_ended_;
    }
    ++num_ended_;
    ended_more_.notify_all();
  }
}

// After a failure the others may be waiting for messages that this rank will
// not send any more: a body may fail between its collectives, a collective
// before it begins. Errors in collectives have told them already, and only the
// first reason is kept.
std::exception_ptr Courier::issue(const Request& request) {
  const std::string_view label = request.label.view();
  std::exception_ptr failure;
  const int64_t begin = steady_nanoseconds();
  paused_ = 0;
  try {
    request.run(request.body.data(), communicator_, {label, request.deadline});
  } catch (...) {
    failure = std::current_exception();
  }
  busy_.fetch_add(steady_nanoseconds() - begin - paused_,
                  std::memory_order_relaxed);
  if (failure != nullptr)
    communicator_.give_up(failure, request.name.empty()
                                       ? std::string()
                                       : cat(request.name, " ", quoted(label)));
  return failure;
}

bool Courier::is_done(int64_t number) {
  if (lane_ != nullptr)
    return (failure_ != nullptr && number >= failed_) || mark(number).reached();
  std::lock_guard lock(mutex_);
  return number < num_ended_;
}

void Courier::throw_late(int64_t number, std::string_view label,
                         std::chrono::nanoseconds time) const {
  throw PeerLost(
      cat("rank ", communicator_.known_as(), " of ", communicator_.name(),
          ": background operation ", number, " ", quoted(label),
          " did not end within ",
          human_seconds(std::chrono::duration<double>(time).count())));
}

void Courier::wait(int64_t number, std::chrono::nanoseconds time) {
  if (lane_ != nullptr) {
    rethrow(number);
    if (time == std::chrono::nanoseconds::max()) {
      // Querying a finished device is cheaper than waiting for it.
      if (!mark(number).reached()) mark(number).wait();
    } else {
      for (const Deadline until = deadline_after(time);
           !mark(number).reached();)
        if (std::chrono::steady_clock::now() >= until)
          throw_late(number, {}, time);
        else
          std::this_thread::yield();
    }
    // Operations that were abandoned have ended, too, but without results.
    if (communicator_.is_aborted())
      throw PeerLost(cat("rank ", communicator_.known_as(), " of ",
                         communicator_.name(), ": background operation ",
                         number, " given up: ", communicator_.abort_reason()));
    return;
  }
  const auto ended = [&] { return number < num_ended_; };
  std::unique_lock lock(mutex_);
  if (time == std::chrono::nanoseconds::max()) {
    ended_more_.wait(lock, ended);
  } else if (!ended_more_.wait_for(lock, time, ended)) {
    throw_late(number, place(number).label.view(), time);
  }
  rethrow(number);
}

template <class Body>
Work Courier::collective(Operation operation, const Call& call,
                         const Body& body) {
  const auto shown = [this, operation, kept = call.label, body](
                         Communicator& to, const Call& c) {
    const Span span(track_, to_string(operation), kept);
    body(to, c);
  };
  return run({}, shown, call);
}

Work Courier::reduce_scatter_v(Reduction reduction,
                               std::span<const std::byte> input,
                               std::span<const int64_t> counts,
                               std::span<std::byte> output, const Call& call) {
  return collective(Operation::kReduceScatter, call,
                    [=](Communicator& to, const Call& c) {
                      to.reduce_scatter_v(reduction, input, counts, output, c);
                    });
}

Work Courier::all_reduce(Reduction reduction, std::span<std::byte> data,
                         const Call& call) {
  return collective(Operation::kAllReduce, call,
                    [=](Communicator& to, const Call& c) {
                      to.all_reduce(reduction, data, c);
                    });
}

Work Courier::all_gather_v(std::span<const std::byte> input,
                           std::span<const int64_t> bytes,
                           std::span<std::byte> output, const Call& call) {
  return collective(Operation::kAllGather, call,
                    [=](Communicator& to, const Call& c) {
                      to.all_gather_v(input, bytes, output, c);
                    });
}

Work Courier::all_to_all_v(const Pieces<const std::byte>& send,
                           const Pieces<std::byte>& receive, const Call& call) {
  return collective(Operation::kAllToAll, call,
                    [=](Communicator& to, const Call& c) {
                      to.all_to_all_v(send, receive, c);
                    });
}

Work Courier::broadcast(int root, std::span<std::byte> data, const Call& call) {
  return collective(
      Operation::kBroadcast, call,
      [=](Communicator& to, const Call& c) { to.broadcast(root, data, c); });
}

Work Courier::barrier(const Call& call) {
  return collective(Operation::kBarrier, call,
                    [](Communicator& to, const Call& c) { to.barrier(c); });
}

}  // namespace canzona
