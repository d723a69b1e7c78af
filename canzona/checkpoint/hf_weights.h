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
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/checkpoint/safetensors_writer.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

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
  StoredType type = StoredType::kF32;  // or kBf16
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

}  // namespace canzona
