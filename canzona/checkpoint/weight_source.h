// Reads the weights of a model from a Hugging Face folder or a checkpoint. A
// rank reads only the elements that it holds.
//
//   auto source = hf_source(HfFolder::open("Qwen3-0.6B"), model);
//   source->read(model.tensors[3], {{0, whole}});
//
// Opening compares names and shapes of all tensors with the model's: none may
// be missing, extra or duplicated. CheckpointRefused lists at most ten of each
// kind. Any thread may read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/checkpoint/hf_folder.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/shapes/tensor.h"

namespace canzona::checkpoint {

// Elements from `first` on of a whole tensor of the model, in row-major order.
struct TensorPiece {
  int64_t first = 0;
  std::span<float> to;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The folder that is read from, for messages.
  virtual const std::string& path() const = 0;
  // Throws DataLost if the bytes cannot be read or are not those that were
  // saved.
  virtual void read(const Tensor& tensor,
                    const std::vector<TensorPiece>& pieces) const = 0;
};

// A tied model may also have its head stored, which must then equal the
// embedding. Rotary frequencies are ignored.
std::unique_ptr<WeightSource> hf_source(HfFolder folder, const Model& model);

// Reads tensors "model/<name>"; optimizer states are ignored.
std::unique_ptr<WeightSource> checkpoint_source(CheckpointReader reader,
                                                const Model& model);

}  // namespace canzona::checkpoint
