// Storage that is given, and plans of it: refused with a UsageError, or
// planned, validated and explained in bounded time whatever they say. What was
// planned is sound and reads back as it was.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/plan/storage/storage_json.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "fuzz/other_numbers.h"

namespace {

void look_at_request(std::string_view text) {
  canzona::plan::StorageInput input = canzona::plan::read_storage(text);
  const canzona::StoragePlan plan =
      canzona::make_storage_plan(std::move(input.request), input.table());
  if (!canzona::validate(plan).empty()) std::abort();
  const std::string json = canzona::plan::storage_plan_to_json(plan);
  const auto read = canzona::plan::storage_plan_from_json(json, "plan.json");
  if (!read.digest_matches || read.plan.matrices != plan.matrices) std::abort();
}

void look_at_plan(std::string_view text) {
  const canzona::StoragePlan plan =
      canzona::plan::storage_plan_from_json(text, "plan.json").plan;
  for (const std::string& violation : canzona::validate(plan))
    if (!violation.starts_with("digest") && !violation.starts_with("predicted"))
      return;
  for (const int32_t rank : {0, plan.world - 1})
    canzona::plan::make_storage_schedule(plan, rank, 4);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (auto* look_at : {look_at_request, look_at_plan}) {
    try {
      look_at(text);
    } catch (const canzona::UsageError&) {
    }
  }
  return 0;
}
