// A resumed run takes the settings that its checkpoint was saved with,
// overridden by those that the user gives now.
//
//   Settings base = saved_settings(config_json, "checkpoint of step 100");
//   TrainConfig saved = make_config(base);
//   base.insert(base.end(), given.begin(), given.end());
//   TrainConfig config = make_config(base);
//   require_resumable(saved, config, "checkpoint of step 100");
//
// The table of keys (config_keys.cc) says whether a key may change, resume.cc
// whether an option of a rule may.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/train/config.h"
#include "canzona/train/run_checks.h"
#include "canzona/train/settings.h"

namespace canzona::train {

// A RunState says how far a run has come: what a checkpoint stores about the
// training loop, beside the parameters and the optimizer's states.
//
//   RunState state = read_run_state(texts, "runs/one/ckpt/step_00000100");
//   files = {{"data.json", data_json(state, data)},
//            {"run.json", run_json(state)}};
//
// The position in the data counts sequences of the whole run, so that it means
// the same on any number of ranks and with any batch size.

// Side files of a checkpoint that a run saved.
inline constexpr const char* kDataFile = "data.json";
inline constexpr const char* kRunFile = "run.json";

struct RunState {
  int64_t step = 0;       // steps done
  int64_t sequences = 0;  // consumed by all ranks
  int64_t tokens = 0;     // the same in tokens
  double seconds = 0;
  double last_loss = std::numeric_limits<double>::quiet_NaN();
  int64_t skipped_steps = 0;
  int64_t skipped_in_a_row = 0;  // most recently
  // The last step that was skipped, as in StepMetrics.
  std::string nonfinite_tensor = {};
  int64_t nonfinite_rank = -1;
  // The losses of the last steps that were not skipped, oldest first.
  std::vector<double> recent_losses = {};
  LossSpikes spikes = {};
  int64_t starts = 1;  // 1, plus one for every resume
  // The bits of forward and backward depended on this (Stage::describe()); "":
  // a CPU.
  std::string device = {};
};

// Identifies the tokens, so that a run never continues with different ones.
struct DataIdentity {
  std::string description;
  std::string digest;
  int64_t length = 0;  // of a sequence
  uint64_t seed = 0;   // of their order
};

std::string data_json(const RunState& state, const DataIdentity& data);
std::string run_json(const RunState& state);
// All randomness is a function of the seed and of numbered items, so generators
// have no state.
std::string rng_json(uint64_t seed);

// Reads data.json and run.json, given by name. Throws DataLost naming the file
// and its fault: the texts match their hashes but make no sense.
RunState read_run_state(const std::map<std::string, std::string>& texts,
                        const std::string& checkpoint);
DataIdentity read_data_identity(const std::string& data_json,
                                const std::string& checkpoint);

// Reads a checkpoint's config.json, without the run's folder and the number of
// its ranks, which the mesh has. UsageError names the key.
Settings saved_settings(std::string_view config_json,
                        const std::string& origin);

// True if an option of a rule may change: it affects neither which states the
// rule keeps nor their meaning. Options that only add states to those that were
// saved may change as well if missing states may begin anew.
bool may_change_option(const std::string& option, bool begins_missing = false);

// Throws UsageError listing the keys that must not change but do, with both
// values and where the new one was given.
void require_resumable(const TrainConfig& saved, const TrainConfig& now,
                       const std::string& origin, bool begins_missing = false);

// A size of teams that `now` took from the checkpoint was chosen for the ranks
// and matrices that the run had; with another mesh, strategy, ZeRO, node or
// number of strips it may be impossible, so it becomes `auto`. Returns notes on
// what gave way: teams, and ZeRO sizes (settle_mesh).
std::vector<std::string> free_saved_choices(const TrainConfig& saved,
                                            TrainConfig& now);

}  // namespace canzona::train
