// Shows what `canzona doctor` has found on one machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/linalg/cuda_device.h"
#include "canzona/measure/machine.h"
#include "canzona/report/document.h"

namespace canzona::report::bench {

struct MachineReport {
  MachineInfo machine;
  MachineRates rates;
  std::optional<CudaDeviceInfo> gpu = {};
  std::string why_no_gpu = {};
  DiskInfo disk = {};     // of the working folder
  std::string mpi = {};   // the library, or that there is none
  std::string nccl = {};  // the same
  int num_gpus = 0;       // that this process may use
};
// Lists whatever slows this machine down or may make runs fail; empty if there
// is nothing to report.
std::vector<std::string> problems_of(const MachineReport& report);
Document machine_view(const MachineReport& report);

}  // namespace canzona::report::bench
