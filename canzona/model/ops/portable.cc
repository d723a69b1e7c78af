#include "canzona/model/ops/kernels.h"

namespace canzona {

const OpTable& portable_ops() {
  static constexpr OpTable table = make_op_table("portable");
  return table;
}

}  // namespace canzona
