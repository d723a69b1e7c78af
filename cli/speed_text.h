// What a machine was measured to do, in words.
#pragma once

#include <string>

#include "canzona/base/text.h"
#include "canzona/measure/machine_speed.h"
#include "canzona/report/numbers.h"

namespace canzona::cli {

// "measured here, no cost table: 31 GFLOP/s of fp32 products and …"
inline std::string speed_text(const MachineSpeed& speed) {
  return cat(
      "measured here, no cost table: ", flops_text(speed.flops_per_second),
      "/s of ", to_string(speed.precision), " products and copies of ",
      human_bytes(static_cast<int64_t>(speed.copy_bytes_per_second)),
      "/s a rank");
}

}  // namespace canzona::cli
