// One rank's part of a checkpoint: a safetensors file, hashed while it is
// written, and the record of it that goes to the rank that commits.
//
//   std::vector<BoxSource> sources = {{{"model/w", StoredType::kF32, {4, 6}},
//                                      {{0, 0}, {2, 6}}, as_bytes(part)}, …};
//   std::string record = write_shard(folder, {.step = 100, .rank = 1},
//   sources);
//
// Each tensor of the file has the name of its logical tensor; of several boxes
// of one tensor the second is called "name#2". Memory: two chunks. The shard is
// on disk when write_shard() returns; if it throws, this rank votes against the
// checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/checkpoint/file_system.h"
#include "canzona/checkpoint/manifest.h"

namespace canzona {

struct BoxSource {
  LogicalTensor tensor;
  TensorBox box;
  // The box's bytes, or what fills in those from `offset` on.
  std::span<const std::byte> data = {};
  std::function<void(int64_t offset, std::span<std::byte> to)> fill = {};
};

struct ShardPlace {
  int64_t step = 0;
  int64_t rank = 0;
  int64_t world = 1;
};

// Bytes are hashed by another thread than the one that writes them, which is
// done sooner, or by the same one, which takes no second processor from others.
enum class Hashing { kBeside, kInTurn };

// Into `folder`, that of the checkpoint which is being written. Returns the
// record, for parse_record(). Boxes without elements are left out; their
// tensors are in the record. UsageError if a tensor or box cannot be;
// StorageError if the disk refuses.
std::string write_shard(const Folder& folder, const ShardPlace& place,
                        const std::vector<BoxSource>& sources,
                        Hashing hashing = Hashing::kBeside);

// The bytes that write_shard() would write.
int64_t shard_bytes(const std::vector<BoxSource>& sources);

// A whole small file, hashed, on disk.
FileRecord write_side_file(const Folder& folder, const std::string& name,
                           std::string_view text);

}  // namespace canzona
