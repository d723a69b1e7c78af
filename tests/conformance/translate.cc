#include "tests/conformance/translate.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/rules/muon/facts.h"

namespace canzona::tests {

std::string exact_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

OptionReader::OptionReader(const Fixture& fixture) : fixture_(fixture) {
  if (has("scalar_precision"))
    fp32_scalars_ = word("scalar_precision",
                         {{"double", "double"}, {"fp32", "fp32"}}) == "fp32";
}

bool OptionReader::has(const std::string& key) const {
  return fixture_.options.contains(key);
}

const Json& OptionReader::value(const std::string& key) {
  asked_.insert(key);
  return get_member(fixture_.options, key.c_str(),
                    cat(printable(fixture_.file), ": options"));
}

double OptionReader::real(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_number()) refuse(key, "a number");
  const auto number = found.get<double>();
  return fp32_scalars_ ? static_cast<double>(static_cast<float>(number))
                       : number;
}

std::vector<double> OptionReader::reals(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_array()) refuse(key, "a list of numbers");
  std::vector<double> numbers;
  for (const Json& number : found) {
    if (!number.is_number()) refuse(key, "a list of numbers");
    const auto exact = number.get<double>();
    numbers.push_back(
        fp32_scalars_ ? static_cast<double>(static_cast<float>(exact)) : exact);
  }
  return numbers;
}

std::string OptionReader::count(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_number()) refuse(key, "a number");
  if (found.is_number_integer()) return std::to_string(found.get<int64_t>());
  return exact_text(found.get<double>());
}

bool OptionReader::boolean(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_boolean()) refuse(key, "true or false");
  return found.get<bool>();
}

std::string OptionReader::word(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_string()) refuse(key, "a word");
  return found.get<std::string>();
}

std::string OptionReader::word(const std::string& key, Words words) {
  const std::string theirs = word(key);
  for (const auto& [known, ours] : words)
    if (theirs == known) return ours;
  unsupported(key);
}

bool OptionReader::is(const std::string& key, const Json& expected) {
  return value(key) == expected;
}

void OptionReader::require(const std::string& key, const Json& expected) {
  if (has(key) && !is(key, expected)) unsupported(key);
}

void OptionReader::ignore(std::initializer_list<const char*> keys) {
  asked_.insert(keys.begin(), keys.end());
}

void OptionReader::unsupported(const std::string& key) const {
  throw Unsupported(cat(printable(key, 60), "=",
                        printable(fixture_.options.at(key).dump(), 80)));
}

void OptionReader::finish() const {
  for (const auto& [key, value] : fixture_.options.items())
    if (asked_.count(key) == 0) unsupported(key);
}

void OptionReader::refuse(const std::string& key, const char* expected) const {
  fixture_.refuse(cat("options: ", key, " is ",
                      printable(fixture_.options.at(key).dump(), 80),
                      ", expected ", expected));
}

namespace {

// Ignores options in which references differ only by rounding.
void ignore_rounding(OptionReader& from) {
  from.ignore({"ema_form", "muon.scale_rounding", "muon.norm_dtype",
               "muon.ns_form", "muon.ns_dtype", "muon.orient", "adam.fused"});
}

std::vector<double> learning_rates(OptionReader& from, const Fixture& fixture) {
  const auto steps = static_cast<size_t>(fixture.steps);
  const double fixed = from.real("lr");
  if (!from.has("lr_schedule")) return std::vector<double>(steps, fixed);
  std::vector<double> rates = from.reals("lr_schedule");
  if (rates.size() != steps)
    fixture.refuse(cat("options: lr_schedule has ", rates.size(),
                       " numbers, there are ", steps, " steps"));
  return rates;
}

// If the reference's name is one of our presets, uses it; otherwise nothing is
// lost, because every option is given.
void name_preset(const Fixture& fixture, RuleOptions& to) {
  for (const RuleEntry& entry : rule_table())
    for (const Preset& preset : entry.presets)
      if (entry.name == fixture.rule && preset.name == fixture.preset)
        to["preset"] = preset.name;
}

std::string custom_coefficients(OptionReader& from, const Fixture& fixture) {
  std::vector<std::string> triples;
  for (const Json& triple : from.value("muon.coefficient_values")) {
    if (!triple.is_array() || triple.size() != 3 ||
        !std::all_of(triple.begin(), triple.end(),
                     [](const Json& x) { return x.is_number(); }))
      fixture.refuse("options: muon.coefficient_values are not triples");
    triples.push_back(cat(exact_text(triple[0].get<double>()), ",",
                          exact_text(triple[1].get<double>()), ",",
                          exact_text(triple[2].get<double>())));
  }
  return join(triples, ";");
}

// A fixture of the pure function does not say what follows the last
// coefficients, but it lists all of them.
std::string overrun_of(RuleOptions options, const std::string& numbers) {
  RuleOptions listed = options;
  listed["coefficients"] = numbers;
  options["overrun"] = "last";
  const auto steps = [](const RuleOptions& given) {
    return supported(
        [&] { return muon_coefficients(muon_options_in_force(given)); });
  };
  return steps(options) == steps(listed) ? "last" : "cycle";
}

// Translates the options of Newton–Schulz itself.
void translate_iteration(OptionReader& from, const Fixture& fixture,
                         const std::string& form, RuleOptions& to) {
  const std::string set = from.word("muon.coefficients");
  const std::string numbers = custom_coefficients(from, fixture);
  to["coefficients"] = set == "custom" ? numbers : set;
  to["steps"] = from.count("muon.steps");
  to["epsilon_mode"] =
      from.word("muon.norm_eps_mode",
                {{"add", "add"}, {"clamp", "clamp"}, {"mul1.02+add", "add"}});
  to["epsilon"] = from.number("muon.eps");
  to["norm_factor"] = from.count("muon.norm_factor");
  if (from.has("muon.equilibrate")) {
    to["equilibrate"] =
        from.word("muon.equilibrate", {{"off", "off"}, {"rows", "rows"}});
    if (to["equilibrate"] == "rows")
      to["equilibrate_eps"] = from.number("muon.equilibrate_eps");
  }
  to["newton_schulz"] = form;
  // Some references use settings that we warn about; here they are only
  // replayed.
  to["unsafe"] = "on";
  to["overrun"] = from.has("muon.coeff_overrun")
                      ? from.word("muon.coeff_overrun",
                                  {{"last", "last"}, {"cycle", "cycle"}})
                      : overrun_of(to, numbers);
}

std::string precision_of(const Fixture& fixture) {
  if (fixture.dtype == "f64") return "fp64";
  return fixture.dtype == "f32" ? "fp32" : "bf16";
}

}  // namespace

void translate_decay(OptionReader& from, RuleOptions& to) {
  to["weight_decay"] = from.number("weight_decay");
  to["decay_form"] = from.word("decay_form", {{"decoupled", "decoupled"},
                                              {"independent", "independent"},
                                              {"palm", "palm"},
                                              {"l2", "l2"}});
}

namespace {

void translate_second_moment(OptionReader& from, RuleOptions& to) {
  to["second_moment"] = from.word("muon.second_moment", {{"none", "none"},
                                                         {"normuon", "normuon"},
                                                         {"adamuon", "adamuon"},
                                                         {"namo", "namo"}});
  if (to["second_moment"] == "none") return;
  to["beta2"] = from.number("muon.beta2");
  to["second_moment_eps"] = from.number("muon.second_moment_eps");
  if (to["second_moment"] != "normuon") return;
  to["second_moment_axis"] = from.word("muon.second_moment_axis",
                                       {{"rows", "rows"}, {"long", "long"}});
  to["second_moment_eps_mode"] = from.word(
      "muon.second_moment_eps_mode", {{"add", "add"}, {"clamp", "clamp"}});
  to["second_moment_norm_eps"] = from.number("muon.second_moment_norm_eps");
}

// The links around the iteration, which older fixtures do not name.
void translate_links(OptionReader& from, RuleOptions& to) {
  from.require("muon.transform", "newton_schulz");
  from.require("muon.reparam", "none");
  if (!from.has("muon.second_moment")) return;
  to["decay_lr"] =
      from.word("decay_lr", {{"base", "base"}, {"scaled", "scaled"}});
  to["renorm"] = from.word("muon.renorm", {{"off", "off"}, {"on", "on"}});
  if (to["renorm"] == "on") to["renorm_eps"] = from.number("muon.renorm_eps");
  translate_second_moment(from, to);
  to["constraint"] = from.word("muon.constraint",
                               {{"none", "none"}, {"hyperball", "hyperball"}});
  if (to["constraint"] == "none") return;
  to["constraint_eps"] = from.number("muon.constraint_eps");
  to["constraint_radius"] = from.number("muon.constraint_radius");
}

}  // namespace

void translate_muon(OptionReader& from, const Fixture& fixture,
                    const std::string& form, RuleOptions& to) {
  from.require("decay_order", "before");
  if (from.has("muon.flatten"))
    to["flatten"] = from.word("muon.flatten",
                              {{"none", "none"}, {"first_dim", "first_dim"}});
  if (from.has("muon.scale_shape"))
    to["scale_shape"] =
        from.word("muon.scale_shape",
                  {{"matrix", "matrix"}, {"unflattened_last_two", "last_two"}});
  to["cautious_decay"] = from.on_or_off("cautious_decay");
  translate_decay(from, to);
  translate_iteration(from, fixture, form, to);
  to["precision"] = precision_of(fixture);
  to["momentum"] = from.number("muon.momentum");
  to["momentum_form"] = from.word(
      "muon.momentum_form", {{"ema", "ema"}, {"heavy_ball", "heavy_ball"}});
  to["nesterov"] = from.on_off("muon.nesterov");
  to["scale"] = from.word("muon.scale", {{"original", "original"},
                                         {"match_rms", "match_rms"},
                                         {"sqrt_max", "sqrt_max"},
                                         {"unit_rms", "unit_rms"},
                                         {"none", "none"}});
  to["scale_extra"] = from.number("muon.scale_extra");
  translate_links(from, to);
  // The replay cuts the tensor (row_blocks).
  from.ignore({"muon.split", "muon.heads", "muon.split_rows"});
}

void translate_adamw(OptionReader& from, RuleOptions& to) {
  from.require("adam.amsgrad", false);
  from.require("decay_order", "before");
  translate_decay(from, to);
  to["beta1"] = from.number("adam.beta1");
  to["beta2"] = from.number("adam.beta2");
  to["epsilon"] = from.number("adam.eps");
  to["epsilon_mode"] =
      from.word("adam.eps_mode",
                {{"corrected", "corrected"}, {"uncorrected", "uncorrected"}});
}

namespace {

using Translate = void (*)(OptionReader&, const Fixture&,
                           const std::string& form, RuleOptions&);

// Rules whose references have other words than ours.
const std::map<std::string, Translate>& foreign_words() {
  static const std::map<std::string, Translate> words = {
      {"muon", translate_muon},
      {"adamw", [](OptionReader& from, const Fixture&, const std::string&,
                   RuleOptions& to) { translate_adamw(from, to); }},
      {"soap",
       [](OptionReader& from, const Fixture& fixture, const std::string&,
          RuleOptions& to) { translate_soap(from, fixture, to); }},
      {"shampoo",
       [](OptionReader& from, const Fixture& fixture, const std::string&,
          RuleOptions& to) { translate_shampoo(from, fixture, to); }}};
  return words;
}

// Fixtures of any other rule name its options: "nsgd.momentum".
void translate_own_words(OptionReader& from, const RuleEntry& rule,
                         RuleOptions& to) {
  to["weight_decay"] = from.number("weight_decay");
  for (const OptionFact& option : rule.options) {
    const std::string key = cat(rule.name, ".", option.name);
    if (!from.has(key)) continue;
    const Json& value = from.value(key);
    to[option.name] = value.is_boolean()  ? from.on_off(key)
                      : value.is_string() ? from.word(key)
                                          : from.number(key);
  }
}

const RuleEntry& entry_of(const Fixture& fixture) {
  const auto found =
      std::ranges::find(rule_table(), fixture.rule, &RuleEntry::name);
  CANZONA_CHECK(found != rule_table().end(), "a fixture of ", fixture.rule);
  return *found;
}

}  // namespace

Translation translate(const Fixture& fixture, const std::string& form,
                      const std::string& device) {
  OptionReader from(fixture);
  Translation ours;
  RuleOptions& to = ours.options;
  ignore_rounding(from);
  name_preset(fixture, to);
  ours.learning_rates = learning_rates(from, fixture);
  to["learning_rate"] = from.number(from.has("peak_lr") ? "peak_lr" : "lr");
  const RuleEntry& rule = entry_of(fixture);
  to = with_device(rule.name, to, device);
  if (has_option(rule, "products"))
    to["products"] = "fp32";  // as the references do, on any device
  const auto foreign = foreign_words().find(rule.name);
  if (foreign != foreign_words().end())
    foreign->second(from, fixture, form, to);
  else
    translate_own_words(from, rule, to);
  from.finish();
  return ours;
}

std::vector<int64_t> row_blocks(const Fixture& fixture) {
  const int64_t rows = fixture.tensor("param.0").dims.at(0);
  if (!fixture.options.contains("muon.split")) return {rows};
  OptionReader from(fixture);
  const std::string split = from.word(
      "muon.split", {{"none", "none"}, {"heads", "heads"}, {"rows", "rows"}});
  std::vector<int64_t> blocks = {rows};
  if (split == "heads") {
    const auto heads = static_cast<int64_t>(from.real("muon.heads"));
    if (heads < 1 || rows % heads != 0)
      fixture.refuse(cat("options: ", heads, " heads of ", rows, " rows"));
    blocks.assign(static_cast<size_t>(heads), rows / heads);
  } else if (split == "rows") {
    blocks.clear();
    int64_t sum = 0;
    for (const double height : from.reals("muon.split_rows"))
      blocks.push_back(static_cast<int64_t>(height)), sum += blocks.back();
    if (sum != rows || std::ranges::min(blocks) < 1)
      fixture.refuse(cat("options: muon.split_rows add up to ", sum, " of ",
                         rows, " rows"));
  }
  return blocks;
}

RuleOptions translate_newton_schulz(const Fixture& fixture,
                                    const std::string& precision,
                                    const std::string& form,
                                    const std::string& device) {
  OptionReader from(fixture);
  RuleOptions to;
  to["device"] = device;
  ignore_rounding(from);
  translate_iteration(from, fixture, form, to);
  to["precision"] = precision;
  from.finish();
  return to;
}

}  // namespace canzona::tests
