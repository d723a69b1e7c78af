// Causal attention with grouped queries on a GPU, behind turned queries and
// keys (stages.h): by cuDNN in bf16, or by a plain kernel of our own.
//
//   auto attention = make_cudnn_attention(engine, shape, workspace, bytes);
//   attention->forward(call);
//
// Both give the same bits on every run. Nothing is allocated after
// construction. One thread at a time; the engine must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/model/trained_decoder.h"

namespace canzona::model::gpu {

struct AttentionShape {
  int64_t sequences = 0;
  int64_t length = 0;
  int64_t groups = 0;
  int64_t per_group = 0;
  int64_t head_dim = 0;

  int64_t heads() const { return groups * per_group; }
  int64_t tokens() const { return sequences * length; }
  int64_t qkv_cols() const { return groups * (per_group + 2) * head_dim; }
  int64_t turned_cols() const { return (heads() + groups) * head_dim; }
  int64_t width() const { return heads() * head_dim; }
};

// A layer's numbers. Rows of `turned` have all queries, then all keys; values
// are in qkv. Log-sums are sequences x heads x length.
template <class T>
struct AttentionCall {
  const T* turned = nullptr;
  const T* qkv = nullptr;
  T* out = nullptr;  // tokens x width
  float* log_sums = nullptr;
};
template <class T>
struct AttentionGradients {
  const T* out = nullptr;
  T* turned = nullptr;
  T* qkv = nullptr;  // its values' part
};

template <class T>
class DeviceAttention {
 public:
  virtual ~DeviceAttention() = default;
  virtual void forward(const AttentionCall<T>& call) = 0;
  virtual void backward(const AttentionCall<T>& call,
                        const AttentionGradients<T>& gradients) = 0;
  // On what its bits depend: "cuDNN 9.19.0, 4 sequences at a time".
  virtual std::string describe() const = 0;
};

// `deltas` has sequences x heads x length numbers.
template <class T>
std::unique_ptr<DeviceAttention<T>> make_plain_attention(
    CudaEngine& engine, const AttentionShape& shape, float* deltas);

// Calls cuDNN for as many sequences at a time as the workspace allows. Throws
// UsageError that names what is missing: cuDNN, its headers in this build, a
// head_dim, workspace.
std::unique_ptr<DeviceAttention<uint16_t>> make_cudnn_attention(
    CudaEngine& engine, const AttentionShape& shape, std::byte* workspace,
    int64_t workspace_bytes);

}  // namespace canzona::model::gpu
