// How much the expert block of one layer has to do on a rank, and arrays cut
// out of memory that is given.
//
//   const ExpertSizes sizes = expert_sizes(config, parallel);
//   ArrayCutter cutter(memory);           // over null it only counts
//   float* rows = cutter.take<float>(sizes.most_rows() * sizes.hidden);
//
// A pair is a token with one of the experts chosen for it. Plain values.
#pragma once

#include <algorithm>
#include <cstddef>
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

// UsageError names what the mesh does not divide, and experts_per_token if
// there are not so many experts.
ExpertSizes expert_sizes(const DecoderConfig& config, const Parallel& parallel);

// Arrays on 128-byte borders, one behind the other.
class ArrayCutter {
 public:
  explicit ArrayCutter(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* take(int64_t count) {
    constexpr int64_t kBorder = 128;
    std::byte* place = memory_ == nullptr ? nullptr : memory_ + used_;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    used_ += (bytes + kBorder - 1) / kBorder * kBorder;
    return reinterpret_cast<T*>(place);
  }
  int64_t used() const { return used_; }  // bytes

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

}  // namespace canzona
