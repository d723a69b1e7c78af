#include "canzona/model/ops/kernels.h"

namespace canzona::model {

const OpTable& avx512_ops() {
  static constexpr OpTable table = make_op_table("avx512");
  return table;
}

}  // namespace canzona::model
