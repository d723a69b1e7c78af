// The weights of a model wherever they were left: a folder of Hugging Face or a
// checkpoint. A rank reads the elements that it holds, and no others.
//
//   auto source = hf_source(HfFolder::open("Qwen3-0.6B"), model);
//   source->read(model.tensors[3], {{0, whole}});
//
// Opening compares names and shapes of all tensors with the model's: each
// exactly once, nothing missing, nothing besides. CheckpointRefused lists at
// most ten of each kind. Any thread may read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/checkpoint/hf_folder.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

// Elements from `first` on of a whole tensor of the model, row-major.
struct TensorPiece {
  int64_t first = 0;
  std::span<float> to;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The folder that is read from, for messages.
  virtual const std::string& path() const = 0;
  // DataLost if the bytes cannot be had, or are not those that were saved.
  virtual void read(const Tensor& tensor,
                    const std::vector<TensorPiece>& pieces) const = 0;
};

// A tied model may come with its head as well, which must be the embedding's
// bytes. Rotary frequencies are left out.
std::unique_ptr<WeightSource> hf_source(HfFolder folder, const Model& model);

// Tensors "model/<name>"; the states of optimizers are not looked at.
std::unique_ptr<WeightSource> checkpoint_source(CheckpointReader reader,
                                                const Model& model);

}  // namespace canzona
