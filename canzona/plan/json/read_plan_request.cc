// Reads the request: mesh, rule, options, and the traffic that follows.
#include <algorithm>
#include <utility>

#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/json/plan_reader.h"
#include "canzona/plan/option_table.h"
#include "canzona/plan/strategies/strategy.h"
#include "canzona/shapes/tensor.h"

namespace canzona::plan {
namespace {

class RequestReader {
 public:
  RequestReader(const PlanSections& of, const PlanValues& in,
                SettledRequest& plan)
      : of_(of), in_(in), where_(in.where()), plan_(plan) {}

  void run() {
    read_mesh(get_member(*of_.storage, "mesh", where_));
    if (of_.are_former)
      read_rule(get_member(*of_.request, "rule", where_), "name");
    else
      read_rule(
          in_.row(get_member(*of_.request, "groups", where_), 1, "groups")[0],
          "rule");
    read_options(get_member(*of_.request, "options", where_));
    read_traffic();
  }

 private:
  int64_t whole(const Json& object, const char* key, int64_t low) const {
    return get_integer(object, key, low, INT64_MAX, where_);
  }

  void read_mesh(const Json& mesh) {
    require_known_keys(mesh, {"dp", "cp", "tp", "pp", "ep"}, where_);
    std::string words;
    for (const char* axis : {"dp", "cp", "tp", "pp", "ep"}) {
      words += cat(words.empty() ? "" : ",", axis, "=",
                   get_integer(mesh, axis, 1, kMaxWorld, where_));
    }
    plan_.mesh = parse_mesh(words);
  }

  void read_rule(const Json& rule, const char* name) {
    require_known_keys(rule, {name, "options"}, where_);
    plan_.rule = get_string(rule, name, where_);
    const Json& options = get_member(rule, "options", where_);
    if (!options.is_object()) in_.fail("rule options: expected an object");
    for (const auto& [key, value] : options.items()) {
      plan_.rule_options[key] = in_.text(value, "rule option");
    }
    make_rule_facts(plan_.rule, plan_.rule_options);  // rejects unknown ones
  }

  void read_options(const Json& o) {
    refuse_strips(o);
    require_known_options(o);
    PlanOptions& out = plan_.options;
    out.strategy = get_string(o, "strategy", where_);
    out.micro_groups = get_string(o, "micro_groups", where_);
    out.splits = parse_splits(get_string(o, "split", where_));
    out.bucket_elements = whole(o, "bucket_elements", 1);
    out.alpha = get_number(o, "alpha", where_);
    out.weight = parse_weight(get_string(o, "weight", where_));
    out.capacity_bytes = whole(o, "capacity_bytes", 0);
    out.memory_cap_bytes = whole(o, "memory_cap_bytes", 0);
    out.ranks_per_node = static_cast<int32_t>(
        get_integer(o, "ranks_per_node", 1, kMaxWorld, where_));
    out.parameters =
        parse_dtype(get_string(o, "parameters", where_), "parameters");
    out.links = in_.links(get_member(o, "links", where_));
    read_zero(o, out.zero);
    for (const PlannerOption& option : planner_options())
      if (option.kept && o.contains(option.member()))
        option.set(out, get_string(o, option.member().c_str(), where_),
                   option.member());
    check_options(out);
    if (!out.micro_groups.empty()) find_micro_group_mode(out.micro_groups);
  }

  void require_known_options(Json o) const {
    for (const PlannerOption& option : planner_options())
      if (option.kept && o.is_object()) o.erase(option.member());
    require_known_keys(o,
                       {"strategy", "micro_groups", "split", "bucket_elements",
                        "alpha", "weight", "capacity_bytes", "memory_cap_bytes",
                        "ranks_per_node", "parameters", "links", "zero"},
                       where_);
  }

  // Older programs made plans whose first and last rounds went strip by strip.
  void refuse_strips(const Json& options) const {
    const auto found = options.find("exchange");
    if (found != options.end() && *found == "strips")
      in_.fail("exchange strips is no longer supported; plan again");
  }

  void read_zero(const Json& options, ZeroOptions& out) const {
    out.sizes = with_states(out.sizes, plan_.mesh.homes());
    const auto found = options.find("zero");
    if (found == options.end()) return;
    const Json& zero = *found;
    require_known_keys(zero,
                       {"z1", "z2", "z3", "experts", "message", "prefetch",
                        "replica_sum", "collectives"},
                       where_);
    const auto size = [&](const char* key) {
      return static_cast<int32_t>(get_integer(zero, key, 1, kMaxWorld, where_));
    };
    out.sizes = {size("z1"), size("z2"), size("z3")};
    if (zero.contains("experts")) {
      const Json& experts = in_.row(zero["experts"], 3, "experts");
      const auto of_experts = [&](size_t i) {
        return in_.index(experts[i], 1, kMaxWorld, "size of experts");
      };
      out.experts = {of_experts(0), of_experts(1), of_experts(2)};
    }
    out.message = parse_message_unit(get_string(zero, "message", where_));
    out.prefetch = parse_prefetch(
        cat(get_integer(zero, "prefetch", 0, INT32_MAX, where_)));
    out.replica_sum =
        parse_replica_sum(get_string(zero, "replica_sum", where_));
    if (zero.contains("collectives"))
      out.reach = read_reach(get_string(zero, "collectives", where_));
  }

  Reach read_reach(const std::string& text) const {
    const Reach reach = parse_reach(text);
    if (reach == Reach::kAuto)
      in_.fail("collectives: 'auto' is for requests; expected direct or node");
    return reach;
  }

  // Traffic follows from the strategy; any other value in the file is an error.
  void read_traffic() {
    const std::string name = get_string(*of_.storage, "traffic", where_);
    plan_.traffic = find_strategy(plan_.options.strategy).layout.traffic;
    if (name != traffic_name(plan_.traffic)) {
      in_.fail(cat("traffic: ", quoted(name), ", but strategy ",
                   plan_.options.strategy, " means ",
                   traffic_name(plan_.traffic)));
    }
  }

  const PlanSections& of_;
  const PlanValues& in_;
  const std::string& where_;
  SettledRequest& plan_;
};

}  // namespace

void read_plan_request(const PlanSections& sections, const PlanValues& values,
                       SettledRequest& plan) {
  RequestReader(sections, values, plan).run();
}

namespace {

// The most runs of rows that all sections of a file may have together. Runs are
// listed one by one in memory, but a large count is cheap to write in a file.
constexpr int64_t kMaxRuns = int64_t{1} << 22;

// Limits on the sections of a tensor (q, k, v or gate, up), which are copied
// for every tensor.
constexpr size_t kMaxSections = 8;
constexpr size_t kMaxSectionName = 32;

// The sections of one kind of fused tensor, and the number of rows they tile.
struct SectionList {
  std::vector<Section> sections;
  int64_t rows = 0;
};

class ModelReader {
 public:
  ModelReader(const Json& json, const Mesh& mesh, const PlanValues& in)
      : json_(json), mesh_(mesh), in_(in) {}

  Model run() {
    require_known_keys(json_,
                       {"name", "layers", "experts", "query_heads", "kv_heads",
                        "fused", "parts", "tensors", "frozen"},
                       in_.where());
    read_counts();
    for (const Json& list : in_.array(member("parts"), "parts")) {
      kinds_.push_back(section_list(list));
    }
    const Json& tensors = in_.array(member("tensors"), "tensors");
    if (tensors.size() > static_cast<size_t>(kMaxTensors)) {
      in_.fail(cat("more than ", kMaxTensors, " tensors"));
    }
    model_.tensors.reserve(tensors.size());
    for (const Json& t : tensors) model_.tensors.push_back(tensor(t));
    read_frozen();
    check_mesh(mesh_, model_);
    for (const Tensor& t : model_.tensors) check_coordinates(t);
    return std::move(model_);
  }

 private:
  const Json& member(const char* key) const {
    return get_member(json_, key, in_.where());
  }
  int64_t count(const char* key, int64_t most) const {
    return get_integer(json_, key, 0, most, in_.where());
  }

  void read_frozen() {
    const auto found = json_.find("frozen");
    if (found == json_.end()) return;
    const auto last = static_cast<int32_t>(model_.tensors.size()) - 1;
    for (int32_t t : in_.indices(*found, 0, last, "frozen")) {
      Tensor& tensor = model_.tensors[static_cast<size_t>(t)];
      if (tensor.matrix_rule)
        in_.fail(cat("tensor ", quoted(tensor.name),
                     " is frozen but has a matrix rule"));
      tensor.frozen = true;
    }
  }

  void read_counts() {
    model_.name = get_string(json_, "name", in_.where());
    model_.num_layers = static_cast<int32_t>(count("layers", kMaxLayers));
    model_.num_experts = static_cast<int32_t>(count("experts", kMaxExperts));
    model_.query_heads = count("query_heads", kMaxDim);
    model_.kv_heads = count("kv_heads", kMaxDim);
    model_.fused = get_bool(json_, "fused", in_.where());
  }

  Section section(const Json& value) const {
    in_.row(value, 6, "part");
    Section section;
    section.name = in_.text(value[0], "part name");
    if (section.name.size() > kMaxSectionName) {
      in_.fail(cat("part ", quoted(section.name), ": its name is too long"));
    }
    section.rows.first =
        in_.integer(value[1], 0, kMaxDim, "first row of a part");
    section.rows.run = in_.integer(value[2], 1, kMaxDim, "run of a part");
    section.rows.stride = in_.integer(value[3], 1, kMaxDim, "stride of a part");
    section.rows.count = in_.integer(value[4], 1, kMaxRuns, "runs of a part");
    section.heads = in_.integer(value[5], 1, kMaxDim, "heads of a part");
    return section;
  }

  SectionList section_list(const Json& list) {
    SectionList out;
    if (in_.array(list, "parts").size() > kMaxSections) {
      in_.fail(cat("more than ", kMaxSections, " parts of one tensor"));
    }
    for (const Json& value : list) {
      out.sections.push_back(section(value));
      out.rows = checked_add(out.rows, count_rows(out.sections.back()), "rows");
    }
    if (!tiles(out)) in_.fail("parts do not tile the rows of a tensor");
    if (out.sections.size() > 1 &&
        std::ranges::count(out.sections, "out", &Section::name) > 0)
      in_.fail("part \"out\" has all rows of a tensor; expected no others");
    return out;
  }

  int64_t count_rows(const Section& section) {
    num_runs_ += section.rows.count;
    if (num_runs_ > kMaxRuns) {
      in_.fail(cat("parts: more than ", kMaxRuns, " runs of rows"));
    }
    const int64_t rows = section.rows.rows();  // both factors are bounded
    if (section.name != "out" && rows % section.heads != 0) {
      in_.fail(cat("part ", quoted(section.name), ": ", section.heads,
                   " heads do not divide its ", rows, " rows"));
    }
    return rows;
  }

  // True if the runs of all sections, side by side, are rows 0, 1, 2, …
  static bool tiles(const SectionList& list) {
    std::vector<std::pair<int64_t, int64_t>> runs;
    for (const Section& section : list.sections) {
      const RowRuns& r = section.rows;
      for (int64_t i = 0; i < r.count; ++i) {
        runs.emplace_back(r.first + i * r.stride, r.run);
      }
    }
    std::sort(runs.begin(), runs.end());
    int64_t next = 0;
    for (const auto& [first, run] : runs) {
      if (first != next) return false;
      next += run;
    }
    return true;
  }

  Tensor tensor(const Json& value) const {
    in_.row(value, 8, "tensor");
    Tensor t;
    t.name = in_.text(value[0], "tensor name");
    t.shape = in_.integers(value[1], 0, kMaxDim, "tensor shape");
    if (t.shape.empty() || t.shape.size() > 2) {
      in_.fail(
          cat("tensor ", quoted(t.name), ": expected one or two dimensions"));
    }
    checked_mul(t.rows(), t.cols(), "elements");
    t.role = parse_role(in_.text(value[2], "tensor role"));
    t.cut = parse_cut(in_.text(value[3], "tensor cut"));
    t.layer = in_.index(value[4], -1, INT32_MAX, "layer");
    t.expert = in_.index(value[5], -1, INT32_MAX, "expert");
    t.matrix_rule = in_.truth(value[6], "tensor rule");
    set_sections(in_.index(value[7], -1, std::ssize(kinds_) - 1, "parts"), t);
    return t;
  }

  void set_sections(int32_t kind, Tensor& t) const {
    if (kind < 0) return;
    const SectionList& list = kinds_[static_cast<size_t>(kind)];
    if (list.rows != t.rows()) {
      in_.fail(cat("tensor ", quoted(t.name), " has ", t.rows(),
                   " rows, its parts ", list.rows));
    }
    if (is_output(list.sections) && t.cols() % list.sections[0].heads != 0)
      in_.fail(cat("tensor ", quoted(t.name), ": ", list.sections[0].heads,
                   " heads do not divide its ", t.cols(), " columns"));
    t.sections = list.sections;
  }

  // Stages, ep coordinates and modules are derived from these numbers.
  void check_coordinates(const Tensor& t) const {
    if (t.layer >= model_.num_layers)
      in_.fail(cat("tensor ", quoted(t.name), " lies in layer ", t.layer,
                   ", but the model's 'layers' is ", model_.num_layers,
                   "; expected a layer below that, or -1"));
    if (t.expert >= model_.num_experts)
      in_.fail(cat("tensor ", quoted(t.name), " belongs to expert ", t.expert,
                   ", but the model's 'experts' is ", model_.num_experts,
                   "; expected an expert below that, or -1"));
  }

  const Json& json_;
  const Mesh& mesh_;
  const PlanValues& in_;
  std::vector<SectionList> kinds_;
  int64_t num_runs_ = 0;
  Model model_;
};

int64_t matrices_of(const Tensor& tensor, const Splits& splits) {
  const bool split =
      is_gate_up(tensor.sections)
          ? splits.gate_up
          : splits.head || (splits.qkv && tensor.sections.size() > 1);
  if (tensor.sections.empty() || is_output(tensor.sections) || !split) return 1;
  int64_t pieces = 0;
  for (const Section& section : tensor.sections) {
    pieces = checked_add(pieces, splits.head ? section.heads : 1, "matrices");
  }
  return pieces;
}

}  // namespace

Model read_plan_model(const Json& model, const Mesh& mesh,
                      const PlanValues& values) {
  return ModelReader(model, mesh, values).run();
}

int64_t count_matrices(const Model& model, const Splits& splits) {
  int64_t count = 0;
  for (const Tensor& tensor : model.tensors) {
    if (!tensor.matrix_rule) continue;
    count = checked_add(count, matrices_of(tensor, splits), "matrices");
  }
  return count;
}

}  // namespace canzona::plan
