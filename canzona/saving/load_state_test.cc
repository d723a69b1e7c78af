// A state saved on one mesh is loaded on another, bit for bit.
#include "canzona/saving/load_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/runtime/testing/test_block_plans.h"
#include "canzona/saving/test_saving.h"

namespace canzona::saving::load_state_test {
namespace {

class OfEveryRule : public testing::TestWithParam<std::string> {};

// Every plan saves, and a third of the others load each result, so that every
// pair of rank counts occurs.
TEST_P(OfEveryRule, S1LoadsOnOtherRanksWhatWasSaved) {
  const std::vector<PlanWish> wishes = many_saving_wishes(GetParam());
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

// S2: from hop to hop with a step on each, as if uninterrupted.
TEST_P(OfEveryRule, S2WalksOverManyMeshes) {
  for (uint64_t walk = 0; walk < 3; ++walk)
    expect_walk(many_saving_wishes(GetParam()), walk);
}

INSTANTIATE_TEST_SUITE_P(Rules, OfEveryRule,
                         testing::Values("muon", "adamw", "shampoo", "soap"),
                         [](const auto& rule) { return rule.param; });

// Blocks of a matrix that had owners of their own are saved as parts of the
// matrix's states: another run loads them with whole owners, and the reverse.
TEST(LoadState, TakesStatesOfBlocksWhoeverOwnsThem) {
  for (const std::string rule : {"shampoo", "soap"}) {
    const Plan whole =
        small_plan(blocked_model(), block_wish(rule, "dp=2,tp=2"));
    const Plan apart = block_plan(block_wish(rule, "tp=4"));
    for (const auto& [from, to] :
         {std::pair{&whole, &apart}, {&apart, &whole}}) {
      SCOPED_TRACE(cat(rule, from == &whole ? " whole" : " in blocks"));
      const SavingFolder folder;
      Session session{.plan = *from, .steps = 4, .saves = true};
      session.at_step[4] = [](RankSession& r) { r.saver->save(4, {}); };
      const SessionResult saved = run_session(session, folder.ckpt());
      const SessionResult loaded =
          run_session({.plan = *to, .load = "auto"}, folder.ckpt());
      EXPECT_EQ(loaded.parameters, saved.parameters);
      EXPECT_EQ(loaded.states, saved.states);
      EXPECT_EQ(loaded.steps_done, 4);
      const SessionResult rest = run_session(
          {.plan = *to, .steps = 4, .first_step = 5, .load = "auto"},
          folder.ckpt());
      const SessionResult straight =
          run_session({.plan = *from, .steps = 8}, SavingFolder().ckpt());
      EXPECT_EQ(rest.parameters, straight.parameters);
      EXPECT_EQ(rest.states, straight.states);
    }
  }
}

TEST(LoadState, TakesMastersWhereParametersAreRounded) {
  const SavingFolder folder;
  PlanWish wish{.mesh = "dp=2"};
  const SessionResult saved = save_on(wish, folder.ckpt(), 2);
  wish.parameters = DType::kBf16;
  const SessionResult rounded = run_session(
      {.plan = small_plan(toy_moe(), wish),
       .load = "auto",
       .saves = true,
       .at_step = {{0, [](RankSession& r) { r.saver->save(3, {}); }}}},
      folder.ckpt());
  EXPECT_NE(rounded.parameters, saved.parameters);
  wish.parameters = DType::kFp32;
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

// A plan of Muon whose rows are divided by a second moment, or are not.
Plan normuon_plan(const std::string& mesh, bool has_moment) {
  PlanWish wish{.mesh = mesh};
  if (has_moment) wish.options = {{"second_moment", "normuon"}};
  return small_plan(toy_moe(), wish);
}

TEST(LoadState, BeginsStatesThatWereNotSavedIfAskedTo) {
  const SavingFolder folder;
  const SessionResult saved = save_on({.mesh = "dp=2"}, folder.ckpt(), 2);
  std::string before, after;
  for (const std::string mesh : {"dp=1", "dp=2,tp=2", "dp=3"}) {
    SCOPED_TRACE(mesh);
    Session session{.plan = normuon_plan(mesh, true),
                    .steps = 2,
                    .first_step = 3,
                    .load = "auto",
                    .begins_missing = true};
    Session unchanged = session;
    unchanged.steps = 0;
    const SessionResult begun = run_session(unchanged, folder.ckpt());
    EXPECT_EQ(begun.parameters, saved.parameters);
    EXPECT_NE(begun.states, saved.states);
    EXPECT_EQ(begun.steps_done, 2);
    const SessionResult gone_on = run_session(session, folder.ckpt());
    if (before.empty()) before = begun.states;
    if (after.empty()) after = gone_on.states;
    EXPECT_EQ(begun.states, before);
    EXPECT_EQ(gone_on.states, after);
  }
  EXPECT_NE(before, after);
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

TEST(LoadState, NamesMissingStatesUnlessTheyMayBegin) {
  const SavingFolder folder;
  save_on({.mesh = "dp=2"}, folder.ckpt(), 1);
  EXPECT_THAT(
      refusal<CheckpointRefused>(
          {.plan = normuon_plan("dp=2", true), .load = "auto"}, folder.ckpt()),
      testing::AllOf(HasSubstr("second_moment"),
                     HasSubstr("missing in the checkpoint")));
  // Weights must be there, and whatever else was saved must have a place.
  Model more = toy_moe();
  more.tensors.back().name += ".renamed";
  EXPECT_THAT(
      refusal<CheckpointRefused>({.plan = small_plan(more, {.mesh = "dp=2"}),
                                  .load = "auto",
                                  .begins_missing = true},
                                 folder.ckpt()),
      HasSubstr(".renamed"));
  const SavingFolder other;
  Session session{
      .plan = normuon_plan("dp=2", true), .steps = 1, .saves = true};
  session.at_step[1] = [](RankSession& rank) { rank.saver->save(1, {}); };
  run_session(session, other.ckpt());
  EXPECT_THAT(refusal<CheckpointRefused>({.plan = normuon_plan("dp=2", false),
                                          .load = "auto",
                                          .begins_missing = true},
                                         other.ckpt()),
              HasSubstr("that only the checkpoint has"));
}

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

// Flips one byte in the middle of a file.
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
}  // namespace canzona::saving::load_state_test
