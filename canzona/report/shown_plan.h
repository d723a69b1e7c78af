// Shared by several views: the plan to be shown, a lookup of its tensors and
// ranks, its numbers as text, and pieces of its JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/plan/coordinates.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/report/document.h"
#include "canzona/report/terminal.h"
#include "canzona/sim/activations.h"
#include "canzona/sim/plan_iteration.h"

namespace canzona::report {

// An iteration of a plan, of which the optimizer's step is a part.
struct ShownIteration {
  IterationTime time = {};
  double tokens = 0;  // on all ranks; 0: compute is not counted
  // It stands on these inputs; some are known to be off
  // (sim/prediction_inputs.h).
  std::string inputs = {};
  std::vector<std::string> gaps = {};

  double tokens_per_second() const {
    return time.seconds > 0 ? tokens / time.seconds : 0;
  }
};
ShownIteration predicted_iteration(const Plan& plan, const Workload& work);
// Says what a prediction stands on, in every view of one: the members "inputs"
// and "known_gaps", and a note for each.
void add_basis(const std::string& inputs, const std::vector<std::string>& gaps,
               Document& out);
// {"seconds": …, "compute_seconds": …, "waited_seconds": …, …}
Value iteration_value(const ShownIteration& iteration);

// A plan and everything computed from it, ready to be shown.
//
// The terminal views, the JSON views and the HTML report all take this value,
// so that a number is computed once and is the same everywhere.
//
//   ReportPlan shown{plan, predict(plan), measure_balance(plan), seconds};
struct ReportPlan {
  Plan plan;
  std::vector<RankCost> ranks;
  Balance balance;
  // From parsed shapes to a validated plan with digest; 0 if read from a file.
  double plan_seconds = 0;
  // How `ranks` count gradients, and what is counted in addition to the plan.
  std::optional<MemoryTerms> terms = {};
  // The predicted iteration, if its work is known.
  std::optional<ShownIteration> iteration = {};
};

// Numbers as the views print them, and figures over all ranks.

// Formats a ratio whose best value is 1: "1.0003", "2.462", "31.5".
std::string ratio_text(double ratio);

// 0.123 → "12.3 %".
std::string percent(double share);

// 1234567 → "1,234,567".
std::string grouped(int64_t number);

// "3 tensors", "1 tensor", "2 matrices".
std::string counted(int64_t number, std::string_view thing);

// "5120 × 25600", "5120", "scalar".
std::string dims_text(const std::vector<int64_t>& shape);

// 5.9e12 → "5.90 Tflop".
std::string flops_text(double flops);

// Formats a cost: the predicted time, and the flops where ticks are flops.
std::string cost_text(const CostBasis& basis, double ticks);

// Formats bytes that were averaged or are drawn: 1.5e9 → "1.40 GiB".
std::string bytes_text(double bytes);

// "400 GB/s".
std::string bandwidth_text(double bytes_per_second);

// The largest, smallest and mean value of a figure over all ranks.
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

// The kinds of memory in the order in which views list them; pools only where
// there are any.
struct MemoryKind {
  const char* name;
  Bytes RankMemory::*field;
};
std::vector<MemoryKind> memory_kinds(bool with_pools);
// True if any tensor is cut into slices, which are gathered into pools.
bool has_pools(const Plan& plan);
inline std::vector<MemoryKind> memory_kinds(const Plan& plan) {
  return memory_kinds(has_pools(plan));
}

// Shows what each rank moves in a step.
Document wire_view(const std::vector<RankCost>& ranks);

// Returns the ticks of one rank, or of one matrix, over a whole period.
double period_load(const SettledRequest& plan, const RankCost& rank);
double period_load(const SettledRequest& plan, const MatrixCost& cost);
std::vector<double> period_loads(const SettledRequest& plan,
                                 const std::vector<RankCost>& ranks);

// True if ticks are flops at a nominal rate.
bool is_nominal(const CostBasis& basis);

// Pieces that several views share.

// {"dp": 32, "cp": 1, "tp": 8, "pp": 1, "ep": 1}
Value mesh_value(const Mesh& mesh);

// The members `dp`, `tp`, `tp_worst` and `all_ranks`.
Document balance_members(const Balance& balance);

// {"parameters": …, …, "total": …}, bytes.
Value memory_value(const RankMemory& memory);

// What counts against the cap, for a plan that has terms:
// {"cap_bytes": …, "gradients": "fp32", "activations": {"bytes": …, …},
// "fullest_rank": {…, "total": …}}
Value activations_value(const MemoryTerms& terms);
Value counted_memory(const ReportPlan& shown);

// A rank's actions, in order, as a table: {"title": …, "rank": …,
// "columns": […], "rows": [[…], …], "left_out": 0}.
template <class Columns, class Order>
Value order_value(const char* title, int32_t rank, const Columns& columns,
                  const Order& order) {
  return {{"title", title},
          {"rank", rank},
          {"columns", columns},
          {"rows", order.rows},
          {"left_out", order.left_out}};
}
// The same for people.
template <class Columns, class Order>
void add_order_table(std::string_view alignments, const Columns& columns,
                     const Order& order, Document& out) {
  Listing table;
  for (const auto& cells : order.rows) {
    Row& row = table.add();
    for (size_t i = 0; i < cells.size(); ++i)
      row.add({"", cat(alignments[i], columns[i]), "", cells[i]});
  }
  out.table("", table, "nothing").left_out(order.left_out);
}

// Sent and received bytes by link class; those of every collective that moves
// anything.
void write_wire_members(JsonWriter& out, const WireBytes& wire);
Value wire_value(const WireBytes& wire);
Value wire_value(const RankCost& rank);

// Add a row for what a rank moves in a collective; returns false if that is
// nothing. The same for what each of all ranks sends.
bool add_rank_wire(std::string_view name, const WireBytes& wire, Listing& rows);
void add_rank_wire(const RankCost& rank, Listing& rows);
void add_wire_spread(std::string_view name, const std::vector<WireBytes>& ranks,
                     Listing& rows);

// Finds the parts, ranks, matrices and tensors of a plan, for the views.

// Finds in which part (plan/plan.h) a tensor, a bucket or a rank of a plan is
// planned, and under which number there.
//
//   const PlannedTensor at = planned_tensor(plan, t);
//   region_of(*at.part, at.tensor);
//
// Buckets are counted over all parts: those of dense tensors first, then those
// of the experts of ep coordinate 0, 1, … Nothing is copied: the plan must
// outlive the results. Any thread may call.
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
// Returns the number of a tensor's bucket, counted over all parts.
inline int32_t bucket_number(const PlanPart& part, int32_t tensor) {
  return part.first_bucket + part.bucket_of[static_cast<size_t>(tensor)];
}

// The parts in which a rank works, with its number there.
struct PlannedRank {
  const PlanPart* part = nullptr;
  int32_t rank = 0;
};
std::vector<PlannedRank> planned_ranks(const Plan& plan, int32_t rank);

// Finds ranks by coordinates, matrices by name, and tensors in their buckets.
//
// Functions about homes, owners and buckets take a part of the plan (above);
// the ranks they return are world ranks.

// "dp 17, tp 3": axes of size 1 are left out; "the only rank" if all are 1.
std::string coordinates_text(const Mesh& mesh, int32_t rank);

// "rank 3", "ranks 0 to 3", "ranks 0 to 1, 4 to 5". `ranks` is sorted.
std::string ranks_text(const std::vector<int32_t>& ranks);

// Returns all ranks that compute the update of a matrix, in order: the owner, a
// team, or all ranks that repeat the update; over all replicas.
std::vector<int32_t> owner_ranks(const PlanPart& plan, int32_t matrix);

// Returns the ranks at tp coordinate `t` of a matrix's home, in order: one per
// replica. The matrix must have a home.
std::vector<int32_t> ranks_at(const PlanPart& plan, int32_t matrix, int32_t t);

// True if `rank`, as this part numbers it, is one of owner_ranks().
bool computes(const PlanPart& plan, int32_t rank, int32_t matrix);

// Where the elements of a tensor start in their region of the bucket, in one
// plane, and how many elements the region has.
struct BucketRegion {
  int64_t offset = 0;
  int64_t elements = 0;  // of the tensor's shard
  int64_t total = 0;     // of the region
};
BucketRegion region_of(const PlanPart& plan, int32_t tensor);

// Finds the matrices called `name`, or those of the tensor called `name`. A
// tensor that AdamW updates has none: only `tensor` is set. If the name is
// unknown, UsageError names the nearest one.
struct Found {
  int32_t tensor = -1;
  std::vector<int32_t> matrices;
};
Found find_by_name(const Plan& plan, std::string_view name);

std::string name_of(const SettledRequest& plan, int32_t matrix);

// Throws UsageError unless 0 ≤ number < count; `option` and `what` are for the
// message.
void check_number(int64_t number, int64_t count, const char* option,
                  const char* thing);

}  // namespace canzona::report
