#include "canzona/plan/storage/storage_json.h"

#include <algorithm>
#include <map>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/json/plan_reader.h"
#include "canzona/plan/mesh.h"
#include "canzona/plan/storage/storage_plan.h"

namespace canzona::plan {
namespace {

void write_stored(const std::vector<std::vector<Box>>& stored,
                  JsonWriter& out) {
  out.begin_array();
  for (const auto& boxes : stored) {
    out.begin_array();
    for (const Box& box : boxes)
      out.begin_array().values(box.first).values(box.count).end_array();
    out.end_array();
  }
  out.end_array();
}

// Many tensors are stored alike, so each layout is listed once.
void write_storage_tensors(const StoragePlan& plan, JsonWriter& out) {
  std::vector<const std::vector<std::vector<Box>>*> ways;
  std::map<std::vector<std::vector<Box>>, size_t> known;
  std::vector<size_t> way_of;
  for (const CutTensor& tensor : plan.tensors) {
    const auto [it, fresh] = known.emplace(tensor.stored, ways.size());
    if (fresh) ways.push_back(&it->first);
    way_of.push_back(it->second);
  }
  out.member("boxes").begin_array();
  for (const auto* stored : ways) write_stored(*stored, out);
  out.end_array();
  out.member("tensors").begin_array();
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const CutTensor& tensor = plan.tensors[t];
    out.begin_array().value(tensor.name).values(tensor.shape);
    out.value(to_string(tensor.dtype)).value(tensor.group);
    out.values(tensor.splits).value(way_of[t]).end_array();
  }
  out.end_array();
}

void write_storage_groups(const StoragePlan& plan, JsonWriter& out) {
  out.member("groups").begin_array();
  for (const RuleGroup& group : plan.groups)
    write_group(group.rule, group.options, out);
  out.end_array();
}

CostsByShape storage_costs(const StoragePlan& plan) {
  CostsByShape costs;
  for (const OwnedMatrix& m : plan.matrices)
    costs.emplace(std::pair(plan.tensors[index(m.tensor)].group,
                            MatrixShape{m.rows, m.cols}),
                  m.cost);
  return costs;
}

void write_storage_decisions(const StoragePlan& plan, JsonWriter& out) {
  out.member("owners").begin_array();
  for (const OwnedMatrix& m : plan.matrices) write_owners(m.owners(), out);
  out.end_array();
  out.member("rounds").begin_array();
  for (const OwnedMatrix& m : plan.matrices) out.value(m.round);
  out.end_array();
  out.member("elements").begin_array();
  for (const SharedElements& e : plan.elements)
    out.begin_array().value(e.line).value(e.round).end_array();
  out.end_array();
}

void write_storage_options(const StorageOptions& options, JsonWriter& out) {
  out.member("options").begin_object();
  out.field("wire", to_string(options.wire));
  if (options.master != MasterForm::kFp32)
    out.field("master", to_string(options.master));
  out.field("share_states", options.share_states);
  out.field("capacity_bytes", options.capacity_bytes);
  out.field("strict_capacity", options.strict_capacity);
  out.field("ranks_per_node", options.ranks_per_node);
  out.field("teams", teams_text(options.teams)).member("links");
  write_links(options.links, out);
  out.end_object();
}

std::string write_storage_plan(const StoragePlan& plan,
                               const std::string& digest) {
  JsonWriter out = begin_plan(digest);
  out.member("request").begin_object();
  write_storage_options(plan.options, out);
  write_storage_groups(plan, out);
  write_costs(plan.cost_basis, storage_costs(plan), true, out);
  out.end_object().member("predicted").begin_object();
  write_loads(plan.summary, std::nullopt, out);
  out.end_object().member("storage").begin_object();
  out.field("maker", kMadeByCaller).field("world", plan.world);
  write_storage_tensors(plan, out);
  out.end_object().member("decisions").begin_object();
  write_storage_decisions(plan, out);
  out.end_object().end_object();
  return out.take() + "\n";
}

}  // namespace

std::string digest_of(const StoragePlan& plan) {
  return sha256_hex(write_storage_plan(plan, ""));
}

std::string storage_plan_to_json(const StoragePlan& plan) {
  return write_storage_plan(plan, plan.digest);
}

bool is_storage_plan(const Json& root) {
  if (!root.is_object() || !root.contains("format")) return false;
  if (root["format"] == kFormerFormat) return true;
  return root["format"] == kPlanFormat && root.contains("storage") &&
         root["storage"].is_object() &&
         root["storage"].value("maker", Json()) == kMadeByCaller;
}

namespace {

constexpr int64_t kMaxStorageBytes = int64_t{1} << 29;
constexpr int64_t kMaxStorageValues = 30'000'000;
constexpr int64_t kMaxGroups = 10'000;
constexpr int64_t kMaxSplits = 10'000;
// Limit over all tensors and ranks, some of which store nothing.
constexpr int64_t kMaxBoxLists = int64_t{1} << 23;
constexpr const char* kCostKey = "cost_table";

JsonLimits storage_limits(const std::string& where) {
  return {.what = where,
          .max_bytes = kMaxStorageBytes,
          .max_values = kMaxStorageValues};
}

// The UsageError names the tensor that `in` reads.
DType storage_dtype(const std::string& text, const PlanValues& in) {
  for (const auto dtype : {DType::kFp32, DType::kBf16})
    if (text == to_string(dtype)) return dtype;
  in.fail(cat("dtype ", quoted(text), ", expected fp32 or bf16"));
}

// Reads the values that requests and plans share.
class StorageValues {
 public:
  StorageValues(const Json& root, const std::string& where)
      : root_(root), where_(where), in_(where) {}

 protected:
  int32_t read_world(const Json& of) const {
    return static_cast<int32_t>(get_integer(of, "world", 1, kMaxWorld, where_));
  }

  StorageOptions read_options(const Json& of) const {
    StorageOptions options;
    const auto truth = [&](const char* key, bool& out) {
      if (of.contains(key)) out = get_bool(of, key, where_);
    };
    const auto whole = [&](const char* key, int64_t most, auto& out) {
      if (!of.contains(key)) return;
      out = static_cast<std::remove_reference_t<decltype(out)>>(
          get_integer(of, key, 1, most, where_));
    };
    truth("share_states", options.share_states);
    truth("strict_capacity", options.strict_capacity);
    whole("capacity_bytes", kMaxTicks, options.capacity_bytes);
    whole("ranks_per_node", kMaxWorld, options.ranks_per_node);
    if (of.contains("wire"))
      options.wire = parse_dtype(get_string(of, "wire", where_), "wire");
    if (of.contains("master"))
      options.master = parse_master_form(get_string(of, "master", where_));
    if (of.contains("teams"))
      options.teams = parse_teams(get_string(of, "teams", where_));
    if (of.contains("links")) options.links = read_links(of["links"]);
    return options;
  }

  // As in a plan, or in words: "intra=400GB/s,inter=50GB/s".
  Links read_links(const Json& links) const {
    return links.is_string() ? parse_links(links.get<std::string>())
                             : in_.links(links);
  }

  void read_groups(const Json& of, StorageRequest& request) const {
    const Json& groups = in_.array(get_member(of, "groups", where_), "groups");
    if (std::ssize(groups) > kMaxGroups)
      in_.fail(cat("groups: expected at most ", kMaxGroups, ", got ",
                   groups.size()));
    for (const Json& group : groups) {
      require_known_keys(group, {"rule", "options"}, cat(where_, ": groups"));
      RuleGroup& out = request.groups.emplace_back();
      out.rule = get_string(group, "rule", where_);
      if (!group.contains("options")) continue;
      const Json& options = group["options"];
      if (!options.is_object()) in_.fail("options: expected an object");
      for (const auto& [name, value] : options.items())
        out.options[name] = option_text(name, value);
    }
  }

  // Values are strings, as in a plan; numbers and booleans may be plain.
  std::string option_text(const std::string& name, const Json& value) const {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
    if (value.is_number()) return value.dump();
    in_.fail(cat("option ", quoted(name),
                 ": expected a string, a number or a boolean"));
  }

  void check_num_tensors(size_t tensors, int32_t world) const {
    const auto count = static_cast<int64_t>(tensors);
    if (count <= kMaxTensors && count * world <= kMaxBoxLists) return;
    in_.fail(cat(tensors, " tensors on ", world, " ranks: expected at most ",
                 kMaxBoxLists, " lists of boxes"));
  }

  // Reads the boxes of every rank. `in` names the tensor.
  std::vector<std::vector<Box>> read_stored(const Json& stored, int32_t world,
                                            const PlanValues& in) const {
    in.array(stored, "stored");
    if (std::ssize(stored) != world)
      in.fail(cat("stored: expected one entry for each of ", world,
                  " ranks, got ", stored.size()));
    std::vector<std::vector<Box>> out;
    for (const Json& boxes : stored) {
      const std::string what = cat("stored, rank ", out.size());
      std::vector<Box>& own = out.emplace_back();
      for (const Json& box : in.array(boxes, what.c_str())) {
        in.row(box, 2, what.c_str());
        own.push_back({in.integers(box[0], 0, kMaxDim, what.c_str()),
                       in.integers(box[1], 0, kMaxDim, what.c_str())});
      }
    }
    return out;
  }

  // Bounds the boxes of all tensors together.
  void count_boxes(const CutTensor& tensor) {
    for (const auto& boxes : tensor.stored) num_boxes_ += std::ssize(boxes);
    if (num_boxes_ > kMaxStorageBoxes)
      in_.fail(cat("tensor ", quoted(tensor.name), ": more than ",
                   kMaxStorageBoxes, " boxes up to this tensor"));
  }

  std::string read_name(const Json& value) const {
    std::string name = in_.text(value, "name");
    if (std::ssize(name) > kMaxNameLength)
      in_.fail(cat("tensor ", quoted(name), ": expected a name of at most ",
                   kMaxNameLength, " bytes"));
    return name;
  }

  std::vector<int64_t> read_splits(const Json& splits,
                                   const PlanValues& in) const {
    if (in.array(splits, "splits").size() > kMaxSplits)
      in.fail(cat("splits: expected at most ", kMaxSplits, ", got ",
                  splits.size()));
    return in.integers(splits, 1, kMaxDim, "splits");
  }

  const Json& root_;
  std::string where_;
  PlanValues in_;

 private:
  int64_t num_boxes_ = 0;
};

class RequestReader : StorageValues {
 public:
  using StorageValues::StorageValues;

  StorageInput run() {
    const char* key = root_.contains(kFormerKey) ? kFormerKey : kRequestKey;
    require_known_keys(root_,
                       {key, "world", "wire", "master", "share_states",
                        "capacity_bytes", "strict_capacity", "ranks_per_node",
                        "teams", "links", "groups", "tensors", kCostKey},
                       where_);
    const int64_t version = get_integer(root_, key, 0, INT32_MAX, where_);
    if (version != kRequestVersion)
      in_.fail(cat(key, ": version ", version, ", expected ", kRequestVersion));
    out_.world = read_world(root_);
    out_.options = read_options(root_);
    read_groups(root_, out_);
    const Json& tensors =
        in_.array(get_member(root_, "tensors", where_), "tensors");
    check_num_tensors(tensors.size(), out_.world);
    for (const Json& tensor : tensors) read_tensor(tensor);
    StorageInput input{std::move(out_), std::nullopt};
    if (root_.contains(kCostKey))
      input.cost =
          CostTable::parse(root_[kCostKey].dump(), cat(where_, ": ", kCostKey));
    return input;
  }

 private:
  void read_tensor(const Json& tensor) {
    const std::string place = cat(where_, ": tensor ", out_.tensors.size());
    require_known_keys(
        tensor, {"name", "shape", "dtype", "group", "splits", "stored"}, place);
    CutTensor out;
    out.name = read_name(get_member(tensor, "name", place));
    const PlanValues in(cat(where_, ": tensor ", quoted(out.name)));
    out.shape = in.integers(get_member(tensor, "shape", in.where()), 0, kMaxDim,
                            "shape");
    if (tensor.contains("dtype"))
      out.dtype = storage_dtype(get_string(tensor, "dtype", in.where()), in);
    if (tensor.contains("group"))
      out.group =
          in.index(tensor["group"], 0, std::ssize(out_.groups) - 1, "group");
    if (tensor.contains("splits"))
      out.splits = read_splits(tensor["splits"], in);
    const Json& stored = get_member(tensor, "stored", in.where());
    out.stored = stored.is_object() ? like(stored, in)
                                    : read_stored(stored, out_.world, in);
    count_boxes(out);
    out_.tensors.push_back(std::move(out));
  }

  // Returns the boxes of an earlier tensor.
  std::vector<std::vector<Box>> like(const Json& stored,
                                     const PlanValues& in) const {
    require_known_keys(stored, {"like"}, in.where());
    const int64_t like = in.index(get_member(stored, "like", in.where()), 0,
                                  std::ssize(out_.tensors) - 1, "like");
    return out_.tensors[index(like)].stored;
  }

  StorageRequest out_;
};

class StoragePlanReader : StorageValues {
 public:
  StoragePlanReader(const Json& root, const std::string& where)
      : StorageValues(root, where),
        of_(plan_sections(root, kMadeByCaller, kFormerFormat,
                          "a plan of given storage", where)) {}

  StoragePlan run() {
    require_known_members();
    request_.world = read_world(*of_.storage);
    request_.options = read_options(
        of_.are_former ? root_ : get_member(*of_.request, "options", where_));
    read_groups(*of_.request, request_);
    read_tensors();
    StorageRequest settled = settle_storage(request_);
    if (!is_settled(request_, settled))
      in_.fail(
          "groups or boxes are not those of a finished plan: options are "
          "not settled, or boxes are empty");
    plan_ = open_storage_plan(std::move(request_), nullptr);
    plan_.digest = get_string(root_, "digest", where_);
    read_cost(get_member(*of_.request, "cost", where_));
    read_summary(get_member(root_, "predicted", where_));
    read_decisions();
    return std::move(plan_);
  }

 private:
  void require_known_members() const {
    if (of_.are_former)
      return require_known_keys(
          root_,
          {"format", "version", "digest", "world", "wire", "share_states",
           "capacity_bytes", "strict_capacity", "ranks_per_node", "teams",
           "links", "groups", "cost", "predicted", "storage", "tensors",
           "owners", "rounds", "elements"},
          where_);
    require_known_keys(*of_.request, {"options", "groups", "cost"}, where_);
    require_known_keys(get_member(*of_.request, "options", where_),
                       {"wire", "master", "share_states", "capacity_bytes",
                        "strict_capacity", "ranks_per_node", "teams", "links"},
                       where_);
    require_known_keys(*of_.storage, {"maker", "world", "boxes", "tensors"},
                       where_);
    require_known_keys(*of_.decisions, {"owners", "rounds", "elements"},
                       where_);
  }

  const Json& decided(const char* key) const {
    return in_.array(get_member(*of_.decisions, key, where_), key);
  }

  // A row of a tensor has its name, shape, dtype, group, splits and the index
  // of its storage.
  void read_tensors() {
    const char* boxes_key = of_.are_former ? "storage" : "boxes";
    const Json& tensors =
        in_.array(get_member(*of_.storage, "tensors", where_), "tensors");
    const Json& storage =
        in_.array(get_member(*of_.storage, boxes_key, where_), boxes_key);
    check_num_tensors(std::max(tensors.size(), storage.size()), request_.world);
    std::vector<std::vector<std::vector<Box>>> stored;
    for (const Json& boxes : storage)
      stored.push_back(read_stored(boxes, request_.world, in_));
    for (const Json& row : tensors) {
      in_.row(row, 6, "tensors");
      CutTensor out;
      out.name = read_name(row[0]);
      const PlanValues in(cat(where_, ": tensor ", quoted(out.name)));
      out.shape = in.integers(row[1], 0, kMaxDim, "shape");
      out.dtype = storage_dtype(in.text(row[2], "dtype"), in);
      out.group = in.index(row[3], 0, std::ssize(request_.groups) - 1, "group");
      out.splits = read_splits(row[4], in);
      out.stored =
          stored[index(in.index(row[5], 0, std::ssize(stored) - 1, boxes_key))];
      count_boxes(out);
      request_.tensors.push_back(std::move(out));
    }
  }

  void read_cost(const Json& cost) {
    const CostsByShape costs =
        read_costs(cost, in_, std::ssize(plan_.groups), plan_.cost_basis);
    for (OwnedMatrix& m : plan_.matrices)
      m.cost = cost_of(costs, plan_.tensors[index(m.tensor)].group,
                       {m.rows, m.cols}, in_);
    check_storage_work(plan_);
  }

  void read_summary(const Json& predicted) {
    require_known_keys(predicted,
                       {"makespan_ticks", "bound_ticks", "mean_ticks",
                        "idle_ranks", "bytes_per_rank_max"},
                       where_);
    read_loads(predicted, in_, plan_.summary);
  }

  void read_decisions() {
    const int64_t items =
        std::ssize(plan_.matrices) + std::ssize(plan_.elements);
    const Json& owners = decided("owners");
    const auto rounds = in_.indices(decided("rounds"), -1, items, "rounds");
    if (owners.size() != plan_.matrices.size() ||
        rounds.size() != plan_.matrices.size())
      in_.fail(cat(owners.size(), " owners and ", rounds.size(), " rounds of ",
                   plan_.matrices.size(), " matrices"));
    for (size_t m = 0; m < owners.size(); ++m) {
      read_owners(owners[m], plan_.matrices[m]);
      plan_.matrices[m].round = rounds[m];
    }
    const Json& elements = decided("elements");
    if (elements.size() != plan_.elements.size())
      in_.fail(
          cat(elements.size(), " elements, expected ", plan_.elements.size()));
    for (size_t i = 0; i < elements.size(); ++i) {
      SharedElements& e = plan_.elements[i];
      const ReplicaClass& c =
          plan_.classes[index(plan_.class_of[index(e.tensor)])];
      in_.row(elements[i], 2, "elements");
      e.line = in_.index(elements[i][0], 0, std::ssize(c.lines) - 1, "line");
      e.round = in_.index(elements[i][1], 0, items, "round");
    }
    count_storage_rounds(plan_);
  }

  // A rank, or the list of those that share the matrix.
  void read_owners(const Json& owners, OwnedMatrix& m) const {
    if (!owners.is_array()) {
      m.owner = in_.index(owners, 0, plan_.world - 1, "owners");
      return;
    }
    if (plan_.options.teams == kTeamsOff)
      in_.fail("owners: several ranks share a matrix, but teams are off");
    m.team = in_.indices(owners, 0, plan_.world - 1, "owners");
    if (m.team.size() < 2 || std::ssize(m.team) > kMostBlocks)
      in_.fail(cat("owners: ", m.team.size(), " of one matrix, expected 2 to ",
                   kMostBlocks));
    m.owner = m.team.front();
  }

  const PlanSections of_;
  StorageRequest request_;
  StoragePlan plan_;
};

}  // namespace

StorageInput read_storage(std::string_view text, const std::string& where) {
  const Json root = parse_json(text, storage_limits(where));
  return naming_file(where, [&] { return RequestReader(root, where).run(); });
}

ReadStoragePlan storage_plan_from_json(std::string_view text,
                                       const std::string& where) {
  return read_checked<StoragePlan>(
      text, storage_limits(where),
      [&](const Json& root) { return StoragePlanReader(root, where).run(); },
      storage_plan_to_json);
}

}  // namespace canzona::plan
