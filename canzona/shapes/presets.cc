#include "canzona/shapes/presets.h"

#include <utility>

#include "canzona/base/text.h"
#include "canzona/shapes/read_model.h"

namespace canzona {
namespace {

constexpr int64_t kQwen3Vocab = 151'936;
constexpr int64_t kLlama3Vocab = 128'256;

struct Dense {
  int64_t layers, hidden, ffn, heads, kv_heads;
};

Architecture qwen3(Dense d, bool tied, ExpertNumbers experts = {}) {
  return {.layers = d.layers,
          .hidden = d.hidden,
          .ffn = d.ffn,
          .vocab = kQwen3Vocab,
          .heads = d.heads,
          .kv_heads = d.kv_heads,
          .head_dim = 128,
          .tied = tied,
          .qk_norm = true,
          .experts = std::move(experts)};
}

Architecture llama3(Dense d) {
  return {.layers = d.layers,
          .hidden = d.hidden,
          .ffn = d.ffn,
          .vocab = kLlama3Vocab,
          .heads = d.heads,
          .kv_heads = d.kv_heads,
          .head_dim = 128};
}

// Without the layer that predicts the token after the next.
Architecture deepseek_v3() {
  return {.layers = 61,
          .hidden = 7168,
          .ffn = 18432,
          .vocab = 129'280,
          .heads = 128,
          .kv_heads = 128,
          .head_dim = 192,
          .experts = {.count = 256, .ffn = 2048, .shared = 1, .first_layer = 3},
          .latent = {.q_rank = 1536,
                     .kv_rank = 512,
                     .nope_dim = 128,
                     .rope_dim = 64,
                     .v_dim = 128}};
}

struct Preset {
  std::string name;
  Architecture numbers;
};

const std::vector<Preset>& table() {
  constexpr bool kTied = true, kUntied = false;
  // layers, hidden, ffn, heads, kv heads
  static const std::vector<Preset> presets = {
      {"qwen3-0.6b", qwen3({28, 1024, 3072, 16, 8}, kTied)},
      {"qwen3-1.7b", qwen3({28, 2048, 6144, 16, 8}, kTied)},
      {"qwen3-4b", qwen3({36, 2560, 9728, 32, 8}, kTied)},
      {"qwen3-8b", qwen3({36, 4096, 12288, 32, 8}, kUntied)},
      {"qwen3-14b", qwen3({40, 5120, 17408, 40, 8}, kUntied)},
      {"qwen3-32b", qwen3({64, 5120, 25600, 64, 8}, kUntied)},
      {"qwen3-30b-a3b",
       qwen3({48, 2048, 6144, 32, 4}, kUntied, {.count = 128, .ffn = 768})},
      {"qwen3-235b-a22b",
       qwen3({94, 4096, 12288, 64, 4}, kUntied, {.count = 128, .ffn = 1536})},
      {"llama-3-8b", llama3({32, 4096, 14336, 32, 8})},
      {"llama-3-70b", llama3({80, 8192, 28672, 64, 8})},
      {"deepseek-v3", deepseek_v3()},
  };
  return presets;
}

std::string describe(const Architecture& a) {
  std::string text = cat(a.layers, " layers, hidden ", a.hidden, ", ");
  if (a.latent.kv_rank > 0) {
    text += cat(a.heads, " heads of latent attention, ");
  } else {
    text += cat(a.heads, "/", a.kv_heads, " heads, ");
  }
  if (a.experts.count == 0) return text + cat("ffn ", a.ffn);
  text += cat(a.experts.count, " experts of ffn ", a.experts.ffn);
  if (a.experts.shared > 0) text += cat(" and ", a.experts.shared, " shared");
  if (a.experts.first_layer > 0) {
    text += cat(", first ", a.experts.first_layer, " layers dense");
  }
  return text;
}

}  // namespace

const Architecture* find_preset(std::string_view name) {
  for (const Preset& preset : table()) {
    if (preset.name == name) return &preset.numbers;
  }
  return nullptr;
}

const std::vector<PresetInfo>& presets() {
  static const std::vector<PresetInfo> infos = [] {
    std::vector<PresetInfo> list;
    for (const Preset& preset : table()) {
      list.push_back({preset.name, describe(preset.numbers)});
    }
    return list;
  }();
  return infos;
}

}  // namespace canzona
