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
#include "canzona/shapes/shapes_file.h"

namespace canzona {
namespace {

using Path = std::filesystem::path;

constexpr int64_t kMaxJsonFile = 256 << 20;

// In the order in which a folder is searched.
constexpr const char* kFilesOfFolder[] = {"model.safetensors.index.json",
                                          "model.safetensors", "config.json"};

bool is_there(const Path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

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
                       " lists its tensors as they are; ",
                       options.fused ? "fusing" : "scaling",
                       " is for presets and configurations"));
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
                         " is no model: neither safetensors nor JSON that "
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
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  return model_from_file(is_folder ? file_of_folder(path) : path, options);
}

}  // namespace

std::string name_of_model_file(const std::string& path) {
  return name_of(path);
}

Model read_model(const std::string& source, const ReadOptions& options) {
  Model model = read_whole(source, options);
  if (options.layers == 0 || options.layers == model.num_layers) return model;
  keep_layers(model, options.layers);
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

}  // namespace canzona
