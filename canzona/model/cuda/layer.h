// One layer of the decoder on a GPU: attention and a gated block, each added to
// the stream. T is uint16_t for bf16, or float. layers.h has the CPU's.
//
//   DeviceLayer<uint16_t> layer(tools, tensors);
//   layer.forward(x, saved, out);
//   layer.backward(x, saved, gradient, what);
//
// The caller keeps x and `saved` from forward to backward, which overwrites
// `saved`. Everything is only issued. One thread at a time.
#pragma once

#include <cstdint>

#include "canzona/model/cuda/attention.h"
#include "canzona/model/cuda/products.h"
#include "canzona/model/cuda/stages.h"
#include "canzona/model/device_decoder_memory.h"
#include "canzona/model/weights.h"

namespace canzona::model::gpu {

// Shared by all components of a decoder; all of these must outlive them.
template <class T>
struct DeviceTools {
  const DecoderConfig& config;
  const DeviceSizes& sizes;
  CudaEngine& engine;
  Weights<T, float>& weights;
  const DeviceSpace<T>& space;
  Products<T> products;
  DeviceAttention<T>* attention;

  float epsilon() const { return static_cast<float>(config.norm_epsilon); }
  // Kernels read weights 16 bytes at a time.
  const T* parameter(int32_t tensor) const;
  float* gradient(int32_t tensor) const;

  void norm(T* out, const T* x, int32_t weight, int64_t rows) const;
  // Adds to (or sets) the stream's gradient that of x, from space.delta.
  void norm_backward(T* gradient, const T* x, int32_t weight,
                     bool replaces) const;
};

template <class T>
class DeviceLayer {
 public:
  DeviceLayer(const DeviceTools<T>& tools, const LayerTensors& tensors)
      : tools_(tools), tensors_(tensors) {}

  // If `out` is null, computes only `saved`.
  void forward(const T* x, const DeviceSaved<T>& saved, T* out) const;
  // Replaces the stream's gradient after the layer by that before it.
  void backward(const T* x, const DeviceSaved<T>& saved, T* gradient,
                Announce what) const;

 private:
  Map<T> map(int32_t tensor, int64_t out, int64_t in) const {
    return {tools_.parameter(tensor), out, in, out};
  }
  Map<T> qkv() const {
    return map(tensors_.qkv, tools_.sizes.qkv(), tools_.sizes.hidden);
  }
  Map<T> o() const {
    return map(tensors_.o, tools_.sizes.hidden, tools_.sizes.width());
  }
  Map<T> gate_up() const {
    return map(tensors_.gate_up, 2 * tools_.sizes.ffn, tools_.sizes.hidden);
  }
  Map<T> down() const {
    return map(tensors_.down, tools_.sizes.hidden, tools_.sizes.ffn);
  }
  Heads<T> heads() const;
  AttentionCall<T> attend(const DeviceSaved<T>& saved) const;
  void feed_backward(const DeviceSaved<T>& saved, const T* gradient,
                     Announce what) const;
  void attend_backward(const DeviceSaved<T>& saved, const T* gradient,
                       Announce what) const;
  // dW += dyᵀ·x, and announces it.
  void add_gradient(int32_t tensor, const T* dy, const T* x, const Map<T>& map,
                    Announce what) const;

  const DeviceTools<T>& tools_;
  LayerTensors tensors_;
};

}  // namespace canzona::model::gpu
