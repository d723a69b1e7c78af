// What several views share: the plan to be shown, where its things are, its
// numbers as text, and pieces of its JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/sim/activations.h"

namespace canzona {

// A plan together with what was computed from it, ready to be shown.
//
// The terminal views, the JSON views and the HTML report all take this one
// value, so that a number is computed once and looks the same everywhere.
//
//   ReportPlan shown{plan, predict(plan), measure_balance(plan), seconds};

struct ReportPlan {
  Plan plan;
  std::vector<RankCost> ranks;
  Balance balance;
  // Shapes parsed → validated plan with digest; 0 for a plan read from a file.
  double plan_seconds = 0;
  // The terms say how `ranks` count gradients, and what is counted beside the
  // plan; none for a plan read from a file, which does not say.
  std::optional<MemoryTerms> terms = {};
};

// Numbers as the views print them, and figures over all ranks.

// A ratio whose best value is 1: "1.0003", "2.462", "31.5".
std::string ratio_text(double ratio);

// 1234567 → "1,234,567".
std::string grouped(int64_t number);

// "3 tensors", "1 tensor", "2 matrices".
std::string counted(int64_t number, std::string_view thing);

// "5120 × 25600", "5120", "scalar".
std::string dims_text(const std::vector<int64_t>& shape);

// 5.9e12 → "5.90 Tflop".
std::string flops_text(double flops);

// A cost: predicted time and, where ticks are flops, the flops.
std::string cost_text(const CostBasis& basis, double ticks);

// Bytes that were averaged or drawn: 1.5e9 → "1.40 GiB".
std::string bytes_text(double bytes);

// "400 GB/s".
std::string bandwidth_text(double bytes_per_second);

// Largest, smallest and mean of one figure over all ranks.
struct Spread {
  double max = 0;
  double min = 0;
  double mean = 0;
  int32_t largest = 0;  // the first rank that has `max`
  double max_over_mean() const { return mean > 0 ? max / mean : 1; }
};
Spread spread_of(const std::vector<double>& values);

template <class Figure>
Spread spread_over(const std::vector<RankCost>& ranks, const Figure& figure) {
  std::vector<double> values;
  values.reserve(ranks.size());
  for (const RankCost& rank : ranks)
    values.push_back(static_cast<double>(figure(rank)));
  return spread_of(values);
}

// One line per kind of memory, in the order in which views list them; pools
// where there are any.
struct MemoryKind {
  const char* name;
  Bytes RankMemory::*field;
};
std::vector<MemoryKind> memory_kinds(bool with_pools);
// True if any tensor is cut into slices, and needs them.
bool has_pools(const Plan& plan);
inline std::vector<MemoryKind> memory_kinds(const Plan& plan) {
  return memory_kinds(has_pools(plan));
}

// Ticks of one rank, or of one matrix, over a whole period.
double period_load(const SettledRequest& plan, const RankCost& rank);
double period_load(const SettledRequest& plan, const MatrixCost& cost);
std::vector<double> period_loads(const SettledRequest& plan,
                                 const std::vector<RankCost>& ranks);

// True where ticks are flops at a nominal rate.
bool is_nominal(const CostBasis& basis);

// Pieces of the JSON views that several of them share. Each writes one value.

// {"dp": 32, "cp": 1, "tp": 8, "pp": 1, "ep": 1}
void write_mesh(JsonWriter& out, const Mesh& mesh);

void write_axis(JsonWriter& out, const AxisBalance& axis);

// Members `dp`, `tp`, `tp_worst` and `all_ranks` of the object being written.
void write_balance_members(JsonWriter& out, const Balance& balance);

// {"parameters": …, …, "total": …}, bytes.
void write_memory(JsonWriter& out, const RankMemory& memory);

// Writes what is counted against the cap: {"cap_bytes": …, "gradients": "fp32",
// "activations": {"bytes": …, "tokens": …, …}, "fullest_rank": {…, "total": …}}
// of a plan that has terms.
void write_activations(JsonWriter& out, const MemoryTerms& terms);
void write_counted_memory(JsonWriter& out, const ReportPlan& shown);

// Writes what a rank does, in order, as a table: {"title": …, "rank": …,
// "columns": […], "rows": [[…], …], "left_out": 0}.
template <class Columns, class Order>
void write_order_table(JsonWriter& out, std::string_view title, int32_t rank,
                       const Columns& columns, const Order& order) {
  out.begin_object().field("title", title).field("rank", rank);
  out.member("columns").values(columns).member("rows").begin_array();
  for (const auto& row : order.rows) out.values(row);
  out.end_array().field("left_out", order.left_out).end_object();
}

// Members of the open object: sent and received bytes by link class.
void write_wire_members(JsonWriter& out, const WireBytes& wire);

// Per collective that moves anything: sent and received bytes by link class.
void write_wire(JsonWriter& out, const RankCost& rank);

// Finds the things of a plan, for the views.

// Finds in which part (plan/plan.h) a tensor, a bucket or a rank of a plan is
// planned, and under which number there.
//
//   const PlannedTensor at = planned_tensor(plan, t);
//   region_of(*at.part, at.tensor);  // view_parts.h
//
// Buckets are counted over all parts: those of dense tensors first, then those
// of the experts of ep coordinate 0, 1, … Nothing is copied: the plan must live
// on. Any thread.

struct PlannedTensor {
  const PlanPart* part = nullptr;
  int32_t tensor = 0;
};
PlannedTensor planned_tensor(const Plan& plan, int32_t tensor);

struct PlannedBucket {
  const PlanPart* part = nullptr;
  int32_t bucket = 0;
};
int32_t num_buckets(const Plan& plan);
PlannedBucket find_bucket(const Plan& plan, int32_t number);
// The number of a tensor's bucket among those of all parts.
inline int32_t bucket_number(const PlanPart& part, int32_t tensor) {
  return part.first_bucket + part.bucket_of[static_cast<size_t>(tensor)];
}

// The parts in which a rank works, with its number there.
struct PlannedRank {
  const PlanPart* part = nullptr;
  int32_t rank = 0;
};
std::vector<PlannedRank> planned_ranks(const Plan& plan, int32_t rank);

// Finds the things of a plan: ranks by coordinates, matrices by name, tensors
// in their buckets.
//
// Functions that speak of homes, owners and buckets take a part of the plan
// (above); the ranks they give are those of the world.

// "dp 17, tp 3": axes of size 1 are left out; "the only rank" if all are.
std::string coordinates_text(const Mesh& mesh, int32_t rank);

// "rank 3", "ranks 0 to 3", "ranks 0 to 1, 4 to 5"; in order.
std::string ranks_text(const std::vector<int32_t>& ranks);

// The rank of the world at home `home` of the tensor's buffer, in plane `t` of
// the grid; of replicas, the first one's.
int32_t rank_of(const PlanPart& plan, int32_t tensor, int32_t home, int32_t t);
// Those of all its planes, in order.
std::vector<int32_t> ranks_of_home(const PlanPart& plan, int32_t tensor,
                                   int32_t home);

// All ranks that compute the update of a matrix, in order: the owner, a team,
// or, where updates are repeated, everyone who repeats it; in every replica.
std::vector<int32_t> owner_ranks(const PlanPart& plan, int32_t matrix);

// True if `rank`, as this part numbers it, is one of them.
bool computes(const PlanPart& plan, int32_t rank, int32_t matrix);

// A BucketRegion says where the elements of a tensor start in its region of its
// bucket, in one plane, and how many the region has.
struct BucketRegion {
  int64_t offset = 0;
  int64_t elements = 0;  // of the tensor's shard
  int64_t total = 0;     // of the region
};
BucketRegion region_of(const PlanPart& plan, int32_t tensor);

// The matrices called `name`, or those of the tensor called `name`; none for a
// tensor that AdamW updates (then `tensor` is set). UsageError names the
// nearest known name.
struct Found {
  int32_t tensor = -1;
  std::vector<int32_t> matrices;
};
Found find_by_name(const Plan& plan, std::string_view name);

std::string name_of(const SettledRequest& plan, int32_t matrix);

// UsageError unless 0 ≤ number < count; `option` and `what` are for the
// message.
void check_number(int64_t number, int64_t count, const char* option,
                  const char* what);

}  // namespace canzona
