#include "canzona/train/hf_exchange.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/shard_writer.h"
#include "canzona/checkpoint/store.h"
#include "canzona/train/decoder_of.h"
#include "canzona/train/model_source.h"

namespace canzona {
namespace {

int64_t parameters_of(const Model& model) {
  int64_t sum = 0;
  for (const Tensor& tensor : model.tensors) sum += tensor.elements();
  return sum;
}

// A folder that gets its name when it is complete. Until then it is called
// NAME.tmp, beside a lock, so that what a killed process left can be removed.
class NewFolder {
 public:
  explicit NewFolder(const std::string& path)
      : name_(name_of_path(path)),
        parent_(Folder::open(parent_of(path))),
        lock_(FileLock::take(parent_.path() + "/" + name_ + ".lock",
                             "canzona ckpt export")) {
    if (!lock_)
      throw UsageError(cat(quoted(path, 300),
                           " is being written by another canzona ckpt export"));
    for (const FolderEntry& entry : parent_.entries()) {
      if (entry.name == name_) require_empty(entry);
      if (entry.name == temporary()) parent_.remove_all(entry);
    }
    parent_.make_folder(temporary());
    is_there_ = true;
  }
  ~NewFolder() {
    if (!is_there_) return;
    try {
      parent_.remove_all({temporary(), FolderEntryKind::kFolder});
    } catch (const Error&) {  // the next one removes it
    }
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  std::string path() const { return parent_.path() + "/" + temporary(); }
  void require_space(int64_t bytes) const {
    const int64_t free = parent_.free_bytes();
    if (bytes > free)
      throw StorageError(cat(quoted(parent_.path(), 300), " has ",
                             human_bytes(free), " free, the export needs ",
                             human_bytes(bytes)));
  }
  void commit() {
    parent_.open_folder(temporary()).sync();
    parent_.rename(temporary(), name_);
    is_there_ = false;
    parent_.sync();
  }

 private:
  static std::filesystem::path plain(const std::string& path) {
    std::filesystem::path out(path);
    while (!out.has_filename() && out.has_parent_path() &&
           out != out.root_path())
      out = out.parent_path();
    return out;
  }
  static std::string name_of_path(const std::string& path) {
    std::string name = plain(path).filename().string();
    if (name.empty() || name == "." || name == "..")
      throw UsageError(cat("--hf ", quoted(path, 300),
                           ": expected the name of a new folder"));
    return name;
  }
  static std::string parent_of(const std::string& path) {
    const std::string parent = plain(path).parent_path().string();
    return parent.empty() ? "." : parent;
  }
  void require_empty(const FolderEntry& entry) const {
    if (entry.kind == FolderEntryKind::kFolder &&
        parent_.open_folder(entry.name).entries().empty())
      return;
    throw UsageError(cat("--hf ", quoted(parent_.path() + "/" + name_, 300),
                         " is there already and not an empty folder; choose "
                         "another one"));
  }
  std::string temporary() const { return name_ + ".tmp"; }

  std::string name_;
  Folder parent_;
  std::optional<FileLock> lock_;
  bool is_there_ = false;
};

}  // namespace

HfNumbers hf_numbers_of(const DecoderConfig& decoder) {
  return {.architecture = decoder.architecture,
          .length = decoder.length,
          .norm_epsilon = decoder.norm_epsilon,
          .rope_base = decoder.rope_base,
          .experts_per_token = decoder.experts_per_token,
          .balance_coefficient = decoder.balance_coefficient};
}

HfExported export_hf(const CheckpointReader& reader,
                     const HfExportRequest& request) {
  const TrainConfig saved = saved_config(reader);
  const DecoderConfig decoder = decoder_of(saved);
  const Model model = decoder_shapes(decoder, model_name(saved));
  HfNumbers numbers = hf_numbers_of(decoder);
  numbers.type = request.format.type;
  const std::string config = hf_config(numbers);
  const auto source = checkpoint_source(open_checkpoint(reader.path()), model);

  HfExported done{.step = reader.manifest().step,
                  .model_type = hf_model_type(decoder.architecture),
                  .parameters = parameters_of(model),
                  .files = hf_files(model, request.format)};
  for (const HfFile& file : done.files) done.bytes += file.data_bytes;
  NewFolder folder(request.folder);
  folder.require_space(done.bytes);
  WeightFiles files(folder.path(), model, request.format);
  std::vector<float> whole;
  for (int32_t t = 0; t < std::ssize(model.tensors); ++t) {
    const Tensor& tensor = model.tensors[static_cast<size_t>(t)];
    whole.resize(static_cast<size_t>(tensor.elements()));
    source->read(tensor, {{0, whole}});
    files.add(t, whole);
  }
  files.finish();
  write_file(cat(folder.path(), "/", kHfConfig), config);
  folder.commit();
  return done;
}

namespace {

// Bytes `offset` and following of a tensor as fp32.
void fill_bytes(const WeightSource& source, const Tensor& tensor,
                int64_t offset, std::span<std::byte> to) {
  constexpr int64_t kSize = sizeof(float);
  CANZONA_CHECK(offset % kSize == 0 && std::ssize(to) % kSize == 0, "bytes of ",
                tensor.name);
  std::vector<float> values(to.size() / sizeof(float));
  source.read(tensor, {{offset / kSize, values}});
  std::memcpy(to.data(), values.data(), to.size());
}

std::vector<BoxSource> boxes_of(const WeightSource& source,
                                const Model& model) {
  std::vector<BoxSource> boxes;
  for (const Tensor& tensor : model.tensors)
    boxes.push_back(
        {.tensor = {cat("model/", tensor.name), StoredType::kF32, tensor.shape},
         .box = whole_box(tensor.shape),
         .fill = [&source, &tensor](int64_t offset, std::span<std::byte> to) {
           fill_bytes(source, tensor, offset, to);
         }});
  return boxes;
}

std::string config_text(const TrainConfig& config) {
  JsonWriter out(2);
  write_config(out, config);
  return out.take() + "\n";
}

}  // namespace

HfImported import_hf(const std::string& folder, const std::string& store,
                     const std::string& owner) {
  if (!HfFolder::has_weights(folder)) HfFolder::open(folder);  // says why
  const FoundModel found = find_model(folder);
  if (found.is_checkpoint)
    throw UsageError(cat(quoted(folder, 300), " is a checkpoint already"));
  const TrainConfig config = make_config(found.settings);
  const Model model = decoder_shapes(decoder_of(config), model_name(config));
  const auto source = open_weights(found, model);
  const std::vector<BoxSource> boxes = boxes_of(*source, model);
  const int64_t bytes = shard_bytes(boxes);

  CheckpointStore checkpoints(store, owner);
  if (!list_checkpoints(checkpoints.folder()).empty())
    throw UsageError(cat("--out ", quoted(store, 300),
                         " has checkpoints already; choose another folder"));
  checkpoints.require_space(bytes);
  PendingCheckpoint pending = checkpoints.begin(0);
  const std::string record =
      write_shard(pending.folder(), {.step = 0, .rank = 0}, boxes);
  pending.add_side_file("config.json", config_text(config));
  pending.commit({record}, "");
  return {.path = cat(store, "/", checkpoint_name(0)),
          .tensors = std::ssize(model.tensors),
          .parameters = parameters_of(model),
          .bytes = bytes};
}

}  // namespace canzona
