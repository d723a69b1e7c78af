#include "canzona/train/config.h"

#include <gmock/gmock.h>

#include <set>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/train/config_keys.h"
#include "canzona/train/settings.h"

namespace canzona::train::train_config_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::ThrowsMessage;

Settings set(const std::vector<std::string>& texts) {
  Settings out;
  for (const std::string& text : texts)
    out.push_back(parse_setting(text, "--set"));
  return out;
}

TrainConfig with(const std::vector<std::string>& texts) {
  return make_config(set(texts));
}

template <class... Texts>
void refused(const std::vector<std::string>& texts, const Texts&... parts) {
  EXPECT_THAT([&] { with(texts); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr(parts)...)));
}

TEST(TrainConfig, BuildsLayersOfDefaultsPresetAndSettings) {
  Settings given = json_settings(
      R"({"steps": 7, "model": {"layers": 2}, "rule.name": "soap"})",
      "run.json");
  given.push_back(parse_setting("steps=9", "--set"));
  const TrainConfig config = make_config(given);
  EXPECT_EQ(config.steps, 9);
  EXPECT_EQ(config.origin("steps"), "--set");
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.origin("model.layers"), "run.json");
  EXPECT_EQ(config.model.hidden, 128);
  EXPECT_EQ(config.origin("model.hidden"), "preset tiny");
  EXPECT_EQ(config.rule.name, "soap");
  EXPECT_EQ(config.origin("rule.learning_rate"), "preset tiny, soap");
  EXPECT_EQ(config.origin("clip"), "default");
}

TEST(TrainConfig, D8AFactorOfSpikesIsAboveOneOrNone) {
  EXPECT_EQ(with({}).spike.factor, 10);
  EXPECT_FALSE(with({}).spike.stop);
  EXPECT_EQ(with({"spike.factor=1.5", "spike.stop=on"}).spike.factor, 1.5);
  EXPECT_EQ(with({"spike.factor=0"}).spike.factor, 0);
  refused({"spike.factor=1"}, "spike.factor 1 (--set)", "a factor above 1");
  refused({"spike.factor=-2"}, "spike.factor (--set)");
  refused({"spike.factor=0", "spike.stop=on"}, "spike.stop on (--set)",
          "spike.factor above 1");
}

TEST(TrainConfig, ReadsWordsOfZeroWithoutAMesh) {
  refused({"zero.prefetch=abc"}, "zero.prefetch (--set) 'abc'", "auto or");
  refused({"zero.sizes=abc"}, "zero.sizes (--set) 'abc': expected none",
          "auto");
  refused({"zero.experts=abc"}, "zero.experts (--set) 'abc'");
  // Whether sizes divide the mesh is known with the mesh.
  EXPECT_EQ(with({"zero.sizes=hier:64"}).planner["zero"], "hier:64");
  refused({"zero.sizes=hier:64", "mesh=dp=2"}, "zero.sizes (--set)",
          "does not divide");
  refused({"mesh=dq=2"}, "mesh (--set): unknown axis");
  refused({"plan.memory_cap=x"}, "plan.memory_cap (--set) is 'x'");
}

TEST(TrainConfig, ListsOptionsOfTheRuleThatMayBeGiven) {
  EXPECT_THAT(
      [] { with({"rule.option.a=1"}); },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("rule muon has no option 'a'"), HasSubstr("momentum"),
                testing::Not(HasSubstr("learning_rate")))));
}

// The preset is overridden by everything else, wherever it is named.
TEST(TrainConfig, TakesThePresetFromAnyLayer) {
  const TrainConfig config = with({"model.hidden=64", "preset=small"});
  EXPECT_EQ(config.model.hidden, 64);
  EXPECT_EQ(config.model.layers, 6);
  EXPECT_EQ(config.origin("model.layers"), "preset small");
  EXPECT_EQ(config.origin("preset"), "--set");
}

TEST(TrainConfig, EveryPresetAndRuleIsComplete) {
  for (const std::string& preset : preset_names())
    for (const RuleEntry& rule : rule_table()) {
      const TrainConfig config =
          with({"preset=" + preset, "rule.name=" + rule.name});
      EXPECT_GT(config.rule.learning_rate, 0) << preset << " " << rule.name;
      EXPECT_GT(config.adamw.learning_rate, 0);
      EXPECT_EQ(config.batch.global % 8, 0);
      EXPECT_EQ(config.model.heads % 4, 0);
      EXPECT_EQ(config.model.kv_heads % 4, 0);
      EXPECT_EQ(config.model.layers % 2, 0);
      EXPECT_FALSE(preset_summary(preset).empty());
    }
  EXPECT_EQ(with({"preset=moe-tiny"}).model.experts, 8);
}

// Rates are in the rules' entries; a misspelt preset would be ignored.
TEST(TrainConfig, EveryTunedRateIsOfAPreset) {
  const std::vector<std::string> names = preset_names();
  for (const RuleEntry& rule : rule_table())
    for (const TunedRate& tuned : rule.tuned) {
      EXPECT_THAT(names, Contains(tuned.preset)) << rule.name;
      const TrainConfig config =
          with({"preset=" + tuned.preset, "rule.name=" + rule.name});
      EXPECT_EQ(config.rule.learning_rate, std::stod(tuned.learning_rate));
      EXPECT_EQ(config.origin("rule.learning_rate"),
                cat("preset ", tuned.preset, ", ", rule.name));
    }
  EXPECT_EQ(with({"preset=tiny"}).rule.learning_rate, 0.01);
  EXPECT_EQ(with({"preset=small"}).rule.learning_rate, 0.005);
}

TEST(TrainConfig, APresetTakesTheRateOfItsBase) {
  const TrainConfig config = with({"preset=moe-tiny", "rule.name=soap"});
  EXPECT_EQ(config.rule.learning_rate, 0.012);
  EXPECT_EQ(config.origin("rule.learning_rate"), "preset moe-tiny, soap");
}

TEST(TrainConfig, SmallHasEightMillionParameters) {
  const auto m = with({"preset=small"}).model;
  const int64_t attention = m.hidden * m.head_dim * 2 * (m.heads + m.kv_heads);
  const int64_t layer = attention + 3 * m.hidden * m.ffn;
  EXPECT_GE(m.layers * layer + 2 * m.vocab * m.hidden, 8'000'000);
}

TEST(TrainConfig, RefusesUnknownKeysAndNamesTheNearest) {
  refused({"model.layer=3"}, "--set", "'model.layer'", "'model.layers'");
  refused({"learning_rate=3"}, "'learning_rate'");
  refused({"=3"}, "KEY=VALUE");
  refused({"steps"}, "KEY=VALUE");
  refused({"rule.option.stepz=3"}, "'stepz'", "'steps'", "--set");
  refused({"rule.options.steps=3"}, "'rule.option.steps'");
  refused({"rule.option.learning_rate=3"}, "rule.learning_rate");
  refused({"preset=tinny"}, "preset", "tiny, small, moe-tiny", "'tiny'");
  refused({"rule.name=muo"}, "rule.name (--set)", "'muon'");
}

TEST(TrainConfig, RefusesOtherTypesAndBounds) {
  refused({"steps=ten"}, "steps (--set)", "whole number", "'ten'");
  refused({"steps=1.5"}, "steps", "'1.5'");
  refused({"steps=-1"}, "steps", "from 0", "'-1'");
  refused({"steps=99999999999999999999"}, "steps");
  refused({"clip=nan"}, "clip", "a number, 0 or more");
  refused({"clip=inf"}, "clip");
  refused({"clip="}, "clip", "''");
  refused({"model.tied=maybe"}, "model.tied", "on or off");
  refused({"adamw.beta1=1.01"}, "adamw.beta1", "from 0 to below 1");
  refused({"adamw.beta2=1"}, "adamw.beta2", "from 0 to below 1");
  refused({"adamw.beta2=-0.1"}, "adamw.beta2", "from 0 to below 1");
  const auto from_file = [](const char* text, const char* what) {
    EXPECT_THAT([&] { make_config(json_settings(text, "f.json")); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("(f.json)"), HasSubstr(what))))
        << text;
  };
  from_file(R"({"steps": "4"})", "the text '4'");
  from_file(R"({"steps": 4.0})", "found 4.0");
  from_file(R"({"steps": true})", "found true");
  from_file(R"({"steps": 18446744073709551615})", "found 1844674407370955");
  from_file(R"({"steps": null})", "null");
  from_file(R"({"steps": [1]})", "an array");
  from_file(R"({"model": {"tied": 1}})", "on or off");
  from_file(R"({"rule": {"name": 3}})", "muon");
  EXPECT_EQ(make_config(json_settings(R"({"clip": 2})", "f")).clip, 2);
}

TEST(TrainConfig, RefusesKeysThatContradictEachOther) {
  refused({"model.kv_heads=3"}, "model.kv_heads 3 (--set)",
          "model.heads 8 (preset tiny)");
  refused({"model.head_dim=15"}, "model.head_dim 15", "even");
  refused({"preset=moe-tiny", "model.experts_per_token=9"}, "at most",
          "model.experts 8");
  refused({"model.experts=4"}, "model.expert_ffn 0");
  refused({"model.shared_experts=1"}, "model.shared_experts 1");
  refused({"mesh=dp=2", "ranks=3"}, "mesh dp=2", "ranks 3");
  refused({"mesh=dq=2"}, "mesh (--set)", "dq");
  refused({"batch.global=12", "batch.micro=2", "mesh=dp=4"}, "batch.global 12",
          "multiple of 8", "try batch.micro=1");
  refused({"mesh=dp=3"}, "batch.global 16", "multiple of 3",
          "try batch.global=18");
  refused({"batch.micro=3"}, "batch.global 16 (preset tiny)",
          "batch.micro 3 (--set) on 1 data-parallel rank;");
}

TEST(TrainConfig, KnowsTheMesh) {
  EXPECT_EQ(mesh_of(with({})), Mesh{});
  EXPECT_EQ(mesh_of(with({"ranks=4"})), (Mesh{.dp = 4}));
  EXPECT_EQ(mesh_of(with({"mesh=dp=2,tp=2"})), (Mesh{.dp = 2, .tp = 2}));
  EXPECT_EQ(mesh_of(with({}), 8), (Mesh{.dp = 8}));
  EXPECT_EQ(mesh_of(with({"mesh=tp=4"}), 4), (Mesh{.tp = 4}));
  EXPECT_THROW(mesh_of(with({"mesh=tp=4"}), 8), UsageError);
  EXPECT_THROW(mesh_of(with({"ranks=4"}), 8), UsageError);
  EXPECT_THROW(mesh_of(with({}), 3), UsageError);
}

// Every mesh of up to eight ranks whose axes divide the model and the batch.
TEST(TrainConfig, PresetsFitEveryMeshOfEightRanks) {
  int64_t tried = 0;
  for (const std::string& preset : preset_names()) {
    const TrainConfig plain = with({"preset=" + preset});
    const auto& m = plain.model;
    for (const int dp : {1, 2, 4, 8})
      for (const int tp : {1, 2, 4})
        for (const int pp : {1, 2, 3, 4, 6})
          for (const int ep : {1, 2, 4, 8}) {
            const bool cut = m.experts > 0 ? m.experts % ep == 0 : ep == 1;
            if (m.kv_heads % tp != 0 || m.layers % pp != 0 || !cut) continue;
            if (dp * tp * pp * ep > 8) continue;
            const std::string mesh =
                cat("dp=", dp, ",tp=", tp, ",pp=", pp, ",ep=", ep);
            const TrainConfig config =
                with({"preset=" + preset, "mesh=" + mesh});
            EXPECT_EQ(config.batch.global, plain.batch.global);
            EXPECT_EQ(config.batch.global % (config.batch.micro * dp * ep), 0)
                << preset << " " << mesh;
            ++tried;
          }
  }
  EXPECT_GT(tried, 50);
}

TEST(TrainConfig, LowersThePresetsMicroBatchAndNoOther) {
  EXPECT_EQ(with({"preset=small"}).batch.micro, 8);
  const TrainConfig two = with({"preset=small", "mesh=dp=2"});
  EXPECT_EQ(two.batch.micro, 4);
  EXPECT_EQ(two.origin("batch.micro"), "preset small, for dp=2");
  EXPECT_EQ(with({"preset=small", "ranks=8"}).batch.micro, 1);
  EXPECT_EQ(with({"preset=small", "mesh=tp=2,pp=2"}).batch.micro, 8);
  refused({"preset=small", "batch.micro=8", "mesh=dp=2"}, "batch.micro 8");
}

TEST(TrainConfig, TakesAllCoresThatTheBatchCanBeDealtOver) {
  const auto settled = [](const std::vector<std::string>& texts,
                          const RankCounts& counts) {
    TrainConfig config = with(texts);
    const Mesh mesh = settle_mesh(config, counts);
    EXPECT_EQ(config.mesh, to_string(mesh));
    return config;
  };
  EXPECT_EQ(settled({}, {.cores = 1}).mesh, "dp=1");
  const TrainConfig all = settled({}, {.cores = 4});
  EXPECT_EQ(all.mesh, "dp=4");
  EXPECT_EQ(all.origin("mesh"), "all 4 cores");
  const TrainConfig some = settled({}, {.cores = 6});
  EXPECT_EQ(some.mesh, "dp=4");
  EXPECT_THAT(some.origin("mesh"),
              AllOf(HasSubstr("4 of 6 cores"), HasSubstr("batch.global 16")));
  EXPECT_EQ(settled({"batch.micro=4"}, {.cores = 8}).mesh, "dp=4");
  EXPECT_EQ(settled({"preset=small"}, {.cores = 64}).mesh, "dp=8");
  // A request takes precedence, and a launcher over cores.
  EXPECT_EQ(settled({"mesh=tp=2"}, {.cores = 8}).mesh, "tp=2");
  EXPECT_EQ(settled({"ranks=2"}, {.cores = 8}).mesh, "dp=2");
  const TrainConfig launched = settled({}, {.launched = 2, .cores = 8});
  EXPECT_EQ(launched.mesh, "dp=2");
  EXPECT_EQ(launched.origin("mesh"), "2 ranks launched");
}

// A run's summary reproduces it, except for its folder and the number of ranks.
TEST(TrainConfig, ReadsTheSummaryOfARun) {
  const TrainConfig config =
      with({"preset=small", "ranks=2", "run=runs/x", "steps=7"});
  JsonWriter out;
  out.begin_object().field("steps", 3).member("config");
  write_config(out, config);
  out.end_object();
  Settings given = json_settings(out.text(), "runs/x/summary.json");
  const TrainConfig again = make_config(given);
  EXPECT_EQ(again.steps, 7);
  EXPECT_EQ(again.mesh, "dp=2");
  EXPECT_EQ(again.batch.micro, 4);
  EXPECT_EQ(again.run, "");
  EXPECT_EQ(again.ranks, 0);
  EXPECT_EQ(again.origin("steps"), "runs/x/summary.json");
  given.push_back(parse_setting("steps=9", "--set"));
  EXPECT_EQ(make_config(given).steps, 9);
}

TEST(TrainConfig, GivesTheRulesTheirOptions) {
  const RuleOptions muon =
      rule_options_of(with({"rule.option.steps=4", "rule.learning_rate=0.5"}));
  EXPECT_EQ(muon.at("steps"), "4");
  EXPECT_EQ(muon.at("learning_rate"), "0.5");
  EXPECT_EQ(muon.at("weight_decay"), "0.1");
  const TrainConfig adamw =
      with({"rule.name=adamw", "adamw.beta2=0.9", "adamw.learning_rate=0.25",
            "rule.learning_rate=0.5"});
  EXPECT_EQ(rule_options_of(adamw).at("beta2"), "0.9");
  EXPECT_EQ(rule_options_of(adamw).at("learning_rate"), "0.5");
  EXPECT_EQ(adamw_options_of(adamw).at("learning_rate"), "0.25");
  const TrainConfig apart =
      with({"rule.name=adamw", "adamw.beta2=0.9", "rule.option.beta2=0.8"});
  EXPECT_EQ(rule_options_of(apart).at("beta2"), "0.8");
  EXPECT_EQ(adamw_options_of(apart).at("beta2"), "0.9");
  const TrainConfig keller =
      with({"rule.name=adamw", "rule.option.preset=keller"});
  const auto facts = make_rule_facts("adamw", rule_options_of(keller));
  EXPECT_EQ(facts->options().at("epsilon"), "1e-10");
  EXPECT_EQ(facts->options().at("weight_decay"), "0.1");
  const Settings file = json_settings(
      R"({"rule": {"option": {"nesterov": false, "momentum": 0.5}}})", "f");
  EXPECT_EQ(make_config(file).rule.options,
            (RuleOptions{{"momentum", "0.5"}, {"nesterov", "off"}}));
}

// The number does not depend on a clock.
TEST(TrainConfig, EvaluatesATenthOfWhatIsTrainedOn) {
  const auto sequences = [](const std::vector<std::string>& texts) {
    return eval_sequences_of(with(texts));
  };
  EXPECT_EQ(sequences({"steps=100", "batch.global=16"}), 160);
  EXPECT_EQ(sequences({"steps=19", "batch.global=8"}), 15);
  EXPECT_EQ(sequences({"steps=1", "batch.global=8"}), 1);
  EXPECT_EQ(sequences({"steps=0"}), 0);
  EXPECT_EQ(sequences({"eval.sequences=7"}), 7);
  EXPECT_GT(sequences({"eval.sequences=all"}), int64_t{1} << 60);
  EXPECT_EQ(with({"eval.sequences=auto"}).eval.sequences, -1);
  refused({"eval.sequences=some"}, "eval.sequences", "auto, all or a whole",
          "some");
  refused({"eval.sequences=-2"}, "eval.sequences", "-2");
  // The internal number for auto is not a valid value.
  refused({"eval.sequences=-1"}, "eval.sequences", "auto, all or a whole",
          "-1");
  EXPECT_THROW(
      make_config(json_settings(R"({"eval": {"sequences": -1}})", "f.json")),
      UsageError);
}

TEST(TrainConfig, WordsForNumbersAreWrittenAndReadAsWords) {
  for (const char* text : {"auto", "all", "12"}) {
    JsonWriter out;
    const TrainConfig config = with({cat("eval.sequences=", text)});
    write_config(out, config);
    const TrainConfig read = make_config(json_settings(out.text(), "run.json"));
    EXPECT_EQ(read.eval.sequences, config.eval.sequences) << text;
  }
  // As written in files that are older than these words.
  const TrainConfig old =
      make_config(json_settings(R"({"eval": {"sequences": 0}})", "run.json"));
  JsonWriter out;
  write_config(out, old);
  EXPECT_THAT(out.text(), HasSubstr("\"sequences\":\"all\""));
}

TEST(TrainConfig, WritesItselfAsAFileThatReadsBackEqual) {
  const TrainConfig config =
      with({"preset=moe-tiny", "rule.name=shampoo", "clip=0.3",
            "rule.option.max_preconditioner_dim=64", "mesh=dp=2,ep=2",
            "model.tied=on"});
  JsonWriter out;
  write_config(out, config);
  const TrainConfig again = make_config(json_settings(out.text(), "again"));
  JsonWriter twice;
  write_config(twice, again);
  EXPECT_EQ(out.text(), twice.text());
  EXPECT_THAT(out.text(), HasSubstr(R"("clip":0.3)"));
  EXPECT_EQ(again.rule.options, config.rule.options);
}

TEST(TrainConfig, ShowsEveryKeyOnceWithItsOrigin) {
  TrainConfig config = with({"rule.option.steps=4"});
  std::set<std::string> seen;
  bool option_seen = false;
  for (const ConfigRow& row : config_rows(config)) {
    EXPECT_TRUE(seen.insert(row.key).second) << row.key;
    EXPECT_FALSE(row.origin.empty()) << row.key;
    EXPECT_FALSE(row.help.empty()) << row.key;
    if (row.key != "rule.option.steps") continue;
    option_seen = true;
    EXPECT_EQ(row.value, "4");
    EXPECT_EQ(row.origin, "--set");
  }
  EXPECT_TRUE(option_seen);
  for (const ConfigKey& key : config_keys(config))
    EXPECT_TRUE(seen.contains(key.name));
  EXPECT_TRUE(seen.contains("rule.option.momentum"));
}

// Options are found by their names, and help lists them by place.
TEST(TrainConfig, EveryOptionSetsOneKey) {
  TrainConfig config;
  std::set<std::string> names;
  std::set<std::pair<OptionGroup, int>> places;
  const std::vector<ConfigKey> keys = keys_with_options(config);
  for (const ConfigKey& key : keys) {
    const KeyOption& option = key.option;
    EXPECT_TRUE(option.name.starts_with("--")) << key.name;
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_TRUE(places.insert({option.group, option.place}).second)
        << option.name;
    EXPECT_EQ(option.label.empty(), std::holds_alternative<bool*>(key.value))
        << option.name;
    EXPECT_THAT(
        config_markdown(),
        testing::HasSubstr(cat("| `", key.name, "` | `", option.name, "` |")));
  }
  EXPECT_EQ(keys.front().option.name, "--data");
  EXPECT_TRUE(names.contains("--tokenizer"));
  EXPECT_FALSE(heading(keys.back().option.group).empty());
}

// A key without its own member would set another's.
TEST(TrainConfig, EveryKeyHasAValueOfItsOwn) {
  TrainConfig config;
  std::set<const void*> places;
  for (const ConfigKey& key : config_keys(config)) {
    const void* place = std::visit(
        [](const auto* value) -> const void* { return value; }, key.value);
    EXPECT_TRUE(places.insert(place).second) << key.name;
  }
}

}  // namespace
}  // namespace canzona::train::train_config_test
