// The memory of a decoder on a device: one block, divided in advance. T is
// uint16_t for bf16, or float. Needs no device.
//
//   Cutter count(nullptr);
//   DeviceDecoderMemory<uint16_t>::take(config, in_flight, together, count);
//
// A slot keeps what a micro-batch needs for its backward: the input of every
// layer and of the head and, unless layers are recomputed, what the layer's
// backward needs. Everything else is reused by one layer after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "canzona/model/decoder_config.h"

namespace canzona::model {

// Sizes that the CPU's decoder does not have.
struct DeviceSizes : DecoderSizes {
  // Rows whose share of a norm's gradient is one sum, before the tree.
  static constexpr int64_t kStrip = 16;
  // The most losses that wait for finish_losses().
  static constexpr int64_t kMostLosses = 1024;

  explicit DeviceSizes(const DecoderConfig& config);

  int64_t turned() const { return (heads() + groups) * head_dim; }
  // A row of logits begins at a multiple of 16 bytes.
  int64_t logits_stride() const { return (vocab + 7) / 8 * 8; }
  int64_t strips() const { return (tokens() + kStrip - 1) / kStrip; }
};

// The memory of one layer and micro-batch.
template <class T>
struct DeviceSaved {
  T* qkv = nullptr;
  T* attention = nullptr;  // tokens x width, before o
  float* log_sums = nullptr;
  T* middle = nullptr;  // after attention
  T* gate_up = nullptr;
};

template <class T>
struct DeviceSlot {
  std::vector<T*> inputs;  // of each layer, and of the head
  std::vector<DeviceSaved<T>> layers;
  int32_t* tokens = nullptr;  // staged_tokens() numbers
};

// The numbers of a micro-batch's tokens that are copied to the device: inputs,
// targets, and the sorted tokens of the embedding's backward.
constexpr int64_t staged_tokens(int64_t tokens) { return 5 * tokens + 1; }

template <class T>
struct DeviceSpace {
  T* normed = nullptr;     // tokens x hidden
  T* delta = nullptr;      // gradient of `normed`
  T* gradients = nullptr;  // of the stream, for each micro-batch of a backward
  T* heads_gradient = nullptr;  // tokens x width
  T* act = nullptr;             // tokens x ffn
  T* turned = nullptr;          // queries and keys, and their gradients
  T* turned_gradient = nullptr;
  T* qkv_gradient = nullptr;
  T* logits = nullptr;  // of a chunk
  float* token_losses = nullptr;
  double* losses = nullptr;
  float* numbers = nullptr;  // 0, 1
  float* cosines = nullptr;  // length x head_dim / 2
  float* sines = nullptr;
  float* partial = nullptr;        // sums of strips
  float* deltas = nullptr;         // of plain attention, tokens x heads
  std::byte* workspace = nullptr;  // of cuDNN
  int64_t workspace_bytes = 0;
};

template <class T>
struct DeviceDecoderMemory {
  std::vector<DeviceSlot<T>> slots;
  DeviceSpace<T> space;

  static DeviceDecoderMemory take(const DecoderConfig& config,
                                  int64_t in_flight, int64_t together,
                                  Cutter& cutter);
};

}  // namespace canzona::model
