// The decoder's weights under the names that Hugging Face's transformers know:
// fused tensors become the projections they are made of, their rows in the
// order of heads.
//
//   WeightFile file(folder + "/model.safetensors", model);
//   for (int32_t t = 0; t < num_tensors; ++t) file.add(t, whole_tensor(t));
//   file.finish();
//
// A tensor is in memory one at a time, whole and row-major, as it is without
// tensor parallelism. The model outlives the file. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "canzona/checkpoint/safetensors_writer.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

// A tensor of the file: rows of one of the model's tensors.
struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;
  RowRuns rows;  // of the model's tensor, in this order
};

// What becomes of a tensor: itself, or its parts. InternalError if it has parts
// and a name that says nothing of them.
std::vector<HfTensor> hf_tensors(const Tensor& tensor);

class WeightFile {
 public:
  WeightFile(const std::string& path, const Model& model,
             StoredType type = StoredType::kF32,
             const std::map<std::string, std::string>& metadata = {
                 {"format", "pt"}});

  // In the order of the model: 0, 1, …
  void add(int32_t tensor, std::span<const float> whole);
  void finish();

 private:
  const Model& model_;
  int32_t next_ = 0;
  SafetensorsWriter file_;
};

}  // namespace canzona
