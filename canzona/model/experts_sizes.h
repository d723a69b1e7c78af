// How much the expert block of one layer has to do on a rank.
//
//   const ExpertSizes sizes = expert_sizes(config, parallel);
//   float* rows = cutter.take<float>(sizes.most_rows() * sizes.hidden);
//
// A pair is a token with one of the experts chosen for it. Plain values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "canzona/model/decoder_config.h"
#include "canzona/model/parallel.h"

namespace canzona {

struct ExpertSizes {
  int64_t tokens = 0;
  int64_t length = 0;  // of a sequence
  int64_t hidden = 0;
  int64_t experts = 0;
  int64_t choices = 0;     // experts of a token
  int64_t ffn = 0;         // of an expert, this tp rank's share
  int64_t shared_ffn = 0;  // of the shared experts together, likewise
  int64_t ranks = 1;       // that hold the experts

  int64_t sequences() const { return tokens / length; }
  int64_t local() const { return experts / ranks; }  // experts held here
  int64_t pairs() const { return tokens * choices; }
  // Where all ranks send all they can to one expert, or to this rank.
  int64_t most_rows_of_expert() const { return ranks * tokens; }
  int64_t most_rows() const {
    return most_rows_of_expert() * std::min(choices, local());
  }
};

// Of a configuration that check_decoder takes. UsageError names what the mesh
// does not divide.
ExpertSizes expert_sizes(const DecoderConfig& config, const Parallel& parallel);

}  // namespace canzona
