// Writes one rank's share of a checkpoint: a safetensors file, hashed while it
// is written, and a record of it for the rank that commits.
//
//   std::vector<BoxSource> sources = {{{"model/w", DType::kFp32, {4, 6}},
//                                      {{0, 0}, {2, 6}}, as_bytes(part)}, …};
//   const ShardOrigin origin{.step = 100, .rank = 1};
//   std::string record = write_shard(folder, origin, sources);
//
// Each tensor in the file has the name of its logical tensor; the second box of
// the same tensor is called "name#2". Needs memory for two chunks. The shard is
// on disk when write_shard() returns; if it throws, this rank votes against the
// checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/digest.h"
#include "canzona/base/files.h"
#include "canzona/checkpoint/boxes.h"
#include "canzona/checkpoint/file_system.h"
#include "canzona/checkpoint/manifest.h"

namespace canzona::checkpoint {

// Writes a safetensors file tensor by tensor: the contents are declared first,
// then the data is added in that order, and only a piece of it is in memory.
//
//   SafetensorsWriter file("model.safetensors",
//                          {{"a", DType::kFp32, {2, 3}}, …}, {});
//   file.add(values);        // of "a"
//   …
//   file.finish();
//
// Until finish() there is no file, or still the old one. One thread at a time.

struct TensorEntry {
  std::string name;
  DType type = DType::kFp32;
  std::vector<int64_t> shape;
};

// The beginning of a file: its header's length and its header. The data
// of the tensors follows in their order.
struct SafetensorsStart {
  std::string bytes;
  std::vector<int64_t> offsets;  // of each tensor's data, from the start of the
                                 // file
  int64_t file_bytes = 0;        // with all data
};

// `metadata` goes to "__metadata__". Throws UsageError if a name occurs twice.
SafetensorsStart safetensors_start(
    const std::vector<TensorEntry>& tensors,
    const std::map<std::string, std::string>& metadata);

class SafetensorsWriter {
 public:
  // Supports only F32 and BF16. Throws UsageError if a name occurs twice or the
  // file cannot be written.
  SafetensorsWriter(const std::string& path, std::vector<TensorEntry> tensors,
                    const std::map<std::string, std::string>& metadata);

  // Appends elements, row-major; a tensor may come in several pieces. Bf16 is
  // rounded to nearest, halves away from zero.
  void add(std::span<const float> values);
  // Returns the SHA-256 of the file, as sha256sum prints it. Throws
  // InternalError if elements are missing.
  std::string finish();

 private:
  void put(std::string_view bytes);
  void skip_full_tensors();

  std::vector<TensorEntry> tensors_;
  size_t current_ = 0;
  int64_t left_ = 0;  // elements of the current tensor still to come
  FileWriter file_;
  Sha256 hash_;
};

struct BoxSource {
  LogicalTensor tensor;
  Box box;
  // The box's bytes, or a function that fills in those from `offset` on.
  std::span<const std::byte> data = {};
  std::function<void(int64_t offset, std::span<std::byte> to)> fill = {};
};

// The step at which a shard was saved, by which rank of how many.
struct ShardOrigin {
  int64_t step = 0;
  int64_t rank = 0;
  int64_t world = 1;
};

// Whether bytes are hashed by a second thread, which is faster, or by the
// writing thread, which leaves the other processors alone.
enum class Hashing { kBeside, kInTurn };

// Writes into `folder`, that of a pending checkpoint, and returns the record
// for parse_record(). Boxes without elements are left out, but their tensors
// are in the record. Throws UsageError if a tensor or box is invalid,
// StorageError if the disk fails.
std::string write_shard(const Folder& folder, const ShardOrigin& origin,
                        const std::vector<BoxSource>& sources,
                        Hashing hashing = Hashing::kBeside);

// Returns the number of bytes that write_shard() would write.
int64_t shard_bytes(const std::vector<BoxSource>& sources);

// Writes a small file completely, hashed and synced.
FileRecord write_side_file(const Folder& folder, const std::string& name,
                           std::string_view text);

}  // namespace canzona::checkpoint
