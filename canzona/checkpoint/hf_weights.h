// The decoder's weights under the names that Hugging Face's transformers know:
// fused tensors become the projections they are made of, their rows in the
// order of heads.
//
//   WeightFiles files(folder, model, {.max_file_bytes = 5'000'000'000});
//   for (int32_t t = 0; t < num_tensors; ++t) files.add(t, whole_tensor(t));
//   files.finish();
//
// A tensor is in memory one at a time, whole and row-major, as it is without
// tensor parallelism. The model outlives the files. One thread at a time.
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
// its name does not say of which projections.
std::vector<HfTensor> hf_tensors(const Tensor& tensor);

struct WeightFormat {
  StoredType type = StoredType::kF32;  // or kBf16
  // A file is full when another tensor would make its data longer than this; 0:
  // there is one file. A tensor that is longer has a file for itself.
  int64_t max_file_bytes = 0;
};

// A file that is, or will be, written.
struct HfFile {
  std::string name;  // "model-00001-of-00002.safetensors"
  std::vector<TensorEntry> tensors;
  int64_t data_bytes = 0;
  std::string sha256 = {};  // "" until it is written
};

// One file is called model.safetensors; several are numbered.
std::vector<HfFile> hf_files(const Model& model, const WeightFormat& format);

// Writes model.safetensors, or several files and, once they are complete, the
// index that says which tensor is in which.
class WeightFiles {
 public:
  // Requires the folder to exist.
  WeightFiles(const std::string& folder, const Model& model,
              const WeightFormat& format = {});

  const std::vector<HfFile>& files() const { return files_; }
  // Tensors come in the order of the model: 0, 1, …
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
