#include "canzona/sim/mesh_space.h"

#include <algorithm>
#include <array>
#include <functional>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::sim {
namespace {

std::string zero_text(const ZeroSizes& sizes, int32_t homes) {
  return zero_name(sizes, homes);
}

}  // namespace

std::string to_string(const MeshChoice& choice) {
  std::string text = cat(to_string(choice.mesh), " ",
                         zero_text(choice.dense, choice.mesh.homes()));
  if (choice.experts.z1 > 0)
    text += cat(", experts ",
                zero_text(choice.experts, choice.mesh.expert_homes()));
  text += cat(", ", choice.num_micro_batches, " x ",
              counted_text(choice.tokens, "token"));
  if (choice.recompute) text += ", recompute";
  if (choice.reach == Reach::kPerNode) text += ", collectives node";
  return text;
}

namespace {

const std::vector<std::string> kFixed = {"dp",     "tp",        "pp",
                                         "ep",     "zero",      "zero-experts",
                                         "tokens", "recompute", "collectives"};

std::string replaced(std::string text, char from, char to) {
  std::ranges::replace(text, from, to);
  return text;
}

// A triple has colons where a user otherwise types commas.
std::string read_fixed_zero(const std::string& value,
                            const std::string& option) {
  std::string text =
      value.starts_with("z") && value.find('=') != std::string::npos
          ? replaced(value, ':', ',')
          : value;
  parse_zero(text, kMaxWorld, option);
  return text;
}

bool read_switch(const std::string& value, const std::string& option) {
  if (value == "on") return true;
  if (value == "off") return false;
  throw UsageError(cat(option, " ", quoted(value), ": expected on or off",
                       did_you_mean(value, {"on", "off"})));
}

Reach read_reach(const std::string& value, const std::string& option) {
  if (value == "direct") return Reach::kDirect;
  if (value == "node") return Reach::kPerNode;
  throw UsageError(cat(option, " ", quoted(value), ": expected direct or node",
                       did_you_mean(value, {"direct", "node"})));
}

// Returns the limit for an axis; null if the name is not an axis.
std::optional<int32_t>* axis_of(MeshLimits& limits, const std::string& name) {
  if (name == "dp") return &limits.dp;
  if (name == "tp") return &limits.tp;
  if (name == "pp") return &limits.pp;
  if (name == "ep") return &limits.ep;
  return nullptr;
}

void fix_one(MeshLimits& limits, const std::string& name,
             const std::string& value, const std::string& option) {
  constexpr int64_t kMostTokens = int64_t{1} << 40;
  if (std::optional<int32_t>* axis = axis_of(limits, name))
    *axis = static_cast<int32_t>(parse_integer(value, 1, kMaxWorld, option));
  else if (name == "zero")
    limits.zero = read_fixed_zero(value, option);
  else if (name == "zero-experts")
    limits.zero_experts = read_fixed_zero(value, option);
  else if (name == "tokens")
    limits.tokens = parse_integer(value, 1, kMostTokens, option);
  else if (name == "recompute")
    limits.recompute = read_switch(value, option);
  else
    limits.reach = read_reach(value, option);
}

}  // namespace

void MeshLimits::fix(std::string_view text, std::string_view option) {
  std::vector<std::string> seen;
  for (const std::string& word : split_text(text, ',')) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (equals == std::string::npos || equals == 0)
      throw UsageError(cat(option, " ", quoted(text),
                           ": expected NAME=VALUE such as tp=8, got ",
                           quoted(word)));
    if (std::ranges::find(kFixed, name) == kFixed.end())
      throw UsageError(cat(option, " ", quoted(word), ": expected ",
                           join(kFixed, ", "), did_you_mean(name, kFixed)));
    if (std::ranges::find(seen, name) != seen.end())
      throw UsageError(cat(option, " ", quoted(text), ": ", name, " twice"));
    seen.push_back(name);
    // "--zero" says already what it fixes.
    fix_one(
        *this, name, word.substr(equals + 1),
        option == "--" + name ? std::string(option) : cat(option, " ", name));
  }
}

void MeshLimits::forbid(std::string_view text, std::string_view option) {
  const std::vector<std::pair<std::string, bool MeshLimits::*>> known = {
      {"tp", &MeshLimits::no_tp},
      {"pp", &MeshLimits::no_pp},
      {"ep", &MeshLimits::no_ep},
      {"zero", &MeshLimits::no_zero},
      {"hierarchical", &MeshLimits::no_hierarchical},
      {"recompute", &MeshLimits::no_recompute}};
  std::vector<std::string> names;
  for (const auto& [name, member] : known) names.push_back(name);
  for (const std::string& word : split_text(text, ',')) {
    const auto found = std::ranges::find(names, word);
    if (found == names.end())
      throw UsageError(cat(option, " ", quoted(word), ": expected ",
                           join(names, ", "), did_you_mean(word, names)));
    this->*known[static_cast<size_t>(found - names.begin())].second = true;
  }
}

std::string MeshLimits::contradiction() const {
  const auto above_one = [](const char* name,
                            const std::optional<int32_t>& fixed, bool is_not) {
    return is_not && fixed.value_or(1) > 1 ? cat(name, "=", *fixed) : "";
  };
  std::vector<std::string> found = {above_one("tp", tp, no_tp),
                                    above_one("pp", pp, no_pp),
                                    above_one("ep", ep, no_ep)};
  if (no_recompute && recompute.value_or(false))
    found.emplace_back("recompute=on");
  for (const std::string& sizes : {zero, zero_experts}) {
    const bool is_plain = sizes.empty() || sizes == "zero1" || sizes == "none";
    const bool is_full = is_plain || sizes == "zero2" || sizes == "zero3";
    if ((no_zero && !is_plain) || (no_hierarchical && !is_full))
      found.push_back("zero=" + sizes);
  }
  for (const std::string& one : found)
    if (!one.empty()) return one;
  return "";
}

namespace {

// Says which axes are fixed.
std::string no_mesh_text(const Model& model, const MeshLimits& limits) {
  std::vector<std::string> fixed;
  for (const auto& [name, size] :
       {std::pair("dp", limits.dp), std::pair("tp", limits.tp),
        std::pair("pp", limits.pp), std::pair("ep", limits.ep)})
    if (size) fixed.push_back(cat(name, "=", *size));
  const bool lacks_experts =
      limits.ep.value_or(1) > 1 && model.num_experts == 0;
  return cat("no mesh of them has ", join(fixed, ", "),
             lacks_experts ? ": the model has no experts" : "");
}

std::vector<int32_t> divisors_of(int32_t number) {
  std::vector<int32_t> out;
  for (int32_t d = 1; d <= number; ++d)
    if (number % d == 0) out.push_back(d);
  return out;
}

bool allows(const std::optional<int32_t>& fixed, bool forbidden, int32_t size) {
  if (fixed) return *fixed == size;
  return size == 1 || !forbidden;
}

// Returns why a mesh is not in the space; "" if it is.
std::string refusal_of(const Model& model, const Mesh& mesh,
                       int32_t ranks_per_node, const MeshLimits& limits) {
  if (mesh.tp > ranks_per_node && !limits.tp_across_nodes)
    return cat("mesh: tp=", mesh.tp, " is more than the ", ranks_per_node,
               " ranks of a node");
  try {
    check_mesh(mesh, model);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

MeshSpace meshes_in_space(const Model& model, int32_t ranks,
                          int32_t ranks_per_node, const MeshLimits& limits) {
  if (limits.mesh) return {.meshes = {*limits.mesh}};
  MeshSpace space;
  const std::vector<int32_t> sizes = divisors_of(ranks);
  const auto add = [&](int32_t tp, int32_t pp, int32_t ep) {
    if (int64_t{tp} * pp * ep > ranks || ranks % (tp * pp * ep) != 0) return;
    const Mesh mesh{.dp = ranks / (tp * pp * ep), .tp = tp, .pp = pp, .ep = ep};
    if (limits.dp && *limits.dp != mesh.dp) return;
    const std::string refusal = refusal_of(model, mesh, ranks_per_node, limits);
    if (refusal.empty()) return space.meshes.push_back(mesh);
    ++space.refused;
    space.refusal = refusal;
  };
  for (const int32_t tp : sizes)
    for (const int32_t pp : sizes)
      for (const int32_t ep : sizes)
        if (allows(limits.tp, limits.no_tp, tp) &&
            allows(limits.pp, limits.no_pp, pp) &&
            allows(limits.ep, limits.no_ep, ep) &&
            (ep == 1 || model.num_experts > 0))
          add(tp, pp, ep);
  if (space.meshes.empty() && space.refusal.empty())
    space.refusal = no_mesh_text(model, limits);
  return space;
}

std::vector<BatchSplit> batch_splits(int64_t global_batch, int64_t length,
                                     int32_t homes, const MeshLimits& limits) {
  const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  if (limits.batch) return {*limits.batch};
  if (limits.tokens) {
    const int64_t of_rank = divide_up(global_batch, homes);
    return {{*limits.tokens, divide_up(of_rank, *limits.tokens)}};
  }
  const int64_t sequences = divide_up(global_batch, length);
  if (sequences < homes) return {};
  const int64_t of_rank = divide_up(sequences, homes);
  std::vector<BatchSplit> splits;
  for (int64_t each = 1; each < 2 * of_rank; each *= 2) {
    const int64_t count = divide_up(of_rank, each);
    const BatchSplit split{divide_up(of_rank, count) * length, count};
    if (splits.empty() || splits.back() != split) splits.push_back(split);
  }
  return splits;
}

std::vector<ZeroSizes> sizes_in_space(int32_t homes, const MeshLimits& limits,
                                      const std::string& fixed) {
  std::vector<ZeroSizes> all = all_zero_sizes(homes);
  if (!fixed.empty()) {
    const ZeroSizes only = with_states(parse_zero(fixed, homes), homes);
    std::erase_if(all, [&](const ZeroSizes& z) { return z != only; });
    return all;
  }
  if (limits.no_zero)
    std::erase_if(all, [&](const ZeroSizes& z) { return !is_plain(z, homes); });
  if (limits.no_hierarchical) {
    const ZeroSizes two{homes, homes, 1}, three{homes, homes, homes};
    std::erase_if(all, [&](const ZeroSizes& z) {
      return !is_plain(z, homes) && z != two && z != three;
    });
  }
  return all;
}

std::string_view to_string(LayoutKind kind) {
  constexpr std::array<std::string_view, kNumLayoutKinds> kNames{
      "zero1", "zero2 or zero3", "hierarchical zero", "tp", "pp", "tp+pp", "ep",
      "tp+ep", "pp+ep",          "tp+pp+ep"};
  return kNames[static_cast<size_t>(kind)];
}

namespace {

// What a layout without other axes does with ZeRO: 0 plain, 1 cut over all
// ranks that have a copy, 2 anything else.
int zero_class(const ZeroSizes& sizes, int32_t homes) {
  if (sizes.z1 == 0 || is_plain(sizes, homes)) return 0;
  const bool full = sizes.z1 == homes && sizes.z2 == homes &&
                    (sizes.z3 == homes || sizes.z3 == 1);
  return full ? 1 : 2;
}

}  // namespace

LayoutKind kind_of(const MeshChoice& choice, bool counts_axes) {
  const Mesh& mesh = choice.mesh;
  const int axes =
      (mesh.tp > 1 ? 1 : 0) + (mesh.pp > 1 ? 2 : 0) + (mesh.ep > 1 ? 4 : 0);
  if (axes > 0 && counts_axes)
    return static_cast<LayoutKind>(static_cast<int>(LayoutKind::kTp) + axes -
                                   1);
  const int zero = std::max(zero_class(choice.dense, mesh.homes()),
                            zero_class(choice.experts, mesh.expert_homes()));
  return static_cast<LayoutKind>(zero);
}

std::vector<std::string> not_in_mesh_space() {
  return {"virtual pipeline stages", "context parallelism",
          "recomputation of feed-forward blocks alone",
          "optimizer states as remainders, in 8 bits or on the host"};
}

}  // namespace canzona::sim
