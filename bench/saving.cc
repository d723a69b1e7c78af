// Measures what a run pays for its checkpoints. Ranks that are threads hold so
// many MiB of weights and states and save them, at once and in the background:
//
//   build/bench/saving [--mib 1024] [--ranks 4] [--rule adamw] [--folder DIR]
//   [--json]
//
// pause : save     how long a save in the background stops the run, beside one
//                  that is written at once
// step : step      the mean step while saves are written, beside the mean of
//                  the steps before each of them
// load             the same ranks read it back, every byte checked
//
// DIR, which is made and removed, lies in the folder for temporary files unless
// it is named. Each figure but the steps, which are means, is the least of 3
// trials.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/measure/clock.h"
#include "canzona/plan/make_plan.h"
#include "canzona/runtime/runtime.h"
#include "canzona/saving/load_state.h"
#include "canzona/saving/run_saver.h"

namespace canzona::bench {
namespace {

constexpr int kTrials = 3;
constexpr int64_t kRows = 1024;
constexpr int64_t kColumns = 4096;

struct SavingCase {
  int64_t mib = 1024;
  int32_t ranks = 4;
  std::string rule = "adamw";
  std::string folder;
  bool json = false;
};

// Matrices with weights and states of so many bytes.
Plan plan_for(const SavingCase& wanted) {
  const auto rule =
      make_rule_facts(wanted.rule, with_device(wanted.rule, {}, "cpu"));
  int64_t bytes = kRows * kColumns * 4;
  for (const StateFact& state : rule->states({kRows, kColumns}))
    bytes += state.bytes().value();
  if (!rule->needs_whole_matrix()) bytes = kRows * kColumns * 12;
  Model model{.name = "matrices", .tensors = {}};
  const int64_t count = std::max<int64_t>((wanted.mib << 20) / bytes, 1);
  model.num_layers = static_cast<int32_t>(count);
  for (int32_t i = 0; i < count; ++i)
    model.tensors.push_back({.name = cat("layers.", i, ".w"),
                             .shape = {kRows, kColumns},
                             .layer = i,
                             .matrix_rule = true});
  Mesh mesh;
  mesh.dp = wanted.ranks;
  PlanOptions options;
  return make_plan({model, mesh, *rule, options});
}

struct SavingTimes {
  double bytes = 0;
  double at_once = 1e9, pause = 1e9, background = 1e9;  // seconds
  double step = 0, step_while_saving = 0;
  double load = 1e9;
};

class Bench {
 public:
  Bench(const Plan& plan, const SavingCase& wanted, Communicator& world)
      : wanted_(wanted),
        world_(world),
        engine_(make_cpu_engine()),
        runtime_(plan, world, *engine_, {}) {
    std::vector<float> values;
    runtime_.for_each_state([&](const RankState& state) {
      values.assign(static_cast<size_t>(state.elements), 0.125F);
      runtime_.set_state(state, values);
    });
    runtime_.take_over(0);
  }

  SavingTimes run() {
    SavingTimes times;
    time_steps(3);
    for (const bool background : {false, true}) {
      RunSaver saver(runtime_, world_,
                     {.folder = wanted_.folder,
                      .owner = "bench",
                      .keep_last = 1,
                      .background = background});
      for (int trial = 0; trial < kTrials; ++trial)
        background ? save_beside_steps(saver, trial + 1, times)
                   : save_at_once(saver, trial + 1, times);
    }
    times.step /= kTrials;
    times.step_while_saving /= kTrials;
    for (int trial = 0; trial < kTrials; ++trial) {
      world_.barrier();
      const double begin = wall_seconds();
      load_state(runtime_, world_, {.folder = wanted_.folder});
      world_.barrier();
      times.load = std::min(times.load, wall_seconds() - begin);
    }
    return times;
  }

 private:
  void save_at_once(RunSaver& saver, int64_t number, SavingTimes& times) {
    world_.barrier();
    saver.save(number, {});
    const SavedStep saved = last_of(saver);
    times.bytes = static_cast<double>(saved.bytes);
    times.at_once = std::min(times.at_once, saved.seconds);
  }
  void save_beside_steps(RunSaver& saver, int64_t number, SavingTimes& times) {
    times.step += time_steps(10);
    saver.save(number, {});
    times.step_while_saving += steps_until_saved(saver);
    const SavedStep saved = last_of(saver);
    times.background = std::min(times.background, saved.seconds);
    times.pause = std::min(times.pause, saved.pause_seconds);
  }
  void step() {
    runtime_.step({.learning_rate = 1e-3});
    runtime_.wait_all_params();
  }
  // Asked after every step, so that all ranks do equally many.
  bool all_have_saved() {
    const std::vector<int64_t> have =
        one_from_all(world_, int64_t{saved_ ? 1 : 0});
    return std::ranges::find(have, 0) == have.end();
  }
  double time_steps(int count) {
    world_.barrier();
    const double begin = wall_seconds();
    for (int i = 0; i < count; ++i) {
      step();
      all_have_saved();
    }
    return (wall_seconds() - begin) / count;
  }
  // The mean step until it is written.
  double steps_until_saved(RunSaver& saver) {
    const double begin = wall_seconds();
    int count = 0;
    do {
      step();
      ++count;
      if (!saved_) saved_ = saver.poll();
    } while (!all_have_saved());
    return (wall_seconds() - begin) / count;
  }
  SavedStep last_of(RunSaver& saver) {
    SavedStep saved = saved_ ? *saved_ : *saver.finish();
    saved_.reset();
    if (!saved.failure.empty()) {
      std::fprintf(stderr, "error: %s\n", saved.failure.c_str());
      std::_Exit(6);
    }
    return saved;
  }

  const SavingCase& wanted_;
  Communicator& world_;
  std::unique_ptr<Engine> engine_;
  Runtime runtime_;
  std::optional<SavedStep> saved_;
};

void print(const SavingCase& wanted, const SavingTimes& t) {
  if (wanted.json) {
    std::printf(
        "{\"ranks\":%d,\"rule\":\"%s\",\"bytes\":%.0f,\"save_s\":%.4f,"
        "\"pause_s\":%.4f,\"background_save_s\":%.4f,\"step_s\":%.4f,"
        "\"step_while_saving_s\":%.4f,\"load_s\":%.4f}\n",
        wanted.ranks, wanted.rule.c_str(), t.bytes, t.at_once, t.pause,
        t.background, t.step, t.step_while_saving, t.load);
    return;
  }
  std::printf("%d ranks, %s, %.0f MiB of state\n", wanted.ranks,
              wanted.rule.c_str(), t.bytes / (1 << 20));
  std::printf("save at once %.3f s, in the background %.3f s\n", t.at_once,
              t.background);
  std::printf("pause : save   %.4f s : %.3f s = 1/%.1f\n", t.pause, t.at_once,
              t.at_once / t.pause);
  std::printf("step while saving : step   %.4f s : %.4f s = %.2f\n",
              t.step_while_saving, t.step, t.step_while_saving / t.step);
  std::printf("load %.3f s, %.2f GB/s\n", t.load, t.bytes / t.load / 1e9);
}

int run(const SavingCase& wanted) {
  const Plan plan = plan_for(wanted);
  SavingTimes times;
  run_ranks(wanted.ranks, [&](Communicator& world) {
    const SavingTimes own = Bench(plan, wanted, world).run();
    if (world.rank() == 0) times = own;
  });
  std::filesystem::remove_all(wanted.folder);
  print(wanted, times);
  return 0;
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  canzona::bench::SavingCase wanted;
  wanted.folder = (std::filesystem::temp_directory_path() /
                   ("canzona_saving_" + std::to_string(::getpid())))
                      .string();
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--json") {
      wanted.json = true;
      continue;
    }
    if (flag == "--mib")
      wanted.mib = std::atoll(value);
    else if (flag == "--ranks")
      wanted.ranks = std::atoi(value);
    else if (flag == "--rule")
      wanted.rule = value;
    else if (flag == "--folder")
      wanted.folder = value;
    else
      wanted.mib = 0;
    ++i;
  }
  if (wanted.mib < 1 || wanted.ranks < 1 ||
      std::filesystem::exists(wanted.folder)) {
    std::fprintf(stderr,
                 "usage: saving [--mib N] [--ranks N] [--rule NAME] [--folder "
                 "DIR] [--json]; DIR must be new\n");
    return 2;
  }
  return canzona::bench::run(wanted);
}
