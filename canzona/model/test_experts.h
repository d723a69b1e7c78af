// For tests: an expert block with random weights, and a second implementation
// in fp64, token by token.
//
//   const ExpertTrial trial({.experts = 4, .choices = 2});
//   TrialWeights<double> weights(trial, parallel);
//   const ReferenceResult right = reference(trial, trial.parameters, x);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/linalg/engine.h"
#include "canzona/model/experts.h"
#include "canzona/model/test_decoder.h"

namespace canzona::model {

using Numbers = Values;

struct TrialSizes {
  int64_t experts = 4;
  int64_t choices = 2;
  int64_t shared = 0;
  int64_t hidden = 6;
  int64_t ffn = 4;
  int64_t length = 5;
  int64_t sequences = 2;
};

inline Numbers random_numbers(uint64_t seed, int64_t count, double scale) {
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(scale * normal_at(seed, static_cast<uint64_t>(i)));
  return numbers;
}

// A decoder of one layer, of which only the expert block is used.
struct ExpertTrial : DecoderTrial {
  explicit ExpertTrial(const TrialSizes& sizes, uint64_t seed = 1)
      : DecoderTrial(config_of(sizes), seed) {
    for (Numbers& values : parameters)
      for (double& value : values) value *= 2;
  }

  static DecoderConfig config_of(const TrialSizes& sizes) {
    DecoderConfig config;
    config.architecture = {
        .layers = 1,
        .hidden = sizes.hidden,
        .ffn = 4,
        .vocab = 4,
        .heads = 4,
        .kv_heads = 4,
        .head_dim = 2,
        .qk_norm = true,
        .experts = {
            .count = sizes.experts, .ffn = sizes.ffn, .shared = sizes.shared}};
    config.length = sizes.length;
    config.micro_batch = sizes.sequences;
    config.experts_per_token = sizes.choices;
    config.balance_coefficient = 0.3;
    return config;
  }

  int64_t elements() const {  // of x
    return config.tokens() * config.architecture.hidden;
  }
  size_t tensor(const std::string& name) const {
    const auto found = std::ranges::find(
        shapes.tensors, "model.layers.0.mlp." + name, &Tensor::name);
    return static_cast<size_t>(found - shapes.tensors.begin());
  }
  // The block's tensors, in model order.
  std::vector<size_t> tensors() const {
    std::vector<size_t> found;
    for (size_t i = 0; i < shapes.tensors.size(); ++i)
      if (shapes.tensors[i].name.find(".mlp.") != std::string::npos)
        found.push_back(i);
    return found;
  }
};

struct ReferenceResult {
  Numbers y;
  double balance = 0;  // times the coefficient
};

ReferenceResult reference(const ExpertTrial& trial,
                          const std::vector<Numbers>& parameters,
                          const Numbers& x);

// Gradients of Σ dy·y + balance, by differences of the reference.
struct ReferenceGradients {
  Numbers x;
  std::vector<Numbers> parameters;
};
ReferenceGradients differences(const ExpertTrial& trial, const Numbers& x,
                               const Numbers& dy);

// For tests: one forward and backward of an expert block, in memory that is
// checked for writes out of bounds.

// Memory between guard bytes.
class WatchedMemory {
 public:
  explicit WatchedMemory(int64_t bytes)
      : size_(static_cast<size_t>(bytes)),
        memory_(size_ + 3 * kBorder, std::byte{0xA5}) {}
  ~WatchedMemory() {
    for (size_t i = 0; i < kBorder; ++i) {
      EXPECT_EQ(data()[-1 - static_cast<int64_t>(i)], std::byte{0xA5});
      EXPECT_EQ(data()[size_ + i], std::byte{0xA5});
    }
  }
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

  void spoil() { std::fill_n(data(), size_, std::byte{0xFF}); }
  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + kBorder + (kBorder - address % kBorder) % kBorder;
  }

 private:
  static constexpr size_t kBorder = 128;
  size_t size_;
  std::vector<std::byte> memory_;
};

template <class Real>
struct ExpertRun {
  std::vector<Real> y, dx;
  std::vector<std::vector<Real>> gradients;
  std::vector<int32_t> readies;
  double balance = 0;

  int64_t num_ready(size_t tensor) const {
    return std::ranges::count(readies, static_cast<int32_t>(tensor));
  }
};

// A block, its weights and its memory.
template <class Real>
class ExpertBench {
 public:
  ExpertBench(const ExpertTrial& trial, const Parallel& parallel)
      : engine_(make_cpu_engine()),
        weights_(trial, parallel),
        experts_(trial.config, trial.shapes, 0, parallel, *engine_, weights_),
        saved_(Experts<Real>::saved_bytes(trial.config, parallel)),
        scratch_(Experts<Real>::scratch_bytes(trial.config, parallel)) {}

  void run(const std::vector<Real>& x, const std::vector<Real>& dy,
           std::vector<Real>& y, std::vector<Real>& dx, Announce what,
           bool recompute = false) {
    experts_.forward(x.data(), y.data(), saved_.data(), scratch_.data());
    balance_ = experts_.balance_loss(saved_.data());
    if (recompute) {
      saved_.spoil();
      experts_.forward(x.data(), nullptr, saved_.data(), scratch_.data());
    }
    experts_.backward(x.data(), dy.data(), dx.data(), saved_.data(),
                      scratch_.data(), what);
  }

  double balance() const { return balance_; }
  const TrialWeights<Real>& weights() const { return weights_; }

 private:
  std::unique_ptr<Engine> engine_;
  TrialWeights<Real> weights_;
  Experts<Real> experts_;
  WatchedMemory saved_, scratch_;
  double balance_ = 0;
};

// `times` micro-batches, all the same.
template <class Real>
ExpertRun<Real> run_experts(const ExpertTrial& trial, const Parallel& parallel,
                            const Numbers& x, const Numbers& dy,
                            int times = 1) {
  ExpertBench<Real> bench(trial, parallel);
  const std::vector<Real> input(x.begin(), x.end()), up(dy.begin(), dy.end());
  ExpertRun<Real> run;
  run.y.resize(input.size());
  run.dx.resize(input.size());
  for (int i = 0; i < times; ++i)
    bench.run(input, up, run.y, run.dx,
              i + 1 == times ? Announce::kLast : Announce::kPart);
  run.balance = bench.balance();
  run.gradients = bench.weights().gradients;
  run.readies = bench.weights().readies;
  return run;
}

template <class Real>
ExpertRun<Real> run_alone(const ExpertTrial& trial, const Numbers& x,
                          const Numbers& dy, int times = 1) {
  return run_experts<Real>(trial, Parallel{}, x, dy, times);
}

// Relative to the largest expected number, or to 1 if all are smaller.
template <class Left, class Right>
void expect_near(const std::vector<Left>& values,
                 const std::vector<Right>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  double largest = 1;
  for (const Right value : expected)
    largest = std::fmax(largest, std::abs(static_cast<double>(value)));
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], tolerance * largest)
        << what << ", element " << i;
}

}  // namespace canzona::model
