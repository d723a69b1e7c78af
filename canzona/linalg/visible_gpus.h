// The GPUs that this process may use, before CUDA is started: a process that
// takes one of several says so by CUDA_VISIBLE_DEVICES, which CUDA reads once.
//
//   const char* name = "CUDA_VISIBLE_DEVICES";
//   const auto gpus = visible_gpus(environment_variable(name), all_gpus());
//   set_environment_variable(name, gpus[local_rank]);
//
// Any thread may call.
#pragma once

#include <string>
#include <vector>

namespace canzona {

// All GPUs of the machine, or of the container, by UUID, as the driver's
// management library lists them; none without a driver.
std::vector<std::string> all_gpus();

// Those among them that the variable's value leaves; null: it is not set. A
// number is a place in `all`; what is no such place is kept as it is, such as a
// UUID. As CUDA does, stops at an entry that is empty or negative.
std::vector<std::string> visible_gpus(const char* variable,
                                      const std::vector<std::string>& all);

}  // namespace canzona
