// Plans: refused with a UsageError, or validated and predicted in bounded time
// whatever they say.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/plan/plan_json.h"
#include "canzona/plan/predict.h"
#include "canzona/plan/validate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const canzona::ReadPlan read = canzona::plan_from_json(text, "plan.json");
    const auto world = static_cast<size_t>(read.plan.mesh.world());
    if (canzona::predict(read.plan).size() != world) std::abort();
    canzona::validate(read.plan);
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
