// A state that was saved on one mesh is taken over on another, bit for bit.
#include "canzona/saving/load_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/saving/test_saving.h"

namespace canzona::load_state_test {
namespace {

// Plans of 1, 2, 3, 4, 6 and 8 ranks, of every kind.
std::vector<PlanWish> wishes_of(const std::string& rule) {
  std::vector<PlanWish> wishes = {
      {.mesh = "dp=1"},
      {.mesh = "tp=2", .strategy = "megatron"},
      {.mesh = "dp=2", .strategy = "replicated"},
      {.mesh = "dp=3", .strategy = "contiguous"},
      {.mesh = "dp=2,tp=2"},
      {.mesh = "dp=4", .zero = "z1=4,z2=2,z3=2"},
      {.mesh = "dp=4", .strategy = "layerwise"},
      {.mesh = "dp=3,tp=2"},
      {.mesh = "dp=6", .zero = "zero3"},
      {.mesh = "dp=4,tp=2", .zero = "z1=4,z2=4,z3=2"},
      {.mesh = "dp=2,ep=2,tp=2"},
      {.mesh = "dp=4,ep=2", .zero = "zero2"}};
  for (PlanWish& wish : wishes) {
    wish.rule = rule;
    wish.options = quick(rule);
  }
  return wishes;
}

std::string to_string(const PlanWish& wish) {
  return cat(wish.mesh, " ", wish.strategy, " ", wish.zero);
}

SessionResult save_on(const PlanWish& wish, const std::string& folder,
                      int64_t steps) {
  Session session{
      .plan = small_plan(toy_moe(), wish), .steps = steps, .saves = true};
  session.at_step[steps] = [steps](RankSession& rank) {
    rank.saver->save(steps, {});
  };
  return run_session(session, folder);
}

class OfEveryRule : public testing::TestWithParam<std::string> {};

// Every plan saves, and a third of the others load what each has saved, so that
// every pair of numbers of ranks is among them.
TEST_P(OfEveryRule, S1LoadsOnOtherRanksWhatWasSaved) {
  const std::vector<PlanWish> wishes = wishes_of(GetParam());
  for (size_t from = 0; from < wishes.size(); ++from) {
    const SavingFolder folder;
    const SessionResult saved = save_on(wishes[from], folder.ckpt(), 2);
    for (size_t to = from % 3; to < wishes.size(); to += 3) {
      SCOPED_TRACE(cat(to_string(wishes[from]), " -> ", to_string(wishes[to])));
      const SessionResult loaded = run_session(
          {.plan = small_plan(toy_moe(), wishes[to]), .load = "auto"},
          folder.ckpt());
      ASSERT_EQ(loaded.parameters, saved.parameters);
      ASSERT_EQ(loaded.states, saved.states);
      ASSERT_EQ(loaded.steps_done, 2);
    }
  }
}

// S2: from hop to hop with a step on each, as if nothing had happened.
TEST_P(OfEveryRule, S2WalksOverManyMeshes) {
  const std::vector<PlanWish> wishes = wishes_of(GetParam());
  constexpr int64_t kHops = 6;
  const SessionResult straight = run_session(
      {.plan = small_plan(toy_moe(), wishes[0]), .steps = kHops}, "");
  for (uint64_t walk = 0; walk < 3; ++walk) {
    const SavingFolder folder;
    SessionResult last;
    for (int64_t hop = 1; hop <= kHops; ++hop) {
      const uint64_t at =
          bits_at(walk, static_cast<uint64_t>(hop)) % wishes.size();
      Session session{.plan = small_plan(toy_moe(), wishes[at]),
                      .steps = 1,
                      .first_step = hop,
                      .load = hop == 1 ? "" : "auto",
                      .saves = true};
      session.at_step[hop] = [hop](RankSession& rank) {
        rank.saver->save(hop, {});
      };
      last = run_session(session, folder.ckpt());
    }
    ASSERT_EQ(last.parameters, straight.parameters) << "walk " << walk;
    ASSERT_EQ(last.states, straight.states) << "walk " << walk;
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, OfEveryRule,
                         testing::Values("muon", "adamw", "shampoo", "soap"),
                         [](const auto& rule) { return rule.param; });

TEST(LoadState, TakesMastersWhereParametersAreRounded) {
  const SavingFolder folder;
  PlanWish wish{.mesh = "dp=2"};
  const SessionResult saved = save_on(wish, folder.ckpt(), 2);
  wish.parameters = ParameterDtype::kBf16;
  const SessionResult rounded = run_session(
      {.plan = small_plan(toy_moe(), wish),
       .load = "auto",
       .saves = true,
       .at_step = {{0, [](RankSession& r) { r.saver->save(3, {}); }}}},
      folder.ckpt());
  EXPECT_NE(rounded.parameters, saved.parameters);
  wish.parameters = ParameterDtype::kFp32;
  wish.mesh = "dp=2,tp=2";
  const SessionResult back = run_session(
      {.plan = small_plan(toy_moe(), wish), .load = "3"}, folder.ckpt());
  EXPECT_EQ(back.parameters, saved.parameters);
  EXPECT_EQ(back.states, saved.states);
}

TEST(LoadState, TakesWeightsAloneIfAskedTo) {
  const SavingFolder folder;
  const SessionResult saved = save_on({.mesh = "dp=2"}, folder.ckpt(), 2);
  const Plan other = small_plan(toy_moe(), {.mesh = "dp=2", .rule = "soap"});
  const SessionResult begun = run_session({.plan = other}, folder.ckpt());
  const SessionResult loaded = run_session(
      {.plan = other, .load = "auto", .weights_only = true}, folder.ckpt());
  EXPECT_EQ(loaded.parameters, saved.parameters);
  EXPECT_EQ(loaded.states, begun.states);
  EXPECT_EQ(loaded.steps_done, 0);
}

template <class Error>
std::string refusal(const Session& session, const std::string& folder) {
  try {
    run_session(session, folder);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error of the expected kind";
  return "";
}

using testing::HasSubstr;

TEST(LoadState, NamesTensorsThatTheRunAndTheCheckpointDoNotShare) {
  const SavingFolder folder;
  save_on({.mesh = "dp=2", .rule = "soap"}, folder.ckpt(), 1);
  const std::string missing = refusal<CheckpointRefused>(
      {.plan = small_plan(toy_moe(), {.mesh = "dp=2"}), .load = "auto"},
      folder.ckpt());
  EXPECT_THAT(missing, HasSubstr("optim/"));
  Model fewer = toy_moe();
  const std::string gone = fewer.tensors.back().name;
  fewer.tensors.pop_back();
  const std::string extra = refusal<CheckpointRefused>(
      {.plan = small_plan(fewer, {.mesh = "dp=2", .rule = "soap"}),
       .load = "auto"},
      folder.ckpt());
  EXPECT_THAT(extra, HasSubstr("model/" + gone));
}

// One byte in the middle of a file.
void damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto at =
      static_cast<std::streamoff>(std::filesystem::file_size(path) / 2);
  file.seekg(at);
  const char byte = static_cast<char>(file.get());
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}

TEST(LoadState, C5FallsBackToAnOlderOneAndSaysSo) {
  const SavingFolder folder;
  const SessionResult first = save_on({.mesh = "dp=3"}, folder.ckpt(), 1);
  save_on({.mesh = "dp=3"}, folder.ckpt(), 2);
  const std::string newest = folder.ckpt() + "/step_00000002";
  damage(newest + "/rank_00001.safetensors");
  const Plan plan = small_plan(toy_moe(), {.mesh = "dp=2,tp=2"});
  const SessionResult loaded =
      run_session({.plan = plan, .load = "auto"}, folder.ckpt());
  EXPECT_EQ(loaded.loaded.step, 1);
  EXPECT_EQ(loaded.parameters, first.parameters);
  EXPECT_EQ(loaded.states, first.states);
  ASSERT_EQ(loaded.loaded.notes.size(), 1U);
  EXPECT_THAT(loaded.loaded.notes[0], HasSubstr("rank_00001.safetensors"));

  EXPECT_THAT(
      refusal<CheckpointRefused>({.plan = plan, .load = "2"}, folder.ckpt()),
      HasSubstr("rank_00001.safetensors"));
  EXPECT_THAT(
      refusal<CheckpointRefused>({.plan = plan, .load = newest}, folder.ckpt()),
      HasSubstr("rank_00001.safetensors"));
  damage(folder.ckpt() + "/step_00000001/manifest.json");
  const std::string none =
      refusal<CheckpointRefused>({.plan = plan, .load = "auto"}, folder.ckpt());
  EXPECT_THAT(none, HasSubstr("step_00000001"));
  EXPECT_THAT(none, HasSubstr("step_00000002"));
}

TEST(LoadState, NamesAStepOrFolderThatIsNotThere) {
  const SavingFolder folder;
  const Plan plan = small_plan(toy_moe(), {.mesh = "dp=2"});
  EXPECT_FALSE(has_checkpoint(folder.ckpt()));
  EXPECT_THAT(
      refusal<UsageError>({.plan = plan, .load = "auto"}, folder.ckpt()),
      HasSubstr("ckpt"));
  save_on({.mesh = "dp=1"}, folder.ckpt(), 3);
  EXPECT_TRUE(has_checkpoint(folder.ckpt()));
  EXPECT_THAT(refusal<UsageError>({.plan = plan, .load = "5"}, folder.ckpt()),
              HasSubstr("those of 3"));
  EXPECT_THAT(
      refusal<UsageError>({.plan = plan, .load = "/nowhere"}, folder.ckpt()),
      HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace canzona::load_state_test
