#include <span>

#include "canzona/linalg/cpu/features.h"
#include "canzona/model/ops/table.h"

namespace canzona::model {
namespace {

const OpTable& best() {
  static const OpTable& table = *usable_ops().front();
  return table;
}

}  // namespace

std::span<const OpTable* const> usable_ops() {
#if defined(__x86_64__)
  static const OpTable* const all[] = {&avx512_ops(), &avx2_ops(),
                                       &portable_ops()};
  const CpuFeatures& cpu = cpu_features();
  const size_t skipped = cpu.avx512 ? 0 : cpu.avx2 ? 1 : 2;
  return std::span(all).subspan(skipped);
#else
  static const OpTable* const all[] = {&portable_ops()};
  return all;
#endif
}

template <>
const Ops<float>& ops() {
  return best().fp32;
}
template <>
const Ops<double>& ops() {
  return best().fp64;
}

}  // namespace canzona::model
