#include "canzona/model/mlp.h"

#include "canzona/model/cutter.h"
#include "canzona/model/ops/table.h"

namespace canzona {

template <class Real>
int64_t Mlp<Real>::saved_bytes(const DecoderSizes& sizes) {
  Cutter count(nullptr);
  count.take<Real>(sizes.tokens(), 2 * sizes.ffn);
  return count.bytes();
}

template <class Real>
int64_t Mlp<Real>::scratch_bytes(const DecoderSizes& sizes) {
  Cutter count(nullptr);
  count.take<Real>(sizes.tokens(), sizes.ffn);
  return count.bytes();
}

template <class Real>
Linear<Real> Mlp<Real>::gate_up() const {
  return {engine_, weights_, tensors_.gate_up, 2 * sizes_.ffn, sizes_.hidden};
}

template <class Real>
Linear<Real> Mlp<Real>::down() const {
  return {engine_, weights_, tensors_.down, sizes_.hidden, sizes_.ffn};
}

template <class Real>
void Mlp<Real>::forward(const Real* x, Real* y, std::byte* saved,
                        std::byte* scratch) {
  auto* both = reinterpret_cast<Real*>(saved);
  auto* act = reinterpret_cast<Real*>(scratch);
  const int64_t tokens = sizes_.tokens();
  const Linear<Real> first = gate_up();
  const Linear<Real> second = down();
  first.apply(both, x, tokens);
  if (y == nullptr) return;
  ops<Real>().swiglu(act, both, tokens, sizes_.ffn);
  second.apply(y, act, tokens);
}

template <class Real>
void Mlp<Real>::backward(const Real* x, const Real* dy, Real* dx,
                         std::byte* saved, std::byte* scratch, Announce what) {
  auto* both = reinterpret_cast<Real*>(saved);
  auto* act = reinterpret_cast<Real*>(scratch);
  const int64_t tokens = sizes_.tokens();
  const Linear<Real> first = gate_up();
  const Linear<Real> second = down();
  second.apply_transposed(act, dy, tokens);
  ops<Real>().swiglu_backward(act, both, tokens, sizes_.ffn);
  second.add_gradient(dy, act, tokens);
  announce(weights_, tensors_.down, what);
  first.add_gradient(both, x, tokens);
  announce(weights_, tensors_.gate_up, what);
  first.apply_transposed(dx, both, tokens);
}

template class Mlp<float>;
template class Mlp<double>;

}  // namespace canzona
