#include "canzona/report/rules_view.h"

#include <fmt/format.h>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"

namespace canzona {
namespace {

// States are shown for a matrix m x n of these sizes; no other size is found
// in its states.
constexpr MatrixShape kExample = {640, 896};

std::vector<const RuleEntry*> chosen(const std::string& name) {
  std::vector<const RuleEntry*> entries;
  for (const RuleEntry& entry : rule_table())
    if (name.empty() || entry.name == name) entries.push_back(&entry);
  if (entries.empty()) make_rule_facts(name, {});  // names the nearest
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
         "\ncanzona rules RULE tells the options, presets and states of one.\n";
}

// "a|b|c", with spaces to break at where it is too long for one line.
std::string allowed_text(const OptionFact& option) {
  const size_t used = option.name.size() + option.default_value.size() + 6;
  if (used + option.allowed.size() <= kPageWidth) return option.allowed;
  return "\n      " +
         wrap(join(split_text(option.allowed, '|'), " | "), kPageWidth - 8, 6);
}

std::string options_text(const RuleEntry& entry, const Ink& ink) {
  std::string out =
      "\n" + ink(Tone::kBold, "Options") + " (--rule-option NAME=VALUE)\n";
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
                    " (--rule-option preset=NAME; the first is the default)\n";
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
