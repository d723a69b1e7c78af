// Indexes of sharded safetensors: refused with a UsageError or turned into a
// map whose shards are plain file names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/shapes/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const canzona::WeightIndex index =
        canzona::parse_weight_index(text, "index.json");
    for (const std::string& shard : index.shards) {
      if (shard.find('/') != std::string::npos) std::abort();
    }
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
