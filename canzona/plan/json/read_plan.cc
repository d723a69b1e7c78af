#include <map>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/canonical.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/json/plan_schema.h"
#include "canzona/plan/json/read_plan_parts.h"
#include "canzona/plan/parts.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona {
namespace {

constexpr int64_t kMaxPlanBytes = int64_t{1} << 30;
constexpr int64_t kMaxPlanValues = 50'000'000;
constexpr int64_t kMaxTicks = int64_t{1} << 61;

class PlanReader {
 public:
  PlanReader(const Json& root, const std::string& where)
      : root_(root), in_(where), where_(where) {}

  Plan run() {
    plan_.digest = get_string(root_, "digest", where_);
    read_plan_request(root_, in_, plan_);
    plan_.model = read_plan_model(member("model"), plan_.mesh, in_);
    check_zero_sizes();
    const std::vector<const Json*> parts = json_of_parts();
    read_matrices(parts);
    read_cost(member("cost"));
    read_plan_summary(member("predicted"), in_, plan_.options, plan_.summary);
    derive_request(plan_);
    make_parts(plan_);
    for (size_t i = 0; i < parts.size(); ++i)
      read_plan_decisions(*parts[i], in_, plan_.parts[i]);
    derive_parts(plan_);
    for (const PlanPart& part : plan_.parts) check_levels(part);
    check_plan_size(plan_, in_);
    return std::move(plan_);
  }

 private:
  const Json& member(const char* key) const {
    return get_member(root_, key, where_);
  }

  // The list of owners bounds what splits may make of a few numbers.
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

  void read_cost(const Json& c) {
    constexpr const char* kRate = "element_wise_bytes_per_second";
    require_known_keys(c, {"source", "seconds_per_tick", kRate, "ticks"},
                       where_);
    plan_.cost_basis.source = get_string(c, "source", where_);
    plan_.cost_basis.seconds_per_tick = in_.positive(c, "seconds_per_tick");
    if (c.contains(kRate))
      plan_.cost_basis.element_wise_bytes_per_second = in_.positive(c, kRate);
    std::map<MatrixShape, MatrixCost> by_shape;
    for (const Json& e : in_.array(get_member(c, "ticks", where_), "ticks")) {
      in_.row(e, 4, "ticks");
      by_shape[{in_.integer(e[0], 0, kMaxDim, "rows"),
                in_.integer(e[1], 0, kMaxDim, "columns")}] = {
          Ticks(in_.integer(e[2], 0, kMaxTicks, "ticks")),
          Ticks(in_.integer(e[3], 0, kMaxTicks, "ticks"))};
    }
    for (const Matrix& m : plan_.matrices) {
      const auto it = by_shape.find({m.rows, m.cols});
      if (it == by_shape.end()) {
        in_.fail(cat("cost: no ticks for a ", m.rows, "×", m.cols, " matrix"));
      }
      plan_.costs.push_back(it->second);
    }
  }

  // The objects that hold the decisions of each part. Those of the only part
  // stand beside the rest.
  std::vector<const Json*> json_of_parts() const {
    const int32_t count = num_parts(plan_);
    if (count == 1) {
      require_known_keys(
          root_,
          {"format", "version", "digest", "mesh", "rule", "options", "cost",
           "predicted", "traffic", "model", "buffers", "buckets", "home",
           "owners", "micro_group"},
          where_);
      return {&root_};
    }
    require_known_keys(
        root_,
        {"format", "version", "digest", "mesh", "rule", "options", "cost",
         "predicted", "traffic", "model", "parts"},
        where_);
    std::vector<const Json*> out;
    for (const Json& part : in_.array(member("parts"), "parts")) {
      require_known_keys(
          part,
          {"predicted", "buffers", "buckets", "home", "owners", "micro_group"},
          where_);
      out.push_back(&part);
    }
    if (std::ssize(out) != count)
      in_.fail(cat("expected ", count, " parts, got ", out.size()));
    return out;
  }

  // The sizes can be checked once the model is known.
  void check_zero_sizes() const {
    if (resolve_zero(plan_.options.zero, plan_.mesh, plan_.model) !=
        plan_.options.zero)
      in_.fail(cat("options: zero ", to_string(plan_.options.zero.sizes),
                   " is not what a plan on ", to_string(plan_.mesh), " has"));
    const ZeroOptions& zero = plan_.options.zero;
    const bool has_own_sums = !is_scattered(plan_.traffic);
    if (has_own_sums &&
        (zero.sizes.z2 != zero.sizes.z3 || zero.experts.z2 != zero.experts.z3 ||
         zero.replica_sum == ReplicaSum::kAllReduce))
      in_.fail(cat(
          "options: strategy ", quoted(plan_.options.strategy),
          " requires z2 = z3 and does not support another sum over replicas"));
  }

  const Json& root_;
  PlanValues in_;
  std::string where_;
  Plan plan_;
};

JsonLimits plan_limits(std::string where) {
  return {.what = std::move(where),
          .max_bytes = kMaxPlanBytes,
          .max_values = kMaxPlanValues};
}

Plan read(const Json& root, const std::string& where) {
  if (!root.is_object() || !root.contains("format") ||
      root["format"] != kPlanFormat) {
    throw UsageError(cat(where, ": not a plan (expected \"format\": \"",
                         kPlanFormat, "\")"));
  }
  const int64_t version = get_integer(root, "version", 0, INT32_MAX, where);
  if (version != kPlanVersion && version != kTeamPlanVersion) {
    throw UsageError(cat(where, ": plan version ", version, ", expected ",
                         kPlanVersion, " or ", kTeamPlanVersion));
  }
  return PlanReader(root, where).run();
}

ReadPlan read_with_digest(std::string_view text, const std::string& where) {
  const Json root = parse_json(text, plan_limits(where));
  ReadPlan out;
  out.plan = read(root, where);
  out.digest_matches = digest_of(out.plan) == out.plan.digest;
  if (out.digest_matches)
    require_canonical(root, text, plan_to_json(out.plan), plan_limits(where));
  return out;
}

}  // namespace

ReadPlan plan_from_json(std::string_view text, const std::string& where) {
  try {
    return read_with_digest(text, where);
  } catch (const UsageError& error) {
    // Errors of the mesh, a rule or a tensor do not name the file.
    if (std::string_view(error.what()).starts_with(where)) throw;
    throw UsageError(cat(where, ": ", error.what()));
  }
}

}  // namespace canzona
