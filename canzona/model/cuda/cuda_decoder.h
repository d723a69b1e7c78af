// The decoder of a rank on a GPU (trained_decoder.h). T is uint16_t, for
// training in bf16, or float, for tests of its formulas.
//
//   CudaDecoder<float> decoder(config, shapes, engine, weights, 1, 1);
//
// The head works once for each micro-batch, at the start of its backward: its
// logits exist for one chunk of tokens, become their gradient in place, and are
// used up at once. So losses are known when backward has been issued.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/model/cuda/layer.h"
#include "canzona/model/trained_decoder.h"

namespace canzona::model::gpu {

// Memory of this process that the GPU copies from and to without waiting.
template <class Number>
class Pinned {
 public:
  explicit Pinned(int64_t count);
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  Number* data() const { return data_; }

 private:
  Number* data_ = nullptr;
};

class StreamMark {
 public:
  StreamMark();
  ~StreamMark() { cudaEventDestroy(event_); }
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;
  void record(cudaStream_t stream);
  // Waits until the stream has come to the last mark; not if there is none.
  void wait() const;

 private:
  cudaEvent_t event_ = nullptr;
};

template <class T>
class CudaDecoder final : public TrainedDecoder<float> {
 public:
  CudaDecoder(const DecoderConfig& config, const Model& shapes,
              CudaEngine& engine, Weights<T, float>& weights, int64_t in_flight,
              int64_t together);
  ~CudaDecoder() override;

  void forward(Passes passes, std::span<double> losses) override;
  void backward(Passes passes, bool last) override;
  void finish_losses() override;
  double evaluate(std::span<const int32_t> sequences, const float* input,
                  float* output, int64_t counted) override;
  int64_t reserved() const override { return reserved_; }
  std::string describe() const override;

 private:
  // Tokens of a slot's micro-batch on their way to the GPU.
  struct Staged {
    std::unique_ptr<Pinned<int32_t>> numbers;
    StreamMark copied;
    int64_t different = 0;  // tokens
    double* loss = nullptr;
    bool waits = false;  // for backward
  };

  std::unique_ptr<DeviceAttention<T>> make_attention();
  void fill_tables();
  void build_layers(const Model& shapes);
  Staged& staged_of(const Pass<float>& pass);
  const DeviceSlot<T>& slot_of(const Pass<float>& pass) const {
    return cut_.slots[static_cast<size_t>(pass.slot)];
  }
  void check_slot(int64_t slot, bool waits);
  void stage(const Pass<float>& pass);
  void sort_tokens(Staged& staged) const;
  void run_layers(Passes passes);
  // Does `work` for each pass while the module's weights, or all that the head
  // needs, are available.
  template <class Work>
  void with_module(int64_t module, Passes passes, const Work& work);
  template <class Work>
  void with_head(Passes passes, const Work& work);
  // Sets the losses of a slot's tokens; with a gradient, adds to those of the
  // weights, and sets it to that of the head's input.
  void run_head(const DeviceSlot<T>& slot, T* gradient, Announce what);
  void keep_loss(Staged& staged);
  Map<T> head_map() const;

  DecoderConfig config_;
  DeviceSizes sizes_;
  OuterTensors tensors_;
  CudaEngine& engine_;
  Weights<T, float>& weights_;
  int64_t together_;
  int64_t reserved_;
  std::byte* memory_;
  DeviceDecoderMemory<T> cut_;
  std::unique_ptr<DeviceAttention<T>> attention_;
  DeviceTools<T> tools_;
  std::vector<DeviceLayer<T>> layers_;
  std::vector<Staged> staged_;
  mutable std::vector<uint64_t> keys_;  // of tokens, to sort them
  Pinned<double> losses_;
  std::vector<double*> pending_;  // where losses_ belong
  StreamMark losses_copied_;
};

}  // namespace canzona::model::gpu
