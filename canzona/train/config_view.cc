// A configuration as rows, as JSON and as a table for the documentation.
#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/train/config_keys.h"

namespace canzona {
namespace {

const RuleEntry& entry_of(const std::string& rule) {
  return *std::ranges::find(rule_table(), rule, &RuleEntry::name);
}

std::string meaning_of(const RuleEntry& entry, const std::string& option) {
  const auto fact = std::ranges::find(entry.options, option, &OptionFact::name);
  return fact == entry.options.end() ? "whose settings to take" : fact->meaning;
}

// Behind the rule's own keys: its options in force.
void add_options(const TrainConfig& config, std::vector<ConfigRow>& rows) {
  const auto facts = make_rule_facts(config.rule.name, rule_options_of(config));
  for (const auto& [name, value] : facts->options()) {
    const std::string key = kRuleOption + name;
    if (name == "learning_rate" || name == "weight_decay") continue;
    const auto origin = config.origins.find(key);
    rows.push_back({key, value,
                    origin == config.origins.end() ? config.rule.name + "'s own"
                                                   : origin->second,
                    meaning_of(entry_of(config.rule.name), name)});
  }
}

struct WriteValue {
  JsonWriter& out;
  template <class Type>
  void operator()(const Type* value) const {
    out.value(*value);
  }
};

void write_key(JsonWriter& out, const ConfigKey& key) {
  if (key.is_word())
    out.value(key.text());
  else
    std::visit(WriteValue{out}, key.value);
}

std::string section_of(const std::string& key) {
  const size_t dot = key.find('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

void write_options(JsonWriter& out, const RuleOptions& options) {
  if (options.empty()) return;
  out.member("option").begin_object();
  for (const auto& [name, value] : options) out.field(name, value);
  out.end_object();
}

}  // namespace

std::vector<ConfigRow> config_rows(const TrainConfig& config) {
  TrainConfig copy = config;
  std::vector<ConfigRow> rows;
  for (const ConfigKey& key : config_keys(copy)) {
    rows.push_back({key.name, key.text(), config.origin(key.name), key.help});
    if (key.name == "rule.weight_decay") add_options(config, rows);
  }
  return rows;
}

void write_config(JsonWriter& out, const TrainConfig& config) {
  TrainConfig copy = config;
  std::string section;
  out.begin_object();
  const auto enter = [&](const std::string& next) {
    if (next == section) return;
    if (section == "rule") write_options(out, config.rule.options);
    if (!section.empty()) out.end_object();
    if (!next.empty()) out.member(next).begin_object();
    section = next;
  };
  for (const ConfigKey& key : config_keys(copy)) {
    enter(section_of(key.name));
    out.member(section.empty() ? key.name
                               : key.name.substr(section.size() + 1));
    write_key(out, key);
  }
  enter("");
  out.end_object();
}

std::string config_markdown() {
  TrainConfig defaults;
  std::string out =
      "| key | default | allowed | what it is |\n|---|---|---|---|\n";
  const TrainConfig tiny = make_config({});
  for (const ConfigKey& key : config_keys(defaults)) {
    const bool preset = tiny.origin(key.name).starts_with("preset");
    const std::string value = preset               ? "the preset's"
                              : key.text().empty() ? ""
                                                   : "`" + key.text() + "`";
    out += cat("| `", key.name, "` | ", value, " | ", key.allowed(), " | ",
               key.help, " |\n");
  }
  return out;
}

}  // namespace canzona
