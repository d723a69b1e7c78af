#include "canzona/report/audit_view.h"

#include <fmt/format.h>

#include <map>

#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/places.h"
#include "canzona/report/terminal.h"

namespace canzona {
namespace {

int64_t parameter_bytes(const SettledRequest& plan, int64_t elements) {
  return elements * bytes_per_parameter(plan.options.parameters);
}

// Returns what follows the tensor's name in that of the matrix.
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
          .rule = "adamw",
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

// "head 3, 0 1 2: 2 strips each"
std::string team_owner_text(const TeamStory& team) {
  if (!team.has_head()) return block_owner_text(team);
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

// What the plan has of teams, and each reason for which matrices have none or
// one, with how many there are.
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

}  // namespace canzona
