// Allocates numbers on a device, for measurements.
//
//   DeviceMemory memory(engine);
//   Run grad = memory.noise(12'582'912, 7);
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/linalg/engine.h"

namespace canzona::measure {

class DeviceMemory : public EngineMemory {
 public:
  using EngineMemory::EngineMemory;

  // Returns Gaussian numbers times `scale`. Long runs repeat after some million
  // numbers, in another order for another seed, because generating all of them
  // would take longer than the measurement. The period shares no divisor with
  // the sizes of matrices, so that no two rows are equal.
  Run noise(int64_t count, uint64_t seed, double scale = 1) {
    constexpr int64_t kPeriod = kPool - 9;
    const Run run = take(count);
    std::vector<float> scaled(static_cast<size_t>(std::min(kPeriod, count)));
    const size_t first = bits_at(seed, 0) % (kPool / 2);
    for (size_t i = 0; i < scaled.size(); ++i)
      scaled[i] = pool()[(first + i) % kPool] * static_cast<float>(scale);
    for (int64_t begin = 0; begin < count; begin += kPeriod)
      engine_.upload(run.data + begin * size_of(DType::kFp32),
                     reinterpret_cast<const std::byte*>(scaled.data()),
                     std::min(kPeriod, count - begin) * size_of(DType::kFp32));
    return run;
  }

 private:
  static constexpr int64_t kPool = int64_t{1} << 21;

  static const std::vector<float>& pool() {
    static const std::vector<float> numbers = [] {
      std::vector<float> all(kPool);
      for (size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<float>(normal_at(17, i));
      return all;
    }();
    return numbers;
  }
};

}  // namespace canzona::measure
