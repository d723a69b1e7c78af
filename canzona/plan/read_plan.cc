#include <algorithm>
#include <map>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan_json.h"
#include "canzona/plan/plan_schema.h"

namespace canzona {
namespace {

constexpr int64_t kMaxPlanBytes = int64_t{1} << 30;
constexpr int64_t kMaxPlanValues = 50'000'000;
constexpr int64_t kMaxInt32 = INT32_MAX;

// Reads plan.json member by member. Every number is checked against its range,
// every index against what it points into, so that whatever comes out can be
// validated without a crash.
class PlanReader {
 public:
  PlanReader(const Json& root, const std::string& where)
      : root_(root), where_(where) {}

  Plan run() {
    require_known_keys(root_,
                       {"format", "version", "digest", "mesh", "rule",
                        "options", "cost", "predicted", "traffic", "model",
                        "buffers", "buckets", "home", "owners", "micro_group"},
                       where_);
    plan_.digest = get_string(root_, "digest", where_);
    read_mesh();
    read_rule();
    read_options(get_member(root_, "options", where_));
    read_traffic();
    read_model(get_member(root_, "model", where_));
    plan_.matrices = split_into_matrices(plan_.model, plan_.options.splits);
    read_cost(get_member(root_, "cost", where_));
    read_summary(get_member(root_, "predicted", where_));
    read_buffers();
    read_buckets();
    read_owners();
    check_homes();
    return std::move(plan_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(cat(where_, ": ", what));
  }

  int64_t integer(const Json& value, int64_t low, int64_t high,
                  const char* what) const {
    if (!value.is_number_integer()) {
      fail(cat(what, ": expected an integer"));
    }
    const bool huge = value.is_number_unsigned() &&
                      value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    const int64_t v = huge ? INT64_MAX : value.get<int64_t>();
    if (huge || v < low || v > high) {
      fail(cat(what, ": ", v, " is not in ", low, "..", high));
    }
    return v;
  }

  const Json& array(const Json& value, const char* what) const {
    if (!value.is_array()) fail(cat(what, ": expected an array"));
    return value;
  }
  const Json& row(const Json& value, size_t size, const char* what) const {
    if (!value.is_array() || value.size() != size) {
      fail(cat(what, ": expected an array of ", size, " values"));
    }
    return value;
  }

  std::string text(const Json& value, const char* what) const {
    if (!value.is_string()) fail(cat(what, ": expected a string"));
    return value.get<std::string>();
  }

  std::vector<int64_t> integers(const Json& value, int64_t low, int64_t high,
                                const char* what) const {
    std::vector<int64_t> out;
    out.reserve(array(value, what).size());
    for (const Json& v : value) out.push_back(integer(v, low, high, what));
    return out;
  }

  std::vector<int32_t> indices(const Json& value, int64_t low, int64_t high,
                               const char* what) const {
    const std::vector<int64_t> wide = integers(value, low, high, what);
    return {wide.begin(), wide.end()};
  }

  int32_t small(const Json& object, const char* key, int64_t low) const {
    return static_cast<int32_t>(
        get_integer(object, key, low, kMaxInt32, where_));
  }

  void read_mesh() {
    const Json& mesh = get_member(root_, "mesh", where_);
    require_known_keys(mesh, {"dp", "cp", "tp", "pp", "ep"}, where_);
    std::string words;
    for (const char* axis : {"dp", "cp", "tp", "pp", "ep"}) {
      words += cat(words.empty() ? "" : ",", axis, "=",
                   get_integer(mesh, axis, 1, kMaxWorld, where_));
    }
    plan_.mesh = parse_mesh(words);
  }

  void read_rule() {
    const Json& rule = get_member(root_, "rule", where_);
    require_known_keys(rule, {"name", "options"}, where_);
    plan_.rule = get_string(rule, "name", where_);
    const Json& options = get_member(rule, "options", where_);
    if (!options.is_object()) fail("rule options: expected an object");
    for (const auto& [key, value] : options.items()) {
      plan_.rule_options[key] = text(value, "rule option");
    }
    make_rule_facts(plan_.rule, plan_.rule_options);  // refuses what is unknown
  }

  void read_options(const Json& o) {
    require_known_keys(o,
                       {"strategy", "micro_groups", "split", "bucket_elements",
                        "alpha", "weight", "capacity_bytes", "memory_cap_bytes",
                        "ranks_per_node", "parameters", "links"},
                       where_);
    PlanOptions& out = plan_.options;
    out.strategy = get_string(o, "strategy", where_);
    out.micro_groups = get_string(o, "micro_groups", where_);
    out.splits = parse_splits(get_string(o, "split", where_));
    out.bucket_elements = get_integer(o, "bucket_elements", 1, INT64_MAX, where_);
    out.alpha = get_number(o, "alpha", where_);
    out.weight = parse_weight(get_string(o, "weight", where_));
    out.capacity_bytes = get_integer(o, "capacity_bytes", 0, INT64_MAX, where_);
    out.memory_cap_bytes =
        get_integer(o, "memory_cap_bytes", 0, INT64_MAX, where_);
    out.ranks_per_node = small(o, "ranks_per_node", 1);
    out.parameters = parse_parameter_dtype(get_string(o, "parameters", where_));
    read_links(get_member(o, "links", where_));
    check_options(out);
  }

  void read_links(const Json& l) {
    require_known_keys(l,
                       {"intra_bytes_per_second", "inter_bytes_per_second",
                        "latency_seconds", "nominal"},
                       where_);
    Links& links = plan_.options.links;
    links.intra_bytes_per_second = get_number(l, "intra_bytes_per_second", where_);
    links.inter_bytes_per_second = get_number(l, "inter_bytes_per_second", where_);
    links.latency_seconds = get_number(l, "latency_seconds", where_);
    links.nominal = get_bool(l, "nominal", where_);
    if (!(links.intra_bytes_per_second > 0 && links.inter_bytes_per_second > 0 &&
          links.latency_seconds >= 0)) {
      fail("links: expected positive bandwidths");
    }
  }

  void read_traffic() {
    const std::string name = get_string(root_, "traffic", where_);
    for (const auto& [value, known] : kTrafficNames) {
      if (name == known) {
        plan_.traffic = value;
        return;
      }
    }
    fail(cat("traffic: unknown value ", quoted(name)));
  }

  void read_model(const Json& m) {
    require_known_keys(m,
                       {"name", "layers", "experts", "query_heads", "kv_heads",
                        "fused", "parts", "tensors"},
                       where_);
    Model& model = plan_.model;
    model.name = get_string(m, "name", where_);
    model.num_layers = small(m, "layers", 0);
    model.num_experts = small(m, "experts", 0);
    model.query_heads = get_integer(m, "query_heads", 0, kMaxDim, where_);
    model.kv_heads = get_integer(m, "kv_heads", 0, kMaxDim, where_);
    model.fused = get_bool(m, "fused", where_);
    std::vector<std::vector<Part>> kinds;
    for (const Json& list : array(get_member(m, "parts", where_), "parts")) {
      kinds.push_back(read_parts(list));
    }
    const Json& tensors = array(get_member(m, "tensors", where_), "tensors");
    model.tensors.reserve(tensors.size());
    for (const Json& t : tensors) model.tensors.push_back(tensor(t, kinds));
    check_mesh(plan_.mesh, model);
    for (const Tensor& t : model.tensors) check_coordinates(t);
  }

  std::vector<Part> read_parts(const Json& list) const {
    std::vector<Part> parts;
    for (const Json& p : array(list, "parts")) {
      row(p, 6, "part");
      Part part;
      part.name = text(p[0], "part name");
      part.rows.first = integer(p[1], 0, kMaxDim, "part");
      part.rows.run = integer(p[2], 1, kMaxDim, "part");
      part.rows.stride = integer(p[3], 1, kMaxDim, "part");
      part.rows.count = integer(p[4], 1, kMaxDim, "part");
      part.heads = integer(p[5], 1, kMaxDim, "part");
      parts.push_back(std::move(part));
    }
    return parts;
  }

  Tensor tensor(const Json& value,
                const std::vector<std::vector<Part>>& kinds) const {
    row(value, 8, "tensor");
    Tensor t;
    t.name = text(value[0], "tensor name");
    t.shape = integers(value[1], 0, kMaxDim, "tensor shape");
    if (t.shape.empty() || t.shape.size() > 2) {
      fail(cat("tensor ", quoted(t.name), ": expected one or two dimensions"));
    }
    checked_mul(t.rows(), t.cols(), "elements");
    t.role = parse_role(text(value[2], "tensor role"));
    t.cut = parse_cut(text(value[3], "tensor cut"));
    t.layer = static_cast<int32_t>(integer(value[4], -1, kMaxInt32, "layer"));
    t.expert = static_cast<int32_t>(integer(value[5], -1, kMaxInt32, "expert"));
    if (!value[6].is_boolean()) fail("tensor rule: expected true or false");
    t.matrix_rule = value[6].get<bool>();
    const int64_t kind = integer(value[7], -1,
                                 static_cast<int64_t>(kinds.size()) - 1, "parts");
    if (kind >= 0) t.parts = kinds[static_cast<size_t>(kind)];
    check_parts(t);
    return t;
  }

  // Parts must tile the rows of the tensor: everything else relies on it. Runs
  // are bounded by the number of rows, so the check is too.
  void check_parts(const Tensor& t) const {
    if (t.parts.empty()) return;
    std::vector<std::pair<int64_t, int64_t>> runs;
    int64_t rows = 0;
    for (const Part& part : t.parts) {
      const RowRuns& r = part.rows;
      rows = checked_add(rows, checked_mul(r.run, r.count, "rows"), "rows");
      checked_add(r.first, checked_mul(r.stride, r.count, "rows"), "rows");
      if (rows > t.rows() || r.count > kMaxRuns) {
        fail(cat("tensor ", quoted(t.name), ": its parts have too many rows"));
      }
      for (int64_t i = 0; i < r.count; ++i) {
        runs.emplace_back(r.first + i * r.stride, r.run);
      }
    }
    std::sort(runs.begin(), runs.end());
    int64_t next = 0;
    for (const auto& [first, run] : runs) {
      if (first != next) break;
      next += run;
    }
    if (next != t.rows()) {
      fail(cat("tensor ", quoted(t.name), ": its parts do not tile its rows"));
    }
  }
  static constexpr int64_t kMaxRuns = 1 << 20;

  void check_coordinates(const Tensor& t) const {
    if (plan_.mesh.pp > 1 && t.layer >= plan_.model.num_layers) {
      fail(cat("tensor ", quoted(t.name), ": layer ", t.layer, " of ",
               plan_.model.num_layers));
    }
    if (plan_.mesh.ep > 1 && t.expert >= plan_.model.num_experts) {
      fail(cat("tensor ", quoted(t.name), ": expert ", t.expert, " of ",
               plan_.model.num_experts));
    }
  }

  void read_cost(const Json& c) {
    require_known_keys(c, {"source", "seconds_per_tick", "ticks"}, where_);
    plan_.cost_basis.source = get_string(c, "source", where_);
    plan_.cost_basis.seconds_per_tick = get_number(c, "seconds_per_tick", where_);
    std::map<MatrixShape, MatrixCost> by_shape;
    constexpr int64_t kMost = int64_t{1} << 61;
    for (const Json& e : array(get_member(c, "ticks", where_), "ticks")) {
      row(e, 4, "ticks");
      by_shape[{integer(e[0], 0, kMaxDim, "rows"),
                integer(e[1], 0, kMaxDim, "columns")}] = {
          Ticks(integer(e[2], 0, kMost, "ticks")),
          Ticks(integer(e[3], 0, kMost, "ticks"))};
    }
    for (const Matrix& m : plan_.matrices) {
      const auto it = by_shape.find({m.rows, m.cols});
      if (it == by_shape.end()) {
        fail(cat("cost: no ticks for a ", m.rows, "×", m.cols, " matrix"));
      }
      plan_.costs.push_back(it->second);
    }
  }

  void read_summary(const Json& s) {
    require_known_keys(s,
                       {"makespan_ticks", "bound_ticks", "mean_ticks",
                        "idle_ranks", "bytes_per_rank_max",
                        "memory_per_rank_max", "memory_per_rank_mean",
                        "step_seconds_mean", "step_seconds_worst"},
                       where_);
    auto whole = [&](const char* key) {
      return get_integer(s, key, 0, INT64_MAX, where_);
    };
    PlanSummary& out = plan_.summary;
    out.makespan = Ticks(whole("makespan_ticks"));
    out.bound = Ticks(whole("bound_ticks"));
    out.mean = get_number(s, "mean_ticks", where_);
    out.idle_ranks = small(s, "idle_ranks", 0);
    out.bytes_per_rank_max = Bytes(whole("bytes_per_rank_max"));
    out.memory_per_rank_max = Bytes(whole("memory_per_rank_max"));
    out.memory_per_rank_mean = get_number(s, "memory_per_rank_mean", where_);
    out.step_seconds_mean = get_number(s, "step_seconds_mean", where_);
    out.step_seconds_worst = get_number(s, "step_seconds_worst", where_);
  }

  void read_buffers() {
    const Json& list = array(get_member(root_, "buffers", where_), "buffers");
    for (const Json& b : list) {
      row(b, 3, "buffer");
      Buffer buffer;
      buffer.stage = static_cast<int32_t>(
          integer(b[0], 0, plan_.mesh.pp - 1, "buffer stage"));
      buffer.ep = static_cast<int32_t>(
          integer(b[1], -1, plan_.mesh.ep - 1, "buffer ep"));
      buffer.num_homes = static_cast<int32_t>(integer(
          b[2], 1, buffer.ep < 0 ? plan_.mesh.homes() : plan_.mesh.expert_homes(),
          "buffer homes"));
      plan_.buffers.push_back(buffer);
    }
  }

  void read_buckets() {
    const Json& list = array(get_member(root_, "buckets", where_), "buckets");
    const auto tensors = static_cast<int64_t>(plan_.model.tensors.size());
    std::vector<bool> seen(plan_.model.tensors.size(), false);
    for (const Json& b : list) {
      require_known_keys(
          b, {"buffer", "matrix_tensors", "tensors", "cuts", "adamw_cuts"},
          where_);
      Bucket bucket;
      bucket.buffer = static_cast<int32_t>(
          get_integer(b, "buffer", 0,
                      static_cast<int64_t>(plan_.buffers.size()) - 1, where_));
      bucket.tensors = indices(get_member(b, "tensors", where_), 0, tensors - 1,
                               "bucket tensors");
      bucket.num_matrix_tensors = static_cast<int32_t>(
          get_integer(b, "matrix_tensors", 0,
                      static_cast<int64_t>(bucket.tensors.size()), where_));
      bucket.cuts = cuts(b, "cuts", bucket.buffer);
      bucket.adamw_cuts = cuts(b, "adamw_cuts", bucket.buffer);
      for (int32_t t : bucket.tensors) seen[static_cast<size_t>(t)] = true;
      plan_.buckets.push_back(std::move(bucket));
    }
    for (size_t t = 0; t < seen.size(); ++t) {
      if (!seen[t]) {
        fail(cat("tensor ", quoted(plan_.model.tensors[t].name),
                 " lies in no bucket"));
      }
    }
  }

  std::vector<int64_t> cuts(const Json& b, const char* key,
                            int32_t buffer) const {
    std::vector<int64_t> out =
        integers(get_member(b, key, where_), 0, INT64_MAX, key);
    const int32_t homes =
        plan_.buffers[static_cast<size_t>(buffer)].num_homes;
    if (!out.empty() && out.size() != static_cast<size_t>(homes) + 1) {
      fail(cat(key, ": expected ", homes + 1, " cuts, got ", out.size()));
    }
    return out;
  }

  void read_owners() {
    const auto tensors = plan_.model.tensors.size();
    const auto matrices = plan_.matrices.size();
    plan_.home = indices(get_member(root_, "home", where_), kEveryHome,
                         plan_.mesh.homes() - 1, "home");
    plan_.micro_group = indices(get_member(root_, "micro_group", where_), 0,
                                kMaxInt32, "micro_group");
    const Json& owners = array(get_member(root_, "owners", where_), "owners");
    if (plan_.home.size() != tensors || plan_.micro_group.size() != matrices ||
        owners.size() != matrices) {
      fail(cat("expected ", tensors, " homes and ", matrices,
               " owners and micro-groups"));
    }
    for (const Json& o : owners) {
      if (o.is_array()) {
        plan_.owners.push_back(indices(o, 0, plan_.mesh.tp - 1, "owner"));
      } else {
        plan_.owners.push_back(static_cast<int32_t>(
            integer(o, 0, plan_.mesh.tp - 1, "owner")));
      }
    }
  }

  void check_homes() {
    derive(plan_);
    for (size_t t = 0; t < plan_.home.size(); ++t) {
      const Buffer& buffer = plan_.buffer_of(static_cast<int32_t>(t));
      if (plan_.home[t] >= buffer.num_homes) {
        fail(cat("home ", plan_.home[t], " of tensor ",
                 quoted(plan_.model.tensors[t].name), ": its buffer has ",
                 buffer.num_homes));
      }
    }
  }

  const Json& root_;
  std::string where_;
  Plan plan_;
};

}  // namespace

ReadPlan plan_from_json(std::string_view text, const std::string& where) {
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
    throw UsageError(cat(where, ": plan version ", version, ", expected ",
                         kPlanVersion));
  }
  ReadPlan out;
  out.plan = PlanReader(root, where).run();
  out.digest_matches = digest_of(out.plan) == out.plan.digest;
  return out;
}

}  // namespace canzona
