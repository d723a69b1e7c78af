// Settings of a resumed run: each says whether it may change or must stay.
#include "canzona/train/resume.h"

#include <gmock/gmock.h>

#include <array>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/train/config_keys.h"

namespace canzona::train::resume_test {
namespace {

constexpr const char* kOrigin = "checkpoint of step 100";

std::string config_text(const TrainConfig& config) {
  JsonWriter out;
  write_config(out, config);
  return out.take();
}

// Applies `given` on top of what `saved` was saved with.
TrainConfig resumed(const TrainConfig& saved,
                    const std::vector<std::string>& given) {
  Settings all = saved_settings(config_text(saved), kOrigin);
  for (const std::string& text : given)
    all.push_back(parse_setting(text, "--set"));
  return make_config(all);
}

TrainConfig configured(const std::vector<std::string>& given) {
  Settings all;
  for (const std::string& text : given)
    all.push_back(parse_setting(text, "--set"));
  return make_config(all);
}

TEST(Resume, EveryKeyHasAnAnswer) {
  TrainConfig config;
  for (const ConfigKey& key : config_keys(config)) {
    EXPECT_NE(key.on_resume, OnResume::kUndecided) << key.name;
    EXPECT_THAT(config_markdown(),
                testing::HasSubstr("| `" + key.name + "` |"));
  }
}

TEST(Resume, WhatWasSavedIsWhatGoesOn) {
  const TrainConfig saved =
      configured({"preset=small", "rule.name=soap", "steps=300",
                  "batch.global=24", "rule.option.beta2=0.9", "mesh=dp=2,tp=2",
                  "run=runs/one", "save.every=10"});
  const TrainConfig again = resumed(saved, {});
  EXPECT_EQ(again.model.hidden, saved.model.hidden);
  EXPECT_EQ(again.rule.name, "soap");
  EXPECT_EQ(again.rule.learning_rate, saved.rule.learning_rate);
  EXPECT_EQ(again.rule.options.at("beta2"), "0.9");
  EXPECT_EQ(again.mesh, "dp=2,tp=2");
  EXPECT_EQ(again.steps, 300);
  EXPECT_EQ(again.save.every, 10);
  EXPECT_EQ(again.run, "");  // its folder is not requested again
  EXPECT_EQ(again.origin("steps"), kOrigin);
  EXPECT_NO_THROW(require_resumable(saved, again, kOrigin));
}

TEST(Resume, WhatMayChangeDoes) {
  const TrainConfig saved = configured({});
  const TrainConfig now = resumed(
      saved,
      {"steps=400", "rule.learning_rate=0.001", "mesh=dp=4", "batch.global=32",
       "schedule.kind=cosine", "clip=0.5", "wire=bf16", "zero.sizes=zero3",
       "plan.strategy=layerwise", "adamw.beta2=0.99", "data.path=elsewhere.txt",
       "rule.option.momentum=0.9", "eval.every=7", "save.every=3", "run=r"});
  EXPECT_EQ(now.steps, 400);
  EXPECT_EQ(now.origin("steps"), "--set");
  EXPECT_NO_THROW(require_resumable(saved, now, kOrigin));
}

// Tries one key after the other, each with a valid value.
TEST(Resume, WhatStaysIsRefusedByNameWithBothValues) {
  const TrainConfig saved =
      configured({"model.experts=4", "model.expert_ffn=64"});
  const std::vector<std::string> others = {"preset=small",
                                           "seed=2",
                                           "data.held_out=0.1",
                                           "model.layers=2",
                                           "model.hidden=64",
                                           "model.ffn=100",
                                           "model.heads=4",
                                           "model.kv_heads=2",
                                           "model.head_dim=32",
                                           "model.vocab=300",
                                           "model.length=32",
                                           "model.tied=on",
                                           "model.qk_norm=off",
                                           "model.rope_base=5000",
                                           "model.norm_epsilon=1e-05",
                                           "model.experts=8",
                                           "model.experts_per_token=1",
                                           "model.expert_ffn=32",
                                           "model.shared_experts=1",
                                           "rule.name=soap",
                                           "plan.split=head",
                                           "freeze=*norm*"};
  std::set<std::string> refused;
  for (const std::string& other : others) {
    const std::string key = other.substr(0, other.find('='));
    const std::string value = other.substr(other.find('=') + 1);
    refused.insert(key);
    EXPECT_THAT(
        [&] { require_resumable(saved, resumed(saved, {other}), kOrigin); },
        testing::ThrowsMessage<UsageError>(testing::AllOf(
            testing::HasSubstr(key + " is "), testing::HasSubstr(kOrigin),
            testing::HasSubstr("and " + value + " now (--set)"))))
        << other;
  }
  TrainConfig config;
  for (const ConfigKey& key : config_keys(config))
    EXPECT_EQ(refused.contains(key.name), key.on_resume == OnResume::kStays)
        << key.name << " is not tried here";
}

TEST(Resume, OptionsOfARuleThatChangeItsStatesStay) {
  const TrainConfig saved = configured({"rule.name=soap"});
  for (const char* option : {"max_preconditioner_dim=64", "grafting=adam",
                             "momentum_basis=original"})
    EXPECT_THAT(
        [&] {
          require_resumable(
              saved, resumed(saved, {std::string("rule.option.") + option}),
              kOrigin);
        },
        testing::ThrowsMessage<UsageError>(testing::HasSubstr(
            "rule.option." +
            std::string(option).substr(0, std::string(option).find('=')))))
        << option;
  EXPECT_NO_THROW(require_resumable(
      saved, resumed(saved, {"rule.option.precondition_frequency=3"}),
      kOrigin));
  // Every option that may change is one of some rule.
  std::set<std::string> known;
  for (const RuleEntry& entry : rule_table())
    for (const OptionFact& option : entry.options) known.insert(option.name);
  for (const char* option : {"momentum", "precision", "beta2", "steps",
                             "constraint", "renorm", "second_moment_eps"}) {
    EXPECT_TRUE(may_change_option(option)) << option;
    EXPECT_TRUE(known.contains(option)) << option;
  }
}

TEST(Resume, OptionsThatAddStatesChangeIfTheseMayBegin) {
  const TrainConfig saved = configured({});
  const TrainConfig now = resumed(saved, {"rule.option.second_moment=normuon"});
  EXPECT_NO_THROW(require_resumable(saved, now, kOrigin, true));
  EXPECT_THAT([&] { require_resumable(saved, now, kOrigin); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  testing::HasSubstr("rule.option.second_moment is none in"),
                  testing::HasSubstr("add --missing init"))));
  // A preset counts as the options that it sets.
  EXPECT_NO_THROW(require_resumable(
      saved, resumed(saved, {"rule.option.preset=nanochat"}), kOrigin, true));
  EXPECT_THAT(
      [&] {
        require_resumable(saved, resumed(saved, {"rule.option.preset=normuon"}),
                          kOrigin, true);
      },
      testing::ThrowsMessage<UsageError>(testing::AllOf(
          testing::HasSubstr("rule.option.momentum_form is ema in"),
          testing::HasSubstr("and heavy_ball now (preset normuon)"),
          testing::Not(testing::HasSubstr("preset is")))));
  // States that are saved have no way out.
  EXPECT_THAT([&] { require_resumable(now, saved, kOrigin); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  testing::HasSubstr("second_moment is normuon in"),
                  testing::Not(testing::HasSubstr("--missing")))));
  // Nothing else is freed, and the way out is not named for it.
  const TrainConfig other = resumed(saved, {"rule.option.second_moment=normuon",
                                            "rule.option.momentum_form="
                                            "heavy_ball"});
  EXPECT_THAT([&] { require_resumable(saved, other, kOrigin, true); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  testing::HasSubstr("momentum_form"),
                  testing::Not(testing::HasSubstr("--missing")))));
}

TEST(Resume, AMicroBatchOfTheCheckpointFitsAnotherMesh) {
  const TrainConfig saved =
      configured({"batch.global=16", "batch.micro=8", "mesh=dp=2"});
  EXPECT_EQ(resumed(saved, {"mesh=dp=8"}).batch.micro, 2);
  EXPECT_EQ(resumed(saved, {"mesh=dp=2"}).batch.micro, 8);
  EXPECT_THAT(
      [&] {
        resumed(saved, {"mesh=dp=8", "batch.micro=8"});
      },
      testing::ThrowsMessage<UsageError>(
          testing::HasSubstr("batch.micro 8 (--set)")));
}

TEST(Resume, SavedZeroSizesBecomeTheNearestOfAnotherMesh) {
  for (const auto& [was, mesh, is] : std::vector<std::array<std::string, 3>>{
           {"hier:4", "dp=2", "zero3"},
           {"replica:4", "dp=2", "zero3"},
           {"z1=4,z2=2,z3=4", "dp=2", "zero3"},
           {"z1=4,z2=4,z3=2", "dp=1", "none"}}) {
    const TrainConfig former = configured({"mesh=dp=4", "zero.sizes=" + was});
    const TrainConfig saved = resumed(former, {});
    TrainConfig now = resumed(former, {"mesh=" + mesh});
    EXPECT_EQ(now.planner["zero"], is) << was << " on " << mesh;
    EXPECT_THAT(free_saved_choices(saved, now),
                testing::ElementsAre(cat("zero.sizes ", was,
                                         " (checkpoint of step 100) became ",
                                         is, ", the nearest sizes on ", mesh)));
  }
  const TrainConfig former = configured({"mesh=dp=4", "zero.sizes=hier:4"});
  TrainConfig now = resumed(former, {"mesh=dp=8"});
  EXPECT_EQ(now.planner["zero"], "hier:4");
  EXPECT_THAT(free_saved_choices(resumed(former, {}), now), testing::IsEmpty());
  EXPECT_THAT(
      [&] {
        resumed(former, {"mesh=dp=2", "zero.sizes=hier:4"});
      },
      testing::ThrowsMessage<UsageError>(
          testing::HasSubstr("zero.sizes (--set): z2 = 4 does not divide")));
}

TEST(Resume, ASizeOfTeamsGivesWayWhereRanksOrMatricesAreOthers) {
  const TrainConfig former =
      configured({"mesh=tp=4", "plan.teams=4", "rule.option.strips=8"});
  const TrainConfig saved = resumed(former, {});
  for (const char* other :
       {"mesh=dp=2", "plan.strategy=contiguous", "zero.sizes=zero3",
        "links.ranks_per_node=2", "rule.option.strips=2"}) {
    TrainConfig now = resumed(former, {other});
    const std::string text = other;
    EXPECT_THAT(
        free_saved_choices(saved, now),
        testing::ElementsAre(testing::AllOf(
            testing::StartsWith("plan.teams 4 (checkpoint of step 100) became "
                                "auto: " +
                                text.substr(0, text.find('='))),
            testing::HasSubstr(" is " + text.substr(text.find('=') + 1)))));
    EXPECT_EQ(now.planner["teams"], "auto");
    EXPECT_EQ(now.origin("plan.teams"),
              "checkpoint of step 100, where it is 4");
  }
}

TEST(Resume, TeamsStayWhereNothingChangedOrTheyAreGivenAnew) {
  const auto teams_after = [](const char* before,
                              const std::vector<std::string>& given) {
    const TrainConfig former = configured({"mesh=tp=4", before});
    TrainConfig now = resumed(former, given);
    EXPECT_THAT(free_saved_choices(resumed(former, {}), now),
                testing::IsEmpty());
    return now.planner["teams"];
  };
  EXPECT_EQ(teams_after("plan.teams=4", {}), "4");
  EXPECT_EQ(teams_after("plan.teams=4", {"mesh=dp=1,tp=4"}), "4");
  EXPECT_EQ(teams_after("plan.teams=4", {"mesh=tp=2", "plan.teams=2"}), "2");
  EXPECT_EQ(teams_after("plan.teams=off", {"mesh=tp=2"}), "off");
  EXPECT_EQ(teams_after("plan.teams=auto", {"mesh=tp=2"}), "auto");
}

// Older programs saved how matrices are exchanged.
TEST(Resume, ARunThatExchangedStripsGoesOnWithout) {
  const auto note_on = [](const std::string& exchange) {
    return note_on_strips(make_config(saved_settings(
        R"({"steps": 7, "plan": {"exchange": ")" + exchange + "\"}}",
        kOrigin)));
  };
  EXPECT_EQ(note_on("rounds"), "");
  EXPECT_EQ(note_on("auto"), "");
  EXPECT_THAT(note_on("strips"),
              testing::StartsWith("plan.exchange strips (checkpoint of step "
                                  "100) is no longer supported"));
  const auto unknown = testing::ThrowsMessage<UsageError>(
      testing::HasSubstr("unknown key 'plan.exchange'"));
  EXPECT_THAT([&] { note_on("pieces"); }, unknown);
  EXPECT_THAT([] { configured({"plan.exchange=strips"}); }, unknown);
}

TEST(Resume, SavingNeedsAFolder) {
  Settings given;
  given.push_back({"save.every", RawText{"5"}, "--save-every"});
  EXPECT_THAT([&] { make_config(given); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  testing::HasSubstr("save.every 5 (--save-every)"),
                  testing::HasSubstr("run=FOLDER"))));
}

}  // namespace
}  // namespace canzona::train::resume_test
