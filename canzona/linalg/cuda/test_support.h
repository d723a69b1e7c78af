// Helpers shared by the tests of this folder: an engine of the GPU, or the
// reason why there is none, and copies of host memory on it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda_device.h"

namespace canzona::linalg {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!find_cuda_device(&why_not)) GTEST_SKIP() << why_not;
    engine_ = std::make_unique<CudaEngine>();
  }
  CudaEngine& gpu() { return *engine_; }
  Engine& cpu() { return *cpu_; }

 private:
  std::unique_ptr<CudaEngine> engine_;
  std::unique_ptr<Engine> cpu_ = make_cpu_engine();
};

// Numbers on the GPU, starting `offset` elements after an aligned address.
template <class T>
class OnGpu {
 public:
  OnGpu(Engine& engine, const std::vector<T>& values, int64_t offset = 0)
      : engine_(engine),
        size_(values.size()),
        memory_(engine.memory().allocate(
            static_cast<int64_t>(sizeof(T)) *
            (static_cast<int64_t>(values.size()) + offset))),
        data_(reinterpret_cast<T*>(memory_) + offset) {
    set(values);
  }
  ~OnGpu() { engine_.memory().release(memory_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  T* data() const { return data_; }
  std::byte* bytes() const { return reinterpret_cast<std::byte*>(data_); }
  int64_t size() const { return static_cast<int64_t>(size_); }

  void set(const std::vector<T>& values) const {
    ASSERT_EQ(values.size(), size_);
    engine_.upload(bytes(), reinterpret_cast<const std::byte*>(values.data()),
                   num_bytes());
  }
  std::vector<T> get() const {
    std::vector<T> values(size_);
    engine_.download(reinterpret_cast<std::byte*>(values.data()), bytes(),
                     num_bytes());
    return values;
  }

 private:
  int64_t num_bytes() const { return static_cast<int64_t>(sizeof(T) * size_); }

  Engine& engine_;
  size_t size_;
  std::byte* memory_;
  T* data_;
};

// A copy on the GPU of a host batch with its gaps and markers.
template <class Real>
class GpuBatch {
 public:
  GpuBatch(Engine& engine, const Batch<Real>& batch)
      : batch_(batch), memory_(engine, batch.storage()) {}

  Matrices view() {
    Matrices on_gpu = batch_.view();
    on_gpu.data = memory_.bytes() + (batch_.view().data - begin_of(batch_));
    return on_gpu;
  }
  operator Matrices() { return view(); }       // NOLINT: implicit
  operator ConstMatrices() { return view(); }  // NOLINT: implicit

  Batch<Real> get() {
    const std::vector<Real> values = memory_.get();
    const ptrdiff_t offset = batch_.view().data - begin_of(batch_);
    std::copy(values.begin(), values.end(),
              reinterpret_cast<Real*>(batch_.view().data - offset));
    return batch_;
  }

 private:
  static const std::byte* begin_of(const Batch<Real>& batch) {
    return reinterpret_cast<const std::byte*>(batch.storage().data());
  }

  Batch<Real> batch_;
  OnGpu<Real> memory_;
};

template <class Real>
using Batches = std::vector<Batch<Real>>;
// An operation of an engine on batches, given in order.
using BatchWork = std::function<void(Engine&, std::span<const Matrices>)>;

template <class Real>
Batches<Real> on_cpu(Engine& engine, Batches<Real> batches,
                     const BatchWork& work) {
  std::vector<Matrices> views;
  for (Batch<Real>& batch : batches) views.push_back(batch);
  work(engine, views);
  return batches;
}

template <class Real>
Batches<Real> on_gpu(Engine& engine, const Batches<Real>& batches,
                     const BatchWork& work) {
  std::vector<std::unique_ptr<GpuBatch<Real>>> copies;
  std::vector<Matrices> views;
  for (const Batch<Real>& batch : batches) {
    copies.push_back(std::make_unique<GpuBatch<Real>>(engine, batch));
    views.push_back(copies.back()->view());
  }
  work(engine, views);
  Batches<Real> results;
  for (const auto& copy : copies) results.push_back(copy->get());
  return results;
}

template <class Real>
std::vector<Real> numbers(int64_t count, uint32_t seed) {
  std::mt19937 bits(seed);
  std::vector<Real> values(static_cast<size_t>(count));
  for (Real& value : values) value = static_cast<Real>(bits() * 0x1p-31 - 1);
  return values;
}

// One matrix of a batch, as a separate batch.
template <class Real>
Batch<Real> alone(const Batch<Real>& batch, int64_t which, int64_t gap = 0) {
  Batch<Real> one(batch.rows(), batch.cols(), 1, gap);
  one.fill([&](Real& x, int64_t, int64_t i, int64_t j) {
    x = batch.at(which, i, j);
  });
  return one;
}

}  // namespace canzona::linalg
