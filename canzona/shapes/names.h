// Parses a tensor's name, as used in Hugging Face and Megatron models or in
// plain form such as "layers.0.mlp.up".
//
//   NameFacts facts = read_name("model.layers.3.mlp.experts.7.w2.weight");
//   // layer 3, expert 7, Projection::kDown
//
// All functions are pure and may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/shapes/tensor.h"

namespace canzona::shapes {

// The function of a matrix; kOther if the name does not say.
enum class Projection {
  kOther,
  kQ,
  kK,
  kV,
  kQkv,
  kO,
  kGate,
  kUp,
  kGateUp,
  kFc1,
  kDown,
  kLatentUp
};

struct NameFacts {
  Projection projection = Projection::kOther;
  bool bias = false;
  bool norm = false;
  bool embedding = false;  // word embedding; with `position`, positions
  bool position = false;
  bool head = false;
  bool router = false;
  bool megatron_qkv = false;  // rows are known to be interleaved by query group
  int32_t layer = -1;
  int32_t expert = -1;
};

// Throws UsageError if a layer's or an expert's number is out of bounds.
NameFacts read_name(std::string_view name);

// The role and the cut that follow for a tensor of `num_dims` dimensions.
Role role_of(const NameFacts& facts, size_t num_dims);
Cut cut_of(const NameFacts& facts, Role role, size_t num_dims);

// True for a matrix whose name does not say what it multiplies, or which is
// outside the layers: it is taken whole by every tp rank, for want of a better
// place.
bool is_unplaced(const Tensor& tensor);

// Returns where an expert's number goes in the name of a packed 3-D tensor:
// after "experts."; npos if it is not the name of such a pack.
size_t expert_number_place(std::string_view name);

// True for tensors in a file that are not parameters: rotary frequencies,
// masks, scales of quantized weights, the router's balancing offsets. No
// optimizer updates them.
bool is_buffer(std::string_view name);

// Names of models that were wrapped by PyTorch when their weights were saved.

// Returns the name without the components that wrappers insert, wherever they
// are: "module" (DataParallel, DDP), "_orig_mod" (torch.compile),
// "_fsdp_wrapped_module" and "_checkpoint_wrapped_module".
//
//   unwrapped_name("module.layers.0._orig_mod.up")   // "layers.0.up"
std::string unwrapped_name(std::string_view name);

// Unwraps all names in place. UsageError names two that would become the same;
// `file` is where they come from.
void unwrap_names(std::span<std::string* const> names, const std::string& file);

// The order of tensors read from files.

// Sorts embeddings first, then layers by number and by name within, then
// tensors without a layer, then the head. The order depends on names and roles
// alone, not on the order in the file.
void sort_tensors(std::vector<Tensor>& tensors);

}  // namespace canzona::shapes
