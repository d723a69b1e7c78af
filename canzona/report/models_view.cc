#include "canzona/report/models_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/terminal.h"
#include "canzona/rules/facts.h"

namespace canzona {
namespace {

// A file may name tensors that have nothing in common, one line each.
constexpr size_t kMaxLines = 60;

bool is_number(std::string_view part) {
  return !part.empty() &&
         part.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string key_of(const Tensor& tensor, std::string_view pattern) {
  std::string key(pattern);
  for (const int64_t size : tensor.shape) key += '|' + std::to_string(size);
  key += '|';
  for (const int kind : {static_cast<int>(tensor.role),
                         static_cast<int>(tensor.cut), +tensor.matrix_rule})
    key += static_cast<char>('0' + kind);
  return key;
}

TensorGroup start_group(const Tensor& tensor, std::string pattern) {
  return {.pattern = std::move(pattern),
          .shape = tensor.shape,
          .role = tensor.role,
          .cut = tensor.cut,
          .matrix_rule = tensor.matrix_rule};
}

std::vector<int64_t> count_matrices(const Model& model,
                                    std::span<const Matrix> matrices) {
  std::vector<int64_t> counts(model.tensors.size(), 0);
  for (const Matrix& matrix : matrices)
    ++counts[static_cast<size_t>(matrix.tensor)];
  return counts;
}

std::string matrices_text(const TensorGroup& group) {
  if (!group.matrix_rule) return "";
  return grouped(group.num_matrices);
}

std::string rule_of(const TensorGroup& group, std::string_view rule) {
  return group.matrix_rule ? std::string(rule) : kElementRule;
}

// "muon 448 matrices, 31.2B elements (95.3 %)".
std::string totals_text(const std::vector<TensorGroup>& groups,
                        std::string_view rule) {
  double all = 0, by_rule = 0;
  int64_t num_matrices = 0, num_adamw = 0;
  for (const TensorGroup& group : groups) {
    all += group.elements;
    num_matrices += group.num_matrices;
    if (group.matrix_rule)
      by_rule += group.elements;
    else
      num_adamw += group.num_tensors;
  }
  if (rule == kElementRule)
    return fmt::format("  adamw: {}, {} elements\n",
                       counted(num_adamw, "tensor"), human_count(all));
  const double percent = all > 0 ? 100 * by_rule / all : 0;
  return fmt::format(
      "  {}: {}, {} elements ({:.1f} %) · adamw: {}, {} elements\n", rule,
      counted(num_matrices, "matrix"), human_count(by_rule), percent,
      counted(num_adamw, "tensor"), human_count(all - by_rule));
}

}  // namespace

std::string name_pattern(std::string_view name) {
  std::string out;
  while (true) {
    const size_t end = std::min(name.size(), name.find_first_of("./:"));
    const std::string_view part = name.substr(0, end);
    out.append(is_number(part) ? "*" : part);
    if (end == name.size()) return out;
    out.push_back(name[end]);
    name.remove_prefix(end + 1);
  }
}

std::vector<TensorGroup> group_tensors(const Model& model,
                                       std::span<const Matrix> matrices) {
  const std::vector<int64_t> counts = count_matrices(model, matrices);
  std::vector<TensorGroup> groups;
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const Tensor& tensor = model.tensors[i];
    std::string pattern = name_pattern(tensor.name);
    const auto [at, is_new] =
        places.try_emplace(key_of(tensor, pattern), groups.size());
    if (is_new) groups.push_back(start_group(tensor, std::move(pattern)));
    TensorGroup& group = groups[at->second];
    group.num_tensors += 1;
    group.num_matrices += counts[i];
    group.elements += static_cast<double>(tensor.elements());
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const TensorGroup& g) { return g.matrix_rule; });
  return groups;
}

std::string routing_text(const std::vector<TensorGroup>& groups,
                         std::string_view rule, const Ink& ink) {
  Table table("<~>>><>");
  table.header(
      {"rule", "tensors", "count", "matrices", "shape", "tp cut", "elements"});
  for (size_t i = 0; i < std::min(groups.size(), kMaxLines); ++i) {
    const TensorGroup& group = groups[i];
    table.row({rule_of(group, rule), printable(group.pattern),
               grouped(group.num_tensors), matrices_text(group),
               dims_text(group.shape), std::string(to_string(group.cut)),
               human_count(group.elements)});
  }
  std::string out = table.text(ink);
  if (groups.size() > kMaxLines) {
    out += ink(Tone::kDim, fmt::format("  … and {} more patterns\n",
                                       groups.size() - kMaxLines));
  }
  return out + totals_text(groups, rule);
}

void write_routing(JsonWriter& out, const std::vector<TensorGroup>& groups,
                   std::string_view rule) {
  out.begin_array();
  for (const TensorGroup& group : groups) {
    out.begin_object().field("pattern", group.pattern);
    out.field("rule", rule_of(group, rule));
    out.member("shape").values(group.shape);
    out.field("role", to_string(group.role)).field("tp", to_string(group.cut));
    out.field("num_tensors", group.num_tensors);
    out.field("num_matrices", group.num_matrices);
    out.field("elements", group.elements).end_object();
  }
  out.end_array();
}

namespace {

// The name of the matrix rule is not known here.
constexpr const char* kRule = "matrix";

std::string structure_text(const Model& model) {
  std::string out = fmt::format("{}, {}", model.fused ? "fused" : "separate",
                                counted(model.num_layers, "layer"));
  if (model.query_heads > 0)
    out += fmt::format(", {}, {}", counted(model.query_heads, "query head"),
                       counted(model.kv_heads, "kv head"));
  if (model.num_experts > 0)
    out += fmt::format(", {}", counted(model.num_experts, "expert"));
  return out;
}

void line_members(JsonWriter& out, const ModelLine& line) {
  out.field("name", line.name).field("description", line.description);
  out.field("elements", line.elements).field("num_tensors", line.num_tensors);
  out.field("num_matrices", line.num_matrices);
}

}  // namespace

ModelLine summarize(const Model& model, const std::string& description) {
  ModelLine line{.name = model.name, .description = description};
  line.num_tensors = std::ssize(model.tensors);
  for (const Tensor& tensor : model.tensors) {
    line.elements += static_cast<double>(tensor.elements());
    line.num_matrices += tensor.matrix_rule ? 1 : 0;
  }
  return line;
}

std::string presets_text(const std::vector<ModelLine>& lines,
                         const std::vector<std::string>& families,
                         const Ink& ink) {
  Table table("<>>>~");
  table.header({"model", "parameters", "tensors", "matrices", ""});
  for (const ModelLine& line : lines)
    table.row({line.name, human_count(line.elements), grouped(line.num_tensors),
               grouped(line.num_matrices), line.description});
  return table.text(ink, 0) + "\n" +
         wrap(cat("A Hugging Face config.json may be of the families ",
                  join(families, ", "), "."),
              kPageWidth, 0) +
         "\n";
}

std::string presets_json(const std::vector<ModelLine>& lines,
                         const std::vector<std::string>& families) {
  JsonWriter out(2);
  out.begin_object().member("models").begin_array();
  for (const ModelLine& line : lines) {
    out.begin_object();
    line_members(out, line);
    out.end_object();
  }
  out.end_array().member("families").values(families);
  out.end_object();
  return out.take() + "\n";
}

std::string model_text(const Model& model, const Splits& splits,
                       const Ink& ink) {
  const std::vector<Matrix> matrices = split_into_matrices(model, splits);
  const ModelLine line = summarize(model, "");
  return ink(Tone::kBold, printable(model.name)) +
         fmt::format(": {} parameters, split {}\n  {}\n",
                     human_count(line.elements), to_string(splits),
                     structure_text(model)) +
         routing_text(group_tensors(model, matrices), kRule, ink);
}

std::string model_json(const Model& model, const Splits& splits) {
  const std::vector<Matrix> matrices = split_into_matrices(model, splits);
  const ModelLine line = summarize(model, "");
  JsonWriter out(2);
  out.begin_object().field("name", model.name).field("fused", model.fused);
  out.field("num_layers", model.num_layers);
  out.field("num_experts", model.num_experts);
  out.field("query_heads", model.query_heads).field("kv_heads", model.kv_heads);
  out.field("elements", line.elements).field("num_tensors", line.num_tensors);
  out.field("num_matrices", matrices.size()).field("split", to_string(splits));
  out.member("tensors");
  write_routing(out, group_tensors(model, matrices), kRule);
  out.end_object();
  return out.take() + "\n";
}

namespace {

int64_t parameter_bytes(const SettledRequest& plan, int64_t elements) {
  return elements * size_of(plan.options.parameters);
}

// Returns the part of the matrix's name that follows the tensor's name, or
// "whole" if the two are the same.
std::string split_text_of(const std::string& tensor,
                          const std::string& matrix) {
  return matrix.size() > tensor.size() ? matrix.substr(tensor.size() + 1)
                                       : "whole";
}

AuditRow row_of_matrix(const PlanPart& plan, int32_t m) {
  const Matrix& matrix = plan.matrices[index(m)];
  const std::string& tensor = plan.model.tensors[index(matrix.tensor)].name;
  AuditRow row;
  row.name = name_of(plan, m);
  row.rule = plan.rule;
  row.split = split_text_of(tensor, row.name);
  row.home = plan.home[index(matrix.tensor)];
  row.owners = owner_ranks(plan, m);
  row.team = team_of(plan, m);
  row.bytes = parameter_bytes(plan, matrix.rows * matrix.cols);
  row.seconds = period_load(plan, plan.costs[index(m)]) / plan.period *
                plan.cost_basis.seconds_per_tick;
  return row;
}

AuditRow row_of_elements(const Plan& plan, const Tensor& tensor) {
  return {.name = tensor.name,
          .rule = kElementRule,
          .split = "elements",
          .owners = {},
          .bytes = parameter_bytes(plan, tensor.elements())};
}

// "0 1 2 3: 22 21 21 21 blocks"
std::string block_owner_text(const TeamStory& team) {
  std::vector<std::string> ranks, counts;
  for (const TeamMember& member : team.members) {
    ranks.push_back(fmt::to_string(member.rank));
    counts.push_back(fmt::to_string(member.blocks.size()));
  }
  return join(ranks, " ") + ": " + join(counts, " ") + " blocks";
}

// "head 3, 0 1 2: 2 strips each", "3, helper 0"
std::string team_owner_text(const TeamStory& team) {
  if (!team.has_head()) return block_owner_text(team);
  if (team.has_helper)
    return fmt::format("{}, helper {}", team.members[0].rank,
                       team.members[1].rank);
  std::string out = fmt::format("head {},", team.members.front().rank);
  for (size_t i = 1; i < team.members.size(); ++i)
    out += fmt::format(" {}", team.members[i].rank);
  const int32_t strips = team.members.front().num_strips;
  return out + fmt::format(": {} strip{} each", strips, strips == 1 ? "" : "s");
}

std::string owner_text(const AuditRow& row) {
  constexpr size_t kMost = 4;
  if (row.owners.empty()) return "who keeps it";
  if (row.team) return team_owner_text(*row.team);
  if (row.owners.size() > kMost)
    return fmt::format("{} … {}, {} ranks", row.owners.front(),
                       row.owners.back(), row.owners.size());
  std::vector<std::string> words;
  for (const int32_t rank : row.owners) words.push_back(fmt::to_string(rank));
  return join(words, " ");
}

}  // namespace

std::vector<AuditRow> audit(const Plan& plan) {
  std::vector<AuditRow> rows;
  TeamReasons reasons(plan);
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    const Tensor& tensor = plan.model.tensors[t];
    if (!tensor.matrix_rule) rows.push_back(row_of_elements(plan, tensor));
    for (int32_t m = plan.first_matrix[t]; m < plan.first_matrix[t + 1]; ++m) {
      const MatrixInPart at = matrix_in_part(plan, m);
      rows.push_back(row_of_matrix(*at.part, at.matrix));
      rows.back().team_reason = reasons.of(m);
    }
  }
  return rows;
}

namespace {

// Describes the plan's teams, then lists every reason for or against a team
// with the number of matrices it applies to.
std::string audit_teams(const Plan& plan, const std::vector<AuditRow>& rows) {
  if (!may_have_teams(plan)) return "";
  std::string out =
      "  " + wrap("teams: " + describe_teams(plan), kPageWidth - 2, 2) + "\n";
  std::map<std::string, int64_t> reasons;
  for (const AuditRow& row : rows)
    if (!row.team_reason.empty()) ++reasons[row.team_reason];
  for (const auto& [reason, count] : reasons)
    out += "  " +
           wrap(fmt::format("{} × {}", count, reason), kPageWidth - 2, 4) +
           "\n";
  return out;
}

}  // namespace

std::string audit_text(const Plan& plan, const Ink& ink) {
  Table table("~<<>>>>");
  table.header({"tensor", "rule", "split", "home", "owner", "bytes", "cost"});
  const std::vector<AuditRow> rows = audit(plan);
  for (const AuditRow& row : rows)
    table.row({printable(row.name), row.rule, printable(row.split),
               row.home == kEveryHome ? "all" : fmt::to_string(row.home),
               owner_text(row), human_bytes(row.bytes),
               row.seconds > 0 ? human_seconds(row.seconds) : ""});
  return ink(Tone::kBold, "Audit") +
         fmt::format(" of {}: {} on {}, costs predicted\n",
                     plan.options.strategy, plan.rule, to_string(plan.mesh)) +
         table.text(ink) + audit_teams(plan, rows);
}

void write_audit(JsonWriter& out, const Plan& plan) {
  out.begin_array();
  for (const AuditRow& row : audit(plan)) {
    out.begin_object().field("tensor", row.name).field("rule", row.rule);
    out.field("split", row.split).member("home");
    if (row.home == kEveryHome)
      out.null();
    else
      out.value(row.home);
    out.member("owners").values(row.owners);
    if (row.team) write_team(out.member("team"), *row.team);
    if (!row.team_reason.empty()) out.field("team_reason", row.team_reason);
    out.field("bytes", row.bytes).field("predicted_seconds", row.seconds);
    out.end_object();
  }
  out.end_array();
}

namespace {

// The states of an m x n matrix are shown with these two sizes, which occur
// nowhere else in them.
constexpr MatrixShape kExample = {640, 896};

std::vector<const RuleEntry*> chosen(const std::string& name) {
  std::vector<const RuleEntry*> entries;
  for (const RuleEntry& entry : rule_table())
    if (name.empty() || entry.name == name) entries.push_back(&entry);
  if (entries.empty()) make_rule_facts(name, {});  // throws UsageError
  return entries;
}

std::string side_text(int64_t side) {
  if (side == kExample.rows) return "m";
  return side == kExample.cols ? "n" : std::to_string(side);
}

std::vector<std::string> sides_text(const StateFact& state) {
  std::vector<std::string> sides;
  for (int64_t side : state.shape) sides.push_back(side_text(side));
  return sides;
}

const char* lives_text(Lives lives) {
  return lives == Lives::kWithShard ? "with the shard" : "with the owner";
}

std::string summaries_text(const Ink& ink) {
  constexpr size_t kColumn = 10;
  std::string out;
  for (const RuleEntry& entry : rule_table()) {
    std::vector<std::string> presets;
    for (const Preset& preset : entry.presets) presets.push_back(preset.name);
    out += pad_right(ink(Tone::kBold, entry.name), kColumn) +
           wrap(entry.summary, kPageWidth - kColumn, kColumn) + "\n";
    if (!presets.empty())
      out += std::string(kColumn, ' ') +
             ink(Tone::kDim, wrap("presets " + join(presets, ", "),
                                  kPageWidth - kColumn, kColumn)) +
             "\n";
  }
  return out +
         "\ncanzona rules RULE shows the options, presets and states of one.\n";
}

// "a|b|c", with spaces to break at where it is too long for one line.
std::string allowed_text(const OptionFact& option) {
  const size_t used = option.name.size() + option.default_value.size() + 6;
  if (used + option.allowed.size() <= kPageWidth) return option.allowed;
  return "\n      " +
         wrap(join(split_text(option.allowed, '|'), " | "), kPageWidth - 8, 6);
}

std::string options_text(const RuleEntry& entry, const Ink& ink) {
  std::string out = "\n" + ink(Tone::kBold, "Options") + "\n";
  for (const OptionFact& option : entry.options)
    out +=
        fmt::format("  {} [{}] {}\n      {}\n", ink(Tone::kAccent, option.name),
                    option.default_value, ink(Tone::kDim, allowed_text(option)),
                    wrap(option.meaning, kPageWidth - 8, 6));
  return out;
}

std::string rule_presets_text(const RuleEntry& entry, const Ink& ink) {
  if (entry.presets.empty()) return "";
  std::string out = "\n" + ink(Tone::kBold, "Presets") +
                    " (option preset; the first is the default)\n";
  for (const Preset& preset : entry.presets) {
    out += fmt::format("  {}: {}\n", ink(Tone::kAccent, preset.name),
                       preset.summary);
    std::vector<std::string> values;
    for (const auto& [name, value] : preset.values)
      values.push_back(name + "=" + value);
    if (!values.empty())
      out += fmt::format("      {}\n",
                         wrap(join(values, ", "), kPageWidth - 8, 6));
  }
  return out;
}

std::string states_text(const RuleEntry& entry, const Ink& ink) {
  Table table("<<<");
  for (const StateFact& state : entry.make({})->states(kExample))
    table.row(
        {state.name, join(sides_text(state), " x "), lives_text(state.lives)});
  return "\n" + ink(Tone::kBold, "States") + " of a matrix m x n\n" +
         table.text(ink);
}

std::string rule_text(const RuleEntry& entry, const Ink& ink) {
  return ink(Tone::kBold, entry.name) + ": " + entry.summary + "\n" +
         options_text(entry, ink) + rule_presets_text(entry, ink) +
         states_text(entry, ink);
}

void write_presets(JsonWriter& out, const RuleEntry& entry) {
  out.member("presets").begin_array();
  for (const Preset& preset : entry.presets) {
    out.begin_object().field("name", preset.name);
    out.field("summary", preset.summary).member("values").begin_object();
    for (const auto& [name, value] : preset.values) out.field(name, value);
    out.end_object().end_object();
  }
  out.end_array();
}

void write_rule(JsonWriter& out, const RuleEntry& entry) {
  out.begin_object().field("name", entry.name);
  out.field("summary", entry.summary).member("options").begin_array();
  for (const OptionFact& option : entry.options) {
    out.begin_object().field("name", option.name);
    out.field("default", option.default_value);
    out.field("allowed", option.allowed).field("meaning", option.meaning);
    out.end_object();
  }
  out.end_array();
  write_presets(out, entry);
  out.member("states").begin_array();
  for (const StateFact& state : entry.make({})->states(kExample)) {
    out.begin_object().field("name", state.name).member("shape");
    out.values(sides_text(state)).field("dtype", state.dtype);
    out.field("lives", state.lives == Lives::kWithShard ? "shard" : "owner");
    out.end_object();
  }
  out.end_array().end_object();
}

}  // namespace

std::string rules_text(const std::string& rule, const Ink& ink) {
  const std::vector<const RuleEntry*> entries = chosen(rule);
  return rule.empty() ? summaries_text(ink) : rule_text(*entries.front(), ink);
}

std::string rules_json(const std::string& rule) {
  JsonWriter out(2);
  out.begin_object().member("rules").begin_array();
  for (const RuleEntry* entry : chosen(rule)) write_rule(out, *entry);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona
