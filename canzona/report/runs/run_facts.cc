#include "canzona/report/runs/run_facts.h"

#include <algorithm>
#include <map>

#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr size_t kMaxFacts = 2000;
constexpr size_t kMaxText = 400;

void flatten(const Json& value, const std::string& name, Facts& facts) {
  if (facts.size() >= kMaxFacts) return;
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, member] : value.items())
      flatten(member, name.empty() ? key : name + "." + key, facts);
    return;
  }
  const std::string text =
      value.is_string()
          ? value.get<std::string>()
          : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  facts.emplace_back(printable(name, kMaxText), printable(text, kMaxText));
}

// Of the rank that has most; nothing where it is not known.
std::string most_bytes(const RunSummary& summary, int64_t RankSummary::*field) {
  int64_t most = -1;
  for (const RankSummary& rank : summary.per_rank)
    most = std::max(most, rank.*field);
  return most < 0 ? "" : human_bytes(most);
}

}  // namespace

Facts configuration_of(const TrainingRun& run) {
  Facts facts;
  if (run.summary && !run.summary->config.empty())
    flatten(run.summary->config, "", facts);
  return facts;
}

Facts environment_of(const TrainingRun& run) {
  if (!run.summary) return {};
  const RunSummary& s = *run.summary;
  const RunEnvironment& e = s.environment;
  Facts facts = {
      {"model", s.model},
      {"parameters",
       s.parameters > 0 ? human_count(static_cast<double>(s.parameters)) : ""},
      {"mesh", s.mesh},
      {"ranks", cat(s.ranks)},
      {"transport", s.transport},
      {"rule", s.rule},
      {"precision",
       s.precision.empty() ? "" : cat(s.precision, " (", s.precision_why, ")")},
      {"strategy", s.strategy},
      {"zero", s.zero},
      {"overlap", s.overlap},
      {"sent in a step, inside nodes",
       most_bytes(s, &RankSummary::fast_bytes_per_step)},
      {"sent in a step, between nodes",
       most_bytes(s, &RankSummary::slow_bytes_per_step)},
      {"data", s.data},
      {"data digest", s.data_digest},
      {"plan digest", s.plan_digest},
      {"parameters digest", s.digest},
      {"states digest", s.state_digest},
      {"host", e.host},
      {"cpu", e.cpu},
      {"cores", e.cores > 0 ? cat(e.cores) : ""},
      {"BLAS", e.blas},
      {"version", e.version},
      {"commit", e.commit},
  };
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  for (auto& [name, value] : facts) value = printable(value, kMaxText);
  return facts;
}

std::vector<FactRow> side_by_side(const std::vector<Facts>& facts) {
  std::vector<FactRow> rows;
  std::map<std::string, size_t> place;
  for (size_t run = 0; run < facts.size(); ++run)
    for (const auto& [name, value] : facts[run]) {
      const auto [at, is_new] = place.emplace(name, rows.size());
      if (is_new)
        rows.push_back({name, std::vector<std::string>(facts.size()), false});
      rows[at->second].values[run] = value;
    }
  for (FactRow& row : rows)
    row.differs = std::any_of(
        row.values.begin(), row.values.end(),
        [&](const std::string& value) { return value != row.values[0]; });
  return rows;
}

}  // namespace canzona
