// Indexes of sharded safetensors: refused with a UsageError or turned into a
// map whose shards are plain file names and whose entries lie shard by shard,
// each tensor once.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/shapes/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const canzona::shapes::WeightIndex index =
        canzona::shapes::parse_weight_index(text, "index.json");
    for (const std::string& shard : index.shards) {
      const bool plain =
          !shard.empty() && shard.front() != '.' &&
          shard.find("..") == std::string::npos &&
          std::none_of(shard.begin(), shard.end(), [](unsigned char c) {
            return c == '/' || c == '\\' || c < 0x20 || c == 0x7F;
          });
      if (!plain) std::abort();
    }
    std::set<std::string_view> names;
    std::map<uint32_t, std::vector<std::string_view>> held;
    for (const auto& entry : index.entries) {
      if (entry.shard >= index.shards.size()) std::abort();
      if (!names.insert(entry.tensor).second) std::abort();
      held[entry.shard].push_back(entry.tensor);
    }
    // Every shard holds what the index says; with one less it does not.
    for (auto& [shard, tensors] : held) {
      canzona::shapes::check_shard(index, shard, tensors, "shard");
      tensors.pop_back();
      try {
        canzona::shapes::check_shard(index, shard, tensors, "shard");
        std::abort();
      } catch (const canzona::UsageError&) {
      }
    }
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
