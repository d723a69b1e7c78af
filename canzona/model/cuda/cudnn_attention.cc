// The one file that includes cuDNN's frontend.
#include <cudnn_frontend.h>

#include <array>
#include <cmath>
#include <unordered_map>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/model/cuda/attention.h"
#include "canzona/model/cuda/cudnn_library.h"

namespace canzona::model::gpu {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Graph = fe::graph::Graph;
using TensorPointer = std::shared_ptr<Tensor_attributes>;

enum Id : int64_t {
  kQueries = 1,
  kKeys,
  kValues,
  kOut,
  kLogSums,
  kOutGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient
};

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw InternalError(cat(what, ": ", cudnnGetErrorString(status)));
}

class Handle {
 public:
  Handle() { check_cudnn(cudnnCreate(&handle_), "cudnnCreate"); }
  ~Handle() { cudnnDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

// Strides of heads of some sequences: sequences x heads x tokens x head_dim.
struct Layout {
  int64_t heads;
  int64_t head_stride;
  int64_t token_stride;
};

class Graphs {
 public:
  explicit Graphs(const AttentionShape& shape) : shape_(shape) {}

  std::shared_ptr<Graph> forward() const {
    auto graph = make();
    const auto options = fe::graph::SDPA_attributes()
                             .set_name("attention")
                             .set_generate_stats(true)
                             .set_causal_mask(true)
                             .set_attn_scale(scale());
    const auto [out, log_sums] =
        graph->sdpa(tensor(*graph, kQueries, turned(shape_.heads())),
                    tensor(*graph, kKeys, turned(shape_.groups)),
                    tensor(*graph, kValues, values()), options);
    place(out, kOut, heads_of_out());
    log_sums->set_output(true)
        .set_uid(kLogSums)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim(log_sums_dim())
        .set_stride(log_sums_stride());
    return graph;
  }

  std::shared_ptr<Graph> backward() const {
    auto graph = make();
    const auto options = fe::graph::SDPA_backward_attributes()
                             .set_name("attention backward")
                             .set_causal_mask(true)
                             .set_attn_scale(scale())
                             .set_deterministic_algorithm(true);
    const auto log_sums =
        graph->tensor(Tensor_attributes()
                          .set_uid(kLogSums)
                          .set_data_type(fe::DataType_t::FLOAT)
                          .set_dim(log_sums_dim())
                          .set_stride(log_sums_stride()));
    const auto [query, key, value] = graph->sdpa_backward(
        tensor(*graph, kQueries, turned(shape_.heads())),
        tensor(*graph, kKeys, turned(shape_.groups)),
        tensor(*graph, kValues, values()), tensor(*graph, kOut, heads_of_out()),
        tensor(*graph, kOutGradient, heads_of_out()), log_sums, options);
    place(query, kQueryGradient, turned(shape_.heads()));
    place(key, kKeyGradient, turned(shape_.groups));
    place(value, kValueGradient, values());
    return graph;
  }

 private:
  static std::shared_ptr<Graph> make() {
    auto graph = std::make_shared<Graph>();
    graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    return graph;
  }
  float scale() const {
    return 1 / std::sqrt(static_cast<float>(shape_.head_dim));
  }
  Layout turned(int64_t heads) const {
    return {heads, shape_.head_dim, shape_.turned_cols()};
  }
  Layout values() const {
    return {shape_.groups, (shape_.per_group + 2) * shape_.head_dim,
            shape_.qkv_cols()};
  }
  Layout heads_of_out() const {
    return {shape_.heads(), shape_.head_dim, shape_.width()};
  }
  std::vector<int64_t> dim(const Layout& l) const {
    return {shape_.sequences, l.heads, shape_.length, shape_.head_dim};
  }
  std::vector<int64_t> stride(const Layout& l) const {
    return {shape_.length * l.token_stride, l.head_stride, l.token_stride, 1};
  }
  std::vector<int64_t> log_sums_dim() const {
    return {shape_.sequences, shape_.heads(), shape_.length, 1};
  }
  std::vector<int64_t> log_sums_stride() const {
    return {shape_.heads() * shape_.length, shape_.length, 1, 1};
  }
  TensorPointer tensor(Graph& graph, Id id, const Layout& layout) const {
    return graph.tensor(Tensor_attributes()
                            .set_uid(id)
                            .set_dim(dim(layout))
                            .set_stride(stride(layout)));
  }
  void place(const TensorPointer& tensor, Id id, const Layout& layout) const {
    tensor->set_output(true)
        .set_uid(id)
        .set_dim(dim(layout))
        .set_stride(stride(layout));
  }

  AttentionShape shape_;
};

class CudnnAttention final : public DeviceAttention<uint16_t> {
 public:
  CudnnAttention(CudaEngine& engine, const AttentionShape& shape,
                 std::byte* workspace, int64_t workspace_bytes)
      : engine_(engine), shape_(shape), workspace_(workspace) {
    for (at_once_ = shape.sequences; at_once_ >= 1; --at_once_) {
      if (shape.sequences % at_once_ != 0) continue;
      build();
      if (needed_ <= workspace_bytes) return;
    }
    throw UsageError(cat("attention over sequences of ", shape.length,
                         " tokens: ", cudnn_version(), " needs ", needed_,
                         " bytes of workspace, ", workspace_bytes,
                         " are planned; use --attention plain"));
  }

  void forward(const AttentionCall<uint16_t>& call) override {
    if (engine_.dry("decoder attention", call.turned, call.qkv, call.out,
                    call.log_sums))
      return;
    check_cudnn(cudnnSetStream(handle_.get(), engine_.stream()),
                "cudnnSetStream");
    for (int64_t s = 0; s < shape_.sequences; s += at_once_)
      execute(*forward_, "attention", pointers(call, s));
  }

  void backward(const AttentionCall<uint16_t>& call,
                const AttentionGradients<uint16_t>& gradients) override {
    if (engine_.dry("decoder attention backward", call.turned, call.qkv,
                    call.out, call.log_sums, gradients.out, gradients.turned,
                    gradients.qkv))
      return;
    check_cudnn(cudnnSetStream(handle_.get(), engine_.stream()),
                "cudnnSetStream");
    for (int64_t s = 0; s < shape_.sequences; s += at_once_) {
      const int64_t token = s * shape_.length;
      Pointers all = pointers(call, s);
      uint16_t* turned = gradients.turned + token * shape_.turned_cols();
      all[kOutGradient] = unconst(gradients.out + token * shape_.width());
      all[kQueryGradient] = turned;
      all[kKeyGradient] = turned + shape_.width();
      all[kValueGradient] =
          gradients.qkv + token * shape_.qkv_cols() + value_offset();
      execute(*backward_, "attention backward", all);
    }
  }

  std::string describe() const override {
    return cat(cudnn_version(), ", ", at_once_, " sequences at a time");
  }

 private:
  using Pointers = std::unordered_map<int64_t, void*>;

  static void* unconst(const void* data) { return const_cast<void*>(data); }
  int64_t value_offset() const {
    return (shape_.per_group + 1) * shape_.head_dim;
  }

  void build() {
    AttentionShape part = shape_;
    part.sequences = at_once_;
    const Graphs graphs(part);
    forward_ = graphs.forward();
    backward_ = graphs.backward();
    needed_ = std::max(built(*forward_), built(*backward_));
  }
  // Returns the bytes of workspace.
  int64_t built(Graph& graph) const {
    int64_t bytes = 0;
    fe::error_t status = graph.build(handle_.get(), {fe::HeurMode_t::A});
    if (status.is_good()) status = graph.get_workspace_size(bytes);
    if (status.is_good()) return bytes;
    throw UsageError(cat(
        cudnn_version(), " has no attention for ", shape_.heads(), " heads of ",
        shape_.head_dim, " in ", shape_.groups, " groups, ", shape_.length,
        " tokens: ", status.get_message(), "; use --attention plain"));
  }

  Pointers pointers(const AttentionCall<uint16_t>& call, int64_t s) const {
    const int64_t token = s * shape_.length;
    const uint16_t* turned = call.turned + token * shape_.turned_cols();
    return {{kQueries, unconst(turned)},
            {kKeys, unconst(turned + shape_.width())},
            {kValues,
             unconst(call.qkv + token * shape_.qkv_cols() + value_offset())},
            {kOut, call.out + token * shape_.width()},
            {kLogSums, call.log_sums + token * shape_.heads()}};
  }
  void execute(Graph& graph, const char* what, Pointers all) const {
    fe::error_t status = graph.execute(handle_.get(), all, workspace_);
    if (status.is_bad())
      throw InternalError(cat(what, ": cuDNN: ", status.get_message()));
  }

  CudaEngine& engine_;
  AttentionShape shape_;
  std::byte* workspace_;
  Handle handle_;
  int64_t at_once_ = 0;
  int64_t needed_ = 0;
  std::shared_ptr<Graph> forward_, backward_;
};

}  // namespace

std::unique_ptr<DeviceAttention<uint16_t>> make_cudnn_attention(
    CudaEngine& engine, const AttentionShape& shape, std::byte* workspace,
    int64_t workspace_bytes) {
  load_cudnn();
  if (shape.head_dim != 64 && shape.head_dim != 128)
    throw UsageError(cat("attention by cuDNN: head_dim must be 64 or 128, got ",
                         shape.head_dim, "; use --attention plain"));
  return std::make_unique<CudnnAttention>(engine, shape, workspace,
                                          workspace_bytes);
}

}  // namespace canzona::model::gpu
