// Allocates numbers on a device, for measurements.
//
//   DeviceMemory memory(engine);
//   Run grad = memory.noise(12'582'912, 7);
#pragma once

#include <cstdint>

#include "canzona/linalg/engine.h"

namespace canzona {

class DeviceMemory : public EngineMemory {
 public:
  using EngineMemory::EngineMemory;

  // Returns Gaussian numbers times `scale`. Long runs repeat after some million
  // numbers, in another order for another seed, because generating all of them
  // would take longer than the measurement.
  Run noise(int64_t count, uint64_t seed, double scale = 1);
};

}  // namespace canzona
