#include "canzona/model/ops/kernels.h"

namespace canzona {

const OpTable& avx2_ops() {
  static constexpr OpTable table = make_op_table("avx2");
  return table;
}

}  // namespace canzona
