#include "canzona/linalg/cpu/stages/stages.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/features.h"
#include "canzona/linalg/cpu/stages/table.h"

namespace canzona::linalg {
namespace {

const StageTable& best() {
  static const StageTable& table = *usable_stages().front();
  return table;
}

template <class Real>
const StageKernels<Real>& kernels() {
  if constexpr (sizeof(Real) == 4)
    return best().fp32;
  else
    return best().fp64;
}

// Calls `work` with a value of the run's type.
template <class Work>
auto by_dtype(DType dtype, const Work& work) {
  CANZONA_CHECK(dtype != DType::kBf16, "stages are for fp32 and fp64");
  return dtype == DType::kFp32 ? work(float{}) : work(double{});
}

template <class Real>
typename StageKernels<Real>::Adam arguments(ConstRun grad, Run m, Run v,
                                            Run update, Run weights,
                                            const AdamCoefficients& adam,
                                            const Apply& apply) {
  const auto real = [](double x) { return static_cast<Real>(x); };
  return {
      elements<Real>(grad),   elements<Real>(m),       elements<Real>(v),
      elements<Real>(update), elements<Real>(weights), real(adam.m_keep),
      real(adam.m_add),       real(adam.v_keep),       real(adam.v_add),
      real(adam.from_moment), real(adam.from_grad),    real(adam.root_scale),
      real(adam.epsilon),     real(apply.keep_before), real(apply.step),
      real(apply.keep_after)};
}

}  // namespace

std::span<const StageTable* const> usable_stages() {
#if defined(__x86_64__)
  static const StageTable* const all[] = {&avx512_stages(), &avx2_stages(),
                                          &portable_stages()};
  const CpuFeatures& cpu = cpu_features();
  const size_t skipped = cpu.avx512 ? 0 : cpu.avx2 ? 1 : 2;
  return std::span(all).subspan(skipped);
#else
  static const StageTable* const all[] = {&portable_stages()};
  return all;
#endif
}

void cpu_momentum(const Engine::MomentumStage& s, int64_t count) {
  by_dtype(s.grad.dtype, [&](auto zero) {
    using Real = decltype(zero);
    const auto real = [](double x) { return static_cast<Real>(x); };
    kernels<Real>().momentum(
        {elements<Real>(s.grad), elements<Real>(s.weights),
         elements<Real>(s.momentum), elements<Real>(s.out), real(s.l2),
         real(s.blend.keep), real(s.blend.add), real(s.blend.from_grad),
         real(s.blend.from_momentum)},
        count);
  });
}

void cpu_apply(Run weights, ConstRun update, const Apply& apply,
               int64_t count) {
  by_dtype(weights.dtype, [&](auto zero) {
    using Real = decltype(zero);
    const auto kernel = apply.cautious ? kernels<Real>().apply_cautiously
                                       : kernels<Real>().apply;
    kernel(elements<Real>(weights), elements<Real>(update),
           static_cast<Real>(apply.keep_before), static_cast<Real>(apply.step),
           static_cast<Real>(apply.keep_after), count);
  });
}

void cpu_adam(ConstRun grad, Run m, Run v, Run update,
              const AdamCoefficients& adam, int64_t count) {
  by_dtype(grad.dtype, [&](auto zero) {
    using Real = decltype(zero);
    kernels<Real>().adam(arguments<Real>(grad, m, v, update, {}, adam, {}),
                         count);
  });
}

void cpu_adam_apply(ConstRun grad, Run m, Run v, Run weights,
                    const AdamCoefficients& adam, const Apply& apply,
                    int64_t count) {
  by_dtype(grad.dtype, [&](auto zero) {
    using Real = decltype(zero);
    kernels<Real>().adam(arguments<Real>(grad, m, v, {}, weights, adam, apply),
                         count);
  });
}

void cpu_axpby(Run y, double alpha, ConstRun x, double beta, int64_t count) {
  by_dtype(y.dtype, [&](auto zero) {
    using Real = decltype(zero);
    kernels<Real>().axpby(elements<Real>(y), static_cast<Real>(alpha),
                          elements<Real>(x), static_cast<Real>(beta), count);
  });
}

bool cpu_all_finite(ConstRun run, int64_t count) {
  return by_dtype(run.dtype, [&](auto zero) {
    using Real = decltype(zero);
    return kernels<Real>().all_finite(elements<Real>(run), count);
  });
}

uint32_t cpu_largest_bits(ConstRun run, int64_t count) {
  return best().largest_bits(elements<float>(run), count);
}

uint32_t cpu_scale_and_look(Run run, double factor, int64_t count) {
  return best().scale_and_look(elements<float>(run), static_cast<float>(factor),
                               count);
}

// A block is checked first, and is in cache after that: a number out of range
// must be an error before it becomes an integer.
WideSum cpu_sum_of_squares(ConstRun run, int64_t count, int exponent) {
  constexpr int64_t kBlock = 4096;
  const double scale = std::ldexp(1.0, exponent);
  const auto* x = elements<float>(run);
  WideSum sum;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    check_squares_fit(best().largest_bits(x + begin, size), exponent);
    const SplitSum part = best().sum_squares(x + begin, scale, size);
    sum.add({part.low, 0});
    sum.add({part.high << 32, part.high >> 32});
  }
  return sum;
}

void cpu_round_to_bf16(uint16_t* to, const float* from, int64_t count) {
  best().round_to_bf16(to, from, count);
}

void cpu_round_weights(uint16_t* to, const float* from, int64_t count) {
  best().round_weights(to, from, count);
}

void cpu_split_masters(uint16_t* weights, uint16_t* remainders,
                       const float* from, int64_t count) {
  best().split_masters(weights, remainders, from, count);
}

void cpu_join_masters(float* to, const uint16_t* weights,
                      const uint16_t* remainders, int64_t count) {
  best().join_masters(to, weights, remainders, count);
}

void cpu_widen_bf16(float* to, const uint16_t* from, int64_t count) {
  best().widen_bf16(to, from, count);
}

void cpu_add(float* sum, const float* a, const float* b, int64_t count) {
  best().add(sum, a, b, count);
}

}  // namespace canzona::linalg
