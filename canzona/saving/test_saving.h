// Runs of a few steps that save, and runs that go on from there, for tests.
//
//   Session first{.plan = plan, .steps = 3};
//   first.at_step[3] = [&](RankSession& r) { r.save(3); };
//   SessionResult a = run_session(first, folder);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "canzona/base/test_folder.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"
#include "canzona/saving/load_state.h"
#include "canzona/saving/run_saver.h"

namespace canzona {

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
  int64_t steps = 0;       // further ones
  int64_t first_step = 1;  // number of the gradients
  std::string load = {};   // what load_state is asked for; "": nothing
  bool weights_only = false;
  bool saves = false;
  bool background = true;
  int64_t keep_last = 0;
  // After a step, and with step 0 before the first.
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
    const auto engine = make_engine("cpu");
    Runtime runtime(session.plan, group, *engine, {});
    set_initial_parameters(runtime);
    LoadedState loaded;
    if (!session.load.empty())
      loaded = load_state(runtime, group,
                          {.folder = folder,
                           .which = session.load,
                           .weights_only = session.weights_only});
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

}  // namespace canzona
