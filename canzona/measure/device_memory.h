// Numbers on a device, for measurements.
//
//   DeviceMemory memory(engine);
//   Run grad = memory.noise(12'582'912, 7);
//   std::vector<float> back = memory.read(grad, 10);
//
// Belongs to the engine's device and goes with this object. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona {

class DeviceMemory {
 public:
  explicit DeviceMemory(Engine& engine);

  Run zeros(int64_t count);
  Run copy_of(const std::vector<float>& values);
  // Gaussian numbers, times `scale`. Long runs repeat themselves after some
  // million numbers, in another order for another seed: to make them all would
  // take longer than to measure.
  Run noise(int64_t count, uint64_t seed, double scale = 1);
  std::vector<float> read(ConstRun run, int64_t count);
  uint16_t* rounded(int64_t count);

 private:
  Engine& engine_;
  Arena arena_;
  Arena::Scope scope_;
};

}  // namespace canzona
