#include "canzona/train/hf_exchange.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/new_folder.h"
#include "canzona/checkpoint/shard_writer.h"
#include "canzona/checkpoint/store.h"
#include "canzona/train/decoder_of.h"
#include "canzona/train/model_source.h"

namespace canzona {
namespace {

int64_t exchanged_parameters(const Model& model) {
  int64_t sum = 0;
  for (const Tensor& tensor : model.tensors) sum += tensor.elements();
  return sum;
}

}  // namespace

HfNumbers hf_numbers_of(const DecoderConfig& decoder, int64_t context) {
  return {.architecture = decoder.architecture,
          .length = std::max(context, decoder.length),
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
  HfNumbers numbers = hf_numbers_of(decoder, context_length_of(saved));
  numbers.type = request.format.type;
  const std::string config = hf_config(numbers);
  const auto source = checkpoint_source(open_checkpoint(reader.path()), model);

  HfExported done{.step = reader.manifest().step,
                  .model_type = hf_model_type(decoder.architecture),
                  .parameters = exchanged_parameters(model),
                  .files = hf_files(model, request.format)};
  for (const HfFile& file : done.files) done.bytes += file.data_bytes;
  NewFolder folder(request.folder, "canzona ckpt export");
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
  if (!request.tokenizer.empty())
    write_file(cat(folder.path(), "/tokenizer.json"), request.tokenizer);
  folder.commit();
  return done;
}

namespace {

// Reads bytes of a tensor as fp32, from `offset` on.
void fill_import(const WeightSource& source, const Tensor& tensor,
                 int64_t offset, std::span<std::byte> to) {
  constexpr int64_t kSize = sizeof(float);
  CANZONA_CHECK(offset % kSize == 0 && std::ssize(to) % kSize == 0, "bytes of ",
                tensor.name);
  std::vector<float> values(to.size() / sizeof(float));
  source.read(tensor, {{offset / kSize, values}});
  require_finite(source, tensor, values);
  std::memcpy(to.data(), values.data(), to.size());
}

std::vector<BoxSource> import_boxes(const WeightSource& source,
                                    const Model& model) {
  std::vector<BoxSource> boxes;
  for (const Tensor& tensor : model.tensors)
    boxes.push_back(
        {.tensor = {cat("model/", tensor.name), StoredType::kF32, tensor.shape},
         .box = whole_box(tensor.shape),
         .fill = [&source, &tensor](int64_t offset, std::span<std::byte> to) {
           fill_import(source, tensor, offset, to);
         }});
  return boxes;
}

// The training length is the preset's, which is too long for a model with a
// shorter context.
TrainConfig imported_config(Settings settings) {
  const TrainConfig config = make_config(settings);
  if (config.model.context == 0 || config.model.length <= config.model.context)
    return config;
  settings.push_back(
      {"model.length", config.model.context, config.origin("model.context")});
  return make_config(settings);
}

std::string import_config(const TrainConfig& config) {
  JsonWriter out(2);
  write_config(out, config);
  return out.take() + "\n";
}

}  // namespace

HfImported import_hf(const std::string& folder, const std::string& store,
                     const std::string& owner) {
  if (!HfFolder::has_weights(folder))
    HfFolder::open(folder);  // throws the
                             // reason
  std::error_code ignored;
  if (std::filesystem::exists(cat(folder, "/", kManifestFile), ignored))
    throw UsageError(cat(quoted(folder, 300), " is a checkpoint already"));
  const FoundModel found = find_model(folder);
  if (std::filesystem::equivalent(folder, store, ignored))
    throw UsageError(cat("out ", quoted(store, 300),
                         " is the folder that is imported; choose another"));
  const TrainConfig config = imported_config(found.settings);
  const Model model = decoder_shapes(decoder_of(config), model_name(config));
  const auto source = open_weights(found, model);
  const std::vector<BoxSource> boxes = import_boxes(*source, model);
  const int64_t bytes = shard_bytes(boxes);

  MissingFolders folders(store);
  CheckpointStore checkpoints(store, owner);
  if (!list_checkpoints(checkpoints.folder()).empty())
    throw UsageError(cat("out ", quoted(store, 300),
                         " has checkpoints already; choose another folder"));
  checkpoints.require_space(bytes);
  PendingCheckpoint pending = checkpoints.begin(0);
  const std::string record =
      write_shard(pending.folder(), {.step = 0, .rank = 0}, boxes);
  pending.add_side_file("config.json", import_config(config));
  pending.commit({record}, "");
  folders.keep();
  return {.source = found.path,
          .notes = found.notes,
          .path = cat(store, "/", checkpoint_name(0)),
          .tensors = std::ssize(model.tensors),
          .parameters = exchanged_parameters(model),
          .bytes = bytes};
}

}  // namespace canzona
