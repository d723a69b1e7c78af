#include "canzona/linalg/cpu/stages/kernels.h"

namespace canzona::linalg {

const StageTable& avx2_stages() {
  static constexpr StageTable table = make_stage_table("avx2");
  return table;
}

}  // namespace canzona::linalg
