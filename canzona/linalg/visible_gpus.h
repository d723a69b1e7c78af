// The GPUs that this process may use, before CUDA is started: a process that
// takes one of several says so by CUDA_VISIBLE_DEVICES, which CUDA reads once.
//
//   const auto gpus = visible_gpus(getenv("CUDA_VISIBLE_DEVICES"), all_gpus());
//   setenv("CUDA_VISIBLE_DEVICES", gpus[local_rank].c_str(), 1);
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
