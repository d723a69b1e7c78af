// Devices as callers name them: "cpu", "cuda" (the first one), "cuda:3".
#pragma once

#include <memory>
#include <string_view>

#include "canzona/linalg/engine.h"

namespace canzona {

struct NamedDevice {
  bool is_cuda = false;
  int number = 0;

  // The argument for CurrentCudaDevice.
  int gpu() const { return is_cuda ? number : -1; }
};
// UsageError names what came and what was expected.
NamedDevice read_device(std::string_view name);

// Makes an engine of that GPU, which becomes the thread's current one. Its work
// is issued to `stream`; its scratch comes from `scratch`, or is its own if
// that is null.
std::unique_ptr<Engine> cuda_engine_of(const NamedDevice& device, void* stream,
                                       Memory* scratch);

// Makes an engine that describes that device.
std::unique_ptr<Engine> engine_of(std::string_view device);

}  // namespace canzona
