#include "canzona/model/ops/kernels.h"

namespace canzona::model {

const OpTable& portable_ops() {
  static constexpr OpTable table = make_op_table("portable");
  return table;
}

}  // namespace canzona::model
