#include "canzona/train/model_source.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/checkpoint/hf_folder.h"
#include "canzona/trace/run_summary.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/test_training.h"
#include "canzona/train/test_weights_alone.h"
#include "canzona/train/train_rank.h"

namespace canzona::train::model_source_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct SourceKind {
  const char* name;
  bool qk_norm = true;
  bool tied = false;
  int64_t experts = 0;
};

DecoderConfig source_decoder(const SourceKind& kind) {
  DecoderConfig config;
  config.architecture = {.layers = 2,
                         .hidden = 16,
                         .ffn = 24,
                         .vocab = 32,
                         .heads = 8,
                         .kv_heads = 4,
                         .head_dim = 4,
                         .tied = kind.tied,
                         .qk_norm = kind.qk_norm};
  if (kind.experts > 0)
    config.architecture.experts = {.count = kind.experts, .ffn = 8};
  config.length = 6;
  config.micro_batch = 2;
  config.rope_base = 500;
  config.norm_epsilon = 1e-3;
  config.balance_coefficient = 0.25;
  return config;
}

constexpr int64_t kContext = 4096;  // tokens

std::vector<float> whole_of(const Model& model, const Tensor& tensor) {
  std::vector<float> whole(static_cast<size_t>(tensor.elements()));
  make_initial(model, tensor, 5, 1, 0, whole);
  return whole;
}

class ModelSources : public FolderTest,
                     public ::testing::WithParamInterface<SourceKind> {
 protected:
  // As a run writes it.
  void write_folder(const std::string& name, const DecoderConfig& config,
                    const WeightFormat& format = {}) {
    const Model model = decoder_shapes(config, "m");
    std::filesystem::create_directories(path(name));
    WeightFiles files(path(name), model, format);
    for (size_t t = 0; t < model.tensors.size(); ++t)
      files.add(static_cast<int32_t>(t), whole_of(model, model.tensors[t]));
    files.finish();
    folder_.write(name + "/config.json",
                  hf_config(hf_numbers_of(config, kContext)));
  }
};

// Each mesh begins with the shards of the random initialization.
TEST_P(ModelSources, GiveEveryRankItsShard) {
  const DecoderConfig config = source_decoder(GetParam());
  const Model model = decoder_shapes(config, "m");
  write_folder("hf", config, {.max_file_bytes = 3000});
  import_hf(path("hf"), path("ckpt"));
  for (const char* from : {"hf", "ckpt", "ckpt/step_00000000"}) {
    const FoundModel found = find_model(path(from));
    EXPECT_EQ(found.is_checkpoint, from != std::string("hf"));
    const auto source = open_weights(found, model);
    for (const int32_t tp : {1, 2, 4}) {
      for (int32_t t = 0; t < tp; ++t) {
        for (const Tensor& tensor : model.tensors) {
          const int64_t ranks = tensor.cut == Cut::kNone ? 1 : tp;
          std::vector<float> shard(
              static_cast<size_t>(tensor.elements() / ranks));
          std::vector<float> right(shard.size());
          make_initial(model, tensor, 5, tp, t, right);
          read_shard(*source, tensor, tp, t, shard);
          EXPECT_EQ(shard, right)
              << from << " " << tensor.name << " " << t << " of " << tp;
        }
      }
    }
  }
}

TEST_P(ModelSources, ComputeWhatTheModelComputes) {
  const DecoderConfig config = source_decoder(GetParam());
  const Model model = decoder_shapes(config, "m");
  LocalDecoder right(config, "m",
                     [&](const Tensor& tensor, std::span<float> whole) {
                       make_initial(model, tensor, 5, 1, 0, whole);
                     });
  write_folder("hf", config);
  const auto found = find_model(path("hf"));
  const auto opened =
      open_local_decoder(found, {.length = 6, .micro_batch = 2});
  std::vector<int32_t> sequences;
  for (int32_t i = 0; i < 14; ++i) sequences.push_back(i * 5 % 32);
  EXPECT_EQ(opened->loss(sequences), right.loss(sequences));
}

TEST_P(ModelSources, ComeBackTheSame) {
  const DecoderConfig config = source_decoder(GetParam());
  write_folder("hf", config);
  const std::string made = import_hf(path("hf"), path("ckpt"));
  const HfExported done =
      export_hf(open_checkpoint(made), {.folder = path("out")});
  EXPECT_EQ(done.step, 0);
  EXPECT_EQ(bytes_of("out/model.safetensors"),
            bytes_of("hf/model.safetensors"));
  EXPECT_EQ(bytes_of("out/config.json"), bytes_of("hf/config.json"));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ModelSources,
    ::testing::Values(SourceKind{"qwen3"}, SourceKind{"llama", false},
                      SourceKind{"llama_tied", false, true},
                      SourceKind{"experts", true, false, 4},
                      SourceKind{"experts_tied", true, true, 4}),
    [](const auto& kind) { return kind.param.name; });

class ModelSourceFolders : public ModelSources {};

// The final weights of a run that was resumed since are not its newest.
TEST_F(ModelSourceFolders, OfARunAreItsNewestCheckpointOrItsLaterWeights) {
  write_folder("hf", source_decoder({"qwen3"}));
  std::filesystem::create_directories(path("run"));
  import_hf(path("hf"), path("run/ckpt"));
  EXPECT_EQ(find_model(path("run/")).path, path("run/ckpt/step_00000000"));
  write_folder("run", source_decoder({"qwen3"}));
  const auto found_with = [&](const char* state, int64_t steps) {
    RunSummary summary;
    summary.state = state;
    summary.steps = steps;
    folder_.write("run/summary.json", to_json(summary));
    return find_model(path("run")).path;
  };
  EXPECT_EQ(find_model(path("run")).path, path("run/ckpt/step_00000000"));
  EXPECT_EQ(found_with("running", 5), path("run/ckpt/step_00000000"));
  EXPECT_EQ(found_with("diverged", 5), path("run/ckpt/step_00000000"));
  EXPECT_EQ(found_with("finished", 0), path("run/ckpt/step_00000000"));
  EXPECT_EQ(found_with("finished", 5), path("run"));
  EXPECT_EQ(found_with("stopped", 5), path("run"));
  folder_.write("run/summary.json", "{");
  EXPECT_EQ(find_model(path("run")).path, path("run/ckpt/step_00000000"));
  EXPECT_THAT([&] { find_model(path("none")); },
              ThrowsMessage<UsageError>(HasSubstr("no folder")));
}

TEST_F(ModelSourceFolders, SettingsAreTheModelsAndMayNotBeContradicted) {
  const DecoderConfig right = source_decoder({"llama", false, true});
  write_folder("hf", right);
  import_hf(path("hf"), path("ckpt"));
  for (const char* from : {"hf", "ckpt"}) {
    const Settings settings = find_model(path(from)).settings;
    TrainConfig config = make_config(settings);
    EXPECT_EQ(config.model.layers, 2) << from;
    EXPECT_EQ(config.model.rope_base, 500) << from;
    EXPECT_EQ(config.model.norm_epsilon, 1e-3) << from;
    EXPECT_TRUE(config.model.tied) << from;
    EXPECT_FALSE(config.model.qk_norm) << from;
    EXPECT_NO_THROW(refuse_contradictions(config, settings)) << from;
    Settings more = settings;
    more.push_back(parse_setting("model.rope_base=1000", "--set"));
    config = make_config(more);
    EXPECT_THAT([&] { refuse_contradictions(config, settings); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("model.rope_base (--set) is 1000"),
                          HasSubstr("config.json has 500"))))
        << from;
  }
}

// An incomplete folder does not exist, and does not disturb the next attempt.
TEST_F(ModelSourceFolders, ExportsAreThereWholeOrNotAtAll) {
  write_folder("hf", source_decoder({"qwen3"}));
  const std::string made = import_hf(path("hf"), path("ckpt"));
  folder_.write("out.canzona-part/model.safetensors", "of one that was killed");
  std::filesystem::create_directories(path("out"));
  export_hf(open_checkpoint(made), {.folder = path("out/")});
  EXPECT_FALSE(std::filesystem::exists(path("out.canzona-part")));
  EXPECT_FALSE(std::filesystem::exists(path("out.lock")));
  EXPECT_EQ(bytes_of("out/model.safetensors"),
            bytes_of("hf/model.safetensors"));
  EXPECT_THAT(
      [&] { export_hf(open_checkpoint(made), {.folder = path("out")}); },
      ThrowsMessage<UsageError>(HasSubstr("already exists")));
  // Flips a byte of the last tensor.
  std::string bytes = bytes_of("ckpt/step_00000000/rank_00000.safetensors");
  bytes[bytes.size() - 2] ^= 1;
  folder_.write("ckpt/step_00000000/rank_00000.safetensors", bytes);
  EXPECT_THROW(export_hf(open_checkpoint(made), {.folder = path("two")}),
               CheckpointRefused);
  EXPECT_FALSE(std::filesystem::exists(path("two")));
  EXPECT_FALSE(std::filesystem::exists(path("two.canzona-part")));
}

// Earlier versions made checkpoints of weights alone; the context is shorter
// than the preset's sequences.
TEST_F(ModelSourceFolders, WeightsAloneKeepAShortContext) {
  write_folder("hf", source_decoder({"qwen3"}));
  folder_.write("hf/config.json",
                hf_config(hf_numbers_of(source_decoder({"qwen3"}))));
  const std::string made = import_hf(path("hf"), path("ckpt"));
  EXPECT_FALSE(has_run_state(open_checkpoint(made)));
  export_hf(open_checkpoint(made), {.folder = path("c/d/out")});
  EXPECT_EQ(bytes_of("c/d/out/config.json"), bytes_of("hf/config.json"));
}

TEST_F(ModelSourceFolders, WeightsThatAreNotFiniteAreNotBegunWith) {
  const DecoderConfig config = source_decoder({"qwen3"});
  const Model model = decoder_shapes(config, "m");
  write_folder("hf", config);
  std::string bytes = bytes_of("hf/model.safetensors");
  // An infinity instead of the last number.
  const std::string infinity("\x00\x00\x80\x7F", 4);
  folder_.write("hf/model.safetensors",
                bytes.replace(bytes.size() - 4, 4, infinity));
  const auto source = open_weights(find_model(path("hf")), model);
  int refused = 0;
  for (const Tensor& tensor : model.tensors) {
    std::vector<float> shard(static_cast<size_t>(tensor.elements()));
    try {
      read_shard(*source, tensor, 1, 0, shard);
    } catch (const CheckpointRefused&) {
      ++refused;
    }
  }
  EXPECT_EQ(refused, 1);
}

// A model that matches no class of transformers.
TEST_F(ModelSourceFolders, ExportsOfOtherModelsAreRefused) {
  DecoderConfig odd = source_decoder({"experts", true, false, 4});
  odd.architecture.qk_norm = false;
  EXPECT_THROW(hf_config(hf_numbers_of(odd)), UsageError);
}

}  // namespace
}  // namespace canzona::train::model_source_test
