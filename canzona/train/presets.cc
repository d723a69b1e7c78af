#include "canzona/train/presets.h"

#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

using Values = std::vector<std::pair<const char*, const char*>>;

struct RuleValues {
  const char* rule;
  Values values;
};

struct TrainPreset {
  const char* name;
  const char* summary;
  const char* base;  // "": none; its values come first
  Values values;
  std::vector<RuleValues> rules;
};

// Heads and KV heads divide by 4, layers by 2, the batch by 8: meshes of up to
// tp=4, pp=2 and dp=8 fit.
const std::vector<TrainPreset>& table() {
  static const std::vector<TrainPreset> presets = {
      {"tiny",
       "0.85M parameters; a minute on two cores",
       "",
       {{"model.layers", "4"},
        {"model.hidden", "128"},
        {"model.ffn", "384"},
        {"model.heads", "8"},
        {"model.kv_heads", "4"},
        {"model.head_dim", "16"},
        {"model.length", "64"},
        {"batch.global", "16"},
        {"batch.micro", "2"},
        {"steps", "200"},
        {"schedule.warmup", "10"},
        {"adamw.learning_rate", "0.003"}},
       {{"muon", {{"rule.learning_rate", "0.01"}}},
        {"shampoo", {{"rule.learning_rate", "0.003"}}},
        {"soap", {{"rule.learning_rate", "0.012"}}},
        {"adamw", {{"rule.learning_rate", "0.0015"}}},
        {"nsgd", {{"rule.learning_rate", "0.003"}}}}},
      {"small",
       "9M parameters; for comparisons of rules",
       "",
       {{"model.layers", "6"},
        {"model.hidden", "384"},
        {"model.ffn", "768"},
        {"model.heads", "8"},
        {"model.kv_heads", "4"},
        {"model.head_dim", "64"},
        {"model.length", "128"},
        {"batch.global", "8"},
        {"batch.micro", "8"},
        {"steps", "600"},
        {"schedule.warmup", "30"},
        {"adamw.learning_rate", "0.004"}},
       {{"muon", {{"rule.learning_rate", "0.005"}}},
        {"shampoo", {{"rule.learning_rate", "0.00075"}}},
        {"soap", {{"rule.learning_rate", "0.003"}}},
        {"adamw", {{"rule.learning_rate", "0.0005"}}},
        {"nsgd", {{"rule.learning_rate", "0.002"}}}}},
      {"moe-tiny",
       "tiny with 8 experts of which a token takes 2",
       "tiny",
       {{"model.experts", "8"},
        {"model.experts_per_token", "2"},
        {"model.expert_ffn", "128"}},
       {}},
  };
  return presets;
}

const TrainPreset& find(const std::string& name) {
  for (const TrainPreset& preset : table())
    if (preset.name == name) return preset;
  throw UsageError(cat("unknown preset ", quoted(name),
                       did_you_mean(name, preset_names()), "; presets are ",
                       join(preset_names(), ", ")));
}

void append(const Values& values, const std::string& origin, Settings& out) {
  for (const auto& [key, value] : values)
    out.push_back({key, RawText{value}, origin});
}

void append_preset(const TrainPreset& preset, const std::string& rule,
                   const std::string& origin, Settings& out) {
  if (*preset.base != '\0') append_preset(find(preset.base), rule, origin, out);
  append(preset.values, origin, out);
  for (const RuleValues& own : preset.rules)
    if (own.rule == rule) append(own.values, cat(origin, ", ", rule), out);
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const TrainPreset& preset : table()) names.emplace_back(preset.name);
  return names;
}

std::string preset_summary(const std::string& preset) {
  return find(preset).summary;
}

Settings preset_settings(const std::string& preset, const std::string& rule) {
  Settings out;
  append_preset(find(preset), rule, "preset " + preset, out);
  return out;
}

}  // namespace canzona
