#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/read_plan_parts.h"
#include "canzona/plan/mesh.h"
#include "canzona/plan/placed/placed_json.h"

namespace canzona {
namespace {

constexpr int64_t kMaxPlacedBytes = int64_t{1} << 29;
constexpr int64_t kMaxPlacedValues = 30'000'000;
constexpr int64_t kPlacedVersion = 1;
constexpr int64_t kMaxGroups = 10'000;
constexpr int64_t kMaxSplits = 10'000;
// Of all tensors and ranks together: lists of boxes, and boxes.
constexpr int64_t kMaxBoxLists = int64_t{1} << 23;
constexpr int64_t kMaxBoxes = int64_t{1} << 22;

class PlacedReader {
 public:
  PlacedReader(const Json& root, const std::string& where)
      : root_(root), where_(where), in_(where) {}

  PlacedRequest run() {
    require_known_keys(
        root_,
        {"canzona_placed", "world", "wire", "share_states", "capacity_bytes",
         "ranks_per_node", "groups", "tensors"},
        where_);
    const int64_t version =
        get_integer(root_, "canzona_placed", 0, INT32_MAX, where_);
    if (version != kPlacedVersion)
      in_.fail(cat("canzona_placed: version ", version, ", expected ",
                   kPlacedVersion));
    out_.world =
        static_cast<int32_t>(get_integer(root_, "world", 1, kMaxWorld, where_));
    read_options();
    read_groups(in_.array(get_member(root_, "groups", where_), "groups"));
    read_tensors(in_.array(get_member(root_, "tensors", where_), "tensors"));
    return std::move(out_);
  }

 private:
  void read_options() {
    PlacedOptions& options = out_.options;
    if (root_.contains("wire"))
      options.wire =
          value_of(kWireNames, get_string(root_, "wire", where_), "wire");
    if (root_.contains("share_states"))
      options.share_states = get_bool(root_, "share_states", where_);
    if (root_.contains("capacity_bytes"))
      options.capacity_bytes =
          get_integer(root_, "capacity_bytes", 1, INT64_MAX / 4, where_);
    if (root_.contains("ranks_per_node"))
      options.ranks_per_node = static_cast<int32_t>(
          get_integer(root_, "ranks_per_node", 1, kMaxWorld, where_));
  }

  void read_groups(const Json& groups) {
    if (std::ssize(groups) > kMaxGroups)
      in_.fail(cat("groups: expected at most ", kMaxGroups, ", got ",
                   groups.size()));
    for (const Json& group : groups) {
      require_known_keys(group, {"rule", "options"}, cat(where_, ": groups"));
      PlacedGroup& out = out_.groups.emplace_back();
      out.rule = get_string(group, "rule", where_);
      if (!group.contains("options")) continue;
      const Json& options = group["options"];
      if (!options.is_object()) in_.fail("options: expected an object");
      for (const auto& [name, value] : options.items())
        out.options[name] = option_text(name, value);
    }
  }

  // Values are texts, as a plan has them; numbers and truths may be plain.
  std::string option_text(const std::string& name, const Json& value) const {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
    if (value.is_number()) return value.dump();
    in_.fail(cat("option ", quoted(name), ": expected a text or a number"));
  }

  void read_tensors(const Json& tensors) {
    if (std::ssize(tensors) > kMaxTensors ||
        std::ssize(tensors) * out_.world > kMaxBoxLists)
      in_.fail(cat(tensors.size(), " tensors on ", out_.world,
                   " ranks: expected at most ", kMaxBoxLists,
                   " lists of boxes"));
    out_.tensors.reserve(tensors.size());
    for (const Json& tensor : tensors) {
      const std::string place = cat(where_, ": tensor ", out_.tensors.size());
      require_known_keys(
          tensor, {"name", "shape", "dtype", "group", "splits", "stored"},
          place);
      PlacedTensor out;
      out.name = get_string(tensor, "name", place);
      if (std::ssize(out.name) > kMaxNameLength)
        in_.fail(cat("tensor ", quoted(out.name),
                     ": expected a name of at most ", kMaxNameLength,
                     " bytes"));
      read_tensor(tensor, out);
      out_.tensors.push_back(std::move(out));
    }
  }

  void read_tensor(const Json& tensor, PlacedTensor& out) {
    const PlanValues in(cat(where_, ": tensor ", quoted(out.name)));
    out.shape = in.integers(get_member(tensor, "shape", in.where()), 0, kMaxDim,
                            "shape");
    if (tensor.contains("dtype"))
      out.dtype =
          parse_parameter_dtype(get_string(tensor, "dtype", in.where()));
    if (tensor.contains("group"))
      out.group =
          in.index(tensor["group"], 0, std::ssize(out_.groups) - 1, "group");
    if (tensor.contains("splits"))
      out.splits = in.integers(tensor["splits"], 1, kMaxDim, "splits");
    if (std::ssize(out.splits) > kMaxSplits)
      in.fail(cat("splits: expected at most ", kMaxSplits));
    read_stored(get_member(tensor, "stored", in.where()), in, out);
  }

  void read_stored(const Json& stored, const PlanValues& in,
                   PlacedTensor& out) {
    if (stored.is_object()) {
      require_known_keys(stored, {"like"}, in.where());
      const int64_t like = in.index(get_member(stored, "like", in.where()), 0,
                                    std::ssize(out_.tensors) - 1, "like");
      out.stored = out_.tensors[index(like)].stored;
    } else {
      in.array(stored, "stored");
      if (std::ssize(stored) != out_.world)
        in.fail(cat("stored: expected one entry for each of ", out_.world,
                    " ranks, got ", stored.size()));
      for (const Json& boxes : stored) read_boxes(boxes, in, out);
    }
    for (const auto& boxes : out.stored) num_boxes_ += std::ssize(boxes);
    if (num_boxes_ > kMaxBoxes)
      in.fail(cat("more than ", kMaxBoxes, " boxes up to this tensor"));
  }

  void read_boxes(const Json& boxes, const PlanValues& in,
                  PlacedTensor& out) const {
    const std::string what = cat("stored, rank ", out.stored.size());
    std::vector<Box>& own = out.stored.emplace_back();
    for (const Json& box : in.array(boxes, what.c_str())) {
      in.row(box, 2, what.c_str());
      own.push_back({in.integers(box[0], 0, kMaxDim, what.c_str()),
                     in.integers(box[1], 0, kMaxDim, what.c_str())});
    }
  }

  const Json& root_;
  std::string where_;
  PlanValues in_;
  PlacedRequest out_;
  int64_t num_boxes_ = 0;
};

}  // namespace

PlacedRequest read_placed(std::string_view text, const std::string& where) {
  const Json root = parse_json(text, {.what = where,
                                      .max_bytes = kMaxPlacedBytes,
                                      .max_values = kMaxPlacedValues});
  try {
    return PlacedReader(root, where).run();
  } catch (const UsageError& error) {
    // Errors of words do not name the file.
    if (std::string_view(error.what()).starts_with(where)) throw;
    throw UsageError(cat(where, ": ", error.what()));
  }
}

}  // namespace canzona
