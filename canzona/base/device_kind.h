// The kinds of devices that engines exist for, and the properties by which code
// outside linalg/ tells them apart. A new kind is one row of the table.
//
//   if (device_kind(request.device).has_own_memory) check_free_memory();
//
// Any thread may call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace canzona {

struct DeviceKind {
  std::string_view name;
  // Its memory is not this process's: it is limited separately, is accessed by
  // copies alone, and work on it is issued before it is done.
  bool has_own_memory = false;
  // Products are so much faster than everything else that algorithms made of
  // products win over those with fewer operations.
  bool multiplies_cheaply = false;
  bool has_fp16 = false;
  // A matrix is divided by its norm before it is rounded to 16 bits, not after.
  bool divides_before_rounding = false;
  // One engine computes a whole batch at once.
  bool computes_batches = false;
  // Engines side by side with which a rule's step is fastest.
  int num_engines = 1;
};

// The first row is the device that is used unless another is named.
std::vector<std::string> device_names();

// Returns null, or throws UsageError, if there is no such kind.
const DeviceKind* find_device_kind(std::string_view name);
const DeviceKind& device_kind(std::string_view name);

}  // namespace canzona
