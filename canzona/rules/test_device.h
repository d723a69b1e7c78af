// Numbers on a device, for tests, which skip where there is no GPU.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/engine.h"

namespace canzona {

#define CANZONA_NEEDS_GPU()                                      \
  if (std::string why_not; !canzona::find_cuda_device(&why_not)) \
  GTEST_SKIP() << why_not

// Vectors that live on the device of an engine as long as this.
class TestDevice {
 public:
  explicit TestDevice(Engine& engine)
      : engine_(engine), arena_(engine.memory()), scope_(arena_) {}

  template <class Real>
  Run put(const std::vector<Real>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(Real));
    const Run run{arena_.take(bytes), DTypeOf<Real>::value};
    set(run, values);
    return run;
  }
  template <class Real>
  void set(Run run, const std::vector<Real>& values) {
    engine_.upload(run.data, reinterpret_cast<const std::byte*>(values.data()),
                   static_cast<int64_t>(values.size() * sizeof(Real)));
  }
  template <class T>
  std::vector<T> get(const std::byte* data, size_t count) {
    std::vector<T> values(count);
    engine_.download(reinterpret_cast<std::byte*>(values.data()), data,
                     static_cast<int64_t>(count * sizeof(T)));
    return values;
  }
  uint16_t* take_rounded(size_t count) {
    return arena_.take_array<uint16_t>(static_cast<int64_t>(count));
  }

 private:
  Engine& engine_;
  Arena arena_;
  Arena::Scope scope_;
};

}  // namespace canzona
