#include "canzona/linalg/cpu/cpu_algebra.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/base/check.h"
#include "canzona/linalg/cpu/stages/stages.h"

namespace canzona::linalg {
namespace {

// Beyond these norms the squares of entries may leave the range of the type.
// Powers of two with at most this exponent are normal numbers in it.
struct SafeNorms {
  double least;
  double most;
  int exponent;
};
SafeNorms safe_norms(DType source) {
  return source == DType::kFp64 ? SafeNorms{0x1p-400, 0x1p400, 1000}
                                : SafeNorms{0x1p-40, 0x1p40, 126};
}

// The same values again, times a factor; the momentum has already been updated.
Load once_more(const Load& load, double factor) {
  Load again = load;
  again.blend.keep = 1;
  again.blend.add = 0;
  again.prescale = factor;
  return again;
}

// Adds squares by the tree of strips. If they leave the range of fp64, the
// result is the largest norm of a strip, which is close enough to shift by;
// with one strip it is the norm.
double norm_of(std::span<const NormPart> parts) {
  double largest = 0;
  for (const NormPart& part : parts) {
    if (!(part.norm <= largest)) largest = part.norm;
    if (std::isnan(part.norm)) return part.norm;
  }
  double sums[Strips::kMostSums] = {};
  TreeOrder::add(
      static_cast<int>(parts.size()),
      [&](int s, int p) { sums[p] = parts[static_cast<size_t>(s)].squares; },
      [&](int to, int from) { sums[to] += sums[from]; });
  const bool safe = sums[0] > 1e-200 && sums[0] < 1e200;
  return safe ? std::sqrt(sums[0]) : largest;
}

// Returns the power of two that brings a norm near 1 if it is so far from it
// that squares of entries leave the range of the type; otherwise 1. It changes
// no bits.
double shift_of(double norm, DType source) {
  const SafeNorms safe = safe_norms(source);
  const bool is_safe = norm >= safe.least && norm <= safe.most;
  if (is_safe || norm == 0 || !std::isfinite(norm)) return 1;
  return std::ldexp(
      1.0, std::clamp(-std::ilogb(norm), -safe.exponent, safe.exponent));
}

// The norm of the loaded values, and the shift by which they were multiplied. x
// then has the values.
struct Norm {
  double value;
  double shift;
};
Norm load_shifted(CpuAlgebra& algebra, const Load& load, Operand& x) {
  const double norm = algebra.load(x, load);
  const double shift = shift_of(norm, load.source.dtype);
  if (shift == 1) return {norm, 1};
  return {algebra.load(x, once_more(load, shift)), shift};
}

// Returns one over the enlarged norm, in units of the shifted values, so that
// nothing overflows on the way; 0 for a zero matrix. A norm that is not finite
// makes the whole matrix not finite: a scale of 0 would hide an infinity.
double scale_by(const Normalization& by, const Norm& norm) {
  if (norm.value == 0) return 0;
  if (!std::isfinite(norm.value))
    return std::numeric_limits<double>::quiet_NaN();
  const double epsilon = by.epsilon * norm.shift;
  const double enlarged = by.factor * norm.value;
  return 1 /
         (by.add_epsilon ? enlarged + epsilon : std::max(enlarged, epsilon));
}

}  // namespace

double CpuAlgebra::load(Operand& x, const Load& load) {
  NormPart parts[Strips::kMost];
  const std::span<NormPart> told(parts, static_cast<size_t>(x.strips.count));
  load_parts(x, load, told);
  return norm_of(told);
}

void CpuAlgebra::load_parts(Operand& x, const Load& load,
                            std::span<NormPart> parts) {
  CANZONA_CHECK_EQ(std::ssize(parts), x.strips.count, "strips");
  for (int s = 0; s < x.strips.count; ++s)
    parts[static_cast<size_t>(s)] = load_strip(x, load, s);
}

// The scale of x is the shift until x is divided by its norm.
bool CpuAlgebra::normalize(Operand& x, const Load& load,
                           std::span<const NormPart> all,
                           const Normalization& by, std::span<NormPart> parts) {
  const Norm norm{norm_of(all), x.scale};
  const double shift =
      norm.shift == 1 ? shift_of(norm.value, load.source.dtype) : 1;
  if (shift != 1) {
    load_parts(x, once_more(load, shift), parts);
    x.scale = shift;
    return false;
  }
  x.scale = scale_by(by, norm);
  return true;
}

void CpuAlgebra::load_normalized(Operand& x, const Load& load,
                                 const Normalization& by) {
  constexpr int64_t kFewElements = 4096;
  CANZONA_CHECK_EQ(load.source.count, 1, "matrices at a time");
  Load one = load;
  one.source = load.source.at(0);
  if (load.momentum.data != nullptr) one.momentum = load.momentum.at(0);
  if (exact_ == nullptr || x.strips.count > 1 ||
      x.rows * x.cols > kFewElements) {
    x.scale = scale_by(by, load_shifted(*this, one, x));
    return;
  }
  const Arena::Scope scope(*arena_);
  Operand probe = exact_->wide(*arena_, x.rows, x.cols);
  const Norm norm = load_shifted(*exact_, one, probe);
  const double scale = scale_by(by, norm);
  const bool fits = !(scale * norm.shift > std::numeric_limits<float>::max());
  this->load(x, once_more(one, fits ? scale * norm.shift : norm.shift));
  if (!fits) x.scale = scale;
}

void CpuAlgebra::normalize_by_gram(Operand& x, Operand& r, double factor) {
  const double length = norm(r);
  if (!(length > 0)) return;
  const double square = length * factor * factor;
  rescale(r, 1 / square);
  x.scale /= std::sqrt(square);
}

void CpuAlgebra::multiply_into(const Store& store, const Operand& q,
                               const Operand& x) {
  CANZONA_CHECK_EQ(store.out.count, 1, "matrices at a time");
  Store one = store;
  one.out = store.out.at(0);
  store_product(one, q, x);
  if (store.rounded == nullptr) return;
  CANZONA_CHECK(store.apply != nullptr && one.out.contiguous(),
                "rounded copies are of weights");
  cpu_round_weights(store.rounded[0], one.out.as<float>(), one.out.elements());
}

}  // namespace canzona::linalg
