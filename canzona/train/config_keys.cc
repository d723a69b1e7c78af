// The keys of a configuration: one key (its value as text, its bounds, setting
// it), the list of all, and a configuration as rows, JSON and a table.
#include "canzona/train/config_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/option_table.h"
#include "canzona/train/settings.h"

namespace canzona::train {
namespace {

// Returns a word of the command line or a text of a file; nothing for numbers
// and truths.
std::optional<std::string> text_given(const Setting& setting) {
  if (const auto* raw = std::get_if<RawText>(&setting.value)) return raw->text;
  if (const auto* text = std::get_if<std::string>(&setting.value)) return *text;
  return std::nullopt;
}

[[noreturn]] void refuse(const ConfigKey& key, const Setting& setting) {
  const std::string text = text_given(setting).value_or("");
  throw UsageError(cat(key.name, " (", setting.origin, "): expected ",
                       key.allowed(), ", found ", describe(setting.value),
                       did_you_mean(text, key.words)));
}

// Returns the value as the requested type, or refuses it.
template <class Type>
Type plain(const ConfigKey& key, const Setting& setting) {
  if (const auto* value = std::get_if<Type>(&setting.value)) return *value;
  refuse(key, setting);
}

template <class Number>
Number parse_whole_text(const std::string& text, const ConfigKey& key,
                        const Setting& setting) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) refuse(key, setting);
  return number;
}

// Reads a number from the command line, or as typed in the file.
template <class Number>
Number number_of(const ConfigKey& key, const Setting& setting) {
  if (const auto* raw = std::get_if<RawText>(&setting.value))
    return parse_whole_text<Number>(raw->text, key, setting);
  if constexpr (std::is_same_v<Number, double>)
    if (const auto* whole = std::get_if<int64_t>(&setting.value))
      return static_cast<double>(*whole);
  return plain<Number>(key, setting);
}

// Returns the number that a word stands for; nothing if it is not one of the
// words.
std::optional<int64_t> number_called(const ConfigKey& key,
                                     const Setting& setting) {
  const std::string word = text_given(setting).value_or("");
  const auto at = std::ranges::find(key.words, word);
  if (at == key.words.end()) return std::nullopt;
  return static_cast<int64_t>(key.low) + (at - key.words.begin());
}

// Returns the number's index among the words, or one past them.
size_t place_of(const ConfigKey& key, int64_t number) {
  return static_cast<size_t>(number - static_cast<int64_t>(key.low));
}

template <class Number>
void set_number(const ConfigKey& key, Number* to, const Setting& setting) {
  const auto number = number_of<Number>(key, setting);
  const auto real = static_cast<double>(number);
  // A negative number only encodes a word; 0 is how older files write `all`.
  const double low = key.words.empty() ? key.low : std::max(key.low, 0.0);
  // Infinity is a bound, never a value; NaN fails every comparison.
  if (!(real >= low && real <= key.high) || std::isinf(real) ||
      (key.below_high && real == key.high))
    refuse(key, setting);
  *to = number;
}

bool truth_of(const ConfigKey& key, const Setting& setting) {
  const std::optional<std::string> text = text_given(setting);
  if (!text) return plain<bool>(key, setting);
  if (*text == "on" || *text == "true") return true;
  if (*text == "off" || *text == "false") return false;
  refuse(key, setting);
}

// A file may have a number where a text may be one: prefetch = 2.
std::string word_of(const ConfigKey& key, const Setting& setting) {
  if (key.is_number_text() && !number_called(key, setting)) {
    int64_t number = 0;
    set_number(key, &number, setting);
    return cat(number);
  }
  const auto* number = std::get_if<int64_t>(&setting.value);
  const std::string text =
      number != nullptr ? cat(*number) : text_given(setting).value_or("");
  if (number == nullptr && !text_given(setting)) refuse(key, setting);
  if (key.words.empty()) return text;
  for (const std::string& word : key.words)
    if (word == text) return text;
  refuse(key, setting);
}

std::string bound_text(double bound) {
  return bound == std::floor(bound) && std::abs(bound) < 1e15
             ? cat(static_cast<int64_t>(bound))
             : number_text(bound);
}

std::string range_text(const ConfigKey& key, const char* kind) {
  const std::string low = bound_text(key.low);
  return std::isinf(key.high)
             ? cat(kind, ", ", low, " or more")
             : cat(kind, " from ", low, key.below_high ? " to below " : " to ",
                   bound_text(key.high));
}

struct ValueText {
  const ConfigKey& key;
  std::string operator()(const int64_t* number) const {
    return key.is_word() ? key.words[place_of(key, *number)] : cat(*number);
  }
  std::string operator()(const double* number) const {
    return number_text(*number);
  }
  std::string operator()(const bool* truth) const {
    return *truth ? "on" : "off";
  }
  std::string operator()(const std::string* text) const { return *text; }
};

struct Allowed {
  const ConfigKey& key;
  std::string whole(double low) const {
    ConfigKey numbers = key;
    numbers.low = low;
    const std::string range = range_text(numbers, "a whole number");
    return key.words.empty() ? range
                             : cat(join(key.words, ", "), " or ", range);
  }
  std::string operator()(const int64_t*) const {
    return whole(key.low + static_cast<double>(key.words.size()));
  }
  std::string operator()(const double*) const {
    return range_text(key, "a number");
  }
  std::string operator()(const bool*) const { return "on or off"; }
  std::string operator()(const std::string*) const {
    if (key.is_number_text()) return whole(key.low);
    return key.words.empty() ? "a text" : join(key.words, ", ");
  }
};

struct Set {
  const ConfigKey& key;
  const Setting& setting;
  void operator()(int64_t* to) const {
    if (const auto number = number_called(key, setting))
      *to = *number;
    else
      set_number(key, to, setting);
  }
  void operator()(double* to) const { set_number(key, to, setting); }
  void operator()(bool* to) const { *to = truth_of(key, setting); }
  void operator()(std::string* to) const { *to = word_of(key, setting); }
};

}  // namespace

std::string ConfigKey::text() const {
  return std::visit(ValueText{*this}, value);
}

std::string to_string(OnResume answer) {
  switch (answer) {
    case OnResume::kMayChange:
      return "may change";
    case OnResume::kStays:
      return "stays";
    case OnResume::kUndecided:
      break;
  }
  return "undecided";
}

bool ConfigKey::is_word() const {
  const auto* number = std::get_if<int64_t*>(&value);
  return number != nullptr ? place_of(*this, **number) < words.size()
                           : std::ranges::find(words, text()) != words.end();
}

bool ConfigKey::is_number_text() const {
  return std::holds_alternative<std::string*>(value) && low < high;
}

std::string ConfigKey::allowed() const {
  return std::visit(Allowed{*this}, value);
}

void ConfigKey::set(const Setting& setting) const {
  std::visit(Set{*this, setting}, value);
}

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMany = 1e12;

std::string section_of(const std::string& key) {
  const size_t dot = key.find('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const RuleEntry& entry : rule_table()) names.push_back(entry.name);
  return names;
}

// The keys of the planner's options, in the table's order.
std::vector<ConfigKey> planner_keys(TrainConfig& config) {
  std::vector<ConfigKey> keys;
  int place = 10;  // after keys that are no options of the planner
  for (const PlannerOption& option : planner_options()) {
    if (option.key.empty()) continue;
    ConfigKey key{option.key, &config.planner[option.name], option.help};
    if (option.usual.empty()) key.help += "; without it: " + option.shown_usual;
    key.names_words = option.names_words;
    key.offered = option.words;
    if (!option.is_open) key.words = option.words;
    if (option.range) {
      key.low = static_cast<double>(option.range->first);
      key.high = static_cast<double>(option.range->second);
    }
    // States are those of matrices, which are the input of a plan.
    const bool is_input = option.group == PlannerGroup::kInput;
    key.on_resume = is_input ? OnResume::kStays : OnResume::kMayChange;
    key.option = {option.flag(), option.label,
                  is_input ? OptionGroup::kWhat
                  : option.group == PlannerGroup::kPlanning
                      ? OptionGroup::kRanks
                      : OptionGroup::kMemory,
                  ++place};
    keys.push_back(std::move(key));
  }
  return keys;
}

// Puts the keys of a section beside its first one.
void gather_sections(std::vector<ConfigKey>& keys) {
  const auto name = [](const ConfigKey& key) {
    const std::string section = section_of(key.name);
    return section.empty() ? key.name : section;
  };
  std::map<std::string, size_t> place;
  for (const ConfigKey& key : keys) place.emplace(name(key), place.size());
  std::ranges::stable_sort(
      keys, {}, [&](const ConfigKey& key) { return place.at(name(key)); });
}

}  // namespace

std::vector<ConfigKey> config_keys(TrainConfig& c) {
  auto& m = c.model;
  // Some keys may change when a run is resumed; others must stay.
  const auto may = [](ConfigKey key, const KeyOption& option = {}) {
    key.on_resume = OnResume::kMayChange;
    key.option = option;
    return key;
  };
  const auto stays = [](ConfigKey key, const KeyOption& option = {}) {
    key.on_resume = OnResume::kStays;
    key.option = option;
    return key;
  };
  // The option, with the label of its value, and where help lists it.
  const auto by = [](const std::string& usage, OptionGroup group, int place) {
    const size_t space = std::min(usage.find(' '), usage.size());
    return KeyOption{usage.substr(0, space),
                     usage.substr(std::min(space + 1, usage.size())), group,
                     place};
  };
  const auto whole = [](const char* name, int64_t& value, double low,
                        double high, const char* help) {
    return ConfigKey{name, &value, help, low, high};
  };
  const auto real = [](const char* name, double& value, double low, double high,
                       const char* help) {
    return ConfigKey{name, &value, help, low, high};
  };
  // A decay of 1 would keep a moment at its initial zeros.
  const auto decay = [&](const char* name, double& value, const char* help) {
    ConfigKey key = real(name, value, 0, 1, help);
    key.below_high = true;
    return key;
  };
  const auto yes = [](const char* name, bool& value, const char* help) {
    return ConfigKey{name, &value, help};
  };
  const auto text = [](const char* name, std::string& value, const char* help,
                       std::vector<std::string> words = {}) {
    return ConfigKey{name, &value, help, 0, 0, std::move(words)};
  };
  // The words stand for -1 and 0; numbers begin at 1.
  const auto named = [](const char* name, int64_t& value,
                        std::vector<std::string> words, double high,
                        const char* help) {
    return ConfigKey{name, &value, help, -1, high, std::move(words)};
  };
  // clang-format off
  std::vector<ConfigKey> keys = {
      stays(text("preset", c.preset, "named set of settings to start from", preset_names()), by("--preset NAME", OptionGroup::kWhat, 3)),
      stays(whole("seed", c.seed, 0, kMany, "seed of the initial weights and of the order of sequences"), by("--seed N", OptionGroup::kWhat, 8)),
      may(whole("steps", c.steps, 0, 1e9, "optimizer steps"), by("--steps N", OptionGroup::kWhat, 6)),
      may(text("data.path", c.data.path, "text file or folder, Megatron .bin/.idx, llm.c .bin, or synthetic"), by("--data PATH", OptionGroup::kWhat, 1)),
      may(text("data.tokenizer", c.data.tokenizer, "tokenizer.json for text, or a folder with one; without it: bytes"), by("--tokenizer FILE", OptionGroup::kWhat, 2)),
      stays(real("data.held_out", c.data.held_out, 0.0001, 0.9, "share of the data, at its end, held out for evaluation")),
      may(text("model.name", m.name, "name of the model; without it: that of the preset")),
      stays(whole("model.layers", m.layers, 1, 10000, "decoder layers")),
      stays(whole("model.hidden", m.hidden, 1, 1 << 20, "width of the residual stream")),
      stays(whole("model.ffn", m.ffn, 1, 1 << 24, "inner width of a dense mlp")),
      stays(whole("model.heads", m.heads, 1, 1 << 16, "query heads")),
      stays(whole("model.kv_heads", m.kv_heads, 1, 1 << 16, "key and value heads; divides the query heads")),
      stays(whole("model.head_dim", m.head_dim, 2, 1 << 16, "width of a head; even")),
      stays(whole("model.vocab", m.vocab, 1, 1 << 24, "size of the vocabulary; 256: bytes")),
      stays(whole("model.length", m.length, 1, 1 << 24, "tokens per sequence")),
      may(whole("model.context", m.context, 0, 1 << 30, "longest context of the model in tokens (max_position_embeddings); model.length if that is more")),
      stays(yes("model.tied", m.tied, "the head shares the embedding's weights")),
      stays(yes("model.qk_norm", m.qk_norm, "queries and keys are normalized per head, as in Qwen3; off: as in Llama")),
      stays(real("model.rope_base", m.rope_base, 1, 1e12, "base of the rotary angles")),
      stays(real("model.norm_epsilon", m.norm_epsilon, 1e-12, 1, "added to the mean square in norms")),
      may(text("model.recompute", m.recompute, "what layers compute again in backward instead of keeping it: mlp, gate and up; layer, all but their input", {"off", "mlp", "layer"})),
      stays(whole("model.experts", m.experts, 0, 1 << 16, "experts per layer; 0: a dense mlp")),
      stays(whole("model.experts_per_token", m.experts_per_token, 1, 1 << 16, "experts per token")),
      stays(whole("model.expert_ffn", m.expert_ffn, 0, 1 << 24, "inner width of an expert")),
      stays(whole("model.shared_experts", m.shared_experts, 0, 1 << 10, "shared experts, which process every token")),
      may(real("model.balance_coefficient", m.balance_coefficient, 0, kInf, "coefficient of the loss that spreads tokens over experts")),
      may(whole("batch.global", c.batch.global, 1, 1 << 30, "sequences per step, over all ranks")),
      may(ConfigKey{"batch.micro", &c.batch.micro, "sequences per forward and backward; the gradients of a step's micro-batches are accumulated; a preset's value is lowered to fit the mesh; auto, on a GPU: as many as fit", 0, 1 << 20, {"auto"}}, by("--micro-batch N", OptionGroup::kMemory, 1)),
      stays(text("rule.name", c.rule.name, kRuleHelp, rule_names()), by("--rule RULE", OptionGroup::kWhat, 5)),
      may(real("rule.learning_rate", c.rule.learning_rate, 0, kInf, "peak learning rate of the matrices inside layers"), by("--learning-rate RATE", OptionGroup::kWhat, 7)),
      may(real("rule.weight_decay", c.rule.weight_decay, 0, kInf, "weight decay of the matrices inside layers")),
      may(real("adamw.learning_rate", c.adamw.learning_rate, 0, kInf, "peak learning rate of embedding, head, norms and routers")),
      may(decay("adamw.beta1", c.adamw.beta1, "decay rate of the first moment")),
      may(decay("adamw.beta2", c.adamw.beta2, "decay rate of the second moment")),
      may(real("adamw.epsilon", c.adamw.epsilon, 0, kInf, "added to the root of the second moment")),
      may(real("adamw.weight_decay", c.adamw.weight_decay, 0, kInf, "weight decay of embedding, head and routers; norms do not decay")),
      may(text("schedule.kind", c.schedule.kind, "schedule of the learning rates", schedule_kinds())),
      may(whole("schedule.warmup", c.schedule.warmup, 0, 1e9, "steps over which learning rates rise")),
      may(real("schedule.decay", c.schedule.decay, 0, 1e9, "wsd: how long learning rates fall; below 1: a share of all steps, else a number of steps")),
      may(real("schedule.final", c.schedule.final, 0, 1, "final learning rates, as a share of the peak")),
      may(text("init", c.init, "weights to start from: a Hugging Face folder, a run or a checkpoint; without it: random"), by("--init PATH", OptionGroup::kWhat, 4)),
      stays(text("freeze", c.freeze, "tensors that are not trained: patterns of names, separated by commas")),
      may(real("clip", c.clip, 0, kInf, "norm that gradients are clipped to; 0: no clipping")),
      may(real("qk_clip.tau", c.qk_clip.tau, 0, 1e12, "QK-clip: after a step, rows of queries and keys are scaled where a head's largest logit exceeded this; 0: off; needs model.qk_norm=off")),
      may(real("qk_clip.alpha", c.qk_clip.alpha, 0, 1, "QK-clip: the share of the factor that the query takes")),
      may(text("qk_clip.group", c.qk_clip.group, "QK-clip: query heads that share a key are clipped together with it, or each alone", {"group_max", "q_only"})),
      may(whole("max_skipped", c.max_skipped, 0, 1e9, "the run ends after this many steps in a row with a non-finite gradient; 0: never"), by("--max-skipped N", OptionGroup::kWhat, 9)),
      may(real("spike.factor", c.spike.factor, 0, 1e12, "a loss above this many times the median of the last 16 steps is reported as a spike; 0: never")),
      may(yes("spike.stop", c.spike.stop, "a spike ends the run with exit status 5")),
      may(whole("eval.every", c.eval.every, 0, 1e9, "steps between evaluations; 0: only at the end")),
      may(named("eval.sequences", c.eval.sequences, {"auto", "all"}, kMany, "held-out sequences per evaluation, from the first; auto: at most a tenth of the tokens that the run trains on")),
      may(whole("check_replicas", c.check_replicas, 0, 1e9, "steps between comparisons of replicated parameters; 0: never"), by("--check-replicas N", OptionGroup::kSaving, 4)),
      may(whole("save.every", c.save.every, 0, 1e9, "steps between checkpoints, in the folder ckpt of the run; 0: none"), by("--save-every N", OptionGroup::kSaving, 1)),
      may(whole("save.keep_last", c.save.keep_last, 0, 1e6, "number of newest checkpoints to keep; 0: all"), by("--keep-last K", OptionGroup::kSaving, 2)),
      may(text("save.mode", c.save.mode, "write files during the following steps, or wait for them", {"background", "sync"}), by("--save HOW", OptionGroup::kSaving, 3)),
      may(yes("zero.reuse", c.reuse, "neighbouring micro-batches of a pipeline stage share gathers and scatters"), by("--reuse", OptionGroup::kMemory, 90)),
      may(text("links.model", c.link_model, "links to model between threads, such as intra=2GB/s,inter=0.2GB/s; without it: plain memory copies"), by("--link SPEEDS", OptionGroup::kMemory, 91)),
      may(text("mesh", c.mesh, "sizes of the axes dp, tp, pp, ep, such as dp=2,tp=2; without it: dp over all ranks or cores"), by("--mesh AXES", OptionGroup::kRanks, 1)),
      may(whole("ranks", c.ranks, 0, static_cast<double>(kMaxWorld), "number of ranks; 0: that of the mesh"), by("--ranks N", OptionGroup::kRanks, 2)),
      may(text("transport", c.transport, "ranks are threads, or processes that communicate by MPI, sockets or, with a GPU each, NCCL; auto: as the launcher requires", {"auto", "thread", "mpi", "tcp", "nccl"}), by("--transport KIND", OptionGroup::kRanks, 90)),
      may(text("device", c.device, "computes forward, backward and steps: cpu, or cuda, a GPU, in bf16 with fp32 masters (dense models over dp)", device_names()), by("--device DEVICE", OptionGroup::kRanks, 3)),
      may(text("attention", c.attention, "on a GPU: attention by cuDNN or by a plain kernel, which is slow and needs no library", {"cudnn", "plain"}), by("--attention KIND", OptionGroup::kRanks, 4)),
      may(text("wire", c.wire, "dtype of gradients between data-parallel ranks", {"fp32", "bf16"})),
      may(text("run", c.run, "folder for metrics, report and weights; without it: nothing is saved"), by("--run DIR", OptionGroup::kWhat, 10)),
      may(whole("log.every", c.log.every, 1, 1e9, "steps between lines of the log")),
  };
  // clang-format on
  const std::vector<ConfigKey> planner = planner_keys(c);
  keys.insert(std::ranges::find(keys, "zero.reuse", &ConfigKey::name),
              planner.begin(), planner.end());
  gather_sections(keys);
  return keys;
}

std::string heading(OptionGroup group) {
  switch (group) {
    case OptionGroup::kWhat:
      return "Training";
    case OptionGroup::kSaving:
      return "Checkpoints (see docs/resuming.md)";
    case OptionGroup::kRanks:
      return "Ranks";
    case OptionGroup::kMemory:
      return "Memory and links (see docs/zero.md)";
  }
  throw InternalError("no such group of options");
}

std::vector<ConfigKey> keys_with_options(TrainConfig& config) {
  std::vector<ConfigKey> keys = config_keys(config);
  std::erase_if(keys,
                [](const ConfigKey& key) { return key.option.name.empty(); });
  std::ranges::sort(keys, {}, [](const ConfigKey& key) {
    return std::pair(key.option.group, key.option.place);
  });
  return keys;
}

const ConfigKey& find_key(const std::vector<ConfigKey>& keys,
                          std::string_view name) {
  const auto key = std::ranges::find(keys, name, &ConfigKey::name);
  CANZONA_CHECK(key != keys.end(), "key ", name);
  return *key;
}

namespace {

const RuleEntry& entry_of(const std::string& rule) {
  return *std::ranges::find(rule_table(), rule, &RuleEntry::name);
}

std::string meaning_of(const RuleEntry& entry, const std::string& option) {
  const auto fact = std::ranges::find(entry.options, option, &OptionFact::name);
  return fact == entry.options.end() ? "named set of defaults" : fact->meaning;
}

// Options that no setting names come from the rule's preset, if one is set.
std::string option_origin(const TrainConfig& config, const std::string& key) {
  if (const auto origin = config.origins.find(key);
      origin != config.origins.end())
    return origin->second;
  const auto preset = config.rule.options.find("preset");
  return preset == config.rule.options.end() ? config.rule.name + "'s own"
                                             : "preset " + preset->second;
}

// Adds the rule's effective options after its own keys.
void add_options(const TrainConfig& config, std::vector<ConfigRow>& rows) {
  const auto facts = make_rule_facts(config.rule.name, rule_options_of(config));
  for (const auto& [name, value] : facts->options()) {
    const std::string key = kRuleOption + name;
    if (name == "learning_rate" || name == "weight_decay") continue;
    rows.push_back({key, value, option_origin(config, key),
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
  else if (key.is_number_text())
    out.value(parse_integer(key.text(), static_cast<int64_t>(key.low),
                            static_cast<int64_t>(key.high), key.name));
  else
    std::visit(WriteValue{out}, key.value);
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

namespace {

// Numbers have limits; an infinite one becomes null.
void write_limits(JsonWriter& out, const ConfigKey& key) {
  if (key.low >= key.high) return;
  if (!std::holds_alternative<double*>(key.value))
    out.field("low", static_cast<int64_t>(key.low))
        .field("high", static_cast<int64_t>(key.high));
  else
    out.field("low", key.low).field("high", key.high);
}

bool is_preset_key(const ConfigKey& key) {
  static const TrainConfig tiny = make_config({});
  return tiny.origin(key.name).starts_with("preset");
}

}  // namespace

std::string config_markdown() {
  TrainConfig defaults;
  std::string out =
      "| key | option | default | allowed | on resume | what it is |\n"
      "|---|---|---|---|---|---|\n";
  for (const ConfigKey& key : config_keys(defaults)) {
    const auto code = [](const std::string& text) {
      return text.empty() ? text : "`" + text + "`";
    };
    out += cat("| ", code(key.name), " | ", code(key.option.name), " | ",
               is_preset_key(key) ? "the preset's" : code(key.text()), " | ",
               key.allowed(), " | ", to_string(key.on_resume), " | ", key.help,
               " |\n");
  }
  return out;
}

std::string config_keys_json() {
  TrainConfig defaults;
  JsonWriter out(2);
  out.begin_object().member("keys").begin_array();
  for (const ConfigKey& key : config_keys(defaults)) {
    out.begin_object().field("key", key.name).member("default");
    if (is_preset_key(key))
      out.null();
    else
      write_key(out, key);
    write_limits(out, key);
    if (!key.words.empty()) out.member("words").values(key.words);
    out.field("allowed", key.allowed())
        .field("on_resume", to_string(key.on_resume))
        .field("help", key.help)
        .end_object();
  }
  return out.end_array().end_object().take() + "\n";
}

}  // namespace canzona::train
