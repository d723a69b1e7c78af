#include "canzona/train/model_source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/store.h"
#include "canzona/plan/schedule/kept.h"
#include "canzona/train/decoder_of.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/run_state.h"

namespace canzona {
namespace {

// "" if there are no checkpoints in the folder.
std::string newest_checkpoint_in(const std::string& path) {
  const std::vector<ListedCheckpoint> order = resume_order(Folder::open(path));
  return order.empty() ? "" : cat(path, "/", order.front().name);
}

FoundModel model_of_checkpoint(const std::string& path) {
  return {path, true,
          architecture_settings(saved_config(open_checkpoint(path)),
                                cat(path, "/config.json"))};
}

FoundModel model_of_hf_folder(const std::string& path) {
  const HfFolder folder = HfFolder::open(path);
  return {path, false,
          config_json_settings(folder.config_json(),
                               cat(folder.path(), "/", kHfConfig))};
}

}  // namespace

TrainConfig saved_config(const CheckpointReader& reader) {
  return make_config(json_settings(reader.side_file("config.json"),
                                   cat(reader.path(), "/config.json")));
}

bool has_run_state(const CheckpointReader& reader) {
  return std::ranges::find(reader.manifest().files, kRunFile,
                           &FileRecord::name) != reader.manifest().files.end();
}

FoundModel find_model(const std::string& path) {
  namespace fs = std::filesystem;
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  std::error_code ignored;
  if (!fs::is_directory(plain, ignored))
    throw UsageError(cat("no folder ", quoted(path, 300),
                         "; expected one of Hugging Face (config.json and "
                         "model.safetensors), a run or a checkpoint"));
  if (fs::exists(cat(plain, "/", kManifestFile), ignored))
    return model_of_checkpoint(plain);
  if (HfFolder::has_weights(plain) &&
      fs::exists(cat(plain, "/", kHfConfig), ignored))
    return model_of_hf_folder(plain);
  const std::string inside = plain + "/ckpt";
  const std::string newest =
      newest_checkpoint_in(fs::is_directory(inside, ignored) ? inside : plain);
  if (!newest.empty()) return model_of_checkpoint(newest);
  return model_of_hf_folder(plain);  // which says what it lacks
}

std::shared_ptr<const WeightSource> open_weights(const FoundModel& found,
                                                 const Model& model) {
  if (found.is_checkpoint)
    return checkpoint_source(open_checkpoint(found.path), model);
  return hf_source(HfFolder::open(found.path), model);
}

std::shared_ptr<const WeightSource> initial_weights(const TrainConfig& config,
                                                    const Model& model) {
  if (config.init.empty()) return nullptr;
  return open_weights(find_model(config.init), model);
}

void require_finite(const WeightSource& source, const Tensor& tensor,
                    std::span<const float> values) {
  const auto odd = std::ranges::find_if(
      values, [](float value) { return !std::isfinite(value); });
  if (odd == values.end()) return;
  throw CheckpointRefused(
      cat(quoted(source.path(), 300), ": tensor ", quoted(tensor.name),
          " holds ", *odd,
          "; expected finite weights: they are broken, or too large for the "
          "type they were saved in"));
}

void read_shard(const WeightSource& source, const Tensor& tensor, int32_t tp,
                int32_t t, std::span<float> shard) {
  std::vector<TensorPiece> pieces;
  size_t filled = 0;
  for (const ExtentCopy& run : logical_runs(tensor, tp, t)) {
    const auto count = static_cast<size_t>(run.count);
    pieces.push_back(
        {run.to, shard.subspan(static_cast<size_t>(run.from), count)});
    filled += count;
  }
  CANZONA_CHECK_EQ(filled, shard.size(), "elements of ", tensor.name);
  source.read(tensor, pieces);
  require_finite(source, tensor, shard);
}

std::unique_ptr<LocalDecoder> open_local_decoder(const FoundModel& found,
                                                 const LocalSizes& sizes) {
  Settings settings = found.settings;
  settings.push_back({"model.length", sizes.length, "asked for"});
  settings.push_back({"batch.micro", sizes.micro_batch, "asked for"});
  settings.push_back({"batch.global", sizes.micro_batch, "asked for"});
  const TrainConfig config = make_config(settings);
  const DecoderConfig decoder = decoder_of(config);
  const auto weights =
      open_weights(found, decoder_shapes(decoder, model_name(config)));
  return std::make_unique<LocalDecoder>(
      decoder, model_name(config),
      [&](const Tensor& tensor, std::span<float> whole) {
        weights->read(tensor, {{0, whole}});
      });
}

}  // namespace canzona
