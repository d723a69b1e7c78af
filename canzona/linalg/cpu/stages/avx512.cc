#include "canzona/linalg/cpu/stages/kernels.h"

namespace canzona::linalg {

const StageTable& avx512_stages() {
  static constexpr StageTable table = make_stage_table("avx512");
  return table;
}

}  // namespace canzona::linalg
