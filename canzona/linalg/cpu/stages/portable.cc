#include "canzona/linalg/cpu/stages/kernels.h"

namespace canzona::linalg {

const StageTable& portable_stages() {
  static constexpr StageTable table = make_stage_table("portable");
  return table;
}

}  // namespace canzona::linalg
