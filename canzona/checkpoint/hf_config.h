// Writes the config.json of Hugging Face's transformers for the decoder, so
// that a run's folder loads as a Qwen3ForCausalLM, a Qwen3MoeForCausalLM or,
// without norms of queries and keys, a LlamaForCausalLM.
//
//   write_file(folder + "/config.json", hf_config({.architecture = a, …}));
#pragma once

#include <cstdint>
#include <string>

#include "canzona/checkpoint/safetensors_writer.h"
#include "canzona/shapes/architecture.h"

namespace canzona {

struct HfNumbers {
  Architecture architecture = {};
  int64_t length = 0;  // the longest sequence it was trained on
  double norm_epsilon = 1e-6;
  double rope_base = 10000;
  int64_t experts_per_token = 2;
  bool normalize_top_k = true;  // the chosen experts' weights add up to 1
  double balance_coefficient = 0;
  StoredType type = StoredType::kF32;
};

// Throws UsageError for features that none of these models has: latent
// attention, shared experts, a bias in the mlp, experts without norms of
// queries and keys.
std::string hf_config(const HfNumbers& numbers);
// "qwen3", "qwen3_moe" or "llama".
std::string hf_model_type(const Architecture& architecture);

}  // namespace canzona
