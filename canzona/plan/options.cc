#include "canzona/plan/options.h"

#include <algorithm>
#include <set>

#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/rules/facts.h"

namespace canzona {
namespace {

constexpr EnumNames<Weight, 3> kWeights{{{Weight::kNumel, "numel"},
                                         {Weight::kFlops, "flops"},
                                         {Weight::kCost, "cost"}}};
constexpr EnumNames<DType, 2> kDtypes{
    {{DType::kBf16, "bf16"}, {DType::kFp32, "fp32"}}};
constexpr EnumNames<MasterForm, 2> kMasterForms{
    {{MasterForm::kFp32, "fp32"}, {MasterForm::kRemainder, "remainder"}}};

}  // namespace

std::string_view to_string(Weight weight) { return name_of(kWeights, weight); }
Weight parse_weight(std::string_view text) {
  return value_of(kWeights, text, "weight");
}

DType parse_dtype(std::string_view text, std::string_view what) {
  return value_of(kDtypes, text, what);
}

void check_dtype(DType dtype, std::string_view what) {
  parse_dtype(to_string(dtype), what);
}

std::string_view to_string(MasterForm form) {
  return name_of(kMasterForms, form);
}
MasterForm parse_master_form(std::string_view text) {
  return value_of(kMasterForms, text, "master");
}

int64_t master_bytes_per_element(DType dtype, MasterForm form) {
  if (dtype != DType::kBf16) return 0;
  return form == MasterForm::kFp32 ? kBytesPerFp32 : kBytesPerBf16;
}

Links parse_links(std::string_view text, const Links& usual) {
  Links links = usual;
  links.nominal = false;
  std::set<std::string> seen;
  for (const std::string& word : split_text(text, ',')) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (!seen.insert(key).second) {
      throw UsageError(cat("link ", quoted(text), ": ", quoted(key), " twice"));
    }
    const std::string value =
        equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "intra") {
      links.intra_bytes_per_second = parse_bandwidth(value, "link intra");
    } else if (key == "inter") {
      links.inter_bytes_per_second = parse_bandwidth(value, "link inter");
    } else if (key == "latency") {
      links.latency_seconds = parse_duration(value, "link latency");
    } else if (key == "intra_latency") {
      links.intra_latency_seconds = parse_duration(value, "link intra_latency");
    } else {
      throw UsageError(cat(
          "link ", quoted(text), ": unknown part ", quoted(key),
          ", expected intra, inter, latency or intra_latency",
          did_you_mean(key, {"intra", "inter", "latency", "intra_latency"})));
    }
  }
  return links;
}

std::string teams_text(int32_t teams) {
  if (teams == kTeamsAuto) return "auto";
  return teams == kTeamsOff ? "off" : std::to_string(teams);
}

int32_t parse_teams(std::string_view text) {
  for (const int32_t teams : {kTeamsAuto, kTeamsOff, 2, 4, kLargestTeam})
    if (text == teams_text(teams)) return teams;
  throw UsageError(cat("teams ", quoted(text),
                       ": expected auto, off, 2, 4 or 8, the largest number "
                       "of ranks that may share a matrix"));
}

int32_t largest_team(int32_t teams, int32_t ranks_of_home) {
  int32_t most = teams == kTeamsAuto ? kLargestTeam : teams;
  while (most > ranks_of_home) most /= 2;
  return std::max(most, 1);
}

void check_splits(const Splits& splits, std::string_view rule) {
  const std::vector<std::string> able = rules_with("column_heads");
  if (!splits.output_head || std::ranges::count(able, rule) > 0) return;
  throw UsageError(cat("split output-head: rule ", rule,
                       " cuts no columns into heads; use rule ",
                       join(able, ", "), ", or leave output-head out"));
}

void check_teams(int32_t teams) {
  if (teams != kTeamsAuto && teams != kTeamsOff && !is_team_size(teams))
    throw UsageError(cat("teams ", teams, ": expected auto, off, 2, 4 or 8"));
}

void check_options(const PlanOptions& options) {
  check_dtype(options.parameters, "parameters");
  if (options.master == MasterForm::kRemainder &&
      options.parameters != DType::kBf16)
    throw UsageError(
        "master remainder: parameters in fp32 have no masters beside them; "
        "expected fp32, or parameters in bf16");
  if (options.alpha && !(*options.alpha >= 0 && *options.alpha <= 1)) {
    throw UsageError(cat("alpha ", *options.alpha, ": expected 0 to 1"));
  }
  if (options.bucket_elements < 1 &&
      options.bucket_elements != kAutoBucketElements) {
    throw UsageError(cat("bucket-elements ", options.bucket_elements,
                         ": expected at least 1"));
  }
  for (const auto& [name, bytes] :
       {std::pair{"capacity", options.capacity_bytes},
        std::pair{"memory-cap", options.memory_cap_bytes}}) {
    if (bytes < 0)
      throw UsageError(cat(name, " ", bytes, ": expected at least 0 bytes"));
  }
  check_teams(options.teams);
  if (options.ranks_per_node < 1 || options.ranks_per_node > kMaxWorld) {
    throw UsageError(cat("ranks-per-node ", options.ranks_per_node,
                         ": expected 1 to ", kMaxWorld));
  }
}

}  // namespace canzona
