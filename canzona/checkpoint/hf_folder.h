// A folder of weights as written by Hugging Face's transformers: config.json,
// and model.safetensors or several files with model.safetensors.index.json.
//
//   HfFolder folder = HfFolder::open("Qwen3-0.6B");
//   const HfEntry* entry = folder.find("model.norm.weight");
//   folder.read(*entry, 0, values);        // as fp32
//
// The folder is untrusted: names of files must be plain, links are not
// followed, and sizes are checked against the files before anything is
// allocated. Headers are kept in memory, data is not: read() converts piece by
// piece.
//
//   UsageError         there is no such folder, or none of these files in it
//   CheckpointRefused  what is there cannot be right: a damaged header, a
//                      missing shard, a tensor twice, a link, an odd name,
//                      two names that differ by wrappers alone
//
// Any thread may call const functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/checkpoint/file_system.h"

namespace canzona {

inline constexpr const char* kHfConfig = "config.json";
inline constexpr const char* kHfWeights = "model.safetensors";
inline constexpr const char* kHfIndex = "model.safetensors.index.json";

// A tensor in the folder.
struct HfEntry {
  std::string name;   // without the prefixes of PyTorch's wrappers
  std::string dtype;  // "BF16"
  std::vector<int64_t> shape;
  size_t file = 0;
  int64_t begin = 0;             // of its data in the file
  std::string stored_name = {};  // as the file has it
};

class HfFolder {
 public:
  // Reads index and headers.
  static HfFolder open(const std::string& path,
                       FileSystem& system = FileSystem::system());
  // Returns true if the folder has a file of either name. Reads nothing.
  static bool has_weights(const std::string& path);

  const std::string& path() const { return folder_.path(); }
  // Returns the text of config.json.
  std::string config_json() const;
  // Sorted by name; names are unique.
  const std::vector<HfEntry>& entries() const { return entries_; }
  const HfEntry* find(std::string_view name) const;  // null: none

  // Throws CheckpointRefused unless the type is F32, BF16 or F16.
  void check_type(const HfEntry& entry) const;
  // Reads elements from `first` on; the type must pass check_type(). Throws
  // CheckpointRefused if the file is not the one that was opened.
  void read(const HfEntry& entry, int64_t first, std::span<float> to) const;

 private:
  struct Shard {
    std::string name;
    int64_t bytes = 0;
  };

  explicit HfFolder(Folder folder) : folder_(std::move(folder)) {}
  using Listing = std::vector<FolderEntry>;
  void read_files(const Listing& there);
  void read_shards(const Listing& there);
  void add_shard(const std::string& name, const Listing& there);
  void unwrap_entries();
  std::string path_of(const HfEntry& entry) const;

  Folder folder_;
  std::vector<Shard> shards_;
  std::vector<HfEntry> entries_;
};

}  // namespace canzona
