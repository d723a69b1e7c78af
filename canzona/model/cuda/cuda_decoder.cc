#include "canzona/model/cuda/cuda_decoder.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/cuda/libraries.h"

namespace canzona::model {
namespace gpu {
namespace {

template <class T>
DeviceDecoderMemory<T> cut_memory(const DecoderConfig& config,
                                  int64_t in_flight, int64_t together,
                                  std::byte* memory, int64_t* bytes = nullptr) {
  Cutter cutter(memory);
  auto cut = DeviceDecoderMemory<T>::take(config, in_flight, together, cutter);
  if (bytes != nullptr) *bytes = cutter.bytes();
  return cut;
}

template <class T>
int64_t memory_bytes(const DecoderConfig& config, int64_t in_flight,
                     int64_t together) {
  int64_t bytes = 0;
  cut_memory<T>(config, in_flight, together, nullptr, &bytes);
  return bytes;
}

template <class T>
void put(Engine& engine, T* to, const std::vector<T>& values) {
  engine.upload(reinterpret_cast<std::byte*>(to),
                reinterpret_cast<const std::byte*>(values.data()),
                static_cast<int64_t>(values.size() * sizeof(T)));
}

// The parts of a micro-batch's staged numbers.
struct StagedTokens {
  StagedTokens(int32_t* numbers, int64_t tokens)
      : inputs(numbers),
        targets(numbers + tokens),
        places(numbers + 2 * tokens),
        rows(numbers + 3 * tokens),
        begins(numbers + 4 * tokens) {}
  int32_t* inputs;
  int32_t* targets;
  int32_t* places;  // as in SortedTokens
  int32_t* rows;
  int32_t* begins;
};

}  // namespace

template <class Number>
Pinned<Number>::Pinned(int64_t count) {
  check_cuda(cudaMallocHost(reinterpret_cast<void**>(&data_),
                            static_cast<size_t>(count) * sizeof(Number)),
             "cudaMallocHost");
}

StreamMark::StreamMark() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
             "cudaEventCreateWithFlags");
}
void StreamMark::record(cudaStream_t stream) {
  check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
}
void StreamMark::wait() const {
  check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

template <class T>
CudaDecoder<T>::CudaDecoder(const DecoderConfig& config, const Model& shapes,
                            CudaEngine& engine, Weights<T, float>& weights,
                            int64_t in_flight, int64_t together)
    : config_(config),
      sizes_(config),
      tensors_(outer_tensors(shapes, config.architecture.tied)),
      engine_(engine),
      weights_(weights),
      together_(together),
      reserved_(memory_bytes<T>(config, in_flight, together)),
      memory_(engine.memory().allocate(reserved_)),
      cut_(cut_memory<T>(config, in_flight, together, memory_)),
      attention_(make_attention()),
      tools_{config_,         sizes_,
             engine_,         weights_,
             cut_.space,      Products<T>(engine_, cut_.space.numbers),
             attention_.get()},
      staged_(static_cast<size_t>(in_flight)),
      keys_(static_cast<size_t>(sizes_.tokens())),
      losses_(DeviceSizes::kMostLosses) {
  for (Staged& staged : staged_)
    staged.numbers =
        std::make_unique<Pinned<int32_t>>(staged_tokens(sizes_.tokens()));
  pending_.reserve(DeviceSizes::kMostLosses);
  fill_tables();
  build_layers(shapes);
}

template <class T>
CudaDecoder<T>::~CudaDecoder() {
  cudaStreamSynchronize(engine_.stream());  // it may still use the memory
  engine_.memory().release(memory_);
}

template <class T>
std::unique_ptr<DeviceAttention<T>> CudaDecoder<T>::make_attention() {
  const AttentionShape shape{sizes_.micro_batch, sizes_.length, sizes_.groups,
                             sizes_.per_group, sizes_.head_dim};
  if constexpr (sizeof(T) == 2)
    if (!config_.plain_attention)
      return make_cudnn_attention(engine_, shape, cut_.space.workspace,
                                  cut_.space.workspace_bytes);
  return make_plain_attention<T>(engine_, shape, cut_.space.deltas);
}

template <class T>
void CudaDecoder<T>::fill_tables() {
  put<float>(engine_, cut_.space.numbers, {0, 1});
  std::vector<float> cosines(
      static_cast<size_t>(sizes_.reach * sizes_.head_dim / 2));
  std::vector<float> sines(cosines.size());
  fill_angles(cosines.data(), sines.data(), config_);
  put(engine_, cut_.space.cosines, cosines);
  put(engine_, cut_.space.sines, sines);
}

template <class T>
void CudaDecoder<T>::build_layers(const Model& shapes) {
  for (int64_t i = 0; i < config_.architecture.layers; ++i)
    layers_.emplace_back(tools_, layer_tensors(shapes, i, false));
}

template <class T>
std::string CudaDecoder<T>::describe() const {
  return cat(cuda_device_info().name, ", ", cublas_version(), ", ",
             attention_->describe());
}

template <class T>
void CudaDecoder<T>::check_slot(int64_t slot, bool waits) {
  CANZONA_CHECK(slot >= 0 && slot < std::ssize(staged_), "slot ", slot, " of ",
                staged_.size());
  CANZONA_CHECK(
      staged_[static_cast<size_t>(slot)].waits == waits, "slot ", slot,
      waits ? " holds no micro-batch" : " holds one that waits for backward");
}

template <class T>
typename CudaDecoder<T>::Staged& CudaDecoder<T>::staged_of(
    const Pass<float>& pass) {
  return staged_[static_cast<size_t>(pass.slot)];
}

// Tokens are sorted by a key of their row and place.
template <class T>
void CudaDecoder<T>::sort_tokens(Staged& staged) const {
  const int64_t count = sizes_.tokens();
  const StagedTokens to(staged.numbers->data(), count);
  for (int64_t t = 0; t < count; ++t)
    keys_[static_cast<size_t>(t)] =
        static_cast<uint64_t>(to.inputs[t]) << 32 | static_cast<uint64_t>(t);
  std::ranges::sort(keys_);
  staged.different = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = keys_[static_cast<size_t>(i)];
    const auto row = static_cast<int32_t>(key >> 32);
    to.places[i] = static_cast<int32_t>(key & 0xffffffffU);
    if (staged.different > 0 && to.rows[staged.different - 1] == row) continue;
    to.rows[staged.different] = row;
    to.begins[staged.different++] = static_cast<int32_t>(i);
  }
  to.begins[staged.different] = static_cast<int32_t>(count);
}

template <class T>
void CudaDecoder<T>::stage(const Pass<float>& pass) {
  CANZONA_CHECK(pass.in == nullptr && pass.out == nullptr);
  CANZONA_CHECK_EQ(static_cast<int64_t>(pass.sequences.size()),
                   sizes_.micro_batch * (sizes_.length + 1),
                   "tokens of a micro-batch");
  for (const int32_t token : pass.sequences)
    CANZONA_CHECK(token >= 0 && token < sizes_.vocab, "token ", token,
                  " of a vocabulary of ", sizes_.vocab);
  Staged& staged = staged_of(pass);
  staged.copied.wait();
  const StagedTokens to(staged.numbers->data(), sizes_.tokens());
  for (int64_t s = 0; s < sizes_.micro_batch; ++s) {
    const int32_t* from = pass.sequences.data() + s * (sizes_.length + 1);
    std::copy_n(from, sizes_.length, to.inputs + s * sizes_.length);
    std::copy_n(from + 1, sizes_.length, to.targets + s * sizes_.length);
  }
  sort_tokens(staged);
  check_cuda(
      cudaMemcpyAsync(
          slot_of(pass).tokens, staged.numbers->data(),
          static_cast<size_t>(staged_tokens(sizes_.tokens())) * sizeof(int32_t),
          cudaMemcpyHostToDevice, engine_.stream()),
      "cudaMemcpyAsync");
  staged.copied.record(engine_.stream());
}

template <class T>
template <class Work>
void CudaDecoder<T>::with_module(int64_t module, Passes passes,
                                 const Work& work) {
  weights_.wait(static_cast<int32_t>(module));
  for (size_t p = 0; p < passes.size(); ++p) work(passes[p], p);
  weights_.release(static_cast<int32_t>(module));
}

template <class T>
template <class Work>
void CudaDecoder<T>::with_head(Passes passes, const Work& work) {
  const int64_t own = config_.architecture.layers + 1;
  const bool tied = config_.architecture.tied;
  if (tied) weights_.wait(0);
  with_module(own, passes, work);
  if (tied) weights_.release(0);
}

template <class T>
void CudaDecoder<T>::run_layers(Passes passes) {
  for (const Pass<float>& pass : passes) stage(pass);
  with_module(0, passes, [&](const Pass<float>& pass, size_t) {
    const DeviceSlot<T>& slot = slot_of(pass);
    embed(engine_, slot.inputs[0], tools_.parameter(tensors_.embedding),
          slot.tokens, sizes_.tokens(), sizes_.hidden);
  });
  for (size_t i = 0; i < layers_.size(); ++i)
    with_module(static_cast<int64_t>(i) + 1, passes,
                [&](const Pass<float>& pass, size_t) {
                  const DeviceSlot<T>& slot = slot_of(pass);
                  layers_[i].forward(slot.inputs[i], slot.layers[i],
                                     slot.inputs[i + 1]);
                });
}

template <class T>
void CudaDecoder<T>::forward(Passes passes, std::span<double> losses) {
  CANZONA_CHECK_EQ(passes.size(), losses.size());
  for (size_t p = 0; p < passes.size(); ++p) {
    check_slot(passes[p].slot, false);
    staged_of(passes[p]).waits = true;
    staged_of(passes[p]).loss = &losses[p];
  }
  run_layers(passes);
  with_head(passes, [](const Pass<float>&, size_t) {});
}

template <class T>
Map<T> CudaDecoder<T>::head_map() const {
  return {tools_.parameter(tensors_.head), sizes_.vocab, sizes_.hidden,
          sizes_.logits_stride()};
}

template <class T>
void CudaDecoder<T>::run_head(const DeviceSlot<T>& slot, T* gradient,
                              Announce what) {
  const DeviceSpace<T>& space = cut_.space;
  const T* x = slot.inputs.back();
  const int32_t* targets = slot.tokens + sizes_.tokens();
  const float share =
      gradient == nullptr ? 0 : 1 / static_cast<float>(sizes_.tokens());
  for (int64_t begin = 0; begin < sizes_.tokens(); begin += sizes_.head_chunk) {
    const int64_t count = std::min(sizes_.head_chunk, sizes_.tokens() - begin);
    T* normed = space.normed + begin * sizes_.hidden;
    tools_.norm(normed, x + begin * sizes_.hidden, tensors_.norm, count);
    tools_.products.apply(space.logits, normed, head_map(), count);
    gpu::losses(engine_, space.token_losses + begin, space.logits,
                targets + begin, count, sizes_.vocab, sizes_.logits_stride(),
                share);
    if (gradient == nullptr) continue;
    tools_.products.add_gradient(tools_.gradient(tensors_.head), space.logits,
                                 normed, head_map(), count);
    tools_.products.apply_transposed(space.delta + begin * sizes_.hidden,
                                     space.logits, head_map(), count);
  }
  if (gradient == nullptr) return;
  if (!config_.architecture.tied) announce(weights_, tensors_.head, what);
  tools_.norm_backward(gradient, x, tensors_.norm, true);
  announce(weights_, tensors_.norm, what);
}

template <class T>
void CudaDecoder<T>::keep_loss(Staged& staged) {
  if (std::ssize(pending_) == DeviceSizes::kMostLosses) finish_losses();
  const auto index = std::ssize(pending_);
  double* loss = cut_.space.losses + index;
  mean(engine_, loss, cut_.space.token_losses, sizes_.tokens());
  check_cuda(cudaMemcpyAsync(losses_.data() + index, loss, sizeof(double),
                             cudaMemcpyDeviceToHost, engine_.stream()),
             "cudaMemcpyAsync");
  losses_copied_.record(engine_.stream());
  pending_.push_back(staged.loss);
}

template <class T>
void CudaDecoder<T>::finish_losses() {
  losses_copied_.wait();
  for (size_t i = 0; i < pending_.size(); ++i) *pending_[i] = losses_.data()[i];
  pending_.clear();
}

template <class T>
void CudaDecoder<T>::backward(Passes passes, bool last) {
  CANZONA_CHECK(std::ssize(passes) <= together_, passes.size(),
                " micro-batches at once, with memory for ", together_);
  for (const Pass<float>& pass : passes) {
    check_slot(pass.slot, true);
    staged_of(pass).waits = false;
  }
  const auto gradient = [&](size_t p) {
    return cut_.space.gradients +
           static_cast<int64_t>(p) * sizes_.tokens() * sizes_.hidden;
  };
  const auto what = [&](size_t p) {
    if (p + 1 < passes.size()) return Announce::kNothing;
    return last ? Announce::kLast : Announce::kPart;
  };
  with_head(passes, [&](const Pass<float>& pass, size_t p) {
    run_head(slot_of(pass), gradient(p), what(p));
    keep_loss(staged_of(pass));
  });
  for (size_t i = layers_.size(); i-- > 0;)
    with_module(static_cast<int64_t>(i) + 1, passes,
                [&](const Pass<float>& pass, size_t p) {
                  const DeviceSlot<T>& slot = slot_of(pass);
                  layers_[i].backward(slot.inputs[i], slot.layers[i],
                                      gradient(p), what(p));
                });
  with_module(0, passes, [&](const Pass<float>& pass, size_t p) {
    const StagedTokens tokens(slot_of(pass).tokens, sizes_.tokens());
    embed_backward(
        engine_, tools_.gradient(tensors_.embedding),
        static_cast<const T*>(gradient(p)),
        {tokens.places, tokens.rows, tokens.begins, staged_of(pass).different},
        sizes_.hidden);
    announce(weights_, tensors_.embedding, what(p));
  });
}

template <class T>
double CudaDecoder<T>::evaluate(std::span<const int32_t> sequences,
                                const float* input, float* output,
                                int64_t counted) {
  check_slot(0, false);
  CANZONA_CHECK(counted >= -1 && counted <= sizes_.micro_batch, counted,
                " sequences count in a micro-batch of ", sizes_.micro_batch);
  const Pass<float> pass{0, sequences, input, output};
  run_layers({&pass, 1});
  with_head({&pass, 1}, [&](const Pass<float>&, size_t) {
    run_head(slot_of(pass), nullptr, Announce::kNothing);
  });
  finish_losses();  // the mean goes through the same memory
  double loss = 0;
  mean(engine_, cut_.space.losses, cut_.space.token_losses,
       (counted < 0 ? sizes_.micro_batch : counted) * sizes_.length);
  engine_.download(reinterpret_cast<std::byte*>(&loss),
                   reinterpret_cast<const std::byte*>(cut_.space.losses),
                   sizeof loss);
  return loss;
}

template class Pinned<int32_t>;
template class Pinned<double>;
template class CudaDecoder<float>;
template class CudaDecoder<uint16_t>;

}  // namespace gpu

std::unique_ptr<TrainedDecoder<float>> make_device_decoder(
    const DecoderConfig& config, const Model& shapes, Engine& engine,
    DeviceWeights& weights, int64_t in_flight, int64_t together) {
  auto* gpu = dynamic_cast<CudaEngine*>(&engine);
  if (gpu == nullptr)
    throw UsageError(cat("decoder ", quoted(shapes.name),
                         ": expected a GPU's engine, got one of kind ",
                         quoted(engine.kind())));
  check_device_decoder(config, shapes.name);
  return std::make_unique<gpu::CudaDecoder<uint16_t>>(
      config, shapes, *gpu, weights, in_flight, together);
}

}  // namespace canzona::model
