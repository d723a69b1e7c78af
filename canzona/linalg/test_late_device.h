// A device whose work happens later than it is told to, for tests: its memory
// is the host's, and what is issued to one of its lines waits there until
// somebody waits for it, or until chance picks it. Code that forgets to order
// two lines reads what is not there yet, or overwrites what is still needed,
// and its results show it.
//
//   LateDevice device({.seed = 7, .eagerness = 0.5});
//   LateLane lane(device);
//   lane.ops().copy(to, from, 64);      // nothing is copied yet
//   lane.record_in(*event);
//   event->wait();                      // now it is
//
// With no eagerness work is done as late as it can be: a line runs when this
// process waits for it, or another line for one of its events. Otherwise work
// of any line may be done with every call, by chance. No thread of its own:
// whoever issues or waits does the work, one at a time. Any thread may call.
//
// While a line waits for a word (MemoryLane::wait_until), whoever runs it calls
// Options::idle until the word is there. Timed events tell Options::now, or how
// many pieces of work were done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/base/random.h"
#include "canzona/linalg/memory.h"

namespace canzona::linalg {

class LateDevice {
 public:
  struct Options {
    uint64_t seed = 1;
    // The probability, after each call, that one more piece of work is done.
    double eagerness = 0;
    std::function<void()> idle = [] { std::this_thread::yield(); };
    std::function<int64_t()> now = {};  // nanoseconds; under the device's lock
  };
  // After the first `position` pieces of work of a line.
  struct Point {
    size_t line = 0;
    int64_t position = 0;
  };

  LateDevice() = default;
  explicit LateDevice(Options options) : options_(options) {}

  size_t add_line() {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back();
    return lines_.size() - 1;
  }

  void issue(size_t line, std::function<void()> work) {
    put(line, {std::move(work), {}});
  }
  void issue_wait(size_t line, Point after) { put(line, {nullptr, after}); }
  // The word outlives the wait.
  void issue_wait(size_t line, const std::atomic<uint32_t>& word,
                  uint32_t value) {
    put(line, {nullptr, {}, [&word, value] {
                 return static_cast<int32_t>(word.load() - value) >= 0;
               }});
  }
  // For work that is under way.
  int64_t now() const { return options_.now ? options_.now() : num_done_; }

  Point here(size_t line) {
    const std::lock_guard lock(mutex_);
    return {line, lines_[line].issued()};
  }
  bool reached(Point point) {
    const std::lock_guard lock(mutex_);
    return is_done(point);
  }
  void wait(Point point) {
    const std::lock_guard lock(mutex_);
    ++num_waits_;
    run_until(point);
  }
  // Memory waits for this before it is given back.
  void drain() {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < lines_.size(); ++i)
      run_until({i, lines_[i].issued()});
  }

  int64_t num_waits() const { return num_waits_; }  // of this process

 private:
  struct Work {
    std::function<void()> work;  // none: waits
    Point after;
    std::function<bool()> is_there = {};  // none: waits for the point
  };
  struct Line {
    std::deque<Work> waiting;
    int64_t num_done = 0;
    int64_t issued() const {
      return num_done + static_cast<int64_t>(waiting.size());
    }
  };

  void put(size_t line, Work work) {
    const std::lock_guard lock(mutex_);
    lines_[line].waiting.push_back(std::move(work));
    while (by_chance(options_.eagerness)) run_any();
  }
  uint64_t next_random() { return bits_at(options_.seed, num_random_++); }
  bool by_chance(double probability) {
    return static_cast<double>(next_random() >> 11) * 0x1p-53 < probability;
  }
  bool is_done(Point point) const {
    return lines_[point.line].num_done >= point.position;
  }
  // A recorded point lies before all that waits for it: no circles.
  void run_until(Point point) {
    while (!is_done(point)) run_next(point.line);
  }
  void run_next(size_t line) {
    const Work work = std::move(lines_[line].waiting.front());
    if (work.work)
      work.work();
    else if (work.is_there)
      while (!work.is_there()) options_.idle();
    else
      run_until(work.after);
    lines_[line].waiting.pop_front();
    ++lines_[line].num_done;
    ++num_done_;
  }
  void run_any() {
    const size_t line = next_random() % lines_.size();
    const std::deque<Work>& waiting = lines_[line].waiting;
    if (waiting.empty()) return;
    const Work& work = waiting.front();
    if (work.work || (work.is_there ? work.is_there() : is_done(work.after)))
      run_next(line);
  }

  const Options options_{};
  std::mutex mutex_;
  std::deque<Line> lines_;
  uint64_t num_random_ = 0;
  int64_t num_done_ = 0;
  std::atomic<int64_t> num_waits_ = 0;
};

class LateEvent final : public Event {
 public:
  explicit LateEvent(LateDevice& device, bool timed = false)
      : device_(device),
        time_(timed ? std::make_shared<int64_t>(0) : nullptr) {}
  bool reached() override { return !recorded_ || device_.reached(point_); }
  void wait() override {
    if (recorded_) device_.wait(point_);
  }
  double seconds_after(const Event& earlier) const override {
    return static_cast<double>(*time_ -
                               *static_cast<const LateEvent&>(earlier).time_) *
           1e-9;
  }
  void record(size_t line) {
    if (time_ != nullptr)
      device_.issue(
          line, [device = &device_, time = time_] { *time = device->now(); });
    point_ = device_.here(line);
    recorded_ = true;
  }
  void hold_back(size_t line) const {
    if (recorded_) device_.issue_wait(line, point_);
  }

 private:
  LateDevice& device_;
  std::shared_ptr<int64_t> time_;
  bool recorded_ = false;
  LateDevice::Point point_;
};

// Freed memory is that of work which has ended, as cudaFree sees to it; new
// memory holds numbers that show.
class LateMemory final : public Memory {
 public:
  explicit LateMemory(LateDevice& device) : device_(device) {}
  std::byte* allocate(int64_t bytes) override {
    std::byte* memory = host_memory().allocate(bytes);
    std::memset(memory, 0x7f, static_cast<size_t>(bytes));
    return memory;
  }
  void release(std::byte* memory) override {
    device_.drain();
    host_memory().release(memory);
  }

 private:
  LateDevice& device_;
};

// The tree in the plainest way: neighbours are joined until one is left.
inline float late_tree(std::vector<float> level) {
  while (level.size() > 1) {
    std::vector<float> joined;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      joined.push_back(level[i] + level[i + 1]);
    if (level.size() % 2 == 1) joined.push_back(level.back());
    level = std::move(joined);
  }
  return level[0];
}

// Those of the CPU, issued to a line.
class LateOps final : public MemoryOps {
 public:
  LateOps(LateDevice& device, size_t line)
      : device_(device), line_(line), memory_(device) {}

  bool is_host() const override { return false; }
  std::byte* allocate(int64_t bytes) const override {
    return memory_.allocate(bytes);
  }
  void release(std::byte* memory) const override { memory_.release(memory); }

  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    issue([=] { cpu_memory_ops().copy(to, from, bytes); });
  }
  void add_fp32(float* sum, const float* a, const float* b,
                int64_t count) const override {
    issue([=] { cpu_memory_ops().add_fp32(sum, a, b, count); });
  }
  void add_int64(int64_t* sum, const int64_t* a, const int64_t* b,
                 int64_t count) const override {
    issue([=] { cpu_memory_ops().add_int64(sum, a, b, count); });
  }
  void max_int64(int64_t* larger, const int64_t* a, const int64_t* b,
                 int64_t count) const override {
    issue([=] { cpu_memory_ops().max_int64(larger, a, b, count); });
  }
  void to_bf16(uint16_t* to, const float* from, int64_t count) const override {
    issue([=] { cpu_memory_ops().to_bf16(to, from, count); });
  }
  void from_bf16(float* to, const uint16_t* from,
                 int64_t count) const override {
    issue([=] { cpu_memory_ops().from_bf16(to, from, count); });
  }
  bool add_tree(float* sum, std::span<const float* const> pieces,
                int64_t count) const override {
    return add_all(sum, pieces, count, [](float x) { return x; });
  }
  bool add_tree(float* sum, std::span<const uint16_t* const> pieces,
                int64_t count) const override {
    return add_all(sum, pieces, count, [](uint16_t x) {
      float wide = 0;
      cpu_memory_ops().from_bf16(&wide, &x, 1);
      return wide;
    });
  }
  bool add_rounded_tree(float* sum, std::span<const float* const> pieces,
                        int64_t count) const override {
    return add_all(sum, pieces, count, [](float x) {
      uint16_t narrow = 0;
      cpu_memory_ops().to_bf16(&narrow, &x, 1);
      cpu_memory_ops().from_bf16(&x, &narrow, 1);
      return x;
    });
  }
  int most_tree_pieces() const override { return 64; }

 private:
  void issue(std::function<void()> work) const {
    device_.issue(line_, std::move(work));
  }
  template <class T, class Widen>
  bool add_all(float* sum, std::span<const T* const> pieces, int64_t count,
               Widen widen) const {
    const std::vector<const T*> kept(pieces.begin(), pieces.end());
    issue([=] {
      std::vector<float> leaves(kept.size());
      for (int64_t i = 0; i < count; ++i) {
        for (size_t p = 0; p < kept.size(); ++p) leaves[p] = widen(kept[p][i]);
        sum[i] = late_tree(leaves);
      }
    });
    return true;
  }

  LateDevice& device_;
  size_t line_;
  mutable LateMemory memory_;
};

class LateLane final : public MemoryLane {
 public:
  explicit LateLane(LateDevice& device)
      : device_(device), line_(device.add_line()), ops_(device, line_) {}

  const MemoryOps& ops() const override { return ops_; }
  std::unique_ptr<Event> make_event() const override {
    return std::make_unique<LateEvent>(device_);
  }
  void record_in(Event& event) override {
    static_cast<LateEvent&>(event).record(line_);
  }
  void wait_until(const Event& event) override {
    static_cast<const LateEvent&>(event).hold_back(line_);
  }
  std::unique_ptr<Event> make_timed_event() const override {
    return std::make_unique<LateEvent>(device_, true);
  }
  std::atomic<uint32_t>& make_word() override { return words_.emplace_back(0); }
  void write(std::atomic<uint32_t>& word, uint32_t value) override {
    device_.issue(line_, [&word, value] { word.store(value); });
  }
  void wait_until(const std::atomic<uint32_t>& word, uint32_t value) override {
    device_.issue_wait(line_, word, value);
  }
  ~LateLane() override { device_.drain(); }

 private:
  LateDevice& device_;
  size_t line_;
  LateOps ops_;
  std::deque<std::atomic<uint32_t>> words_;
};

}  // namespace canzona::linalg
