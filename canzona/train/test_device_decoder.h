// For tests: stands for a decoder on a device. It uses modules as a decoder
// does, and only issues its work; its gradients are simple functions of the
// tokens and of the parameters that it finds when the work is done.
//
//   settings.make_device_decoder = make_test_device_decoder;
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "canzona/base/dtype.h"
#include "canzona/base/random.h"
#include "canzona/linalg/test_late_engine.h"
#include "canzona/model/trained_decoder.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona::train {

class TestDeviceDecoder final : public TrainedDecoder<float> {
 public:
  TestDeviceDecoder(const DecoderConfig& config, const Model& shapes,
                    Engine& engine, DeviceWeights& weights)
      : config_(config),
        shapes_(shapes),
        engine_(engine),
        weights_(weights),
        late_(dynamic_cast<LateEngine*>(&engine)) {
    if (late_ != nullptr)
      late_->on_idle = [this](double number) {
        works_[static_cast<size_t>(number)]();
      };
  }
  ~TestDeviceDecoder() override { engine_.synchronize(); }

  void forward(Passes passes, std::span<double> losses) override {
    if (late_ != nullptr && waits_ < 0) waits_ = late_->waits();
    tokens_ = hash_of(passes.front().sequences);
    losses_.push_back(0);
    double* loss = &losses_.back();
    to_.push_back({loss, losses.data()});
    look_at_all(loss);
  }

  void backward(Passes, bool last) override {
    for (int32_t m = num_modules(shapes_) - 1; m >= 0; --m) {
      wait(m);
      for (const int32_t t : tensors_of(m)) add_gradient(t);
      for (const int32_t t : tensors_of(m)) weights_.ready(t, last);
      release(m);
    }
    if (late_ == nullptr || !last) return;
    EXPECT_EQ(late_->waits(), waits_) << "something waited for the device";
    waits_ = -1;
  }

  void finish_losses() override {
    engine_.synchronize();
    for (const auto& [from, loss] : to_) *loss = *from;
    to_.clear();
    losses_.clear();
  }

  double evaluate(std::span<const int32_t> sequences, const float*, float*,
                  int64_t counted) override {
    double loss = 0;
    tokens_ = hash_of(sequences);
    look_at_all(&loss);
    engine_.synchronize();
    return counted == 0 ? 0 : loss;
  }

  int64_t reserved() const override { return config_.tokens(); }
  std::string describe() const override { return name(); }
  static std::string& name() {
    static std::string text = "a device for tests";
    return text;
  }

 private:
  static uint64_t hash_of(std::span<const int32_t> tokens) {
    uint64_t hash = 1;
    for (const int32_t token : tokens)
      hash = bits_at(hash, static_cast<uint64_t>(token));
    return hash;
  }
  bool ties(int32_t module) const {
    return config_.architecture.tied && module == num_modules(shapes_) - 1;
  }
  void wait(int32_t module) {
    if (ties(module)) weights_.wait(0);
    weights_.wait(module);
  }
  void release(int32_t module) {
    if (ties(module)) weights_.release(0);
    weights_.release(module);
  }
  std::vector<int32_t> tensors_of(int32_t module) const {
    std::vector<int32_t> all;
    for (int32_t t = 0; t < std::ssize(shapes_.tensors); ++t)
      if (module_of(shapes_, tensor(t)) == module) all.push_back(t);
    return all;
  }
  const Tensor& tensor(int32_t t) const {
    return shapes_.tensors[static_cast<size_t>(t)];
  }
  void issue(std::function<void()> work) {
    if (late_ == nullptr) return work();
    works_.push_back(std::move(work));
    engine_.idle(static_cast<double>(works_.size() - 1));
  }
  static double value(uint16_t bf16) {
    return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
  }

  // The parameters may be gone when this returns, but not when their release
  // has been done.
  void look_at_all(double* loss) {
    for (int32_t m = 0; m < num_modules(shapes_); ++m) {
      wait(m);
      for (const int32_t t : tensors_of(m))
        issue([=, w = weights_.parameter(t), count = tensor(t).elements(),
               seed = tokens_] {
          for (int64_t i = 0; i < count; ++i)
            *loss += std::abs(value(w[i])) * 1e-3 * (1 + seed % 7);
        });
      release(m);
    }
  }
  void add_gradient(int32_t t) {
    issue([w = weights_.parameter(t), g = weights_.gradient(t),
           count = tensor(t).elements(), seed = bits_at(tokens_, t)] {
      for (int64_t i = 0; i < count; ++i)
        g[i] +=
            static_cast<float>(value(w[i])) / 4 +
            static_cast<float>(bits_at(seed, static_cast<uint64_t>(i)) % 1000) *
                1e-4F;
    });
  }

  DecoderConfig config_;
  const Model& shapes_;
  Engine& engine_;
  DeviceWeights& weights_;
  LateEngine* late_;
  std::deque<std::function<void()>> works_;
  uint64_t tokens_ = 0;
  std::deque<double> losses_;
  std::vector<std::pair<double*, double*>> to_;
  int64_t waits_ = -1;
};

inline std::unique_ptr<TrainedDecoder<float>> make_test_device_decoder(
    const DecoderConfig& config, const Model& shapes, Engine& engine,
    DeviceWeights& weights) {
  return std::make_unique<TestDeviceDecoder>(config, shapes, engine, weights);
}

}  // namespace canzona::train
