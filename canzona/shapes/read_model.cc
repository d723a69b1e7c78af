#include "canzona/shapes/read_model.h"

#include <filesystem>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/shapes/architecture.h"
#include "canzona/shapes/config.h"
#include "canzona/shapes/names.h"
#include "canzona/shapes/records.h"
#include "canzona/shapes/safetensors.h"

namespace canzona {
using namespace shapes;
namespace {

using Path = std::filesystem::path;

constexpr int64_t kMaxJsonFile = 256 << 20;

// In the order in which a folder is searched.
constexpr const char* kFilesOfFolder[] = {"model.safetensors.index.json",
                                          "model.safetensors", "config.json"};

[[noreturn]] void refuse_source(const std::string& source) {
  std::vector<std::string> known;
  for (const PresetInfo& preset : presets()) known.push_back(preset.name);
  throw UsageError(
      cat("model ", quoted(source), " is neither a preset nor a file",
          did_you_mean(source, known), "; presets are ", join(known, ", ")));
}

Path file_of_folder(const Path& folder) {
  for (const char* name : kFilesOfFolder) {
    if (is_there(folder / name)) return folder / name;
  }
  throw UsageError(cat("folder ", quoted(folder.string()),
                       " holds no model: none of ", kFilesOfFolder[0], ", ",
                       kFilesOfFolder[1], ", ", kFilesOfFolder[2]));
}

std::string name_of(const Path& path) {
  for (const char* common : kFilesOfFolder) {
    const Path folder = path.parent_path().filename();
    const bool says_nothing = folder.empty() || folder == "." || folder == "..";
    if (path.filename() == common && !says_nothing) return folder.string();
  }
  return path.filename().string();
}

enum class Kind { kSafetensors, kIndex, kConfig, kShapes };

// A safetensors file begins with a length whose upper bytes are 0; text has no
// such bytes.
bool has_length(std::string_view start) {
  const std::string_view length = start.substr(0, kSafetensorsLengthBytes);
  return length.find('\0') != std::string_view::npos;
}

bool is_json(std::string_view start) {
  const size_t place = start.find_first_not_of(" \t\r\n");
  return !has_length(start) && place != std::string_view::npos &&
         (start[place] == '{' || start[place] == '[');
}

Kind kind_of_json(std::string_view text) {
  if (text[text.find_first_not_of(" \t\r\n")] == '[') return Kind::kShapes;
  return text.find("\"weight_map\"") != std::string_view::npos ? Kind::kIndex
                                                               : Kind::kConfig;
}

void refuse_changes(const Path& path, const ReadOptions& options) {
  if (!options.fused && options.divisor == 1) return;
  throw UsageError(cat("model ", quoted(path.string()),
                       " lists actual tensors; ",
                       options.fused ? "fusing" : "scaling",
                       " only applies to presets and configurations"));
}

Model generate(const Architecture& numbers, const std::string& name,
               const ReadOptions& options) {
  if (options.divisor == 1) return generate_model(numbers, name, options.fused);
  return generate_model(scaled_down(numbers, options.divisor, name),
                        cat(name, " at 1/", options.divisor), options.fused);
}

FileFacts facts_beside(const Path& path) {
  FileFacts facts{.name = name_of(path)};
  const Path config = path.parent_path() / "config.json";
  if (is_there(config)) {
    constexpr std::string_view kWhat = "configuration beside the weights";
    read_heads(read_file(config.string(), kMaxJsonFile, kWhat), config.string(),
               facts);
  }
  return facts;
}

void unwrap_records(TensorRecords& records, const Path& path) {
  std::vector<std::string*> names;
  for (TensorRecord& record : records) names.push_back(&record.name);
  unwrap_names(names, path.string());
}

Model model_from_weights(TensorRecords records, const Path& path) {
  unwrap_records(records, path);
  std::erase_if(records, [](auto& record) { return is_buffer(record.name); });
  return model_from_records(std::move(records), facts_beside(path));
}

// A text is as large as the tensors it names; assigning an empty string would
// keep the memory.
void release(std::string& text) { std::string().swap(text); }

Model model_from_json_file(const Path& path, const ReadOptions& options) {
  std::string text = read_file(path.string(), kMaxJsonFile, "model");
  const Kind kind = kind_of_json(text);
  if (kind == Kind::kConfig) {
    return generate(read_config(text, path.string()), name_of(path), options);
  }
  refuse_changes(path, options);
  if (kind == Kind::kIndex) {
    const WeightIndex index = parse_weight_index(text, path.string());
    release(text);
    return model_from_weights(read_shards(index, path.parent_path().string()),
                              path);
  }
  TensorRecords records = read_shapes(text, path.string());
  release(text);
  return model_from_records(std::move(records), {.name = name_of(path)});
}

Model model_from_file(const Path& path, const ReadOptions& options) {
  constexpr int64_t kEnough = 4096;  // to recognize the kind after any white
                                     // space
  const std::string start = read_file_range(path.string(), 0, kEnough, "model");
  if (is_json(start)) return model_from_json_file(path, options);
  if (!has_length(start)) {
    throw UsageError(cat("file ", quoted(path.string()),
                         " is not a model: expected safetensors, or JSON that "
                         "begins with '{' or '['"));
  }
  refuse_changes(path, options);
  return model_from_weights(read_safetensors_file(path.string()), path);
}

// Returns all layers of a model, whatever its source.
Model read_whole(const std::string& source, const ReadOptions& options) {
  if (const Architecture* preset = find_preset(source))
    return generate(*preset, source, options);
  const Path path = source;
  if (source.empty() || !is_there(path)) refuse_source(source);
  return model_from_file(is_folder(path) ? file_of_folder(path) : path,
                         options);
}

}  // namespace

}  // namespace canzona

namespace canzona::shapes {

std::string name_of_model_file(const std::string& path) {
  return name_of(path);
}

}  // namespace canzona::shapes

namespace canzona {

Model read_model(const std::string& source, const ReadOptions& options) {
  Model model = read_whole(source, options);
  if (options.layers == 0 || options.layers == model.num_layers) return model;
  keep_layers(model, options.layers);
  // The name is part of a plan's digest, so one layer keeps its plural.
  model.name += cat(", ", options.layers, " layers");
  return model;
}

namespace {

void apply(const RouteOverride& override, Model& model) {
  bool matched = false;
  for (Tensor& tensor : model.tensors) {
    if (!matches_pattern(tensor.name, override.pattern)) continue;
    if (override.matrix_rule && tensor.shape.size() < 2) {
      throw UsageError(cat("pattern ", quoted(override.pattern),
                           " routes tensor ", quoted(tensor.name),
                           " to the matrix rule, but it has one dimension"));
    }
    tensor.matrix_rule = override.matrix_rule;
    matched = true;
  }
  if (!matched) {
    throw UsageError(cat("pattern ", quoted(override.pattern),
                         " matches no tensor of model ", quoted(model.name)));
  }
}

}  // namespace

void route(Model& model, const std::vector<RouteOverride>& overrides) {
  for (Tensor& tensor : model.tensors) {
    tensor.matrix_rule = tensor.role == Role::kMatrix &&
                         tensor.shape.size() >= 2 && !tensor.flattened;
  }
  for (const RouteOverride& override : overrides) apply(override, model);
}

void freeze(Model& model, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool matched = false;
    for (Tensor& tensor : model.tensors) {
      if (!matches_pattern(tensor.name, pattern)) continue;
      tensor.frozen = true;
      tensor.matrix_rule = false;
      matched = true;
    }
    if (!matched)
      throw UsageError(cat("pattern ", quoted(pattern),
                           " freezes no tensor of model ", quoted(model.name)));
  }
}

namespace {

constexpr int64_t kQwen3Vocab = 151'936;
constexpr int64_t kLlama3Vocab = 128'256;

struct Dense {
  int64_t layers, hidden, ffn, heads, kv_heads;
};

Architecture dense(Dense d, int64_t vocab, int64_t head_dim = 128) {
  return {.layers = d.layers,
          .hidden = d.hidden,
          .ffn = d.ffn,
          .vocab = vocab,
          .heads = d.heads,
          .kv_heads = d.kv_heads,
          .head_dim = head_dim};
}

Architecture qwen3(Dense d, bool tied, ExpertNumbers experts = {}) {
  Architecture a = dense(d, kQwen3Vocab);
  a.tied = tied;
  a.qk_norm = true;
  a.experts = std::move(experts);
  return a;
}

Architecture llama3(Dense d) { return dense(d, kLlama3Vocab); }

Architecture qwen25(Dense d) {
  Architecture a = dense(d, 152'064);
  a.attention_bias = true;
  a.o_bias = false;
  return a;
}

Architecture mixtral(Dense d, int64_t vocab) {
  Architecture a = dense(d, vocab);
  a.experts = {.count = 8,
               .ffn = d.ffn,
               .layout = ExpertLayout::kSparseBlock,
               .per_token = 2};
  return a;
}

// Leaves out the layer that predicts the token after next.
Architecture deepseek(Dense d, int64_t vocab, ExpertNumbers experts) {
  Architecture a = dense(d, vocab, 192);
  a.experts = std::move(experts);
  a.latent = {.q_rank = 1536,
              .kv_rank = 512,
              .nope_dim = 128,
              .rope_dim = 64,
              .v_dim = 128};
  return a;
}

Architecture gpt_oss(int64_t layers, int64_t experts) {
  constexpr int64_t kWidth = 2880;
  Architecture a = dense({layers, kWidth, kWidth, 64, 8}, 201'088, 64);
  a.attention_bias = true;
  a.sinks = true;
  a.experts = {.count = experts,
               .ffn = kWidth,
               .layout = ExpertLayout::kStacked,
               .per_token = 4};
  return a;
}

// Every fourth layer has full attention.
Architecture qwen3_next_80b() {
  Architecture a = qwen3(
      {48, 2048, 5120, 16, 2}, false,
      {.count = 512, .ffn = 512, .gated_shared_ffn = 512, .per_token = 10});
  a.head_dim = 256;
  a.output_gate = true;
  a.linear = {.key_heads = 16,
              .value_heads = 32,
              .key_dim = 128,
              .value_dim = 128,
              .kernel = 4};
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (layer % 4 != 3) a.linear.layers.push_back(layer);
  }
  return a;
}

Architecture gpt2() {
  Architecture a = dense({12, 768, 3072, 12, 12}, 50'257, 64);
  a.tied = true;
  a.body = Body::kGpt2;
  a.positions = 1024;
  return a;
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
      {"qwen3-30b-a3b", qwen3({48, 2048, 6144, 32, 4}, kUntied,
                              {.count = 128, .ffn = 768, .per_token = 8})},
      {"qwen3-235b-a22b", qwen3({94, 4096, 12288, 64, 4}, kUntied,
                                {.count = 128, .ffn = 1536, .per_token = 8})},
      {"llama-3-8b", llama3({32, 4096, 14336, 32, 8})},
      {"llama-3-70b", llama3({80, 8192, 28672, 64, 8})},
      {"deepseek-v3", deepseek({61, 7168, 18432, 128, 128}, 129'280,
                               {.count = 256,
                                .ffn = 2048,
                                .shared = 1,
                                .first_layer = 3,
                                .per_token = 8})},
      {"deepseek-v2", deepseek({60, 5120, 12288, 128, 128}, 102'400,
                               {.count = 160,
                                .ffn = 1536,
                                .shared = 2,
                                .first_layer = 1,
                                .per_token = 6})},
      {"kimi-k2", deepseek({61, 7168, 18432, 64, 64}, 163'840,
                           {.count = 384,
                            .ffn = 2048,
                            .shared = 1,
                            .first_layer = 1,
                            .per_token = 8})},
      {"mixtral-8x7b", mixtral({32, 4096, 14336, 32, 8}, 32'000)},
      {"qwen2.5-7b", qwen25({28, 3584, 18944, 28, 4})},
      {"qwen3-next-80b-a3b", qwen3_next_80b()},
      {"gpt-oss-20b", gpt_oss(24, 32)},
      {"gpt-oss-120b", gpt_oss(36, 128)},
      {"gpt2", gpt2()},
  };
  return presets;
}

std::string describe(const Architecture& a) {
  std::string text =
      cat(counted_text(a.layers, "layer"), ", hidden ", a.hidden, ", ");
  if (a.latent.kv_rank > 0) {
    text += cat(a.heads, " heads of latent attention, ");
  } else {
    text += cat(a.heads, "/", a.kv_heads, " heads, ");
  }
  if (!a.linear.layers.empty()) {
    text += cat("linear attention in ",
                counted_text(std::ssize(a.linear.layers), "layer"), ", ");
  }
  if (a.experts.count == 0) return text + cat("ffn ", a.ffn);
  text += cat(a.experts.count, " experts of ffn ", a.experts.ffn);
  if (a.experts.shared > 0) text += cat(" and ", a.experts.shared, " shared");
  if (a.experts.gated_shared_ffn > 0) text += " and 1 shared";
  if (a.experts.first_layer == 1) return text + ", first layer dense";
  if (a.experts.first_layer > 1) {
    text += cat(", first ", a.experts.first_layer, " layers dense");
  }
  return text;
}

}  // namespace

}  // namespace canzona

namespace canzona::shapes {

const Architecture* find_preset(std::string_view name) {
  for (const Preset& preset : table()) {
    if (preset.name == name) return &preset.numbers;
  }
  return nullptr;
}

}  // namespace canzona::shapes

namespace canzona {

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
