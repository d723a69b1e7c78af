// For tests of the defaults of Engine: does the same work on a device that
// implements nothing but what it must (test_remote_device.h) and on the CPU,
// and compares the bits of everything.
//
//   expect_cpu_bits([](Bench& bench) {
//     bench.engine().norms(bench.put(a), bench.results(2));
//   });
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/test_remote_device.h"

namespace canzona::linalg {

// An engine, memory of its own with numbers, and results in this process.
class Bench {
 public:
  explicit Bench(Engine& engine) : engine_(engine), memory_(engine) {}

  Engine& engine() { return engine_; }

  // Copies of the values, in the engine's memory.
  template <class T>
  T* put(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    std::byte* there = memory_.arena().take(bytes);
    engine_.upload(there, reinterpret_cast<const std::byte*>(values.data()),
                   bytes);
    placed_.push_back({there, bytes});
    return reinterpret_cast<T*>(there);
  }
  template <class Real>
  Run run(const std::vector<Real>& values) {
    return run_of(put(values));
  }
  // With the gaps of the batch, and their marks.
  template <class Real>
  Matrices put(Batch<Real> batch) {
    Matrices view = batch.view();
    const auto* first =
        reinterpret_cast<const std::byte*>(batch.storage().data());
    const int64_t offset = view.data - first;
    view.data = reinterpret_cast<std::byte*>(put(batch.storage())) + offset;
    return view;
  }

  std::span<double> results(int64_t count) { return of(numbers_, count); }
  std::span<bool> verdicts(int64_t count) { return of(verdicts_, count); }
  void note(double result) { results(1)[0] = result; }

  std::vector<std::vector<std::byte>> memory() {
    std::vector<std::vector<std::byte>> all;
    for (const Placed& p : placed_)
      all.push_back(memory_.get<std::byte>(p.data, p.bytes));
    return all;
  }
  std::vector<uint64_t> all_results() const {
    std::vector<uint64_t> all;
    for (const auto& some : numbers_)
      for (size_t i = 0; i < some.size; ++i)
        all.push_back(std::bit_cast<uint64_t>(some.data[i]));
    for (const auto& some : verdicts_)
      for (size_t i = 0; i < some.size; ++i) all.push_back(some.data[i]);
    return all;
  }

 private:
  struct Placed {
    std::byte* data;
    int64_t bytes;
  };
  template <class T>
  struct Array {
    std::unique_ptr<T[]> data;
    size_t size;
  };
  template <class T>
  static std::span<T> of(std::deque<Array<T>>& all, int64_t count) {
    const auto size = static_cast<size_t>(count);
    all.push_back({std::make_unique<T[]>(size), size});
    return {all.back().data.get(), size};
  }

  Engine& engine_;
  EngineMemory memory_;
  std::vector<Placed> placed_;
  std::deque<Array<double>> numbers_;
  std::deque<Array<bool>> verdicts_;
};

template <class Work>
void expect_cpu_bits(const Work& work) {
  MinimalEngine minimal(3);
  const auto cpu = make_cpu_engine();
  Bench there(minimal), here(*cpu);
  work(there);
  work(here);
  EXPECT_EQ(there.all_results(), here.all_results());
  EXPECT_EQ(there.memory(), here.memory());
}

}  // namespace canzona::linalg
