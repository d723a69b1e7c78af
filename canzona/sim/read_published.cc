// Reads the table of published times from JSON.
#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/sim/published.h"

namespace canzona {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 40;

double read_above_zero(const Json& object, const char* key,
                       const std::string& where) {
  const double number = get_number(object, key, where);
  if (number > 0) return number;
  throw UsageError(
      cat(where, ": ", key, " is ", number, ", expected more than 0"));
}

std::string text_or_none(const Json& object, const char* key,
                         const std::string& where) {
  return object.contains(key) ? get_string(object, key, where) : "";
}

int64_t count_or(const Json& object, const char* key, int64_t usual,
                 const std::string& where) {
  return object.contains(key) ? get_integer(object, key, 1, kMostTokens, where)
                              : usual;
}

template <class Value>
Value named(const std::map<std::string, Value>& known, const std::string& word,
            const std::string& where) {
  if (const auto found = known.find(word); found != known.end())
    return found->second;
  std::vector<std::string> words;
  for (const auto& [name, value] : known) words.push_back(name);
  throw UsageError(cat(where, ": ", quoted(word), ", expected ",
                       join(words, ", "), did_you_mean(word, words)));
}

PublishedQuantity read_quantity(const Json& json, const std::string& where) {
  std::map<std::string, PublishedQuantity> known;
  for (const auto quantity :
       {PublishedQuantity::kStep, PublishedQuantity::kForwardBackward,
        PublishedQuantity::kIteration, PublishedQuantity::kUtilization})
    known[std::string(to_string(quantity))] = quantity;
  return named(known, get_string(json, "quantity", where),
               cat(where, ": quantity"));
}

RuleOptions read_published_options(const Json& json, const std::string& where) {
  RuleOptions options;
  if (!json.contains("rule_options")) return options;
  const Json& object = get_member(json, "rule_options", where);
  if (!object.is_object())
    throw UsageError(cat(where, ": rule_options is no object"));
  for (const auto& [name, value] : object.items())
    options[name] = get_string(object, name.c_str(), where);
  return options;
}

using Configs = std::map<std::string, std::string>;

PublishedCell read_cell(const Json& json, const Configs& configs,
                        const std::string& where) {
  require_known_keys(
      json,
      {"name", "where", "group", "model", "fused", "mesh", "rule",
       "rule_options", "strategy", "zero", "overlap", "tokens", "length",
       "micro_batches", "quantity", "value", "fit", "note"},
      where);
  PublishedCell cell;
  cell.name = get_string(json, "name", where);
  cell.where = get_string(json, "where", where);
  cell.group = text_or_none(json, "group", where);
  cell.model = get_string(json, "model", where);
  if (const auto own = configs.find(cell.model); own != configs.end())
    cell.config = own->second;
  if (json.contains("fused")) cell.fused = get_bool(json, "fused", where);
  cell.mesh = get_string(json, "mesh", where);
  cell.rule = get_string(json, "rule", where);
  cell.rule_options = read_published_options(json, where);
  cell.strategy = get_string(json, "strategy", where);
  cell.zero = text_or_none(json, "zero", where);
  cell.overlap = text_or_none(json, "overlap", where);
  cell.tokens = count_or(json, "tokens", cell.tokens, where);
  cell.length = count_or(json, "length", cell.length, where);
  cell.micro_batches = count_or(json, "micro_batches", 1, where);
  cell.quantity = read_quantity(json, where);
  cell.value = read_above_zero(json, "value", where);
  if (json.contains("fit")) cell.fit = get_bool(json, "fit", where);
  cell.note = text_or_none(json, "note", where);
  return cell;
}

std::vector<double PublishedRates::*> read_fitted(const Json& json,
                                                  const std::string& where) {
  const std::map<std::string, double PublishedRates::*> known{
      {"card", &PublishedRates::card_flops},
      {"exchange", &PublishedRates::exchange_bytes_per_second},
      {"nodes", &PublishedRates::node_bytes_per_second}};
  const Json& array = get_member(json, "fitted", where);
  if (!array.is_array())
    throw UsageError(cat(where, ": fitted is no array of names"));
  std::vector<double PublishedRates::*> fitted;
  for (const Json& one : array) {
    if (!one.is_string())
      throw UsageError(cat(where, ": fitted is no array of names"));
    const auto rate =
        named(known, one.get<std::string>(), cat(where, ": fitted"));
    if (std::ranges::find(fitted, rate) != fitted.end())
      throw UsageError(cat(where, ": fitted names ",
                           quoted(one.get<std::string>()), " twice"));
    fitted.push_back(rate);
  }
  return fitted;
}

void require_enough_to_fit(const PublishedPaper& paper,
                           const std::string& where) {
  const auto marked =
      std::ranges::count(paper.cells, true, &PublishedCell::fit);
  if (marked < std::ssize(paper.fitted))
    throw UsageError(cat(where, ": ", paper.fitted.size(),
                         " numbers are fitted on ", marked,
                         " cells; mark as many with \"fit\": true"));
  const bool wants_peak =
      std::ranges::any_of(paper.cells, [](const PublishedCell& cell) {
        return cell.quantity == PublishedQuantity::kUtilization;
      });
  if (wants_peak && !(paper.peak_flops > 0))
    throw UsageError(cat(where, ": utilization needs peak_tflops"));
}

PublishedPaper read_paper(const Json& json, const Configs& configs,
                          const std::string& where) {
  constexpr double kTera = 1e12;
  require_known_keys(
      json,
      {"name", "source", "ranks_per_node", "card_tflops", "peak_tflops",
       "exchange_bytes_per_second", "node_bytes_per_second", "latency_seconds",
       "rings", "fitted", "cells"},
      where);
  PublishedPaper paper;
  paper.name = get_string(json, "name", where);
  paper.source = get_string(json, "source", where);
  paper.ranks_per_node = static_cast<int32_t>(
      get_integer(json, "ranks_per_node", 1, kMaxWorld, where));
  if (json.contains("peak_tflops"))
    paper.peak_flops = kTera * read_above_zero(json, "peak_tflops", where);
  paper.latency_seconds = read_above_zero(json, "latency_seconds", where);
  if (json.contains("rings")) paper.rings = get_bool(json, "rings", where);
  paper.rates = {kTera * read_above_zero(json, "card_tflops", where),
                 read_above_zero(json, "exchange_bytes_per_second", where),
                 read_above_zero(json, "node_bytes_per_second", where)};
  paper.fitted = read_fitted(json, where);
  const Json& cells = get_member(json, "cells", where);
  if (!cells.is_array()) throw UsageError(cat(where, ": cells is no array"));
  for (size_t i = 0; i < cells.size(); ++i)
    paper.cells.push_back(
        read_cell(cells[i], configs, cat(where, ".cells[", i, "]")));
  require_enough_to_fit(paper, where);
  return paper;
}

Configs read_configs(const Json& root, const std::string& where) {
  Configs configs;
  if (!root.contains("models")) return configs;
  const Json& models = get_member(root, "models", where);
  for (const Json& model : models) {
    require_known_keys(model, {"name", "config"}, cat(where, ": models"));
    configs[get_string(model, "name", where)] =
        get_member(model, "config", where).dump();
  }
  return configs;
}

}  // namespace

std::vector<PublishedPaper> read_published(std::string_view json,
                                           const std::string& where) {
  const Json root = parse_json(json, {.what = where, .max_bytes = 1 << 20});
  require_known_keys(root, {"format", "version", "models", "papers"}, where);
  if (get_string(root, "format", where) != "canzona.published" ||
      get_integer(root, "version", 0, INT32_MAX, where) != 1)
    throw UsageError(cat(where, ": expected canzona.published, version 1"));
  const Configs configs = read_configs(root, where);
  const Json& papers = get_member(root, "papers", where);
  if (!papers.is_array()) throw UsageError(cat(where, ": papers is no array"));
  std::vector<PublishedPaper> out;
  for (size_t i = 0; i < papers.size(); ++i)
    out.push_back(
        read_paper(papers[i], configs, cat(where, ": papers[", i, "]")));
  return out;
}

std::vector<PublishedPaper> published_papers() {
  return read_published(published_json(), "published.json");
}

}  // namespace canzona
