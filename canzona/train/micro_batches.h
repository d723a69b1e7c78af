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

  // Held-out sequences, as whole micro-batches; the only one there may be
  // repeats some where there are fewer.
  int64_t num_held_out(int64_t wanted) const {
    const int64_t all = batches_.num_held_out();
    const int64_t used = wanted == 0 ? all : std::min(wanted, all);
    return std::max<int64_t>(1, used / size_);
  }
  // Rounds in which every home has one, real or not.
  int64_t held_out_rounds(int64_t wanted) const {
    return (num_held_out(wanted) + num_homes_ - 1) / num_homes_;
  }
  int64_t number_in_round(int64_t round) const {
    return round * num_homes_ + home_;
  }
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
