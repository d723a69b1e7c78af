// The header of a safetensors file: names, types and shapes, no data.
//
//   SafetensorsHeader header = read_safetensors_header(bytes, size, "a.st");
//   std::string_view data = bytes.substr(t.begin, t.end - t.begin);
//
// A file is the header's length (8 bytes, little endian), the header (JSON,
// from '{'), and the data. Everything that the reference implementation refuses
// is refused here: a header above 100 MB or longer than the file, duplicate
// names, unknown types, offsets that leave holes, overlap or do not end with
// the file, and sizes that are not shape x type.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/shapes/records.h"

namespace canzona::shapes {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

// Returns the header's length from the first 8 bytes of a file of `file_size`
// bytes; throws UsageError if it cannot be a safetensors file. Messages name
// `file`.
int64_t safetensors_header_length(std::string_view file_start,
                                  int64_t file_size, const std::string& file);

// Returns the tensors in the order of the header. `file_start` must hold at
// least the length and the header.
TensorRecords read_safetensors(std::string_view file_start, int64_t file_size,
                               const std::string& file);

// A tensor and its data's offsets in bytes from the start of the file.
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

// Returns the whole header, for code that reads the data; all names differ.
SafetensorsHeader read_safetensors_header(std::string_view file_start,
                                          int64_t file_size,
                                          const std::string& file);

// Reads the tensors from disk, and nothing after the header.
TensorRecords read_safetensors_file(const std::string& path);

// model.safetensors.index.json: which shard holds which tensor.
//
//   {"metadata": {"total_size": 48},
//    "weight_map": {"x": "model-1.safetensors"}}
//
// Names of shards are untrusted: they must be plain names of files beside the
// index.

struct WeightIndex {
  struct Entry {
    std::string tensor;
    uint32_t shard = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<std::string> shards;  // in the order first named
  std::vector<Entry> entries;       // by shard, then by tensor
};

// Messages name `file`.
WeightIndex parse_weight_index(std::string_view json, const std::string& file);

// Throws UsageError unless the shard of this number holds exactly the tensors
// that the index places there. Messages name `path`.
void check_shard(const WeightIndex& index, uint32_t shard,
                 std::vector<std::string_view> held, const std::string& path);

// Reads the tensors of all shards in `folder`. Throws UsageError if a shard
// lacks a tensor of the map or has an extra one.
TensorRecords read_shards(const WeightIndex& index, const std::string& folder);

}  // namespace canzona::shapes
