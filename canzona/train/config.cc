#include "canzona/train/config.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>
#include <tuple>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/train/config_keys.h"

namespace canzona::train {
namespace {

// Returns the progress p of `step`: 0 at `first`, 1 at `end`.
double progress(int64_t step, int64_t first, int64_t end) {
  if (step <= first) return 0;
  if (step >= end) return 1;
  return static_cast<double>(step - first) / static_cast<double>(end - first);
}

int64_t decay_steps(int64_t steps, double decay) {
  const double count =
      decay < 1 ? std::round(decay * static_cast<double>(steps)) : decay;
  return static_cast<int64_t>(std::min(count, static_cast<double>(steps)));
}

double linear(double p, double final) { return 1 - p * (1 - final); }

}  // namespace

std::vector<std::string> schedule_kinds() {
  return {"constant", "linear", "cosine", "wsd"};
}

double rate_factor(int64_t step, int64_t steps,
                   const ScheduleSettings& settings) {
  const int64_t warmup = settings.warmup;
  if (step < warmup)
    return static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double p = progress(step, warmup, steps);
  if (settings.kind == "constant") return 1;
  if (settings.kind == "linear") return linear(p, settings.final);
  if (settings.kind == "cosine")
    return settings.final +
           (1 - settings.final) * (1 + std::cos(std::numbers::pi * p)) / 2;
  CANZONA_CHECK_EQ(settings.kind, "wsd", "kind of schedule");
  const int64_t first =
      std::max(warmup, steps - decay_steps(steps, settings.decay));
  return linear(progress(step, first, steps), settings.final);
}

namespace {

bool is_rule_option(const std::string& key) {
  return key.starts_with(kRuleOption);
}

std::string option_name(const std::string& key) {
  return key.substr(std::string_view(kRuleOption).size());
}

struct OptionText {
  std::string operator()(const RawText& raw) const { return raw.text; }
  std::string operator()(bool truth) const { return truth ? "on" : "off"; }
  std::string operator()(int64_t number) const { return cat(number); }
  std::string operator()(double number) const { return number_text(number); }
  std::string operator()(const std::string& text) const { return text; }
};

// These options of rules have keys of their own.
bool has_own_key(std::string_view option) {
  return option == "learning_rate" || option == "weight_decay";
}

void refuse_own_keys(const Setting& setting) {
  const std::string name = option_name(setting.key);
  if (has_own_key(name))
    throw UsageError(cat(setting.key, " (", setting.origin,
                         "): expected the key rule.", name));
}

[[noreturn]] void refuse_unknown(const Setting& setting,
                                 const std::vector<ConfigKey>& keys,
                                 const std::string& rule) {
  std::vector<std::string> known;
  known.reserve(keys.size());
  for (const ConfigKey& key : keys) known.push_back(key.name);
  for (const RuleEntry& entry : rule_table())
    for (const OptionFact& option : entry.options)
      if (entry.name == rule) known.push_back(kRuleOption + option.name);
  throw UsageError(cat(setting.origin, ": unknown key ", quoted(setting.key),
                       did_you_mean(setting.key, known),
                       "; canzona config show lists the keys"));
}

// A key in files of older programs, which could exchange matrices strip by
// strip. Now all go by rounds, as `rounds` said and `auto` allowed.
constexpr const char* kFormerExchange = "plan.exchange";

bool is_former_exchange(const Setting& setting) {
  const auto* word = std::get_if<std::string>(&setting.value);
  return setting.key == kFormerExchange && word != nullptr &&
         (*word == "auto" || *word == "rounds" || *word == "strips");
}

// The key said on or off before it said what is recomputed.
Setting in_words_of_today(Setting setting) {
  if (setting.key != "model.recompute") return setting;
  const std::string text = std::visit(OptionText{}, setting.value);
  if (text == "on" || text == "true") setting.value = RawText{"layer"};
  if (text == "off" || text == "false") setting.value = RawText{"off"};
  return setting;
}

void apply(const Settings& settings, const std::vector<ConfigKey>& keys,
           TrainConfig& config) {
  for (const Setting& setting : settings) {
    const auto key = std::ranges::find(keys, setting.key, &ConfigKey::name);
    if (key != keys.end()) {
      key->set(in_words_of_today(setting));
    } else if (is_rule_option(setting.key)) {
      refuse_own_keys(setting);
      config.rule.options[option_name(setting.key)] =
          std::visit(OptionText{}, setting.value);
    } else if (is_former_exchange(setting)) {
      if (std::get<std::string>(setting.value) != "strips") continue;
    } else {
      refuse_unknown(setting, keys, config.rule.name);
    }
    config.origins[setting.key] = setting.origin;
  }
}

// Returns only the settings that decide which values the preset gives.
Settings named(const Settings& given, std::string_view name) {
  Settings out;
  for (const Setting& setting : given)
    if (setting.key == name) out.push_back(setting);
  return out;
}

}  // namespace

TrainConfig make_config(const Settings& given) {
  TrainConfig config;
  const std::vector<ConfigKey> keys = config_keys(config);
  for (const ConfigKey& key : keys) config.origins[key.name] = "default";
  apply(named(given, "preset"), keys, config);
  apply(named(given, "rule.name"), keys, config);
  apply(preset_settings(config.preset, config.rule.name), keys, config);
  apply(given, keys, config);
  check_config(config);
  if (config.ranks > 0 || !config.mesh.empty()) settle_mesh(config, {});
  return config;
}

std::string note_on_strips(const TrainConfig& config) {
  const auto origin = config.origins.find(kFormerExchange);
  if (origin == config.origins.end()) return "";
  return cat(kFormerExchange, " strips (", origin->second,
             ") is no longer supported: matrices are exchanged by rounds, with "
             "the same bits");
}

namespace {

// Checks constraints between the keys of a configuration.

// "batch.global 10 (--set)"
std::string named(const TrainConfig& config, const std::string& key,
                  int64_t value) {
  return cat(key, " ", value, " (", config.origin(key), ")");
}

void require(bool holds, const std::string& found,
             const std::string& expected) {
  if (!holds) throw UsageError(cat(found, ": expected ", expected));
}

void check_model(const TrainConfig& c) {
  const auto& m = c.model;
  require(m.heads % m.kv_heads == 0, named(c, "model.kv_heads", m.kv_heads),
          cat("a divisor of ", named(c, "model.heads", m.heads)));
  require(m.head_dim % 2 == 0, named(c, "model.head_dim", m.head_dim),
          "an even number, since rotary angles rotate pairs");
  if (m.experts == 0) {
    require(m.shared_experts == 0,
            named(c, "model.shared_experts", m.shared_experts),
            "0 where model.experts is 0");
    return;
  }
  require(m.experts_per_token <= m.experts,
          named(c, "model.experts_per_token", m.experts_per_token),
          cat("at most ", named(c, "model.experts", m.experts)));
  require(m.expert_ffn >= 1, named(c, "model.expert_ffn", m.expert_ffn),
          "1 or more where there are experts");
}

// Lists which options were given, and where; the rule's own message names the
// wrong one.
std::string origins_of_options(const TrainConfig& c) {
  std::vector<std::string> all;
  for (const auto& [key, origin] : c.origins)
    if (key.starts_with(kRuleOption)) all.push_back(cat(key, " from ", origin));
  return all.empty() ? "" : cat(" (", join(all, ", "), ")");
}

// Refuses unknown options here, because the rule's own message would list
// those that have keys of their own.
void require_known_options(const TrainConfig& c) {
  std::vector<std::string> known;
  for (const auto& [name, value] :
       make_rule_facts(c.rule.name, with_device(c.rule.name, {}, c.device))
           ->options())
    if (!has_own_key(name)) known.push_back(name);
  for (const auto& [name, value] : c.rule.options)
    if (std::ranges::find(known, name) == known.end())
      throw UsageError(
          cat("rule ", c.rule.name, " has no option ", quoted(name),
              did_you_mean(name, known),
              known.empty() ? "; it has no options" : "; its options are ",
              join(known, ", ")));
}

void check_rule(const TrainConfig& c) {
  try {
    require_known_options(c);
    make_rule_facts(c.rule.name, rule_options_of(c));
  } catch (const UsageError& error) {
    throw UsageError(cat(error.what(), origins_of_options(c)));
  }
}

// "zero.sizes (--zero)"
std::string named(const TrainConfig& config, const std::string& key) {
  return cat(key, " (", config.origin(key), ")");
}

// An error has the key's origin in addition.
Mesh read_mesh(const TrainConfig& c) {
  try {
    return parse_mesh(c.mesh);
  } catch (const UsageError& error) {
    std::string message = error.what();
    for (const std::string_view own : {"mesh: ", "mesh "})
      if (message.starts_with(own)) message.erase(0, own.size());
    throw UsageError(cat(named(c, "mesh"), ": ", message));
  }
}

// The largest divisor of `number` that is at most `most`.
int64_t divisor_up_to(int64_t number, int64_t most) {
  for (int64_t d = std::min(number, most); d > 1; --d)
    if (number % d == 0) return d;
  return 1;
}

// A run may resume on another mesh than that of its checkpoint.
bool is_of_former_run(const std::string& origin) {
  return origin.starts_with("checkpoint ") ||
         origin.starts_with("unfinished run ");
}

// A preset's micro-batch may be lowered for any mesh, and so may that of a
// checkpoint.
bool may_lower_micro_batch(const TrainConfig& c) {
  const std::string& origin = c.origin("batch.micro");
  return origin.starts_with("preset ") || is_of_former_run(origin);
}

// The number of sequences that a rank must take at once, after lowering it if
// allowed.
int64_t least_micro_batch(const TrainConfig& c) {
  return may_lower_micro_batch(c) || c.chooses_micro_batch() ? 1
                                                             : c.batch.micro;
}

// "1 rank", "2 ranks"
std::string count_of_ranks(int64_t count, std::string_view kind) {
  return cat(count, " ", kind, count == 1 ? "" : "s");
}

// Suggests settings if the batch cannot be divided over `homes`.
std::string batch_advice(const TrainConfig& c, int64_t homes) {
  const int64_t share = c.batch.global / homes;
  if (c.batch.global % homes == 0)
    return cat("try batch.micro=", divisor_up_to(share, c.batch.micro));
  const int64_t once = homes * least_micro_batch(c);
  return cat("try batch.global=", (c.batch.global / once + 1) * once);
}

void check_batch(const TrainConfig& c, const Mesh& mesh) {
  const int64_t micro = std::max<int64_t>(c.batch.micro, 1);
  if (c.batch.global % (micro * mesh.homes()) == 0) return;
  const int64_t least = least_micro_batch(c), homes = mesh.homes();
  const char* on = homes == 1 ? " on " : " on each of ";
  throw UsageError(
      cat(named(c, "batch.global", c.batch.global), ": expected a multiple of ",
          least * homes, ": ",
          least == 1 ? "" : named(c, "batch.micro", c.batch.micro) + on,
          count_of_ranks(homes, "data-parallel rank"), "; ",
          batch_advice(c, homes)));
}

// Lowers the micro-batch to what a rank has, if allowed.
void fit_micro_batch(TrainConfig& c, const Mesh& mesh) {
  const int64_t homes = mesh.homes();
  if (!may_lower_micro_batch(c) || c.chooses_micro_batch() ||
      c.batch.global % homes != 0)
    return;
  const int64_t fits = divisor_up_to(c.batch.global / homes, c.batch.micro);
  if (fits == c.batch.micro) return;
  c.batch.micro = fits;
  c.origins["batch.micro"] += cat(", for ", to_string(mesh));
}

// Returns the sizes themselves if they divide `homes`; otherwise the largest
// that do and are not larger: first z1, then z3, then z2.
ZeroSizes nearest_sizes(const ZeroSizes& asked, int32_t homes) {
  const auto order = [](const ZeroSizes& z) {
    return std::tuple(z.z1, z.z3, z.z2);
  };
  ZeroSizes nearest{1, 1, 1};
  for (const ZeroSizes& z : all_zero_sizes(homes))
    if (z.z1 <= asked.z1 && z.z2 <= asked.z2 && z.z3 <= asked.z3 &&
        order(z) > order(nearest))
      nearest = z;
  return nearest;
}

// Replaces sizes of a former run that do not divide `homes`.
void fit_zero_sizes(TrainConfig& c, const char* key, int32_t homes,
                    std::string& sizes) {
  const std::string was = sizes, origin = c.origin(key);
  if (was.empty() || was == "auto" || !is_of_former_run(origin)) return;
  const ZeroSizes saved =
      with_states(parse_zero(was, homes, named(c, key), "auto"), homes);
  const ZeroSizes fits = nearest_sizes(saved, homes);
  if (fits == saved) return;
  sizes = zero_name(fits, homes);
  c.origins[key] = cat(origin, ", where it is ", was);
}

// One data-parallel rank per core, or fewer if the batch cannot be divided
// among that many.
Mesh mesh_over_cores(TrainConfig& c, int64_t cores) {
  const int64_t once = least_micro_batch(c);
  const int64_t shares = c.batch.global / once;
  const int64_t ranks =
      c.batch.global % once == 0 ? divisor_up_to(shares, cores) : 1;
  c.origins["mesh"] =
      ranks == cores
          ? cat("all ", cores, cores == 1 ? " core" : " cores")
          : cat(ranks, " of ", cores, " cores: the most that divide ",
                once == 1 ? "batch.global " : "the micro-batches of a step, ",
                shares);
  return {.dp = static_cast<int32_t>(ranks)};
}

Mesh mesh_over_ranks(TrainConfig& c, int64_t ranks) {
  c.origins["mesh"] = c.ranks > 0 ? c.origin("ranks")
                                  : count_of_ranks(ranks, "rank") + " launched";
  return {.dp = static_cast<int32_t>(ranks)};
}

Mesh find_mesh(TrainConfig& c, const RankCounts& counts) {
  const int64_t launched = counts.launched;
  const int64_t ranks = c.ranks > 0 ? c.ranks : launched;
  require(launched == 0 || ranks == launched, named(c, "ranks", ranks),
          cat(launched, ", as many as were launched"));
  if (c.mesh.empty())
    return ranks > 0 ? mesh_over_ranks(c, ranks)
                     : mesh_over_cores(c, counts.cores);
  const Mesh mesh = read_mesh(c);
  require(ranks == 0 || mesh.world() == ranks,
          cat("mesh ", to_string(mesh), " (", c.origin("mesh"), ") has ",
              count_of_ranks(mesh.world(), "rank")),
          c.ranks > 0 ? named(c, "ranks", ranks)
                      : cat(launched, ", as many as were launched"));
  return mesh;
}

}  // namespace

Mesh settle_mesh(TrainConfig& c, const RankCounts& counts) {
  const Mesh mesh = find_mesh(c, counts);
  if (c.mesh.empty()) c.mesh = to_string(mesh);
  fit_micro_batch(c, mesh);
  fit_zero_sizes(c, "zero.sizes", mesh.homes(), c.planner["zero"]);
  fit_zero_sizes(c, "zero.experts", mesh.expert_homes(),
                 c.planner["zero-experts"]);
  check_batch(c, mesh);
  return mesh;
}

int64_t eval_sequences_of(const TrainConfig& c) {
  constexpr int64_t kAuto = -1, kAll = 0, kShare = 10;
  if (c.eval.sequences == kAll) return std::numeric_limits<int64_t>::max();
  if (c.eval.sequences != kAuto) return c.eval.sequences;
  if (c.steps == 0) return 0;
  return std::max<int64_t>(1, c.steps * c.batch.global / kShare);
}

Mesh mesh_of(const TrainConfig& c, int64_t launched) {
  TrainConfig copy = c;
  return settle_mesh(copy, {.launched = launched});
}

bool chooses_zero(const TrainConfig& c) { return c.planner["zero"] == "auto"; }

bool chooses_experts(const TrainConfig& c) {
  return c.planner["zero-experts"] == "auto";
}

namespace {

// Reads the texts; whether ZeRO's sizes divide the mesh is not checked.
PlanOptions read_planner_options(const TrainConfig& c, const Mesh& mesh) {
  PlanOptions options;
  options.strategy = c.planner["strategy"];
  for (const PlannerOption& option : planner_options())
    if (option.set != nullptr && !option.key.empty())
      option.set(options, c.planner[option.name], named(c, option.key));
  ZeroOptions& zero = options.zero;
  zero.sizes = parse_zero(chooses_zero(c) ? "zero1" : c.planner["zero"],
                          mesh.homes(), named(c, "zero.sizes"), "auto");
  const std::string& experts = c.planner["zero-experts"];
  if (!experts.empty() && !chooses_experts(c))
    zero.experts = parse_zero(experts, mesh.expert_homes(),
                              named(c, "zero.experts"), "auto");
  return options;
}

}  // namespace

PlanOptions planner_options_of(const TrainConfig& c, const Mesh& mesh) {
  PlanOptions options = read_planner_options(c, mesh);
  const ZeroOptions& zero = options.zero;
  check_zero(zero.sizes, mesh.homes(), named(c, "zero.sizes"));
  if (zero.experts.z1 > 0)
    check_zero(zero.experts, mesh.expert_homes(), named(c, "zero.experts"));
  return options;
}

RuleOptions adamw_options_of(const TrainConfig& c) {
  return {{"learning_rate", number_text(c.adamw.learning_rate)},
          {"weight_decay", number_text(c.adamw.weight_decay)},
          {"beta1", number_text(c.adamw.beta1)},
          {"beta2", number_text(c.adamw.beta2)},
          {"epsilon", number_text(c.adamw.epsilon)}};
}

RuleOptions rule_options_of(const TrainConfig& c) {
  RuleOptions options = c.rule.options;
  options["learning_rate"] = number_text(c.rule.learning_rate);
  options["weight_decay"] = number_text(c.rule.weight_decay);
  // A preset of the rule has its own values for these.
  if (c.rule.name == kElementRule && !options.contains("preset"))
    options.merge(adamw_options_of(c));
  return with_device(c.rule.name, options, c.device);
}

// Refuses what only a GPU supports on a CPU, and what a GPU does not support.
void check_device(const TrainConfig& c) {
  if (device_kind(c.device).has_own_memory) {
    require(c.model.experts == 0, named(c, "model.experts", c.model.experts),
            cat("0 with device ", c.device,
                ", on which experts cannot be trained yet"));
    require(!chooses_zero(c) && !chooses_experts(c),
            named(c, chooses_zero(c) ? "zero.sizes" : "zero.experts") + " auto",
            cat("sizes with device ", c.device, ", such as zero1 or zero3"));
    require(c.transport != "mpi" && c.transport != "tcp",
            named(c, "transport") + " " + c.transport,
            cat("auto, thread or nccl with device ", c.device));
    return;
  }
  require(!c.chooses_micro_batch(), named(c, "batch.micro") + " auto",
          cat("a number with device ", c.device));
  require(c.transport != "nccl", named(c, "transport") + " nccl",
          cat("device cuda, found ", c.device));
  require(c.attention == "cudnn", named(c, "attention") + " plain",
          cat("device cuda, found ", c.device));
}

void check_config(const TrainConfig& config) {
  check_device(config);
  check_model(config);
  check_rule(config);
  TrainConfig settled = config;
  const Mesh mesh = settle_mesh(settled, {});
  // Otherwise only the launcher knows how many ranks there are.
  if (config.ranks > 0 || !config.mesh.empty())
    planner_options_of(settled, mesh);
  else
    read_planner_options(config, mesh);
  require(config.spike.factor == 0 || config.spike.factor > 1,
          cat("spike.factor ", number_text(config.spike.factor), " (",
              config.origin("spike.factor"), ")"),
          "a factor above 1, or 0 to report no spikes");
  require(!config.spike.stop || config.spike.factor > 0,
          cat("spike.stop on (", config.origin("spike.stop"), ")"),
          cat("a spike.factor above 1, found 0 (",
              config.origin("spike.factor"), "), which reports no spikes"));
  require(config.qk_clip.tau == 0 || !config.model.qk_norm,
          cat("qk_clip.tau ", number_text(config.qk_clip.tau), " (",
              config.origin("qk_clip.tau"), ")"),
          cat("model.qk_norm=off, found on (", config.origin("model.qk_norm"),
              "): with norms of queries and keys, logits do not depend on the "
              "length of rows"));
  // One from a file may belong to a run that had a folder.
  const bool asked = config.origin("save.every").starts_with("--");
  require(
      !asked || config.save.every == 0 || !config.run.empty(),
      named(config, "save.every", config.save.every),
      "a folder for the run as well (run=FOLDER), where checkpoints are kept");
}

}  // namespace canzona::train
