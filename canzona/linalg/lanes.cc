#include "canzona/linalg/lanes.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "canzona/base/check.h"

namespace canzona {

// The threads of lanes 1, 2, … and what they work on. A round is one call of
// for_each; between rounds all of them sleep.
struct Lanes::Crew {
  ~Crew() {
    {
      std::lock_guard lock(mutex);
      closing = true;
    }
    round_began.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void serve(Engine& engine) {
    int64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex);
        round_began.wait(lock, [&] { return closing || round != seen; });
        if (closing) return;
        seen = round;
      }
      take_items(engine);
      std::lock_guard lock(mutex);
      if (--num_busy == 0) round_ended.notify_one();
    }
  }

  // Items below a failing one were assigned before it, so the lowest failure is
  // always found, though the rest is not begun.
  void take_items(Engine& engine) {
    while (true) {
      const int64_t item = next_item.fetch_add(1, std::memory_order_relaxed);
      if (item >= num_items) return;
      try {
        (*work)(engine, item);
      } catch (...) {
        next_item.store(num_items, std::memory_order_relaxed);
        std::lock_guard lock(mutex);
        if (failure == nullptr || item < failed_item) {
          failed_item = item;
          failure = std::current_exception();
        }
      }
    }
  }

  void begin_round(int64_t items, const Work& round_work) {
    {
      std::lock_guard lock(mutex);
      work = &round_work;
      num_items = items;
      next_item.store(0, std::memory_order_relaxed);
      num_busy = threads.size();
      ++round;
    }
    round_began.notify_all();
  }

  // Returns what the round threw, or null.
  std::exception_ptr end_round() {
    std::unique_lock lock(mutex);
    round_ended.wait(lock, [&] { return num_busy == 0; });
    work = nullptr;
    return std::exchange(failure, nullptr);
  }

  std::mutex mutex;
  std::condition_variable round_began;
  std::condition_variable round_ended;
  int64_t round = 0;
  size_t num_busy = 0;
  bool closing = false;
  const Work* work = nullptr;
  int64_t num_items = 0;
  std::atomic<int64_t> next_item = 0;
  int64_t failed_item = 0;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
};

Lanes::Lanes(int num_lanes,
             const std::function<std::unique_ptr<Engine>()>& make)
    : crew_(std::make_unique<Crew>()) {
  CANZONA_CHECK(num_lanes >= 1, num_lanes, " lanes");
  for (int i = 0; i < num_lanes; ++i) engines_.push_back(make());
  for (size_t i = 1; i < engines_.size(); ++i) {
    Engine& engine = *engines_[i];
    crew_->threads.emplace_back(
        [crew = crew_.get(), &engine] { crew->serve(engine); });
  }
}

Lanes::~Lanes() = default;

void Lanes::for_each(int64_t num_items, const Work& work) {
  if (num_items <= 0) return;
  crew_->begin_round(num_items, work);
  crew_->take_items(*engines_.front());
  if (std::exception_ptr failure = crew_->end_round())
    std::rethrow_exception(failure);
}

}  // namespace canzona
