// The JSON of a given storage layout and of its plan: docs/plan.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "canzona/base/json_reader.h"
#include "canzona/plan/cost/cost_table.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/storage/storage_plan.h"

namespace canzona::plan {

// The member of a request that says what it is; former ones are still read.
inline constexpr const char* kRequestKey = "canzona_storage";
inline constexpr const char* kFormerKey = "canzona_placed";
inline constexpr int64_t kRequestVersion = 1;
// The format of plans in versions 1 and 2.
inline constexpr const char* kFormerFormat = "canzona.placed_plan";
// The most boxes of all tensors and ranks that a file may list.
inline constexpr int64_t kMaxStorageBoxes = int64_t{1} << 22;

// A request, which may bring its table of costs (`cost_table`).
struct StorageInput {
  StorageRequest request;
  std::optional<CostTable> cost;

  const CostTable* table() const { return cost ? &*cost : nullptr; }
};

// Reads a request. A file is untrusted: bytes, values, ranks, tensors and boxes
// are bounded. The UsageError names `where`, the tensor and what was expected.
// make_storage_plan() checks whether the boxes of a tensor fit together.
StorageInput read_storage(std::string_view text,
                          const std::string& where = "request");

// The same plan gives the same bytes everywhere.
std::string storage_plan_to_json(const StoragePlan& plan);

// Returns the digest that storage_plan_to_json() would store.
std::string digest_of(const StoragePlan& plan);

// Reads what storage_plan_to_json() wrote. Throws UsageError if the text is not
// such a plan; wrong decisions are reported by validate().
using ReadStoragePlan = PlanOfFile<StoragePlan>;
ReadStoragePlan storage_plan_from_json(std::string_view text,
                                       const std::string& where);

// True if the file says so itself; the rest may still be wrong.
bool is_storage_plan(const Json& root);

}  // namespace canzona::plan
