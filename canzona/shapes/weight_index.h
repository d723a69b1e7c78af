// model.safetensors.index.json: which shard holds which tensor.
//
//   {"metadata": {"total_size": 48}, "weight_map": {"x":
//   "model-1.safetensors"}}
//
// The names of shards are data: plain names of files beside the index.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/shapes/records.h"

namespace canzona {

struct WeightIndex {
  struct Entry {
    std::string tensor;
    uint32_t shard = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<std::string> shards;  // as first named
  std::vector<Entry> entries;       // by shard, then by tensor
};

// `file` is what messages name.
WeightIndex parse_weight_index(std::string_view json, const std::string& file);

// The tensors of all shards, which lie in `folder`. UsageError if a shard lacks
// a tensor of the map or has one besides.
TensorRecords read_shards(const WeightIndex& index, const std::string& folder);

}  // namespace canzona
