// Reads a checkpoint: any box of any logical tensor, wherever its elements were
// saved, and no byte that was not checked.
//
//   CheckpointReader reader = open_checkpoint("runs/one/ckpt/step_00001000");
//   reader.load({{"model/w", {{2, 0}, {2, 6}}, as_writable_bytes(part)}, …});
//   std::string config = reader.side_file("config.json");
//
// Memory: the manifest and a piece of a file per thread. CheckpointRefused
// names the file and, where it is known, the tensor. Any thread may call the
// functions that are const.
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

namespace canzona {

// A checkpoint that is damaged, incomplete, of a newer format, or not what was
// asked for. Exit 3.
class CheckpointRefused : public DataLost {
 public:
  using DataLost::DataLost;
};

struct BoxTarget {
  std::string tensor;
  TensorBox box;
  std::span<std::byte> to;  // as many bytes as the box has
};

struct LoadOptions {
  int threads = 1;
  // False: bytes are taken as they come. For benchmarks.
  bool check = true;
};

class CheckpointReader {
 public:
  // Reads the manifest. CheckpointRefused if it is missing or not sound.
  explicit CheckpointReader(Folder folder);

  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_hash() const { return manifest_hash_; }
  const std::string& path() const { return folder_.path(); }

  // Files that are missing, have another size or are no part of it, a line
  // each. Reads no data.
  std::vector<std::string> check_files() const;
  // The same, and that every byte is the one that was saved (SHA-256), and that
  // the shards' headers say what the manifest says.
  std::vector<std::string> verify(int threads = 1) const;

  // A small file, checked.
  std::string side_file(const std::string& name) const;
  // Fills in all targets. What they hold after an error is not defined.
  // UsageError for a tensor or box that is not there.
  void load(const std::vector<BoxTarget>& targets,
            const LoadOptions& options = {}) const;

 private:
  void check_size(const InputFile& file, const FileRecord& record) const;
  // CheckpointRefused unless the shard's header has the manifest's boxes.
  void check_header(int64_t file) const;
  std::vector<std::string> verify_file(int64_t file) const;
  // " (tensor 'a', tensor 'b', …)": those with bytes in this part of a file.
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

// A checkpoint's own folder. UsageError if there is none.
CheckpointReader open_checkpoint(const std::string& path,
                                 FileSystem& system = FileSystem::system());

// The first, in the order of resume_order(), that verifies; the others are
// told of in `notes`, a line each. CheckpointRefused if none does.
CheckpointReader newest_verified(const Folder& store, int threads,
                                 std::vector<std::string>& notes);

// What is done about tensors that only one side has.
enum class Strictness { kExact, kIgnoreExtra, kWarn };

// Compares what a run wants with what was saved. kExact refuses both kinds,
// kIgnoreExtra those that are missing; kWarn returns both as lines. Other types
// or shapes are always refused. CheckpointRefused lists at most ten of a kind.
std::vector<std::string> match_tensors(const Manifest& saved,
                                       const std::vector<LogicalTensor>& wanted,
                                       Strictness strictness);

// The same of any list of tensors.
struct SavedTensors {
  std::string whole;  // "the checkpoint of step 7", for messages
  std::string noun;   // "the checkpoint"
  std::vector<LogicalTensor> tensors;
};
std::vector<std::string> match_tensors(const SavedTensors& saved,
                                       const std::vector<LogicalTensor>& wanted,
                                       Strictness strictness);

}  // namespace canzona
