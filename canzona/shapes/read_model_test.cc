#include "canzona/shapes/read_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "canzona/shapes/tensor.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::read_model_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Records = std::vector<TensorRecord>;

constexpr const char* kConfig =
    R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 6,
        "num_hidden_layers": 2, "vocab_size": 10, "num_attention_heads": 4,
        "num_key_value_heads": 2})";

class ReadModel : public testing::Test {
 protected:
  // One file per record, in a folder with an index.
  void write_shards(const std::string& folder, const Records& records) {
    std::string map;
    for (size_t i = 0; i < records.size(); ++i) {
      const std::string shard = cat("model-", i, ".safetensors");
      folder_.write(folder + "/" + shard, safetensors_file({records[i]}));
      map +=
          cat(i == 0 ? "" : ",", "\"", records[i].name, "\":\"", shard, "\"");
    }
    folder_.write(folder + "/model.safetensors.index.json",
                  cat(R"({"metadata":{},"weight_map":{)", map, "}}"));
  }

  std::string message(const std::string& source, ReadOptions options = {}) {
    return message_of([&] { read_model(source, options); });
  }

  TestFolder folder_;
};

TEST_F(ReadModel, TakesPresetsAndFilesOfFourKinds) {
  Model model = read_model("qwen3-32b", {.fused = true});
  route(model, {{"*.qkv_proj.weight", false}});
  EXPECT_EQ(model.tensors.size(), 3u + 64 * 8);

  const Records records = {{"layers.0.up", {4, 2}}, {"layers.0.norm", {2}}};
  const auto tensors = [](const std::string& path) {
    return read_model(path, {}).tensors;
  };
  const std::vector<Tensor> expected =
      tensors(folder_.write("list.json", shapes_list(records)));
  EXPECT_EQ(expected.size(), 2u);
  EXPECT_EQ(tensors(folder_.write("x.bin", safetensors_file(records))),
            expected);
  write_shards("sharded", records);
  EXPECT_EQ(tensors(folder_.path("sharded/model.safetensors.index.json")),
            expected);
  EXPECT_EQ(read_model(folder_.write("m/config.json", kConfig), {}),
            model_from_config(kConfig, "m", {}));
}

TEST_F(ReadModel, ReadsFoldersOfModels) {
  const Records records = {{"layers.0.up", {4, 2}}};
  folder_.write("config/config.json", kConfig);
  EXPECT_EQ(read_model(folder_.path("config"), {.fused = true}),
            model_from_config(kConfig, "config", {.fused = true}));

  write_shards("sharded", records);
  folder_.write("sharded/config.json", kConfig);
  const Model sharded = read_model(folder_.path("sharded"), {});
  EXPECT_EQ(sharded.name, "sharded");
  EXPECT_EQ(sharded.tensors.size(), 1u);

  folder_.write("single/model.safetensors", safetensors_file(records));
  EXPECT_EQ(read_model(folder_.path("single") + "/", {}).tensors,
            sharded.tensors);
  EXPECT_THAT(message(folder_.path()), HasSubstr("holds no model"));
}

TEST_F(ReadModel, OrderOfShardsAndEntriesDoesNotMatter) {
  Records records = {{"embed", {10, 2}}, {"lm_head.weight", {10, 2}}};
  for (int i = 0; i < 11; ++i) {
    records.push_back({cat("layers.", i, ".up"), {4, 2}});
    records.push_back({cat("layers.", i, ".down"), {2, 4}});
  }
  write_shards("m", records);
  const Model expected = read_model(folder_.path("m"), {});
  EXPECT_EQ(expected.tensors.size(), records.size());
  for (unsigned seed = 0; seed < 5; ++seed) {
    write_shards("m", shuffled(records, seed));
    EXPECT_EQ(read_model(folder_.path("m"), {}), expected) << seed;
  }
}

TEST_F(ReadModel, AConfigBesideTheWeightsTellsHeads) {
  const Records records = {{"layers.0.q_proj.weight", {12, 8}},
                           {"layers.0.qkv_proj.weight", {24, 8}}};
  folder_.write("m/model.safetensors", safetensors_file(records));
  EXPECT_TRUE(read_model(folder_.path("m"), {}).tensors[0].sections.empty());
  folder_.write("m/config.json", kConfig);
  const Model model = read_model(folder_.path("m"), {});
  EXPECT_EQ(model.query_heads, 4);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.tensors[0].sections, head_section("q", 12, 4));
  EXPECT_EQ(model.tensors[1].sections, qkv_sections(4, 2, 3));
  folder_.write("m/config.json", "{\"model_type\": \"odd\"}");
  EXPECT_EQ(read_model(folder_.path("m"), {}).query_heads, 0);
  folder_.write("m/config.json", "{");
  EXPECT_THAT(message(folder_.path("m")), HasSubstr("config.json"));
}

// A checkpoint of the model that the configuration describes has the same
// tensors, roles, cuts and sections; only the order inside a layer is by name.
TEST_F(ReadModel, WeightsAgreeWithTheirConfiguration) {
  for (const bool fused : {false, true}) {
    const Model generated = model_from_config(kConfig, "m", {.fused = fused});
    Records records;
    for (const Tensor& tensor : generated.tensors) {
      records.push_back({tensor.name, tensor.shape});
    }
    folder_.write("m/model.safetensors", safetensors_file(records));
    folder_.write("m/config.json", kConfig);
    const Model read = read_model(folder_.path("m"), {});
    EXPECT_EQ(read.fused, fused);
    EXPECT_EQ(read.num_layers, generated.num_layers);
    EXPECT_THAT(read.tensors,
                testing::UnorderedElementsAreArray(generated.tensors));
    EXPECT_EQ(read.tensors.front(), generated.tensors.front());
    EXPECT_EQ(read.tensors.back(), generated.tensors.back());
  }
}

TEST_F(ReadModel, BuffersInWeightsAreLeftOut) {
  const std::string path =
      folder_.write("x.safetensors",
                    safetensors_file({{"layers.0.up.weight", {2, 2}},
                                      {"layers.0.up.weight_scale_inv", {1, 1}},
                                      {"layers.0.rotary_emb.inv_freq", {4}}}));
  EXPECT_EQ(read_model(path, {}).tensors.size(), 1u);
}

TEST_F(ReadModel, UnknownNamesAreRefused) {
  EXPECT_THAT(
      message("qwen3-33b"),
      AllOf(HasSubstr("'qwen3-33b'"), HasSubstr("neither a preset"),
            HasSubstr("did you mean 'qwen3-32b'"), HasSubstr("deepseek-v3")));
  EXPECT_THAT(message(""), HasSubstr("neither a preset"));
  EXPECT_THAT(message(folder_.path("gone.json")), HasSubstr("gone.json"));
  EXPECT_THAT(message(std::string("a\0b", 3)), HasSubstr("neither a preset"));
}

TEST_F(ReadModel, FusingWhatAFileListsIsRefused) {
  const std::string list =
      folder_.write("list.json", shapes_list({{"x", {1}}}));
  EXPECT_THAT(message(list, {.fused = true}), HasSubstr("fusing"));
  const std::string weights =
      folder_.write("x.safetensors", safetensors_file({{"x", {1}}}));
  EXPECT_THAT(message(weights, {.fused = true}), HasSubstr("fusing"));
}

TEST_F(ReadModel, FilesThatAreNoModelsAreRefused) {
  for (const std::string& contents :
       {std::string(), std::string("hello"), std::string("hello world, hello"),
        std::string("  "), std::string("{}"), std::string("[]"),
        std::string(20, '\0'), std::string("{\"weight_map\": 5}")}) {
    EXPECT_THAT(message(folder_.write("odd", contents)), HasSubstr("odd"))
        << contents;
  }
}

TEST_F(ReadModel, OnlyTheHeaderOfLargeFilesIsRead) {
  const std::string header =
      safetensors_bytes(R"({"x":{"dtype":"F64","shape":[1048576,131072],)"
                        R"("data_offsets":[0,1099511627776]}})");
  const std::string path = folder_.write("x.safetensors", header);
  std::error_code error;
  std::filesystem::resize_file(path, header.size() + (int64_t{1} << 40), error);
  if (error) GTEST_SKIP() << "no sparse file of 1 TiB: " << error.message();
  EXPECT_EQ(read_model(path, {}).tensors[0].cols(), 131072);
}

TEST_F(ReadModel, S6WrappedWeightsAreThePlainModel) {
  const Records plain = {{"layers.0.up", {4, 2}}, {"layers.0.norm", {2}}};
  const Records wrapped = {{"module.layers.0._orig_mod.up", {4, 2}},
                           {"_fsdp_wrapped_module.layers.0.norm", {2}}};
  const std::vector<Tensor> expected =
      read_model(folder_.write("p.st", safetensors_file(plain)), {}).tensors;
  EXPECT_EQ(
      read_model(folder_.write("w.st", safetensors_file(wrapped)), {}).tensors,
      expected);
  write_shards("sharded", wrapped);
  EXPECT_EQ(read_model(folder_.path("sharded"), {}).tensors, expected);
  write_shards("doubled",
               {{"layers.0.up", {4, 2}}, {"module.layers.0.up", {4, 2}}});
  EXPECT_THAT(
      message(folder_.path("doubled")),
      AllOf(HasSubstr("'layers.0.up' and 'module.layers.0.up' are both"),
            HasSubstr("index.json")));
}

}  // namespace
}  // namespace canzona::shapes::read_model_test
