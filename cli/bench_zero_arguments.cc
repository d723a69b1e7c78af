#include "cli/bench_zero_arguments.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/train/config_keys.h"
#include "cli/bench.h"
#include "cli/offer.h"
#include "cli/precision.h"

namespace canzona::cli {
namespace {

// "a;b" and a repeated option come to the same.
std::vector<std::string> words_of(const std::vector<std::string>& given) {
  std::vector<std::string> words;
  for (const std::string& text : given)
    for (const std::string& word : split_text(text, ';'))
      if (!word.empty()) words.push_back(word);
  return words;
}

Settings settings_of(const ZeroArguments& a) {
  Settings given;
  const auto set = [&](const char* key, const std::string& value,
                       const char* origin) {
    if (!value.empty()) given.push_back({key, RawText{value}, origin});
  };
  set("preset", a.preset, "--preset");
  set("rule.name", a.rule, "--rule");
  set("plan.strategy", a.strategy, "--strategy");
  for (const std::string& text : a.set)
    given.push_back(parse_setting(text, "--set"));
  for (const std::string& text : a.rule_options) {
    Setting option = parse_setting(text, "--rule-option");
    option.key = kRuleOption + option.key;
    given.push_back(option);
  }
  return given;
}

}  // namespace

void check_arguments(const ZeroArguments& a) {
  constexpr int kMost = 1'000'000;
  if (a.mesh.empty())
    throw UsageError("--mesh is required, such as --mesh dp=8");
  check_range("--steps", a.steps, 1, kMost);
  check_range("--warmup", a.warmup, 0, kMost);
  check_range("--repeat", a.repeats, 1, kMost);
  check_range("--micro-batches", a.micro_batches, 1, kMost);
  check_range("--ranks-per-node", a.ranks_per_node, 0, kMost);
}

std::vector<ZeroSizes> zero_sizes(const ZeroArguments& a, int32_t homes) {
  std::vector<ZeroSizes> sizes;
  for (const std::string& word : words_of(a.zero)) {
    if (word == "all") return all_zero_sizes(homes);
    const ZeroSizes one = with_states(parse_zero(word, homes), homes);
    check_zero(one, homes);
    sizes.push_back(one);
  }
  return sizes.empty() ? all_zero_sizes(homes) : sizes;
}

std::vector<Overlap> zero_overlaps(const ZeroArguments& a) {
  const std::vector<Overlap> all = {Overlap::kNone, Overlap::kMain,
                                    Overlap::kBackground};
  std::vector<Overlap> overlaps;
  for (const std::string& word : words_of(a.overlap)) {
    if (word == "all") return all;
    overlaps.push_back(parse_overlap(word));
  }
  return overlaps.empty() ? all : overlaps;
}

// The preset's batch need not fit the mesh.
TrainConfig zero_config(const ZeroArguments& a) {
  Settings given = settings_of(a);
  const TrainConfig config = make_settled_config(given);
  int64_t micro = config.batch.micro;
  if (!a.tokens.empty()) {
    const int64_t length = config.model.length;
    const int64_t tokens =
        parse_integer(a.tokens, 1, int64_t{1} << 40, "--tokens");
    if (tokens % length != 0)
      throw UsageError(cat("--tokens ", tokens,
                           ": expected a multiple of the sequences' length, ",
                           length));
    micro = tokens / length;
  }
  const int64_t all = micro * a.micro_batches * parse_mesh(a.mesh).homes();
  given.push_back({"mesh", RawText{a.mesh}, "--mesh"});
  given.push_back({"batch.micro", micro, "--tokens"});
  given.push_back({"batch.global", all, "--micro-batches"});
  return make_settled_config(std::move(given));
}

void add_zero_arguments(CLI::App& app, ZeroArguments& a) {
  const auto add = [&](const char* name, auto& value, const char* label,
                       const char* help, const char* group) {
    app.add_option(name, value, help)
        ->allow_extra_args(false)
        ->option_text(label)
        ->group(group);
  };
  constexpr const char* kWhat = "What is trained";
  add("--preset", a.preset, "NAME", "of canzona train [tiny]", kWhat);
  add("--mesh", a.mesh, "AXES", "such as dp=8 or dp=4,tp=2", kWhat);
  add("--rule", a.rule, "RULE", "of matrices [muon]", kWhat);
  add("--rule-option", a.rule_options, "NAME=VALUE", "of the rule; repeatable",
      kWhat);
  add("--strategy", a.strategy, "NAME", "of the plan [balanced]", kWhat);
  add("--set", a.set, "KEY=VALUE",
      "a key of the training configuration; repeatable", kWhat);
  add("--micro-batches", a.micro_batches, "N", "of a rank and step [1]", kWhat);
  add("--tokens", a.tokens, "N",
      "of a data-parallel rank and micro-batch [the preset's]", kWhat);
  constexpr const char* kHow = "How it is cut";
  add("--zero", a.zero, "SIZES",
      "none, zero1, zero2, zero3, replica:Z, hier:Z, z1=A,z2=B,z3=C or all; "
      "several separated by ';' [all]",
      kHow);
  add("--overlap", a.overlap, "MODES",
      "none, main, background or all; several separated by ';' [all]", kHow);
  add("--zero-experts", a.zero_experts, "SIZES",
      "of experts over their own data-parallel ranks [on the ranks of dense "
      "tensors]",
      kHow);
  add("--message", a.message, "UNIT",
      "what travels at once: module or parameter [module]", kHow);
  add("--prefetch", a.prefetch, "K",
      "modules gathered ahead of the one in use [auto]", kHow);
  add("--replica-sum", a.replica_sum, "KIND",
      "how gradients are added over groups: scatter or allreduce [scatter]",
      kHow);
  add("--collectives", a.collectives, "KIND",
      "how modules reach other nodes: direct, or node, once per node [direct]",
      kHow);
  add("--ranks-per-node", a.ranks_per_node, "N",
      "ranks that fast links join [all]", kHow);
  add("--link", a.link, "RATES",
      "modelled, such as intra=2GB/s,inter=0.2GB/s,latency=20us", kHow);
  add("--comm-ratio", a.comm_ratio, "X",
      "scale modelled links so that sending takes X times the compute", kHow);
  constexpr const char* kRun = "How it is measured";
  add("--steps", a.steps, "N", "timed iterations of a round [3]", kRun);
  add("--warmup", a.warmup, "N", "iterations before them [1]", kRun);
  add("--repeat", a.repeats, "N", "rounds [5]", kRun);
  add("--limit", a.limit, "TIME",
      "begin no round that would end later, but the first [none]", kRun);
  add("--deadline", a.deadline, "TIME",
      "of every collective; past it, exit status 4 [10min]", kRun);
  add("--trace", a.trace, "FILE",
      "write spans of the last cell, for ui.perfetto.dev", kRun);
  app.add_flag("--json", a.json, "print one JSON object instead of text")
      ->group(kRun);
  TrainConfig defaults;
  const auto words_of_key = [&](const char* option, const char* key) {
    const std::vector<ConfigKey> keys = config_keys(defaults);
    offer_words(app.get_option(option),
                std::ranges::find(keys, key, &ConfigKey::name)->words);
  };
  words_of_key("--preset", "preset");
  words_of_key("--strategy", "plan.strategy");
  words_of_key("--overlap", "zero.overlap");
  words_of_key("--message", "zero.message");
  words_of_key("--replica-sum", "zero.replica_sum");
  words_of_key("--collectives", "zero.collectives");
}

}  // namespace canzona::cli
