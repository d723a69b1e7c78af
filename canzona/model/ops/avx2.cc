#include "canzona/model/ops/kernels.h"

namespace canzona::model {

const OpTable& avx2_ops() {
  static constexpr OpTable table = make_op_table("avx2");
  return table;
}

}  // namespace canzona::model
