// For tests: a lane whose device is the host. Work is done at once by the
// issuing thread, or later by a thread of the lane, so that results are not
// available before a mark says so.
//
//   auto lane = std::make_shared<TestLane>(TestLane::When::kLater);
//   auto dp = world.split_ordered(0, world.rank(), "dp", lane);
//   dp->all_reduce(…);
//   lane->wait();
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "canzona/comm/test_host_ops.h"
#include "canzona/comm/transport.h"

namespace canzona::comm {

class TestLane final : public Lane {
 public:
  enum class When { kAtOnce, kLater };

  // `rank` is for code that keeps a record. `delay` is called before every
  // piece of deferred work.
  explicit TestLane(When when, int rank = 0, std::function<void()> delay = {})
      : rank_(rank), delay_(std::move(delay)), ops_(*this) {
    if (when == When::kLater) thread_ = std::thread([this] { work(); });
  }
  // First does all issued work.
  ~TestLane() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  int rank() const { return rank_; }
  bool is_at_once() const { return !thread_.joinable(); }

  template <class Task>
  void issue(const Task& task) {
    if (is_at_once()) return task();
    {
      const std::lock_guard lock(mutex_);
      tasks_.emplace_back(task);
      ++num_issued_;
    }
    changed_.notify_all();
  }

  void wait() { wait_for_number(num_issued()); }

  void* native() override { return this; }
  const WireOps& ops() const override { return ops_; }
  std::unique_ptr<Mark> make_mark() const override {
    return std::make_unique<Point>();
  }
  void record(Mark& mark) override {
    auto& point = static_cast<Point&>(mark);
    point.number = num_issued();
    point.lane = this;
  }
  void wait_for(const Mark& mark) override {
    const auto& point = static_cast<const Point&>(mark);
    TestLane* other = point.lane;
    if (other != nullptr)
      issue([other, number = point.number] { other->wait_for_number(number); });
  }
  LaneWord* make_word() override { return &words_.emplace_back(0); }
  void write(LaneWord& word, uint32_t value) override {
    issue([&word, value] { word.store(value); });
  }
  void wait_for(const LaneWord& word, uint32_t value) override {
    issue([&word, value] {
      while (!has_come_to(word, value)) std::this_thread::yield();
    });
  }

 private:
  struct Point final : Mark {
    bool reached() const override {
      return lane == nullptr || lane->num_done() >= number;
    }
    void wait() const override {
      if (lane != nullptr) lane->wait_for_number(number);
    }
    TestLane* lane = nullptr;
    int64_t number = 0;
  };

  class Ops final : public HostOps {
   public:
    explicit Ops(TestLane& lane) : lane_(lane) {}
    void copy(std::byte* to, const std::byte* from,
              int64_t bytes) const override {
      lane_.issue([=] { cpu_wire_ops().copy(to, from, bytes); });
    }
    void add(Reduction reduction, std::byte* sum, const std::byte* a,
             const std::byte* b, int64_t count) const override {
      lane_.issue([=] { cpu_wire_ops().add(reduction, sum, a, b, count); });
    }
    void narrow(Reduction reduction, std::byte* wire, const std::byte* from,
                int64_t count) const override {
      lane_.issue([=] { cpu_wire_ops().narrow(reduction, wire, from, count); });
    }
    void widen(Reduction reduction, std::byte* to, const std::byte* wire,
               int64_t count) const override {
      lane_.issue([=] { cpu_wire_ops().widen(reduction, to, wire, count); });
    }

   private:
    TestLane& lane_;
  };

  int64_t num_issued() {
    const std::lock_guard lock(mutex_);
    return num_issued_;
  }
  int64_t num_done() {
    const std::lock_guard lock(mutex_);
    return num_done_;
  }
  void wait_for_number(int64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_done_ >= number; });
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (delay_) delay_();
      task();
      lock.lock();
      ++num_done_;
      changed_.notify_all();
    }
  }

  const int rank_;
  const std::function<void()> delay_;
  std::deque<LaneWord> words_;
  Ops ops_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  int64_t num_issued_ = 0;
  int64_t num_done_ = 0;
  bool ending_ = false;
  std::thread thread_;  // last, because it uses the other members
};

}  // namespace canzona::comm
