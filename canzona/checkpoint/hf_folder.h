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
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/checkpoint/file_system.h"
#include "canzona/checkpoint/shard_writer.h"
#include "canzona/shapes/architecture.h"
#include "canzona/shapes/tensor.h"

namespace canzona::checkpoint {

// Writes the config.json of Hugging Face's transformers for the decoder, so
// that a run's folder loads as a Qwen3ForCausalLM, a Qwen3MoeForCausalLM or,
// without norms of queries and keys, a LlamaForCausalLM.
//
//   write_file(folder + "/config.json", hf_config({.architecture = a, …}));

struct HfNumbers {
  Architecture architecture = {};
  int64_t length = 0;  // the longest sequence it was trained on
  double norm_epsilon = 1e-6;
  double rope_base = 10000;
  int64_t experts_per_token = 2;
  bool normalize_top_k = true;  // the chosen experts' weights add up to 1
  double balance_coefficient = 0;
  DType type = DType::kFp32;
};

// Throws UsageError for features that none of these models has: latent
// attention, shared experts, a bias in the mlp, experts without norms of
// queries and keys.
std::string hf_config(const HfNumbers& numbers);
// "qwen3", "qwen3_moe" or "llama".
std::string hf_model_type(const Architecture& architecture);

// Writes the decoder's weights under the names of Hugging Face's transformers:
// fused tensors are split into their projections, with rows in the order of
// heads.
//
//   WeightFiles files(folder, model, {.max_file_bytes = 5'000'000'000});
//   for (int32_t t = 0; t < num_tensors; ++t) files.add(t, whole_tensor(t));
//   files.finish();
//
// One tensor at a time is in memory, whole and row-major, as without tensor
// parallelism. The model must outlive the files. One thread at a time.

// A tensor as it is written: rows of one of the model's tensors.
struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;
  RowRuns rows;  // of the model's tensor, in this order
};

// Returns the tensors that one of the model's is written as: itself, or the
// projections that were fused into it. Throws InternalError if it is fused but
// its name does not say which projections it consists of.
std::vector<HfTensor> hf_tensors(const Tensor& tensor);

struct WeightFormat {
  DType type = DType::kFp32;  // or kBf16
  // A file is full when another tensor would make its data longer than this; 0
  // puts everything into one file. A tensor that is longer gets a file of its
  // own.
  int64_t max_file_bytes = 0;
};

// A file that is or will be written.
struct HfFile {
  std::string name;  // "model-00001-of-00002.safetensors"
  std::vector<TensorEntry> tensors;
  int64_t data_bytes = 0;
  std::string sha256 = {};  // "" until it is written
};

// A single file is called model.safetensors; several are numbered.
std::vector<HfFile> hf_files(const Model& model, const WeightFormat& format);

// Writes model.safetensors, or several files followed by the index that says
// which tensor is in which.
class WeightFiles {
 public:
  // Requires the folder to exist.
  WeightFiles(const std::string& folder, const Model& model,
              const WeightFormat& format = {});

  const std::vector<HfFile>& files() const { return files_; }
  // Tensors must be added in the order of the model: 0, 1, …
  void add(int32_t tensor, std::span<const float> whole);
  void finish();

 private:
  void begin_file();
  std::string index_json() const;

  std::string folder_;
  const Model& model_;
  std::vector<HfFile> files_;
  int32_t next_ = 0;
  size_t file_ = 0;     // index of the file that is being written
  size_t written_ = 0;  // number of its tensors that are written
  std::unique_ptr<SafetensorsWriter> writer_;
};

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

}  // namespace canzona::checkpoint
