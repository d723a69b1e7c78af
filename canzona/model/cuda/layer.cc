#include "canzona/model/cuda/layer.h"

#include "canzona/base/check.h"

namespace canzona::model::gpu {
namespace {

template <class Number>
Number* aligned(Number* data, int32_t tensor) {
  CANZONA_CHECK(reinterpret_cast<uintptr_t>(data) % 16 == 0, "tensor ", tensor,
                " does not begin at a multiple of 16 bytes");
  return data;
}

}  // namespace

template <class T>
const T* DeviceTools<T>::parameter(int32_t tensor) const {
  return aligned(weights.parameter(tensor), tensor);
}

template <class T>
float* DeviceTools<T>::gradient(int32_t tensor) const {
  return aligned(weights.gradient(tensor), tensor);
}

template <class T>
void DeviceTools<T>::norm(T* out, const T* x, int32_t weight,
                          int64_t rows) const {
  gpu::norm(engine, out, x, parameter(weight), rows, sizes.hidden, epsilon());
}

template <class T>
void DeviceTools<T>::norm_backward(T* gradient_of_x, const T* x, int32_t weight,
                                   bool replaces) const {
  gpu::norm_backward<T>(
      engine, {gradient_of_x, gradient(weight), space.partial, replaces}, x,
      parameter(weight), space.delta, sizes.tokens(), sizes.hidden, epsilon());
}

template <class T>
Heads<T> DeviceLayer<T>::heads() const {
  const DeviceSizes& sizes = tools_.sizes;
  Heads<T> h{sizes.tokens(),       sizes.length,      sizes.groups,
             sizes.per_group,      sizes.head_dim,    tools_.epsilon(),
             tools_.space.cosines, tools_.space.sines};
  if (tensors_.query_norm < 0) return h;
  h.query_norm = tools_.parameter(tensors_.query_norm);
  h.key_norm = tools_.parameter(tensors_.key_norm);
  return h;
}

template <class T>
AttentionCall<T> DeviceLayer<T>::attend(const DeviceSaved<T>& saved) const {
  turn(tools_.engine, tools_.space.turned, saved.qkv, heads());
  return {tools_.space.turned, saved.qkv, saved.attention, saved.log_sums};
}

template <class T>
void DeviceLayer<T>::forward(const T* x, const DeviceSaved<T>& saved,
                             T* out) const {
  const DeviceSpace<T>& space = tools_.space;
  const Products<T>& products = tools_.products;
  const int64_t tokens = tools_.sizes.tokens();
  tools_.norm(space.normed, x, tensors_.input_norm, tokens);
  products.apply(saved.qkv, space.normed, qkv(), tokens);
  tools_.attention->forward(attend(saved));
  products.apply(saved.middle, saved.attention, o(), tokens, x);
  tools_.norm(space.normed, saved.middle, tensors_.post_norm, tokens);
  products.apply(saved.gate_up, space.normed, gate_up(), tokens);
  if (out == nullptr) return;
  swiglu(tools_.engine, space.act, saved.gate_up, tokens, tools_.sizes.ffn);
  products.apply(out, space.act, down(), tokens, saved.middle);
}

template <class T>
void DeviceLayer<T>::add_gradient(int32_t tensor, const T* dy, const T* x,
                                  const Map<T>& map, Announce what) const {
  tools_.products.add_gradient(tools_.gradient(tensor), dy, x, map,
                               tools_.sizes.tokens());
  announce(tools_.weights, tensor, what);
}

template <class T>
void DeviceLayer<T>::feed_backward(const DeviceSaved<T>& saved,
                                   const T* gradient, Announce what) const {
  const DeviceSpace<T>& space = tools_.space;
  const int64_t tokens = tools_.sizes.tokens();
  tools_.norm(space.normed, saved.middle, tensors_.post_norm, tokens);
  if (tools_.config.recompute == Recompute::kMlp)
    tools_.products.apply(saved.gate_up, space.normed, gate_up(), tokens);
  tools_.products.apply_transposed(space.act, gradient, down(), tokens);
  swiglu_backward(tools_.engine, space.act, saved.gate_up, tokens,
                  tools_.sizes.ffn);
  add_gradient(tensors_.down, gradient, space.act, down(), what);
  add_gradient(tensors_.gate_up, saved.gate_up, space.normed, gate_up(), what);
  tools_.products.apply_transposed(space.delta, saved.gate_up, gate_up(),
                                   tokens);
}

template <class T>
void DeviceLayer<T>::attend_backward(const DeviceSaved<T>& saved,
                                     const T* gradient, Announce what) const {
  const DeviceSpace<T>& space = tools_.space;
  add_gradient(tensors_.o, gradient, saved.attention, o(), what);
  tools_.products.apply_transposed(space.heads_gradient, gradient, o(),
                                   tools_.sizes.tokens());
  tools_.attention->backward(
      attend(saved),
      {space.heads_gradient, space.turned_gradient, space.qkv_gradient});
  const bool normed = tensors_.query_norm >= 0;
  turn_back(tools_.engine, space.qkv_gradient, saved.qkv, space.turned_gradient,
            heads(), normed ? tools_.gradient(tensors_.query_norm) : nullptr,
            normed ? tools_.gradient(tensors_.key_norm) : nullptr,
            space.partial);
  if (!normed) return;
  announce(tools_.weights, tensors_.query_norm, what);
  announce(tools_.weights, tensors_.key_norm, what);
}

template <class T>
void DeviceLayer<T>::backward(const T* x, const DeviceSaved<T>& saved,
                              T* gradient, Announce what) const {
  const DeviceSpace<T>& space = tools_.space;
  const int64_t tokens = tools_.sizes.tokens();
  if (tools_.config.recompute == Recompute::kLayer) forward(x, saved, nullptr);
  feed_backward(saved, gradient, what);
  tools_.norm_backward(gradient, saved.middle, tensors_.post_norm, false);
  announce(tools_.weights, tensors_.post_norm, what);
  attend_backward(saved, gradient, what);
  tools_.norm(space.normed, x, tensors_.input_norm, tokens);
  add_gradient(tensors_.qkv, space.qkv_gradient, space.normed, qkv(), what);
  tools_.products.apply_transposed(space.delta, space.qkv_gradient, qkv(),
                                   tokens);
  tools_.norm_backward(gradient, x, tensors_.input_norm, false);
  announce(tools_.weights, tensors_.input_norm, what);
}

template struct DeviceTools<float>;
template struct DeviceTools<uint16_t>;
template class DeviceLayer<float>;
template class DeviceLayer<uint16_t>;

}  // namespace canzona::model::gpu
