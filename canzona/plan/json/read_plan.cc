#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/json/plan_reader.h"
#include "canzona/plan/layout/problem.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona::plan {

void PlanValues::fail(const std::string& what) const {
  throw UsageError(cat(where_, ": ", what));
}

int64_t PlanValues::integer(const Json& value, int64_t low, int64_t high,
                            const char* what) const {
  if (!value.is_number_integer()) fail(cat(what, ": expected an integer"));
  // Numbers above 2^63 are unsigned and would wrap around.
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  const bool huge =
      value.is_number_unsigned() && value.get<uint64_t>() > kLargest;
  const int64_t v = huge ? INT64_MAX : value.get<int64_t>();
  if (huge || v < low || v > high) {
    fail(cat(what, ": ", value.dump(), " is not in ", low, "..", high));
  }
  return v;
}

int32_t PlanValues::index(const Json& value, int64_t low, int64_t high,
                          const char* what) const {
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(
      integer(value, low, std::min(high, kLargest), what));
}

double PlanValues::positive(const Json& object, const char* key,
                            double most) const {
  const double number = get_number(object, key, where_);
  if (!(number > 0 && number <= most))
    fail(cat(key, ": ", number, ", expected more than 0 and at most ", most));
  return number;
}

double PlanValues::number(const Json& object, const char* key, double least,
                          double most) const {
  const double number = get_number(object, key, where_);
  if (!(number >= least && number <= most))
    fail(cat(key, ": ", number, ", expected ", least, " to ", most));
  return number;
}

std::string PlanValues::text(const Json& value, const char* what) const {
  if (!value.is_string()) fail(cat(what, ": expected a string"));
  return value.get<std::string>();
}

bool PlanValues::truth(const Json& value, const char* what) const {
  if (!value.is_boolean()) fail(cat(what, ": expected true or false"));
  return value.get<bool>();
}

const Json& PlanValues::array(const Json& value, const char* what) const {
  if (!value.is_array()) fail(cat(what, ": expected an array"));
  return value;
}

const Json& PlanValues::row(const Json& value, size_t size,
                            const char* what) const {
  if (!value.is_array() || value.size() != size) {
    fail(cat(what, ": expected an array of ", size, " values"));
  }
  return value;
}

std::vector<int64_t> PlanValues::integers(const Json& value, int64_t low,
                                          int64_t high,
                                          const char* what) const {
  std::vector<int64_t> out;
  out.reserve(array(value, what).size());
  for (const Json& v : value) out.push_back(integer(v, low, high, what));
  return out;
}

Links PlanValues::links(const Json& value) const {
  require_known_keys(value,
                     {"intra_bytes_per_second", "inter_bytes_per_second",
                      "latency_seconds", "intra_latency_seconds", "nominal"},
                     where_);
  Links links;
  const auto rate = [&](const char* key) {
    return number(value, key, kLeastRate, kMostRate);
  };
  const auto latency = [&](const char* key) {
    return number(value, key, 0, kMostLatency);
  };
  links.intra_bytes_per_second = rate("intra_bytes_per_second");
  links.inter_bytes_per_second = rate("inter_bytes_per_second");
  links.latency_seconds = latency("latency_seconds");
  links.nominal = get_bool(value, "nominal", where_);
  if (value.contains("intra_latency_seconds"))
    links.intra_latency_seconds = latency("intra_latency_seconds");
  return links;
}

std::vector<int32_t> PlanValues::indices(const Json& value, int64_t low,
                                         int64_t high, const char* what) const {
  std::vector<int32_t> out;
  out.reserve(array(value, what).size());
  for (const Json& v : value) out.push_back(index(v, low, high, what));
  return out;
}

// Bounds the work of validate() and predict() in advance. The formulas are
// upper bounds on their loops; a file of a few hundred bytes may ask for a
// million ranks, ten thousand phases and updates that all tp ranks repeat.

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

// Returns the number of pairs of tp ranks that exchange a piece of matrix m.
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

// Returns the number of rectangles in the routes of a tensor's matrices.
double pieces_of(const PlanPart& plan, size_t t) {
  double pieces = plan.grid.tp;
  for (const Section& section : plan.model.tensors[t].sections) {
    pieces += static_cast<double>(section.rows.count) + plan.grid.tp;
  }
  return pieces * (plan.first_matrix[t + 1] - plan.first_matrix[t]);
}

// Replicas whose ranks are distributed differently over nodes are predicted one
// by one. There are at most as many kinds as a replica has possible positions
// in a node.
double kinds_of_replicas(const PlanPart& plan) {
  const int64_t node = plan.options.ranks_per_node;
  const int64_t ranks = int64_t{plan.grid.ranks_per_stage()} * plan.ep;
  const int64_t beginnings = node / std::gcd(node, ranks) * plan.mesh.cp;
  return static_cast<double>(
      std::min<int64_t>(plan.num_replicas(), beginnings));
}

// Counts homes and tensors of each bucket, and the slices of them that a rank
// keeps.
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
  // Every kind of step has a lower bound, whose computation visits the ranks of
  // each ep coordinate.
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
  // Every stage visits all matrices and tensors.
  steps +=
      static_cast<double>(plan.matrices.size() + plan.model.tensors.size()) *
      plan.grid.pp;
  steps += plan.grid.places * steps_of_slices(plan);
  return steps * kinds_of_replicas(plan) + steps_of_replica_sums(plan) +
         plan.mesh.world();
}

// Counts work per rank and phase, per round and phase, per matrix and phase.
double stored_numbers(const PlanPart& plan) {
  std::vector<int32_t> rounds(static_cast<size_t>(plan.grid.world()), 0);
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    each_computing_rank(plan, m, [&](int32_t r) {
      // A team may name ranks beyond its home; validate() reports that.
      if (r >= plan.grid.world()) return;
      int32_t& most = rounds[static_cast<size_t>(r)];
      most = std::max(most, plan.micro_group[m] + 1);
    });
  }
  double numbers = plan.grid.world() + static_cast<double>(plan.costs.size());
  for (int32_t most : rounds) numbers += most;
  return (numbers * kinds_of_replicas(plan) + plan.mesh.world()) * plan.phases;
}

// Counts the ticks that the bound over all parts adds up (predict.h): one step
// of every replica.
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
    // Skipped if the loops are already too long.
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

namespace {

constexpr int64_t kMaxPlanBytes = int64_t{1} << 30;
constexpr int64_t kMaxPlanValues = 50'000'000;

class PlanReader {
 public:
  PlanReader(const Json& root, const std::string& where)
      : root_(root),
        of_(plan_sections(root, kMadeByPlanner, kPlanFormat, "a plan", where)),
        in_(where),
        where_(where) {}

  Plan run() {
    plan_.digest = get_string(root_, "digest", where_);
    read_plan_request(of_, in_, plan_);
    plan_.model = read_plan_model(get_member(*of_.storage, "model", where_),
                                  plan_.mesh, in_);
    check_zero_sizes();
    const std::vector<const Json*> parts = json_of_parts();
    read_matrices(parts);
    read_cost(get_member(*of_.request, "cost", where_));
    read_plan_summary(member("predicted"), in_, plan_.options, plan_.summary);
    derive_request(plan_);
    make_parts(plan_);
    for (size_t i = 0; i < parts.size(); ++i) {
      PlanPart& part = plan_.parts[i];
      if (parts.size() == 1)
        part.summary = plan_.summary;
      else
        read_plan_summary(get_member(*parts[i], "predicted", where_), in_,
                          plan_.options, part.summary);
      read_plan_decisions(*parts[i], of_.are_former, in_, part);
    }
    derive_parts(plan_);
    for (const PlanPart& part : plan_.parts) check_levels(part);
    check_plan_size(plan_, in_);
    return std::move(plan_);
  }

 private:
  const Json& member(const char* key) const {
    return get_member(root_, key, where_);
  }

  // The length of the list of owners bounds the number of matrices that splits
  // may produce.
  void read_matrices(const std::vector<const Json*>& parts) {
    int64_t owners = 0;
    for (const Json* part : parts)
      owners +=
          std::ssize(in_.array(get_member(*part, "owners", where_), "owners"));
    const int64_t count = count_matrices(plan_.model, plan_.options.splits);
    if (count != owners) {
      in_.fail(cat(owners, " owners of ", count, " matrices"));
    }
    plan_.matrices = split_into_matrices(plan_.model, plan_.options.splits);
  }

  void read_cost(const Json& cost) {
    const CostsByShape costs =
        read_costs(cost, in_, std::nullopt, plan_.cost_basis);
    for (const Matrix& m : plan_.matrices)
      plan_.costs.push_back(cost_of(costs, 0, shape_of(m), in_));
  }

  // Returns the objects that hold the decisions of each part. In former
  // versions those of the only part are in the root object.
  std::vector<const Json*> json_of_parts() const {
    const int32_t count = num_parts(plan_);
    if (of_.are_former && count == 1) {
      require_known_keys(
          root_,
          {"format", "version", "digest", "mesh", "rule", "options", "cost",
           "predicted", "traffic", "model", "buffers", "buckets", "home",
           "owners", "micro_group"},
          where_);
      return {&root_};
    }
    if (of_.are_former)
      require_known_keys(
          root_,
          {"format", "version", "digest", "mesh", "rule", "options", "cost",
           "predicted", "traffic", "model", "parts"},
          where_);
    else
      require_known_sections();
    std::vector<const Json*> out;
    for (const Json& part :
         in_.array(get_member(*of_.decisions, "parts", where_), "parts")) {
      require_known_keys(
          part,
          {count > 1 ? "predicted" : "home", "buffers", "buckets", "home",
           "owners", of_.are_former ? "micro_group" : "rounds"},
          where_);
      out.push_back(&part);
    }
    if (std::ssize(out) != count)
      in_.fail(cat("expected ", count, " parts, got ", out.size()));
    return out;
  }

  void require_known_sections() const {
    require_known_keys(*of_.request, {"options", "groups", "cost"}, where_);
    require_known_keys(*of_.storage, {"maker", "mesh", "traffic", "model"},
                       where_);
    require_known_keys(*of_.decisions, {"parts"}, where_);
  }

  // The sizes can be checked only once the model is known.
  void check_zero_sizes() const {
    if (resolve_zero(plan_.options.zero, plan_.mesh, plan_.model) !=
        plan_.options.zero)
      in_.fail(cat("options: zero ", to_string(plan_.options.zero.sizes),
                   " does not apply to a plan on ", to_string(plan_.mesh)));
    const ZeroOptions& zero = plan_.options.zero;
    const bool has_own_sums = !is_scattered(plan_.traffic);
    if (has_own_sums &&
        (zero.sizes.z2 != zero.sizes.z3 || zero.experts.z2 != zero.experts.z3 ||
         zero.replica_sum == ReplicaSum::kAllReduce))
      in_.fail(cat("options: strategy ", quoted(plan_.options.strategy),
                   " requires z2 = z3 and replica-sum=scatter"));
  }

  const Json& root_;
  const PlanSections of_;
  PlanValues in_;
  std::string where_;
  Plan plan_;
};

JsonLimits plan_limits(std::string where) {
  return {.what = std::move(where),
          .max_bytes = kMaxPlanBytes,
          .max_values = kMaxPlanValues};
}

}  // namespace

}  // namespace canzona::plan

namespace canzona {
using namespace plan;

ReadPlan plan_from_json(std::string_view text, const std::string& where) {
  return read_checked<Plan>(
      text, plan_limits(where),
      [&](const Json& root) { return PlanReader(root, where).run(); },
      plan_to_json);
}

}  // namespace canzona

namespace canzona::plan {

CostsByShape read_costs(const Json& c, const PlanValues& in,
                        std::optional<int64_t> groups, CostBasis& basis) {
  constexpr const char* kRate = "element_wise_bytes_per_second";
  const std::string& where = in.where();
  require_known_keys(c, {"source", "seconds_per_tick", kRate, "ticks"}, where);
  basis.source = get_string(c, "source", where);
  basis.seconds_per_tick =
      in.positive(c, "seconds_per_tick", kMostSecondsPerTick);
  basis.element_wise_bytes_per_second =
      c.contains(kRate) ? in.number(c, kRate, kLeastRate, kMostRate) : 0;
  CostsByShape costs;
  const size_t at = groups ? 1 : 0;  // where the shape begins in a row
  for (const Json& row : in.array(get_member(c, "ticks", where), "ticks")) {
    const bool has_heads = row.is_array() && row.size() == at + 5;
    in.row(row, at + (has_heads ? 5 : 4), "ticks");
    const int32_t group =
        groups ? in.index(row[0], 0, *groups - 1, "group") : 0;
    const MatrixShape shape{
        in.integer(row[at], 0, kMaxDim, "rows"),
        in.integer(row[at + 1], 0, kMaxDim, "columns"),
        has_heads ? in.integer(row[at + 4], 2, kMaxDim, "heads") : 1};
    costs[{group, shape}] = {
        Ticks(in.integer(row[at + 2], 0, kMaxTicks, "ticks")),
        Ticks(in.integer(row[at + 3], 0, kMaxTicks, "ticks"))};
  }
  return costs;
}

const MatrixCost& cost_of(const CostsByShape& costs, int32_t group,
                          MatrixShape shape, const PlanValues& in) {
  const auto found = costs.find({group, shape});
  if (found == costs.end())
    in.fail(
        cat("cost: no ticks for a ", shape.rows, "×", shape.cols, " matrix"));
  return found->second;
}

PlanSections plan_sections(const Json& root, const char* maker,
                           const char* former, const char* what,
                           const std::string& where) {
  const auto refuse = [&](const auto&... why) {
    throw UsageError(cat(where, ": not ", what, why...));
  };
  const Json format = root.is_object() ? root.value("format", Json()) : Json();
  if (format != kPlanFormat && format != former)
    refuse(" (expected \"format\": \"", kPlanFormat, "\")");
  const int64_t version = get_integer(root, "version", 0, INT32_MAX, where);
  if (version >= 1 && version < kPlanVersion && format == former)
    return {&root, &root, &root, true};
  if (version != kPlanVersion || format != kPlanFormat)
    throw UsageError(cat(where, ": plan version ", version, ", expected ",
                         kPlanVersion, ", or the former 1 and 2"));
  require_known_keys(root,
                     {"format", "version", "digest", "request", "predicted",
                      "storage", "decisions"},
                     where);
  const PlanSections out{&get_member(root, "request", where),
                         &get_member(root, "storage", where),
                         &get_member(root, "decisions", where)};
  const std::string made_by = get_string(*out.storage, "maker", where);
  if (made_by != maker)
    refuse(": the maker of its storage is ", quoted(made_by), ", expected ",
           maker);
  return out;
}

}  // namespace canzona::plan
