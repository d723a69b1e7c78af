// For tests: runs of a few steps that save, and runs that resume from there.
//
//   Session first{.plan = plan, .steps = 3};
//   first.at_step[3] = [&](RankSession& r) { r.save(3); };
//   SessionResult a = run_session(first, folder);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "canzona/base/random.h"
#include "canzona/base/test_folder.h"
#include "canzona/base/text.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"
#include "canzona/saving/load_state.h"
#include "canzona/saving/run_saver.h"

namespace canzona::saving {

class SavingFolder : public TestFolder {
 public:
  std::string ckpt() const { return path("ckpt"); }
};

struct RankSession {
  Runtime& runtime;
  Communicator& world;
  RunSaver* saver;  // null: the session does not save
};

struct Session {
  Plan plan;
  std::string device = "cpu";
  int64_t steps = 0;       // additional ones
  int64_t first_step = 1;  // first number of the gradients
  std::string load = {};   // argument of load_state; "": none
  bool weights_only = false;
  bool begins_missing = false;
  bool saves = false;
  bool background = true;
  int64_t keep_last = 0;
  // Called after a step, and with step 0 before the first.
  std::map<int64_t, std::function<void(RankSession&)>> at_step = {};
};

struct SessionResult {
  std::string parameters, states;
  int64_t steps_done = 0;
  LoadedState loaded = {};
  std::vector<SavedStep> saved = {};  // in order
};

inline SessionResult run_session(const Session& session,
                                 const std::string& folder) {
  SessionResult result;
  const Trial trial{.plan = session.plan};
  run_ranks(session.plan.mesh.world(), {}, [&](Communicator& group) {
    const auto engine = make_engine(session.device);
    Runtime runtime(session.plan, group, *engine, {});
    set_initial_parameters(runtime);
    LoadedState loaded;
    if (!session.load.empty())
      loaded = load_state(runtime, group,
                          {.folder = folder,
                           .which = session.load,
                           .weights_only = session.weights_only,
                           .begins_missing = session.begins_missing});
    std::unique_ptr<RunSaver> saver;
    if (session.saves)
      saver = std::make_unique<RunSaver>(
          runtime, group,
          SaveSettings{.folder = folder,
                       .owner = "a test",
                       .keep_last = session.keep_last,
                       .background = session.background});
    std::vector<SavedStep> saved;
    RankSession rank{runtime, group, saver.get()};
    const auto look = [&](int64_t step) {
      if (const auto found = session.at_step.find(step);
          found != session.at_step.end())
        found->second(rank);
      if (saver != nullptr)
        while (auto one = saver->poll()) saved.push_back(*one);
    };
    look(0);
    for (int64_t step = session.first_step;
         step < session.first_step + session.steps; ++step) {
      make_gradients(runtime, *engine, trial, step);
      runtime.step({.learning_rate = trial.learning_rate,
                    .gradient_factor =
                        gradient_factor(trial.gradients, session.plan.mesh)});
      runtime.zero_gradients();
      look(step);
    }
    if (saver != nullptr)
      while (auto one = saver->finish()) saved.push_back(*one);
    const std::string parameters = runtime.parameter_digest();
    const std::string states = runtime.state_digest();
    if (group.rank() == 0)
      result = {parameters, states, runtime.steps_done(), loaded, saved};
  });
  return result;
}

// Plans of 1, 2, 3, 4, 6 and 8 ranks, of every kind.
inline std::vector<PlanWish> many_saving_wishes(const std::string& rule) {
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

inline std::string to_string(const PlanWish& wish) {
  return cat(wish.mesh, " ", wish.strategy, " ", wish.zero);
}

inline SessionResult save_on(const PlanWish& wish, const std::string& folder,
                             int64_t steps) {
  Session session{
      .plan = small_plan(toy_moe(), wish), .steps = steps, .saves = true};
  session.at_step[steps] = [steps](RankSession& rank) {
    rank.saver->save(steps, {});
  };
  return run_session(session, folder);
}

// Six hops over random meshes, a step on each, must have the bits of six steps
// on one.
inline void expect_walk(const std::vector<PlanWish>& wishes, uint64_t walk) {
  constexpr int64_t kHops = 6;
  const SessionResult straight = run_session(
      {.plan = small_plan(toy_moe(), wishes[0]), .steps = kHops}, "");
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

}  // namespace canzona::saving
