#include "canzona/comm/courier.h"

#include <algorithm>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

bool Work::done() const {
  return courier_ == nullptr || courier_->is_done(number_);
}

void Work::wait(std::chrono::nanoseconds time) {
  if (courier_ != nullptr) courier_->wait(number_, time);
}

Courier::Courier(Communicator& communicator, int capacity, Track* track)
    : communicator_(communicator),
      track_(track),
      queue_(static_cast<size_t>(std::max(capacity, 1))),
      thread_([this] { serve(); }) {}

Courier::~Courier() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  posted_more_.notify_one();
  thread_.join();
}

Work Courier::post(const Operands& operands, const Call& call) {
  std::unique_lock lock(mutex_);
  ended_more_.wait(lock, [&] {
    return std::cmp_less(num_posted_ - num_ended_, queue_.size());
  });
  const int64_t number = num_posted_++;
  place(number) = {operands, Label(call.label), call.label, call.deadline};
  lock.unlock();
  posted_more_.notify_one();
  return {this, number};
}

// A place is filled again only after its operation has ended, so that it may
// be read without the lock.
void Courier::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_more_.wait(lock,
                      [&] { return closing_ || num_ended_ < num_posted_; });
    if (num_ended_ == num_posted_) return;
    if (failure_ == nullptr) {
      const Request& request = place(num_ended_);
      std::exception_ptr failure;
      lock.unlock();
      try {
        issue_timed(request);
      } catch (...) {
        failure = std::current_exception();
        tell(request, failure);
      }
      lock.lock();
      failure_ = failure;
      failed_ = num_ended_;
    }
    ++num_ended_;
    ended_more_.notify_all();
  }
}

void Courier::issue_timed(const Request& request) {
  using Clock = std::chrono::steady_clock;
  struct Timer {
    ~Timer() {
      const std::chrono::nanoseconds time = Clock::now() - begin;
      busy.fetch_add(time.count(), std::memory_order_relaxed);
    }
    std::atomic<int64_t>& busy;
    Clock::time_point begin = Clock::now();
  };
  const Timer timer{busy_};
  const Span span(track_, name_of(request.operands), request.kept_label);
  issue(request);
}

std::string_view Courier::name_of(const Operands& operands) {
  return std::visit(
      Overloaded{[](const auto& o) { return to_string(o.kOperation); },
                 [](const Task& o) { return o.task->name(); }},
      operands);
}

// The others may be waiting for what this rank will not send any more: a task
// may fail between its collectives, a collective before it begins. Errors in
// collectives have told them already, and the first reason stays.
void Courier::tell(const Request& request, const std::exception_ptr& failure) {
  std::string doing;
  if (const Task* task = std::get_if<Task>(&request.operands))
    doing = cat(task->task->name(), " ", quoted(request.label.view()));
  communicator_.give_up(failure, doing);
}

void Courier::issue(const Request& request) {
  Communicator& to = communicator_;
  const Call call = {request.label.view(), request.deadline};
  std::visit(
      Overloaded{
          [&](const Barrier&) { to.barrier(call); },
          [&](const ReduceScatter& o) {
            to.reduce_scatter_v(o.reduction, o.input, o.counts, o.output, call);
          },
          [&](const AllReduce& o) { to.all_reduce(o.reduction, o.data, call); },
          [&](const AllGather& o) {
            to.all_gather_v(o.input, o.bytes, o.output, call);
          },
          [&](const AllToAll& o) { to.all_to_all_v(o.send, o.receive, call); },
          [&](const Broadcast& o) { to.broadcast(o.root, o.data, call); },
          [&](const Task& o) { o.task->run(to, call); },
      },
      request.operands);
}

bool Courier::is_done(int64_t number) {
  std::lock_guard lock(mutex_);
  return number < num_ended_;
}

void Courier::wait(int64_t number, std::chrono::nanoseconds time) {
  const auto ended = [&] { return number < num_ended_; };
  std::unique_lock lock(mutex_);
  if (time == std::chrono::nanoseconds::max()) {
    ended_more_.wait(lock, ended);
  } else if (!ended_more_.wait_for(lock, time, ended)) {
    throw PeerLost(
        cat("rank ", communicator_.known_as(), " of ", communicator_.name(),
            ": background operation ", number, " ",
            quoted(place(number).label.view()), " did not end within ",
            human_seconds(std::chrono::duration<double>(time).count())));
  }
  if (failure_ != nullptr && number >= failed_)
    std::rethrow_exception(failure_);
}

Work Courier::reduce_scatter_v(Reduction reduction,
                               std::span<const std::byte> input,
                               std::span<const int64_t> counts,
                               std::span<std::byte> output, const Call& call) {
  return post(ReduceScatter{reduction, input, counts, output}, call);
}

Work Courier::all_reduce(Reduction reduction, std::span<std::byte> data,
                         const Call& call) {
  return post(AllReduce{reduction, data}, call);
}

Work Courier::all_gather_v(std::span<const std::byte> input,
                           std::span<const int64_t> bytes,
                           std::span<std::byte> output, const Call& call) {
  return post(AllGather{input, bytes, output}, call);
}

Work Courier::all_to_all_v(const Pieces<const std::byte>& send,
                           const Pieces<std::byte>& receive, const Call& call) {
  return post(AllToAll{send, receive}, call);
}

Work Courier::broadcast(int root, std::span<std::byte> data, const Call& call) {
  return post(Broadcast{root, data}, call);
}

Work Courier::barrier(const Call& call) { return post(Barrier{}, call); }

Work Courier::run(CourierTask& task, const Call& call) {
  return post(Task{&task}, call);
}

}  // namespace canzona
