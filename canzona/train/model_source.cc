#include "canzona/train/model_source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/store.h"
#include "canzona/plan/schedule/kept.h"
#include "canzona/trace/run_summary.h"
#include "canzona/train/decoder_of.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/run_state.h"

namespace canzona {
namespace {

namespace fs = std::filesystem;

// The checkpoints of a run, or those of their own folder, in the order in which
// a run would resume from them; paths.
std::vector<std::string> checkpoints_in(const std::string& path) {
  std::error_code ignored;
  const std::string inside = path + "/ckpt";
  const std::string store = fs::is_directory(inside, ignored) ? inside : path;
  std::vector<std::string> paths;
  for (const ListedCheckpoint& listed : resume_order(Folder::open(store)))
    paths.push_back(cat(store, "/", listed.name));
  return paths;
}

FoundModel model_of_checkpoint(const std::string& path) {
  return {.path = path,
          .is_checkpoint = true,
          .settings = architecture_settings(saved_config(open_checkpoint(path)),
                                            cat(path, "/config.json"))};
}

FoundModel model_of_hf_folder(const std::string& path) {
  const HfFolder folder = HfFolder::open(path);
  return {.path = path,
          .is_checkpoint = false,
          .settings = config_json_settings(folder.config_json(),
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

bool has_later_weights(const std::string& run, int64_t step) {
  const std::string file = run + "/summary.json";
  constexpr int64_t kMostBytes = 256 << 20;
  std::error_code ignored;
  if (!HfFolder::has_weights(run) || !fs::exists(file, ignored)) return false;
  try {
    const RunSummary summary =
        read_summary(read_file(file, kMostBytes, "the run's summary"), file);
    return summary.has_ended() && summary.state != "diverged" &&
           summary.steps > step;
  } catch (const Error&) {
    return false;  // it cannot say what the weights are of
  }
}

namespace {

// The newest checkpoint whose small files are sound and whose others are there;
// what is read of them later is checked then. Nothing if there are none, or if
// the weights at the run's end are newer.
std::optional<FoundModel> newest_model(const std::string& run) {
  std::vector<std::string> faults;
  for (const std::string& path : checkpoints_in(run)) {
    try {
      const CheckpointReader reader = open_checkpoint(path);
      const std::vector<std::string> missing = reader.check_files();
      if (!missing.empty()) throw CheckpointRefused(missing.front());
      if (has_later_weights(run, reader.manifest().step)) return std::nullopt;
      FoundModel found = model_of_checkpoint(path);
      found.notes = std::move(faults);
      return found;
    } catch (const DataLost& error) {
      faults.push_back(cat(path, " is passed over: ", error.what()));
    }
  }
  if (faults.empty() || has_later_weights(run, -1)) return std::nullopt;
  throw CheckpointRefused(cat("no checkpoint in ", quoted(run, 300),
                              " is whole:\n", join(faults, "\n")));
}

}  // namespace

FoundModel find_model(const std::string& path) {
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  std::error_code ignored;
  if (!fs::is_directory(plain, ignored))
    throw UsageError(cat("no folder ", quoted(path, 300),
                         "; expected one of Hugging Face (config.json and "
                         "model.safetensors), a run or a checkpoint"));
  if (fs::exists(cat(plain, "/", kManifestFile), ignored))
    return model_of_checkpoint(plain);
  if (const auto newest = newest_model(plain)) return *newest;
  return model_of_hf_folder(plain);  // which says what it lacks
}

std::shared_ptr<const WeightSource> open_weights(const FoundModel& found,
                                                 const Model& model) {
  if (found.is_checkpoint)
    return checkpoint_source(open_checkpoint(found.path), model);
  return hf_source(HfFolder::open(found.path), model);
}

std::shared_ptr<const WeightSource> initial_weights(
    const TrainConfig& config, const Model& model,
    std::vector<std::string>& notes) {
  if (config.init.empty()) return nullptr;
  const FoundModel found = find_model(config.init);
  notes.insert(notes.end(), found.notes.begin(), found.notes.end());
  return open_weights(found, model);
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
