// Reads a tensor's name, in the names of Hugging Face and Megatron models and
// in plain ones such as "layers.0.mlp.up".
//
//   NameFacts facts = read_name("model.layers.3.mlp.experts.7.w2.weight");
//   // layer 3, expert 7, Projection::kDown
//
// Pure functions of the name; they may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/shapes/tensor.h"

namespace canzona {

// The task of a matrix; kOther if the name does not say.
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
  bool embedding = false;  // of words; `position` is set besides for positions
  bool position = false;
  bool head = false;
  bool router = false;
  bool megatron_qkv = false;  // rows are interleaved by query group for sure
  int32_t layer = -1;
  int32_t expert = -1;
};

// UsageError if a layer's or an expert's number is out of bounds.
NameFacts read_name(std::string_view name);

// The role and the cut that follow, for a tensor of `num_dims` dimensions.
Role role_of(const NameFacts& facts, size_t num_dims);
Cut cut_of(const NameFacts& facts, Role role, size_t num_dims);

// Returns the place of an expert's number in the name of a packed 3-D tensor:
// after "experts."; npos if the name is not of such a pack.
size_t expert_number_place(std::string_view name);

// True for what a file carries beside parameters: rotary frequencies, masks,
// scales of quantized weights, the router's balancing offsets. No optimizer
// updates it.
bool is_buffer(std::string_view name);

// Names of a model that PyTorch had wrapped when its weights were saved.

// Returns the name without the components that wrappers put into it, wherever
// they stand: "module" (DataParallel, DDP), "_orig_mod" (torch.compile),
// "_fsdp_wrapped_module" and "_checkpoint_wrapped_module".
//
//   unwrapped_name("module.layers.0._orig_mod.up")   // "layers.0.up"
std::string unwrapped_name(std::string_view name);

// Does so with all of them, in place. UsageError names two that would become
// one; `file` is where they are.
void unwrap_names(std::span<std::string* const> names, const std::string& file);

// The order of tensors that came from files.

// Embeddings, then layers by number and by name inside, then what has no layer,
// then the head. Depends on the names and roles alone, not on where the tensors
// stood.
void sort_tensors(std::vector<Tensor>& tensors);

}  // namespace canzona
