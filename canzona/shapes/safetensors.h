// The header of a safetensors file: names, types and shapes, no data.
//
//   SafetensorsHeader header = read_safetensors_header(bytes, size, "a.st");
//   std::string_view data = bytes.substr(t.begin, t.end - t.begin);
//
// A file is the header's length (8 bytes, little endian), the header (JSON,
// from '{'), and the data. All that upstream refuses is refused here: a header
// above 100 MB or longer than the file, duplicate names, unknown types, offsets
// that leave holes, overlap or do not end with the file, and sizes that are not
// shape x type.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/shapes/records.h"

namespace canzona {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

// The header's length from the first 8 bytes of a file of `file_size` bytes;
// UsageError if the file cannot be a safetensors file. `file` is what messages
// name.
int64_t safetensors_header_length(std::string_view file_start,
                                  int64_t file_size, const std::string& file);

// The tensors, in the order of the header. `file_start` holds at least length
// and header.
TensorRecords read_safetensors(std::string_view file_start, int64_t file_size,
                               const std::string& file);

// A tensor and where its data lies, in bytes from the start of the file.
struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32"
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of the header
  std::map<std::string, std::string> metadata;
};

// The whole header, for readers of data; names are different.
SafetensorsHeader read_safetensors_header(std::string_view file_start,
                                          int64_t file_size,
                                          const std::string& file);

// The tensors, from disk; reads nothing behind the header.
TensorRecords read_safetensors_file(const std::string& path);

// model.safetensors.index.json: which shard holds which tensor.
//
//   {"metadata": {"total_size": 48}, "weight_map": {"x":
//   "model-1.safetensors"}}
//
// The names of shards are data: plain names of files beside the index.

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

// UsageError unless the shard of this number holds the tensors that the index
// places there and no others. `path` is what messages name.
void check_shard(const WeightIndex& index, uint32_t shard,
                 std::vector<std::string_view> held, const std::string& path);

// The tensors of all shards, which lie in `folder`. UsageError if a shard lacks
// a tensor of the map or has one besides.
TensorRecords read_shards(const WeightIndex& index, const std::string& folder);

}  // namespace canzona
