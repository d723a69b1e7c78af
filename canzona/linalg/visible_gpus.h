// The GPUs that this process may use, before CUDA is initialized: a process
// selects one of several by CUDA_VISIBLE_DEVICES, which CUDA reads once.
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

// Returns all GPUs of the machine, or of the container, by UUID, as listed by
// the driver's management library; none without a driver.
std::vector<std::string> all_gpus();

// Returns those among them that the variable's value leaves; null means that it
// is not set. A number is an index in `all`; anything else, such as a UUID, is
// kept as it is. As in CUDA, the list ends at an entry that is empty or
// negative.
std::vector<std::string> visible_gpus(const char* variable,
                                      const std::vector<std::string>& all);

}  // namespace canzona
