// Bounds what validate() and predict() will count, before they do. The formulas
// are upper bounds on their loops; a file of a few hundred bytes may ask for a
// million ranks, ten thousand phases and updates that all tp ranks repeat.
#include <algorithm>
#include <numeric>

#include "canzona/base/text.h"
#include "canzona/plan/json/read_plan_parts.h"
#include "canzona/plan/parts.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/problem.h"

namespace canzona {
namespace {

constexpr double kMaxCount = 4e18;            // ticks of one period, bytes
constexpr double kMaxSteps = 0x1p28;          // of the loops
constexpr double kMaxStoredNumbers = 0x1p26;  // of 8 bytes

double ticks_of(const PlanPart& plan) {
  double sum = 0;
  for (const MatrixCost& cost : plan.costs) {
    sum += static_cast<double>(cost.every_step.value()) * plan.period +
           static_cast<double>(cost.refresh.value());
  }
  return sum;
}

// Pairs of tp ranks that exchange a piece of matrix m.
double messages_of(const PlanPart& plan, size_t m) {
  const int32_t tensor = plan.matrices[m].tensor;
  const bool everywhere =
      plan.home[static_cast<size_t>(tensor)] == kEveryHome &&
      plan.buffer_of(tensor).ep < 0;
  const double homes = everywhere ? plan.grid.ep : 1;
  const double computing = plan.owners[m].empty()
                               ? plan.grid.tp
                               : static_cast<double>(plan.owners[m].size());
  return homes * std::max(computing, 1.0) * plan.grid.tp;
}

// Rectangles that the routes of a tensor's matrices are made of.
double pieces_of(const PlanPart& plan, size_t t) {
  double pieces = plan.grid.tp;
  for (const Section& section : plan.model.tensors[t].sections) {
    pieces += static_cast<double>(section.rows.count) + plan.grid.tp;
  }
  return pieces * (plan.first_matrix[t + 1] - plan.first_matrix[t]);
}

// Replicas whose ranks lie differently on nodes are predicted one by one: no
// more than there are places in a node at which a replica can begin.
double kinds_of_replicas(const PlanPart& plan) {
  const int64_t node = plan.options.ranks_per_node;
  const int64_t ranks = int64_t{plan.grid.ranks_per_stage()} * plan.ep;
  const int64_t beginnings = node / std::gcd(node, ranks) * plan.mesh.cp;
  return static_cast<double>(
      std::min<int64_t>(plan.num_replicas(), beginnings));
}

// Homes and tensors of each bucket, and the slices that a rank keeps of them.
double steps_of_slices(const PlanPart& plan) {
  const ZeroSizes& zero = plan.options.zero.sizes;
  const double kept = static_cast<double>(plan.grid.places) / zero.z2 +
                      static_cast<double>(plan.grid.places) / zero.z3;
  double runs = 0;
  for (const Bucket& bucket : plan.buckets)
    runs += plan.buffers[static_cast<size_t>(bucket.buffer)].num_homes +
            static_cast<double>(bucket.tensors.size());
  return kept * runs;
}

double steps_of_replica_sums(const PlanPart& plan) {
  const bool scatters = plan.options.zero.replica_sum == ReplicaSum::kScatter;
  if (plan.num_replicas() == 1 && scatters) return 0;
  return plan.options.zero.sizes.z1 * steps_of_slices(plan) +
         static_cast<double>(plan.mesh.ranks_per_stage()) *
             static_cast<double>(plan.buckets.size());
}

double steps_of_loops(const PlanPart& plan) {
  // Every kind of step has a lower bound, which looks at the ranks of each ep
  // coordinate.
  double steps =
      static_cast<double>(plan.grid.world()) * plan.grid.ep * (plan.phases + 1);
  for (const Bucket& bucket : plan.buckets) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(bucket.buffer)];
    steps += static_cast<double>(plan.grid.tp) *
             (buffer.num_homes + static_cast<double>(bucket.tensors.size()));
  }
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    steps += messages_of(plan, m);
  }
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    steps += pieces_of(plan, t);
  }
  // Every stage looks through all matrices and tensors.
  steps +=
      static_cast<double>(plan.matrices.size() + plan.model.tensors.size()) *
      plan.grid.pp;
  steps += plan.grid.places * steps_of_slices(plan);
  return steps * kinds_of_replicas(plan) + steps_of_replica_sums(plan) +
         plan.mesh.world();
}

// Work per rank and phase, per round and phase, per matrix and phase.
double stored_numbers(const PlanPart& plan) {
  std::vector<int32_t> rounds(static_cast<size_t>(plan.grid.world()), 0);
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    each_computing_rank(plan, m, [&](int32_t r) {
      // A team may name ranks beyond its home; validate() says so.
      if (r >= plan.grid.world()) return;
      int32_t& most = rounds[static_cast<size_t>(r)];
      most = std::max(most, plan.micro_group[m] + 1);
    });
  }
  double numbers = plan.grid.world() + static_cast<double>(plan.costs.size());
  for (int32_t most : rounds) numbers += most;
  return (numbers * kinds_of_replicas(plan) + plan.mesh.world()) * plan.phases;
}

// Counts what the bound over all parts adds up (loads.h): one step of every
// replica.
double ticks_of_parts(const Plan& plan) {
  double sum = 0;
  for (const PlanPart& part : plan.parts)
    for (const MatrixCost& cost : part.costs)
      sum += (static_cast<double>(cost.every_step.value()) +
              static_cast<double>(cost.refresh.value())) *
             part.num_replicas();
  return sum;
}

}  // namespace

void check_plan_size(const Plan& plan, const PlanValues& values) {
  double steps = 0, numbers = 0;
  size_t num_buckets = 0;
  for (const PlanPart& part : plan.parts) {
    if (ticks_of(part) > kMaxCount)
      values.fail("the ticks of one period exceed 64-bit counts");
    if (most_bytes(part) > kMaxCount)
      values.fail(cat("the bytes that ", part.mesh.world(),
                      " ranks exchange exceed 64-bit counts"));
    num_buckets += part.buckets.size();
    steps += steps_of_loops(part);
    // Not looked at where the loops are too long already.
    if (steps <= kMaxSteps) numbers += stored_numbers(part);
  }
  if (cuts_experts_apart(plan)) {
    if (ticks_of_parts(plan) > kMaxCount)
      values.fail("the ticks of one step exceed 64-bit counts");
    steps += static_cast<double>(plan.mesh.ep) * (plan.phases + 1) *
             (plan.mesh.world() + static_cast<double>(plan.matrices.size()));
  }
  if (steps > kMaxSteps || numbers > kMaxStoredNumbers) {
    values.fail(cat("too large to predict: ", plan.matrices.size(),
                    " matrices in ", num_buckets, " buckets and ", plan.phases,
                    " phases on ", plan.mesh.world(), " ranks"));
  }
}

}  // namespace canzona
