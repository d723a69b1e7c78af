// HF configurations: refused with a UsageError or turned into a model.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/shapes/read_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    canzona::model_from_config(text, "config.json", {.fused = size % 2 == 0});
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
