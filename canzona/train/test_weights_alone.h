// A checkpoint with the weights of a Hugging Face folder and nothing else, as
// earlier versions made them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/shard_writer.h"
#include "canzona/checkpoint/store.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/model_source.h"

namespace canzona::train::model_source_test {

// Reads bytes of a tensor as fp32, from `offset` on.
inline void fill_import(const WeightSource& source, const Tensor& tensor,
                        int64_t offset, std::span<std::byte> to) {
  constexpr int64_t kSize = sizeof(float);
  CANZONA_CHECK(offset % kSize == 0 && std::ssize(to) % kSize == 0, "bytes of ",
                tensor.name);
  std::vector<float> values(to.size() / sizeof(float));
  source.read(tensor, {{offset / kSize, values}});
  require_finite(source, tensor, values);
  std::memcpy(to.data(), values.data(), to.size());
}

inline std::vector<BoxSource> import_boxes(const WeightSource& source,
                                           const Model& model) {
  std::vector<BoxSource> boxes;
  for (const Tensor& tensor : model.tensors)
    boxes.push_back(
        {.tensor = {cat("model/", tensor.name), DType::kFp32, tensor.shape},
         .box = whole_box(tensor.shape),
         .fill = [&source, &tensor](int64_t offset, std::span<std::byte> to) {
           fill_import(source, tensor, offset, to);
         }});
  return boxes;
}

// The training length is the preset's, which is too long for a model with a
// shorter context.
inline TrainConfig imported_config(Settings settings) {
  const TrainConfig config = make_config(settings);
  if (config.model.context == 0 || config.model.length <= config.model.context)
    return config;
  settings.push_back(
      {"model.length", config.model.context, config.origin("model.context")});
  return make_config(settings);
}

inline std::string import_config(const TrainConfig& config) {
  JsonWriter out(2);
  write_config(out, config);
  return out.take() + "\n";
}

// Returns the path of the checkpoint of step 0 that it makes in `store`.
inline std::string import_hf(const std::string& folder,
                             const std::string& store) {
  const FoundModel found = find_model(folder);
  const TrainConfig config = imported_config(found.settings);
  const Model model = decoder_shapes(decoder_of(config), model_name(config));
  const auto source = open_weights(found, model);
  CheckpointStore checkpoints(store, "a test");
  PendingCheckpoint pending = checkpoints.begin(0);
  const std::string record = write_shard(
      pending.folder(), {.step = 0, .rank = 0}, import_boxes(*source, model));
  pending.add_side_file("config.json", import_config(config));
  pending.commit({record}, "");
  return cat(store, "/", checkpoint_name(0));
}

}  // namespace canzona::train::model_source_test
