#include "canzona/report/models_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/shown_plan.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/names.h"

namespace canzona::report {
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

std::vector<std::string> unplaced_tensors(const Model& model) {
  std::vector<std::string> patterns;
  for (const Tensor& tensor : model.tensors) {
    if (!is_unplaced(tensor)) continue;
    std::string pattern = name_pattern(tensor.name);
    if (std::ranges::find(patterns, pattern) == patterns.end())
      patterns.push_back(std::move(pattern));
  }
  return patterns;
}

Document& add_routing(Document& out, const char* key,
                      const std::vector<TensorGroup>& groups,
                      std::string_view rule) {
  Listing rows(kMaxLines);
  for (const TensorGroup& group : groups)
    rows.add({{"rule", "<rule", group.matrix_rule ? rule : kElementRule},
              {"pattern", "~tensors", group.pattern},
              {"num_tensors", ">count", as_count(group.num_tensors)},
              {"num_matrices", ">matrices", group.num_matrices,
               group.matrix_rule ? grouped(group.num_matrices) : ""},
              {"shape", ">shape", group.shape, dims_text(group.shape)},
              {"tp", "<tp cut", to_string(group.cut)},
              {"elements", ">elements", group.elements,
               human_count(group.elements)}})
        .set("role", to_string(group.role));
  return out.table(key, rows).text(totals_text(groups, rule));
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

Document presets_view(const std::vector<ModelLine>& lines,
                      const std::vector<std::string>& families) {
  Listing models;
  for (const ModelLine& line : lines)
    models.add(
        {{"name", "<model", line.name},
         {"elements", ">parameters", line.elements, human_count(line.elements)},
         {"num_tensors", ">tensors", as_count(line.num_tensors)},
         {"num_matrices", ">matrices", as_count(line.num_matrices)},
         {"description", "~", line.description}});
  Document out;
  out.table("models", models, "", 0).set("families", families);
  return out.text(
      cat("\n",
          wrap(cat("A Hugging Face config.json may be of the families ",
                   join(families, ", "), "."),
               kPageWidth, 0),
          "\n"));
}

Document model_view(const Model& model, const Splits& splits) {
  const std::vector<Matrix> matrices = split_into_matrices(model, splits);
  const ModelLine line = summarize(model, "");
  Document out;
  out.heading(printable(model.name),
              cat(": ", human_count(line.elements), " parameters, split ",
                  to_string(splits)));
  out.text(cat("  ", structure_text(model), "\n"));
  out.set("name", model.name).set("fused", model.fused);
  out.set("num_layers", model.num_layers).set("num_experts", model.num_experts);
  out.set("query_heads", model.query_heads).set("kv_heads", model.kv_heads);
  out.set("elements", line.elements).set("num_tensors", line.num_tensors);
  out.set("num_matrices", matrices.size()).set("split", to_string(splits));
  add_routing(out, "tensors", group_tensors(model, matrices), kRule);
  const std::vector<std::string> unplaced = unplaced_tensors(model);
  if (!unplaced.empty())
    out.note(
        cat("not placed by their names, so that every tp rank has them "
            "whole: ",
            printable(join(unplaced, ", "))));
  return out.set("unplaced", unplaced);
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

Listing audit_listing(const Plan& plan, const std::vector<AuditRow>& rows) {
  Listing out;
  for (const AuditRow& row : rows) {
    const bool has_home = row.home != kEveryHome;
    Row& line =
        out.add({{"tensor", "~tensor", row.name},
                 {"rule", "<rule", row.rule},
                 {"split", "<split", row.split},
                 {"home", ">home", has_home ? Value(row.home) : Value(nullptr),
                  has_home ? cat(row.home) : "all"},
                 {"owners", ">owner", row.owners, owner_text(row)},
                 {"bytes", ">bytes", as_bytes(row.bytes)},
                 {"predicted_seconds", ">cost", row.seconds,
                  row.seconds > 0 ? human_seconds(row.seconds) : ""}});
    if (row.team) line.set("team", team_view(plan, *row.team).value());
    if (!row.team_reason.empty()) line.set("team_reason", row.team_reason);
  }
  return out;
}

// Below the tensors it describes the plan's teams, then lists every reason for
// or against a team with the number of matrices it applies to.
Document audit_view(const Plan& plan) {
  const std::vector<AuditRow> rows = audit(plan);
  Document out;
  out.heading("Audit", cat(" of ", plan.options.strategy, ": ", plan.rule,
                           " on ", to_string(plan.mesh), ", costs predicted"));
  out.table("audit", audit_listing(plan, rows));
  if (!may_have_teams(plan)) return out;
  out.line("teams: " + describe_teams(plan));
  std::map<std::string, int64_t> reasons;
  for (const AuditRow& row : rows)
    if (!row.team_reason.empty()) ++reasons[row.team_reason];
  for (const auto& [reason, count] : reasons)
    out.line(cat(count, " × ", reason), 4);
  return out;
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

// A rule among others.
std::string summary_text(const RuleEntry& entry) {
  constexpr size_t kColumn = 10;
  std::vector<std::string> presets;
  for (const Preset& preset : entry.presets) presets.push_back(preset.name);
  const auto wrapped = [](const std::string& text) {
    return wrap(text, kPageWidth - kColumn, kColumn);
  };
  std::string out = cat(pad_right(toned(Tone::kBold, entry.name), kColumn),
                        wrapped(entry.summary), "\n");
  if (!presets.empty())
    out +=
        cat(std::string(kColumn, ' '),
            toned(Tone::kDim, wrapped("presets " + join(presets, ", "))), "\n");
  return out;
}

// "a|b|c", with spaces to break at where it is too long for one line.
std::string allowed_text(const OptionFact& option) {
  const size_t used = option.name.size() + option.default_value.size() + 6;
  if (used + option.allowed.size() <= kPageWidth) return option.allowed;
  return "\n      " +
         wrap(join(split_text(option.allowed, '|'), " | "), kPageWidth - 8, 6);
}

void add_options(const RuleEntry& entry, Document& out) {
  out.title("Options");
  Listing options;
  for (const OptionFact& option : entry.options) {
    out.text(fmt::format(
        "  {} [{}] {}\n      {}\n", toned(Tone::kAccent, option.name),
        option.default_value, toned(Tone::kDim, allowed_text(option)),
        wrap(option.meaning, kPageWidth - 8, 6)));
    Row& row = options.add().set("name", option.name);
    row.set("default", option.default_value).set("allowed", option.allowed);
    row.set("meaning", option.meaning);
  }
  out.table("options", options);
}

void add_presets(const RuleEntry& entry, Document& out) {
  if (!entry.presets.empty())
    out.text(cat("\n", toned(Tone::kBold, "Presets"),
                 " (option preset; the first is the default)\n"));
  Listing presets;
  for (const Preset& preset : entry.presets) {
    out.text(cat("  ", toned(Tone::kAccent, preset.name), ": ", preset.summary,
                 "\n"));
    std::vector<std::string> words;
    Members values;
    for (const auto& [name, value] : preset.values) {
      words.push_back(name + "=" + value);
      values.push_back({name, value});
    }
    if (!words.empty())
      out.text(cat("      ", wrap(join(words, ", "), kPageWidth - 8, 6), "\n"));
    Row& row = presets.add().set("name", preset.name);
    row.set("summary", preset.summary).set("values", values);
  }
  out.table("presets", presets);
}

void add_states(const RuleEntry& entry, const RuleOptions& options,
                Document& out) {
  Listing states;
  for (const StateFact& state : entry.make(options)->states(kExample)) {
    const std::vector<std::string> sides = sides_text(state);
    const bool with_shard = state.lives == Lives::kWithShard;
    states
        .add({{"name", "<", state.name},
              {"shape", "<", sides, join(sides, " x ")},
              {"lives", "<", with_shard ? "shard" : "owner",
               with_shard ? "with the shard" : "with the owner"}})
        .set("dtype", state.dtype);
  }
  out.text(cat("\n", toned(Tone::kBold, "States"), " of a matrix m x n\n"));
  out.table("states", states);
}

// The rule with a preset's values in place of the defaults, and no other
// preset. UsageError if it has none of that name.
RuleEntry with_preset(RuleEntry entry, const std::string& preset) {
  if (!has_option(entry, "preset") && entry.presets.empty())
    throw UsageError(cat("rule ", entry.name, " has no presets"));
  entry.make({{"preset", preset}});  // names the presets that there are
  std::erase_if(entry.presets,
                [&](const Preset& other) { return other.name != preset; });
  for (OptionFact& option : entry.options) {
    const auto value = entry.presets[0].values.find(option.name);
    if (value != entry.presets[0].values.end())
      option.default_value = value->second;
  }
  return entry;
}

Document rule_view(const RuleEntry& entry, const RuleOptions& options = {}) {
  Document out;
  out.heading(entry.name, ": " + entry.summary);
  out.set("name", entry.name).set("summary", entry.summary);
  add_options(entry, out);
  add_presets(entry, out);
  add_states(entry, options, out);
  return out;
}

}  // namespace

Document rules_view(const std::string& rule, const std::string& preset) {
  Document out;
  std::vector<Value> rules;
  if (rule.empty() && !preset.empty())
    throw UsageError("--preset " + preset + ": name its rule as well");
  for (const RuleEntry* entry : chosen(rule)) {
    const Document view =
        preset.empty()
            ? rule_view(*entry)
            : rule_view(with_preset(*entry, preset), {{"preset", preset}});
    rules.push_back(view.value());
    rule.empty() ? out.text(summary_text(*entry)) : out.add_text(view);
  }
  if (rule.empty())
    out.text(
        "\ncanzona rules RULE shows the options, presets and states of one.\n");
  return out.set("rules", rules);
}

}  // namespace canzona::report
