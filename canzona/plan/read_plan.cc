#include <map>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan_json.h"
#include "canzona/plan/plan_schema.h"
#include "canzona/plan/read_plan_parts.h"

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
    require_known_keys(root_,
                       {"format", "version", "digest", "mesh", "rule",
                        "options", "cost", "predicted", "traffic", "model",
                        "buffers", "buckets", "home", "owners", "micro_group"},
                       where_);
    plan_.digest = get_string(root_, "digest", where_);
    read_plan_request(root_, in_, plan_);
    plan_.model = read_plan_model(member("model"), plan_.mesh, in_);
    read_matrices();
    read_cost(member("cost"));
    read_summary(member("predicted"));
    read_buffers();
    read_buckets();
    read_owners();
    derive(plan_);
    check_homes();
    check_plan_size(plan_, in_);
    return std::move(plan_);
  }

 private:
  const Json& member(const char* key) const {
    return get_member(root_, key, where_);
  }
  int64_t count(const Json& object, const char* key) const {
    return get_integer(object, key, 0, INT64_MAX, where_);
  }

  // The list of owners bounds what splits may make of a few numbers.
  void read_matrices() {
    const auto owners =
        static_cast<int64_t>(in_.array(member("owners"), "owners").size());
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

  void read_summary(const Json& s) {
    require_known_keys(
        s,
        {"makespan_ticks", "bound_ticks", "mean_ticks", "idle_ranks",
         "bytes_per_rank_max", "memory_per_rank_max", "memory_per_rank_mean",
         "step_seconds_mean", "step_seconds_worst"},
        where_);
    PlanSummary& out = plan_.summary;
    out.makespan = Ticks(count(s, "makespan_ticks"));
    out.bound = Ticks(count(s, "bound_ticks"));
    out.mean = get_number(s, "mean_ticks", where_);
    out.idle_ranks = static_cast<int32_t>(
        get_integer(s, "idle_ranks", 0, INT32_MAX, where_));
    out.bytes_per_rank_max = Bytes(count(s, "bytes_per_rank_max"));
    out.memory_per_rank_max = Bytes(count(s, "memory_per_rank_max"));
    out.memory_per_rank_mean = get_number(s, "memory_per_rank_mean", where_);
    out.step_seconds_mean = get_number(s, "step_seconds_mean", where_);
    out.step_seconds_worst = get_number(s, "step_seconds_worst", where_);
  }

  void read_buffers() {
    const Mesh& mesh = plan_.grid;
    for (const Json& b : in_.array(member("buffers"), "buffers")) {
      in_.row(b, 3, "buffer");
      Buffer buffer;
      buffer.stage = in_.index(b[0], 0, mesh.pp - 1, "buffer stage");
      buffer.ep = in_.index(b[1], -1, mesh.ep - 1, "buffer ep");
      const int32_t homes = buffer.ep < 0 ? mesh.homes() : mesh.expert_homes();
      buffer.num_homes = in_.index(b[2], 1, homes, "buffer homes");
      plan_.buffers.push_back(buffer);
    }
  }

  void read_buckets() {
    std::vector<int> places(plan_.model.tensors.size(), 0);
    for (const Json& b : in_.array(member("buckets"), "buckets")) {
      plan_.buckets.push_back(bucket(b));
      for (int32_t t : plan_.buckets.back().tensors) {
        ++places[static_cast<size_t>(t)];
      }
    }
    for (size_t t = 0; t < places.size(); ++t) {
      if (places[t] == 1) continue;
      in_.fail(cat("tensor ", quoted(plan_.model.tensors[t].name), " lies in ",
                   places[t] == 0 ? "no bucket" : "more than one place"));
    }
  }

  Bucket bucket(const Json& b) const {
    require_known_keys(
        b, {"buffer", "matrix_tensors", "tensors", "cuts", "adamw_cuts"},
        where_);
    Bucket out;
    out.buffer = static_cast<int32_t>(
        get_integer(b, "buffer", 0, std::ssize(plan_.buffers) - 1, where_));
    out.tensors =
        in_.indices(get_member(b, "tensors", where_), 0,
                    std::ssize(plan_.model.tensors) - 1, "bucket tensors");
    out.num_matrix_tensors = static_cast<int32_t>(
        get_integer(b, "matrix_tensors", 0, std::ssize(out.tensors), where_));
    check_regions(out);
    out.cuts = cuts(b, "cuts", out);
    out.adamw_cuts = cuts(b, "adamw_cuts", out);
    return out;
  }

  void check_regions(const Bucket& bucket) const {
    for (size_t i = 0; i < bucket.tensors.size(); ++i) {
      const auto t = static_cast<size_t>(bucket.tensors[i]);
      const Tensor& tensor = plan_.model.tensors[t];
      if (tensor.matrix_rule ==
          (i < static_cast<size_t>(bucket.num_matrix_tensors))) {
        continue;
      }
      in_.fail(cat("tensor ", quoted(tensor.name),
                   " lies in the wrong region of its bucket"));
    }
  }

  // Whether they cut well is for validate() to say; that they lie in the bucket
  // keeps what is counted from them within 64 bits.
  std::vector<int64_t> cuts(const Json& b, const char* key,
                            const Bucket& bucket) const {
    int64_t elements = 0;
    for (int32_t t : bucket.tensors) {
      elements = checked_add(
          elements, plan_.model.tensors[static_cast<size_t>(t)].elements(),
          "elements of a bucket");
    }
    std::vector<int64_t> out =
        in_.integers(get_member(b, key, where_), 0, elements, key);
    const int32_t homes =
        plan_.buffers[static_cast<size_t>(bucket.buffer)].num_homes;
    if (!out.empty() && std::ssize(out) != homes + 1) {
      in_.fail(cat(key, ": expected ", homes + 1, " cuts, got ", out.size()));
    }
    return out;
  }

  void read_owners() {
    const int64_t matrices = std::ssize(plan_.matrices);
    plan_.home =
        in_.indices(member("home"), kEveryHome, plan_.grid.homes() - 1, "home");
    plan_.micro_group =
        in_.indices(member("micro_group"), 0, matrices - 1, "micro_group");
    if (plan_.home.size() != plan_.model.tensors.size() ||
        std::ssize(plan_.micro_group) != matrices) {
      in_.fail(cat("expected ", plan_.model.tensors.size(), " homes and ",
                   matrices, " micro-groups"));
    }
    for (const Json& o : member("owners")) {
      if (o.is_array()) {
        plan_.owners.push_back(in_.indices(o, 0, plan_.grid.tp - 1, "owner"));
      } else {
        plan_.owners.push_back(in_.index(o, 0, plan_.grid.tp - 1, "owner"));
      }
    }
  }

  // What predict() takes for granted.
  void check_homes() const {
    const bool repeats = plan_.traffic == Traffic::kAllReduce;
    for (size_t t = 0; t < plan_.home.size(); ++t) {
      const Tensor& tensor = plan_.model.tensors[t];
      const int32_t home = plan_.home[t];
      const int32_t homes = plan_.buffer_of(static_cast<int32_t>(t)).num_homes;
      const bool owned = tensor.matrix_rule && !repeats;
      if (owned ? home < 0 || home >= homes : home != kEveryHome) {
        in_.fail(cat("home ", home, " of tensor ", quoted(tensor.name),
                     ": expected ",
                     owned ? cat("0..", homes - 1) : cat(kEveryHome)));
      }
    }
  }

  const Json& root_;
  PlanValues in_;
  std::string where_;
  Plan plan_;
};

Plan read(std::string_view text, const std::string& where) {
  const Json root = parse_json(text, {.what = where,
                                      .max_bytes = kMaxPlanBytes,
                                      .max_values = kMaxPlanValues});
  if (!root.is_object() || !root.contains("format") ||
      root["format"] != kPlanFormat) {
    throw UsageError(cat(where, ": not a plan (expected \"format\": \"",
                         kPlanFormat, "\")"));
  }
  const int64_t version = get_integer(root, "version", 0, INT32_MAX, where);
  if (version != kPlanVersion) {
    throw UsageError(
        cat(where, ": plan version ", version, ", expected ", kPlanVersion));
  }
  return PlanReader(root, where).run();
}

// Whether `text` is `canonical` up to white space outside strings. Two texts of
// a number may mean the same double: a digest of values would not notice.
bool same_text(std::string_view text, std::string_view canonical) {
  bool in_string = false, escaped = false;
  size_t at = 0;
  for (char c : text) {
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (space && !in_string) continue;
    if (at == canonical.size() || canonical[at++] != c) return false;
    if (c == '"' && !escaped) in_string = !in_string;
    escaped = in_string && c == '\\' && !escaped;
  }
  return at == canonical.size();
}

}  // namespace

ReadPlan plan_from_json(std::string_view text, const std::string& where) {
  ReadPlan out;
  try {
    out.plan = read(text, where);
  } catch (const UsageError& error) {
    // What the mesh, a rule or a tensor refuses does not know of the file.
    if (std::string_view(error.what()).starts_with(where)) throw;
    throw UsageError(cat(where, ": ", error.what()));
  }
  std::string canonical = plan_to_json(out.plan);
  canonical.pop_back();  // the end of the line
  out.digest_matches =
      digest_of(out.plan) == out.plan.digest && same_text(text, canonical);
  return out;
}

}  // namespace canzona
