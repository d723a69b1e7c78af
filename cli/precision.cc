#include "cli/precision.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cpu/features.h"
#include "canzona/train/config_keys.h"
#include "cli/output.h"

namespace canzona::cli {
namespace {

constexpr const char* kPrecision = "precision";

bool has_precision(const std::string& rule) {
  const std::vector<std::string> able = rules_with(kPrecision);
  return std::ranges::find(able, rule) != able.end();
}

bool is_auto(const RuleOptions& options) {
  const auto given = options.find(kPrecision);
  return given == options.end() || given->second == "auto";
}

// Says why a CPU with or without fast bf16 products uses `precision`.
std::string reason_on_cpu(const RuleOptions& in_force) {
  const std::string_view fast = fast_bf16(cpu_features());
  if (fast.empty()) return "auto: no fast bf16";
  if (in_force.at(kPrecision) == "bf16") return cat("auto: ", fast);
  const auto found = in_force.find("coefficients");
  return cat(
      "auto: ", found == in_force.end() ? "the rule" : found->second.c_str(),
      " is not for bf16");
}

std::string word_of(const SettingValue& value) {
  if (const auto* raw = std::get_if<RawText>(&value)) return raw->text;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "";
}

// Returns the last value given for a key.
std::string asked_for(const Settings& given, const std::string& key,
                      std::string otherwise) {
  for (const Setting& setting : given)
    if (setting.key == key) otherwise = word_of(setting.value);
  return otherwise;
}

// Exchanged between processes.
struct SettledHere {
  char precision[16] = {};
  char why[48] = {};
  char host[64] = {};
};

template <size_t N>
void put(char (&to)[N], const std::string& text) {
  std::memcpy(to, text.data(), std::min(N - 1, text.size()));
}

std::vector<SettledHere> settled_by_all(Communicator& world,
                                        const PrecisionChoice& own) {
  SettledHere here;
  put(here.precision, own.precision);
  put(here.why, own.why);
  put(here.host, host_name());
  const auto size = static_cast<size_t>(world.size());
  std::vector<SettledHere> all(size);
  const std::vector<int64_t> bytes(size, sizeof(SettledHere));
  world.all_gather_v(std::as_bytes(std::span(&here, 1)), bytes,
                     std::as_writable_bytes(std::span(all)),
                     {.label = "precision"});
  return all;
}

std::string named_rank(size_t rank, const SettledHere& there) {
  return cat("rank ", rank, " on ", printable(there.host), " has ",
             there.precision[0] == '\0' ? "none" : there.precision, " (",
             printable(there.why), ")");
}

}  // namespace

PrecisionChoice settle_precision(const std::string& rule,
                                 const std::string& device,
                                 RuleOptions& options) {
  if (!has_precision(rule)) return {};
  if (!is_auto(options)) return {options.at(kPrecision), "--rule-option"};
  const bool host = !device_kind(device).has_own_memory;
  if (host && fast_bf16(cpu_features()).empty())
    options[kPrecision] = "fp32";
  else
    options.erase(kPrecision);
  const RuleOptions in_force =
      make_rule_facts(rule, with_device(rule, options, device))->options();
  options[kPrecision] = in_force.at(kPrecision);
  return {options[kPrecision],
          host ? reason_on_cpu(in_force) : cat("auto: ", device)};
}

TrainConfig make_settled_config(Settings given) {
  const std::string key = std::string(kRuleOption) + kPrecision;
  const std::string rule =
      asked_for(given, "rule.name", TrainConfig().rule.name);
  if (!has_precision(rule) || asked_for(given, key, "auto") != "auto")
    return make_config(given);
  const std::string device = asked_for(given, "device", TrainConfig().device);
  const DeviceKind* kind = find_device_kind(device);
  const bool host = kind == nullptr || !kind->has_own_memory;
  // Done before options are checked against each other, because some are
  // refused only in bf16.
  if (host && fast_bf16(cpu_features()).empty())
    given.push_back({key, RawText{"fp32"}, "auto"});
  TrainConfig config = make_config(given);
  const RuleOptions in_force =
      make_rule_facts(rule, rule_options_of(config))->options();
  config.rule.options[kPrecision] = in_force.at(kPrecision);
  config.origins[key] = host ? reason_on_cpu(in_force) : "auto: " + device;
  return config;
}

PrecisionChoice precision_of(const TrainConfig& settled) {
  const auto found = settled.rule.options.find(kPrecision);
  if (found == settled.rule.options.end()) return {};
  return {found->second, settled.origin(std::string(kRuleOption) + kPrecision)};
}

void require_same_precision(Ranks& ranks, const PrecisionChoice& own) {
  if (ranks.transport() == "thread") return;
  std::vector<SettledHere> all;
  ranks.runner()(
      {}, [&](Communicator& world) { all = settled_by_all(world, own); });
  const auto other = std::ranges::find_if(all, [&](const SettledHere& there) {
    return std::strcmp(there.precision, all.front().precision) != 0;
  });
  if (other == all.end()) return;
  ranks.finish();
  throw UsageError(
      cat("the ranks disagree about the rule's precision: ",
          named_rank(0, all.front()), ", ",
          named_rank(static_cast<size_t>(other - all.begin()), *other),
          "; give all ranks the same, such as --rule-option precision=fp32"));
}

}  // namespace canzona::cli
