// A RunState says how far a run has come: what a checkpoint stores about the
// training loop, beside the parameters and the optimizer's states.
//
//   RunState state = read_run_state(texts, "runs/one/ckpt/step_00000100");
//   files = {{"data.json", data_json(state, data)},
//            {"run.json", run_json(state)}};
//
// The position in the data counts sequences of the whole run, so that it means
// the same on any number of ranks and with any batch size.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "canzona/train/loss_spikes.h"

namespace canzona {

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

}  // namespace canzona
