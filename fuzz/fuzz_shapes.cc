// Lists of names and shapes: refused with a UsageError or turned into a model
// that splits, or says why not.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/shapes/read_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const canzona::Model model = canzona::model_from_shapes(text, "list.json");
    canzona::split_into_matrices(model, {.qkv = true, .gate_up = true});
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
