// Which sequences a data-parallel rank learns from in a step.
//
//   MicroBatches share(batches, config, global_batch, home, num_homes);
//   share.read_train(step, m, sequences);
//
// Micro-batches are numbered over the whole step and dealt round-robin: number
// m of a home is number m·homes + home of the step. One thread; `batches`
// outlives it.
#pragma once

#include <algorithm>
#include <span>

#include "canzona/data/batches.h"
#include "canzona/model/decoder_config.h"

namespace canzona {

class MicroBatches {
 public:
  MicroBatches(const Batches& batches, const DecoderConfig& config,
               int64_t global_batch, int32_t home, int32_t num_homes)
      : batches_(batches),
        size_(config.micro_batch),
        length_(config.length),
        global_batch_(global_batch),
        home_(home),
        num_homes_(num_homes) {}

  int64_t per_home() const { return global_batch_ / (size_ * num_homes_); }
  int64_t tokens_per_step() const { return global_batch_ * length_; }

  // Of step 1, 2, …; `to` has micro_batch · (length + 1) tokens.
  void read_train(int64_t step, int64_t m, std::span<int32_t> to) const {
    const int64_t first =
        (step - 1) * global_batch_ + (m * num_homes_ + home_) * size_;
    for (int64_t i = 0; i < size_; ++i)
      batches_.train(first + i, sequence(to, i));
  }

  // Sequences of an evaluation: those that are wanted, as far as there are.
  int64_t num_held_out(int64_t wanted) const {
    return std::min(wanted, batches_.num_held_out());
  }
  // Rounds in which every home has a micro-batch, of which the last ones may
  // count in part or not at all.
  int64_t held_out_rounds(int64_t sequences) const {
    const int64_t at_once = size_ * num_homes_;
    return (sequences + at_once - 1) / at_once;
  }
  int64_t held_out_in(int64_t rounds) const {
    return rounds * size_ * num_homes_;
  }
  int64_t number_in_round(int64_t round) const {
    return round * num_homes_ + home_;
  }
  // Of the micro-batch of this number, those among the first `sequences`.
  int64_t counted(int64_t number, int64_t sequences) const {
    return std::clamp<int64_t>(sequences - number * size_, 0, size_);
  }
  // What does not count begins again at the first.
  void read_held_out(int64_t number, std::span<int32_t> to) const {
    for (int64_t i = 0; i < size_; ++i)
      batches_.held_out((number * size_ + i) % batches_.num_held_out(),
                        sequence(to, i));
  }

 private:
  std::span<int32_t> sequence(std::span<int32_t> all, int64_t i) const {
    return all.subspan(static_cast<size_t>(i * (length_ + 1)),
                       static_cast<size_t>(length_ + 1));
  }

  const Batches& batches_;
  int64_t size_, length_, global_batch_;
  int32_t home_, num_homes_;
};

}  // namespace canzona
