// Reads a checkpoint: any box of any logical tensor, wherever its elements were
// saved. Every byte is verified.
//
//   CheckpointReader reader = open_checkpoint("runs/one/ckpt/step_00001000");
//   reader.load({{"model/w", {{2, 0}, {2, 6}}, as_writable_bytes(part)}, …});
//   std::string config = reader.side_file("config.json");
//
// Needs memory for the manifest and a piece of a file per thread.
// CheckpointRefused names the file and, if known, the tensor. Any thread may
// call const functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/files.h"
#include "canzona/checkpoint/file_system.h"
#include "canzona/checkpoint/manifest.h"

namespace canzona::checkpoint {

// Thrown for a checkpoint that is damaged, incomplete, of a newer format, or
// not the one that was asked for. The program exits with status 3.
class CheckpointRefused : public DataLost {
 public:
  using DataLost::DataLost;
};

struct BoxTarget {
  std::string tensor;
  Box box;
  std::span<std::byte> to;  // as many bytes as the box has
};

struct LoadOptions {
  int threads = 1;
  // If false, checksums are not verified. Only benchmarks use this.
  bool check = true;
};

class CheckpointReader {
 public:
  // Reads the manifest. Throws CheckpointRefused if it is missing or invalid.
  explicit CheckpointReader(Folder folder);

  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_hash() const { return manifest_hash_; }
  const std::string& path() const { return folder_.path(); }

  // Returns a line for every file that is missing, has another size, or does
  // not belong to the checkpoint. Reads no data.
  std::vector<std::string> check_files() const;
  // Like check_files(), but also reads every byte and compares it with the
  // SHA-256 that was recorded, and the shards' headers with the manifest.
  std::vector<std::string> verify(int threads = 1) const;

  // Returns the text of a small file after checking its hash.
  std::string side_file(const std::string& name) const;
  // Fills all targets. Throws UsageError for a tensor or box that was not
  // saved. After an error the contents of the targets are unspecified.
  void load(const std::vector<BoxTarget>& targets,
            const LoadOptions& options = {}) const;

 private:
  void check_size(const InputFile& file, const FileRecord& record) const;
  // Throws CheckpointRefused unless the shard's header has the manifest's
  // boxes.
  void check_header(int64_t file) const;
  std::vector<std::string> verify_file(int64_t file) const;
  // Returns " (tensor 'a', tensor 'b', …)": those with bytes in this part of a
  // file.
  std::string tensors_in(int64_t file, int64_t begin, int64_t end) const;

  struct Place {
    size_t tensor;  // index in the manifest
    size_t box;
  };

  Folder folder_;
  Manifest manifest_;
  std::vector<std::vector<Place>> boxes_of_;  // of each file
  std::string manifest_hash_;
};

// The hash at the end of a manifest's text.
std::string manifest_hash_of(std::string_view manifest_text);

// Opens the folder of one checkpoint. Throws UsageError if there is none.
CheckpointReader open_checkpoint(const std::string& path,
                                 FileSystem& system = FileSystem::system());

// Says how match_tensors() treats tensors that only one side has.
enum class Strictness { kExact, kIgnoreExtra, kWarn };

// Compares the tensors that a run wants with those that were saved. kExact
// refuses tensors that only one side has, kIgnoreExtra only those that were not
// saved; kWarn returns a line for each. A tensor of another type or shape is
// always refused. CheckpointRefused lists at most ten tensors of a kind.
std::vector<std::string> match_tensors(const Manifest& saved,
                                       const std::vector<LogicalTensor>& wanted,
                                       Strictness strictness);

// Tensors that were saved in any format, for the overload below.
struct SavedTensors {
  std::string whole;  // "the checkpoint of step 7", for messages
  std::string noun;   // "the checkpoint"
  std::vector<LogicalTensor> tensors;
};
std::vector<std::string> match_tensors(const SavedTensors& saved,
                                       const std::vector<LogicalTensor>& wanted,
                                       Strictness strictness);

}  // namespace canzona::checkpoint
