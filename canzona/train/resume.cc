#include "canzona/train/resume.h"

#include <algorithm>
#include <array>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/train/config_keys.h"

namespace canzona {
namespace {

// Decays, tolerances and forms of products leave the meaning of the states
// unchanged. Options not listed must stay: sizes of blocks, the kind of
// momentum, or the basis that it is kept in.
constexpr auto kOptionsThatMayChange =
    std::to_array<std::string_view>({"beta1",
                                     "beta2",
                                     "beta3",
                                     "cautious_decay",
                                     "coefficients",
                                     "device",
                                     "epsilon",
                                     "grafting_beta2",
                                     "grafting_epsilon",
                                     "max_update_rms",
                                     "momentum",
                                     "nesterov",
                                     "newton_schulz",
                                     "power_steps",
                                     "precision",
                                     "precondition_frequency",
                                     "restarts",
                                     "scale",
                                     "scale_extra",
                                     "steps",
                                     "strips"});

struct KeptValue {
  std::string key, saved, now;
};

std::vector<KeptValue> keys_that_differ(const TrainConfig& saved,
                                        const TrainConfig& now) {
  TrainConfig before = saved, after = now;
  const std::vector<ConfigKey> old_keys = config_keys(before);
  const std::vector<ConfigKey> new_keys = config_keys(after);
  std::vector<KeptValue> out;
  for (size_t k = 0; k < old_keys.size(); ++k) {
    const std::string was = old_keys[k].text(), is = new_keys[k].text();
    if (was != is && old_keys[k].on_resume != OnResume::kMayChange)
      out.push_back({old_keys[k].name, was, is});
  }
  return out;
}

// Compares effective values, because a preset of the rule stands for many.
void add_options_that_differ(const TrainConfig& saved, const TrainConfig& now,
                             std::vector<KeptValue>& out) {
  if (saved.rule.name != now.rule.name) return;
  const auto in_force = [](const TrainConfig& config) {
    return make_rule_facts(config.rule.name, rule_options_of(config))
        ->options();
  };
  const RuleOptions before = in_force(saved), after = in_force(now);
  for (const auto& [name, value] : before) {
    const auto other = after.find(name);
    const std::string is = other == after.end() ? "" : other->second;
    const bool has_own_key = name == "learning_rate" || name == "weight_decay";
    // AdamW's own options come from keys that may change.
    if (value != is && !has_own_key && !may_change_option(name))
      out.push_back({kRuleOption + name, value, is});
  }
}

std::string origin_of(const TrainConfig& config, const std::string& key) {
  const auto origin = config.origins.find(key);
  return origin == config.origins.end() ? config.rule.name + "'s own"
                                        : origin->second;
}

std::string shown(const std::string& value) {
  return value.empty() ? "none" : value;
}

}  // namespace

Settings saved_settings(std::string_view config_json,
                        const std::string& origin) {
  Settings settings = json_settings(config_json, origin);
  std::erase_if(settings, [](const Setting& setting) {
    return setting.key == "run" || setting.key == "ranks";
  });
  return settings;
}

bool may_change_option(const std::string& option) {
  return std::ranges::find(kOptionsThatMayChange, option) !=
         kOptionsThatMayChange.end();
}

void require_resumable(const TrainConfig& saved, const TrainConfig& now,
                       const std::string& origin) {
  std::vector<KeptValue> differing = keys_that_differ(saved, now);
  add_options_that_differ(saved, now, differing);
  if (differing.empty()) return;
  constexpr size_t kMost = 10;
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(kMost, differing.size()); ++i) {
    const KeptValue& value = differing[i];
    lines.push_back(cat(value.key, " is ", shown(value.saved), " in the ",
                        origin, ", and ", shown(value.now), " now (",
                        origin_of(now, value.key), ")"));
  }
  if (differing.size() > kMost)
    lines.push_back(cat("and ", differing.size() - kMost, " more"));
  throw UsageError(cat("resume: ", join(lines, "; "),
                       "; a run that goes on keeps ",
                       differing.size() == 1 ? "it" : "them",
                       " (canzona config keys says which may change): leave ",
                       differing.size() == 1 ? "it" : "them",
                       " out, or begin another run instead of resuming"));
}

}  // namespace canzona
