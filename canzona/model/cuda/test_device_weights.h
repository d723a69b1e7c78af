// For tests: a trial's weights on the GPU, in fp32 or rounded to bf16, with
// fp32 gradients.
//
//   DeviceTrialWeights<uint16_t> weights(engine, trial);
//   weights.zero_gradients();
//   std::vector<float> g = weights.got(tensor);
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/model/test_decoder.h"
#include "canzona/model/weights.h"

namespace canzona::model {

// Rounds to bf16, to nearest; `values` become the rounded numbers.
inline std::vector<uint16_t> bf16_bits(const std::vector<double>& values) {
  std::vector<uint16_t> bits;
  for (const double value : values) {
    const auto all = std::bit_cast<uint32_t>(static_cast<float>(value));
    bits.push_back(
        static_cast<uint16_t>((all + 0x7fffU + ((all >> 16) & 1U)) >> 16));
  }
  return bits;
}
inline double from_bits(uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16));
}

// Rounds a trial's parameters to bf16, so that every decoder has the same.
inline void round_parameters(DecoderTrial& trial) {
  for (Values& values : trial.parameters) {
    const std::vector<uint16_t> bits = bf16_bits(values);
    std::ranges::transform(bits, values.begin(), from_bits);
  }
}

template <class T>
class DeviceTrialWeights : public Weights<T, float> {
 public:
  DeviceTrialWeights(Engine& engine, const DecoderTrial& trial)
      : engine_(engine), memory_(engine) {
    for (const Values& values : trial.parameters) {
      const auto count = std::ssize(values);
      parameters_.push_back(reinterpret_cast<T*>(memory_.take(count).data));
      upload(parameters_.back(), values);
      gradients_.push_back(reinterpret_cast<float*>(memory_.take(count).data));
      counts_.push_back(count);
    }
    zero_gradients();
  }

  void zero_gradients() {
    for (size_t t = 0; t < gradients_.size(); ++t)
      engine_.set_zero(reinterpret_cast<std::byte*>(gradients_[t]),
                       counts_[t] * 4);
    announced.assign(gradients_.size(), 0);
  }
  std::vector<float> got(size_t tensor) const {
    return memory_.template get<float>(
        reinterpret_cast<const std::byte*>(gradients_.at(tensor)),
        counts_[tensor]);
  }

  void wait(int32_t module) override { waits.push_back(module); }
  void release(int32_t module) override { releases.push_back(module); }
  const T* parameter(int32_t tensor) override {
    return parameters_.at(static_cast<size_t>(tensor));
  }
  float* gradient(int32_t tensor) override {
    return gradients_.at(static_cast<size_t>(tensor));
  }
  void ready(int32_t tensor, bool) override {
    ++announced.at(static_cast<size_t>(tensor));
  }

  std::vector<int32_t> waits, releases;
  std::vector<int64_t> announced;

 private:
  void upload(T* to, const Values& values) {
    if constexpr (sizeof(T) == 2)
      memory_.set({reinterpret_cast<std::byte*>(to), DType::kBf16},
                  bf16_bits(values));
    else
      memory_.set({reinterpret_cast<std::byte*>(to), DType::kFp32},
                  std::vector<float>(values.begin(), values.end()));
  }

  Engine& engine_;
  EngineMemory memory_;
  std::vector<T*> parameters_;
  std::vector<float*> gradients_;
  std::vector<int64_t> counts_;
};

}  // namespace canzona::model
