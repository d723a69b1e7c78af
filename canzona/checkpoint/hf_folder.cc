#include "canzona/checkpoint/hf_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/float16.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/checkpoint/boxes.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/shapes/names.h"
#include "canzona/shapes/safetensors.h"

namespace canzona::checkpoint {
namespace {

void require(bool condition, const char* what) {
  if (!condition)
    throw UsageError(
        cat("config.json: none of Qwen3, Qwen3-MoE and Llama has ", what));
}

void check(const Architecture& a) {
  require(a.latent.kv_rank == 0, "latent attention");
  require(a.experts.shared == 0, "shared experts");
  require(!a.mlp_bias, "a bias in the mlp");
  require(a.qk_norm || a.experts.count == 0,
          "experts without norms of queries and keys (model.qk_norm=off)");
}

void write_experts(JsonWriter& out, const HfNumbers& numbers) {
  const Architecture& a = numbers.architecture;
  std::vector<int64_t> dense;
  for (int64_t layer = 0; layer < a.layers; ++layer)
    if (!a.experts.in_layer(layer)) dense.push_back(layer);
  out.field("num_experts", a.experts.count)
      .field("num_experts_per_tok", numbers.experts_per_token)
      .field("moe_intermediate_size", a.experts.ffn)
      .field("norm_topk_prob", numbers.normalize_top_k)
      .field("decoder_sparse_step", 1)
      .member("router_aux_loss_coef")
      .decimal(numbers.balance_coefficient)
      .field("output_router_logits", false);
  out.member("mlp_only_layers").values(dense);
}

void write_shape(JsonWriter& out, const Architecture& a) {
  out.field("vocab_size", a.vocab)
      .field("hidden_size", a.hidden)
      .field("intermediate_size", a.ffn)
      .field("num_hidden_layers", a.layers)
      .field("num_attention_heads", a.heads)
      .field("num_key_value_heads", a.kv_heads)
      .field("head_dim", a.head_dim)
      .field("tie_word_embeddings", a.tied)
      .field("attention_bias", a.attention_bias);
}

struct HfClass {
  const char* name;
  const char* model_type;
};

HfClass class_of(const Architecture& a) {
  if (a.experts.count > 0) return {"Qwen3MoeForCausalLM", "qwen3_moe"};
  if (a.qk_norm) return {"Qwen3ForCausalLM", "qwen3"};
  return {"LlamaForCausalLM", "llama"};
}

}  // namespace

std::string hf_model_type(const Architecture& architecture) {
  check(architecture);
  return class_of(architecture).model_type;
}

std::string hf_config(const HfNumbers& numbers) {
  const Architecture& a = numbers.architecture;
  check(a);
  const HfClass kind = class_of(a);
  JsonWriter out(2);
  out.begin_object().member("architectures").begin_array();
  out.value(kind.name).end_array();
  out.field("model_type", kind.model_type);
  write_shape(out, a);
  out.member("attention_dropout")
      .decimal(0)
      .field("hidden_act", "silu")
      .field("initializer_range", 0.02)
      .field("max_position_embeddings", numbers.length)
      .member("rms_norm_eps")
      .decimal(numbers.norm_epsilon)
      .member("rope_theta")
      .decimal(numbers.rope_base)
      .field("torch_dtype",
             numbers.type == DType::kFp32 ? "float32" : "bfloat16")
      .field("use_cache", true);
  if (a.qk_norm)
    out.field("use_sliding_window", false);
  else
    out.field("mlp_bias", false);
  if (a.experts.count > 0) write_experts(out, numbers);
  return out.end_object().take() + "\n";
}

namespace {

constexpr int64_t kMaxHfConfig = 4 << 20;
// As many entries as an index may have, at some 100 bytes each.
constexpr int64_t kMaxHfIndex = 256 << 20;

// Turns a UsageError of a parser of untrusted text into a refusal of the data.
template <class Work>
auto parsed_or_refused(const Work& work) {
  try {
    return work();
  } catch (const UsageError& error) {
    throw CheckpointRefused(error.what());
  }
}

const FolderEntry* entry_named(const std::vector<FolderEntry>& entries,
                               std::string_view name) {
  const auto found = std::ranges::find(entries, name, &FolderEntry::name);
  return found == entries.end() ? nullptr : &*found;
}

// The hub's cache consists of links into another folder.
void require_file(const Folder& folder, const FolderEntry& entry) {
  if (entry.kind == FolderEntryKind::kFile) return;
  throw CheckpointRefused(cat(quoted(folder.path() + "/" + entry.name, 300),
                              entry.kind == FolderEntryKind::kFolder
                                  ? " is a folder, expected a file"
                                  : " is not a regular file; links are not "
                                    "followed: copy the folder with cp -rL"));
}

// Returns true for the name of a numbered shard, such as
// model-00001-of-00002.safetensors.
bool is_numbered_shard(std::string_view name) {
  return name.starts_with("model-") && name.ends_with(".safetensors") &&
         name.find("-of-") != std::string_view::npos;
}

[[noreturn]] void refuse_without_weights(
    const Folder& folder, const std::vector<FolderEntry>& entries) {
  const auto pickle = std::ranges::find_if(entries, [](const auto& entry) {
    return entry.name.ends_with(".bin") || entry.name.ends_with(".pt") ||
           entry.name.ends_with(".pth");
  });
  throw UsageError(cat(
      quoted(folder.path(), 300), " holds no weights: expected ", kHfWeights,
      " or ", kHfIndex,
      pickle == entries.end() ? std::string()
                              : cat("; ", quoted(pickle->name),
                                    " is not read, since such files can run "
                                    "code; convert it to safetensors")));
}

// Widens the 16-bit numbers of a piece.
template <class Widen>
void widen_piece(std::span<const std::byte> bytes, std::span<float> to,
                 const Widen& widen) {
  for (size_t i = 0; i < to.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
    to[i] = widen(bits);
  }
}

bool is_readable(std::optional<DType> type) {
  return type == DType::kFp32 || type == DType::kBf16 || type == DType::kFp16;
}

}  // namespace

HfFolder HfFolder::open(const std::string& path, FileSystem& system) {
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  HfFolder folder(Folder::open(plain, system));
  folder.read_files(folder.folder_.entries());
  return folder;
}

bool HfFolder::has_weights(const std::string& path) {
  const auto there = [&](const char* name) {
    struct stat status {};
    return ::lstat(cat(path, "/", name).c_str(), &status) == 0;
  };
  return there(kHfWeights) || there(kHfIndex);
}

void HfFolder::read_files(const Listing& there) {
  const FolderEntry* single = entry_named(there, kHfWeights);
  const FolderEntry* index = entry_named(there, kHfIndex);
  if (single == nullptr && index == nullptr)
    refuse_without_weights(folder_, there);
  if (single != nullptr && index != nullptr)
    throw CheckpointRefused(cat(quoted(path(), 300), " has both ", kHfWeights,
                                " and ", kHfIndex, "; remove one of them"));
  if (index == nullptr)
    add_shard(single->name, there);
  else
    read_shards(there);
  unwrap_entries();
  std::ranges::sort(entries_, {}, &HfEntry::name);
}

// Reads every shard that the index names, and refuses other files that look
// like shards.
void HfFolder::read_shards(const Listing& there) {
  require_file(folder_, *entry_named(there, kHfIndex));
  const std::string file = path() + "/" + kHfIndex;
  const WeightIndex index = parsed_or_refused([&] {
    return parse_weight_index(folder_.read_file(kHfIndex, kMaxHfIndex), file);
  });
  for (const std::string& shard : index.shards)
    parsed_or_refused([&] { check_component(shard, cat(file, ": shard")); });
  for (const FolderEntry& entry : there)
    if (is_numbered_shard(entry.name) &&
        std::ranges::find(index.shards, entry.name) == index.shards.end())
      throw CheckpointRefused(cat(quoted(path() + "/" + entry.name, 300),
                                  " is not listed in ", kHfIndex,
                                  ": a shard of other weights"));
  for (uint32_t shard = 0; shard < index.shards.size(); ++shard) {
    const size_t before = entries_.size();
    add_shard(index.shards[shard], there);
    std::vector<std::string_view> held;
    for (size_t i = before; i < entries_.size(); ++i)
      held.push_back(entries_[i].name);
    parsed_or_refused([&] {
      check_shard(index, shard, held, path() + "/" + index.shards[shard]);
    });
  }
}

void HfFolder::add_shard(const std::string& name, const Listing& there) {
  if (const FolderEntry* entry = entry_named(there, name))
    require_file(folder_, *entry);
  const InputFile file = folder_.open_file(name);
  const auto start = [&](int64_t bytes) {
    std::string text(index(std::min(bytes, file.size())), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
  };
  SafetensorsHeader header = parsed_or_refused([&] {
    const int64_t length = safetensors_header_length(
        start(kSafetensorsLengthBytes), file.size(), file.path());
    return read_safetensors_header(start(kSafetensorsLengthBytes + length),
                                   file.size(), file.path());
  });
  for (StoredTensor& tensor : header.tensors)
    entries_.push_back({std::move(tensor.name), std::move(tensor.dtype),
                        std::move(tensor.shape), shards_.size(), tensor.begin});
  shards_.push_back({name, file.size()});
}

// Shards and index were compared under their stored names; from now on names
// are the model's.
void HfFolder::unwrap_entries() {
  std::vector<std::string*> names;
  for (HfEntry& entry : entries_) {
    entry.stored_name = entry.name;
    names.push_back(&entry.name);
  }
  parsed_or_refused([&] { unwrap_names(names, path()); });
}

std::string HfFolder::config_json() const {
  const Listing there = folder_.entries();
  const FolderEntry* entry = entry_named(there, kHfConfig);
  if (entry == nullptr)
    throw UsageError(cat(quoted(path(), 300), " has no ", kHfConfig,
                         ", which describes the weights"));
  require_file(folder_, *entry);
  return folder_.read_file(kHfConfig, kMaxHfConfig);
}

const HfEntry* HfFolder::find(std::string_view name) const {
  const auto found =
      std::ranges::lower_bound(entries_, name, {}, &HfEntry::name);
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

std::string HfFolder::path_of(const HfEntry& entry) const {
  return path() + "/" + shards_[entry.file].name;
}

void HfFolder::check_type(const HfEntry& entry) const {
  if (is_readable(dtype_in_file(entry.dtype))) return;
  throw CheckpointRefused(cat(quoted(path_of(entry), 300), ": tensor ",
                              quoted(entry.stored_name), " is of dtype ",
                              printable(entry.dtype, 20),
                              ", expected F32, BF16 or F16"));
}

// Opens a file for each call, because a model may have more files than a
// process may hold open.
void HfFolder::read(const HfEntry& entry, int64_t first,
                    std::span<float> to) const {
  constexpr size_t kPiece = 1 << 16;  // elements
  const Shard& shard = shards_[entry.file];
  const InputFile file = folder_.open_file(shard.name);
  if (file.size() != shard.bytes)
    throw CheckpointRefused(cat(quoted(file.path(), 300), " had ", shard.bytes,
                                " bytes and now has ", file.size(),
                                ": it has changed since it was opened"));
  check_type(entry);
  const DType type = *dtype_in_file(entry.dtype);
  const int64_t size = size_of(type);
  CANZONA_CHECK(
      first >= 0 && std::ssize(to) <= elements_of(entry.shape) - first,
      "elements of ", entry.name);
  std::vector<std::byte> bytes;
  for (size_t done = 0; done < to.size();) {
    const std::span<float> piece =
        to.subspan(done, std::min(kPiece, to.size() - done));
    const int64_t at =
        entry.begin + (first + static_cast<int64_t>(done)) * size;
    done += piece.size();
    if (type == DType::kFp32) {
      file.read(at, std::as_writable_bytes(piece));
      continue;
    }
    bytes.resize(2 * piece.size());
    file.read(at, bytes);
    if (type == DType::kBf16)
      widen_piece(bytes, piece, float_from_bf16);
    else
      widen_piece(bytes, piece, float_from_half);
  }
}

namespace {

// "….qkv_proj.weight" and section "q" → "….q_proj.weight".
std::string section_name(const Tensor& tensor, const Section& section) {
  for (const std::string_view fused : {"qkv_proj", "gate_up_proj"}) {
    const size_t at = tensor.name.rfind(fused);
    if (at == std::string::npos) continue;
    std::string name = tensor.name;
    return name.replace(at, fused.size(), section.name + "_proj");
  }
  CANZONA_CHECK(false, "no name for section ", section.name, " of ",
                tensor.name);
  return {};
}

HfTensor hf_tensor(const Tensor& tensor, std::string name,
                   const RowRuns& rows) {
  HfTensor out{std::move(name), tensor.shape, rows};
  if (!out.shape.empty()) out.shape[0] = rows.rows();
  return out;
}

std::string hf_file_name(size_t number, size_t count) {
  if (count == 1) return kHfWeights;
  const auto digits = [](size_t n) {
    constexpr size_t kDigits = 5;
    const std::string text = cat(n);
    return std::string(kDigits - std::min(kDigits, text.size()), '0') + text;
  };
  return cat("model-", digits(number), "-of-", digits(count), ".safetensors");
}

}  // namespace

std::vector<HfTensor> hf_tensors(const Tensor& tensor) {
  if (tensor.sections.size() < 2)
    return {
        hf_tensor(tensor, tensor.name, {0, tensor.rows(), tensor.rows(), 1})};
  std::vector<HfTensor> out;
  for (const Section& section : tensor.sections)
    out.push_back(
        hf_tensor(tensor, section_name(tensor, section), section.rows));
  return out;
}

std::vector<HfFile> hf_files(const Model& model, const WeightFormat& format) {
  std::vector<HfFile> files(1);
  for (const Tensor& tensor : model.tensors) {
    for (HfTensor& out : hf_tensors(tensor)) {
      const int64_t bytes = checked_mul(
          elements_of(out.shape), size_of(format.type), "bytes of a tensor");
      const bool full = format.max_file_bytes > 0 &&
                        bytes > format.max_file_bytes - files.back().data_bytes;
      if (full && !files.back().tensors.empty()) files.emplace_back();
      files.back().data_bytes =
          checked_add(files.back().data_bytes, bytes, "bytes of a file");
      files.back().tensors.push_back(
          {std::move(out.name), format.type, std::move(out.shape)});
    }
  }
  for (size_t i = 0; i < files.size(); ++i)
    files[i].name = hf_file_name(i + 1, files.size());
  return files;
}

WeightFiles::WeightFiles(const std::string& folder, const Model& model,
                         const WeightFormat& format)
    : folder_(folder), model_(model), files_(hf_files(model, format)) {
  begin_file();
}

void WeightFiles::begin_file() {
  const HfFile& file = files_[file_];
  written_ = 0;
  writer_ = std::make_unique<SafetensorsWriter>(
      cat(folder_, "/", file.name), file.tensors,
      std::map<std::string, std::string>{{"format", "pt"}});
}

void WeightFiles::add(int32_t tensor, std::span<const float> whole) {
  CANZONA_CHECK(tensor == next_, "tensor ", tensor, " was added, ", next_,
                " is next");
  CANZONA_CHECK(next_ < std::ssize(model_.tensors), "no tensor ", tensor);
  const Tensor& source = model_.tensors[index(next_)];
  CANZONA_CHECK_EQ(whole.size(), source.elements(), "elements of ",
                   source.name);
  ++next_;
  const int64_t cols = source.cols();
  for (const HfTensor& out : hf_tensors(source)) {
    if (written_ == files_[file_].tensors.size()) {
      files_[file_].sha256 = writer_->finish();
      ++file_;
      begin_file();
    }
    for (int64_t i = 0; i < out.rows.count; ++i)
      writer_->add(whole.subspan(index(out.rows.row(i * out.rows.run) * cols),
                                 index(out.rows.run * cols)));
    ++written_;
  }
}

std::string WeightFiles::index_json() const {
  std::map<std::string_view, std::string_view> file_of;
  int64_t bytes = 0;
  for (const HfFile& file : files_) {
    bytes += file.data_bytes;
    for (const TensorEntry& tensor : file.tensors)
      file_of.emplace(tensor.name, file.name);
  }
  JsonWriter out(2);
  out.begin_object().member("metadata").begin_object();
  out.field("total_size", bytes).end_object();
  out.member("weight_map").begin_object();
  for (const auto& [tensor, file] : file_of)
    out.field(std::string(tensor), std::string(file));
  return out.end_object().end_object().take() + "\n";
}

void WeightFiles::finish() {
  files_[file_].sha256 = writer_->finish();
  CANZONA_CHECK(
      next_ == std::ssize(model_.tensors) && file_ + 1 == files_.size(), next_,
      " of ", model_.tensors.size(), " tensors were added");
  if (files_.size() > 1) write_file(cat(folder_, "/", kHfIndex), index_json());
}

}  // namespace canzona::checkpoint
