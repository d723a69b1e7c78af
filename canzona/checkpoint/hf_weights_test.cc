#include "canzona/checkpoint/hf_folder.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/base/text.h"
#include "canzona/shapes/architecture.h"
#include "canzona/shapes/safetensors.h"

namespace canzona::checkpoint::hf_weights_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

class HfWeights : public FolderTest {};

// 4 query heads and 2 kv heads of 2 rows.
Architecture tiny() {
  return {.layers = 2,
          .hidden = 4,
          .ffn = 3,
          .vocab = 5,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 2,
          .qk_norm = true};
}

Architecture with_experts() {
  Architecture a = tiny();
  a.tied = true;
  a.experts = {.count = 2, .ffn = 2, .first_layer = 1};
  return a;
}

// Element (row, col) of tensor t is t + row / 64 + col / 4096.
std::vector<float> numbered(const Tensor& tensor, size_t number) {
  std::vector<float> values;
  for (int64_t row = 0; row < tensor.rows(); ++row)
    for (int64_t col = 0; col < tensor.cols(); ++col)
      values.push_back(static_cast<float>(number) +
                       static_cast<float>(row) / 64 +
                       static_cast<float>(col) / 4096);
  return values;
}

struct Stored {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

std::map<std::string, Stored> tensors_of(const std::string& bytes) {
  std::map<std::string, Stored> tensors;
  for (const StoredTensor& t :
       read_safetensors_header(bytes, static_cast<int64_t>(bytes.size()), "f")
           .tensors) {
    Stored& stored = tensors[t.name];
    stored.shape = t.shape;
    stored.values.resize(static_cast<size_t>(t.end - t.begin) / 4);
    std::memcpy(stored.values.data(), bytes.data() + t.begin,
                static_cast<size_t>(t.end - t.begin));
  }
  return tensors;
}

void write_model(const std::string& folder, const Model& model,
                 const WeightFormat& format = {}) {
  WeightFiles files(folder, model, format);
  for (size_t t = 0; t < model.tensors.size(); ++t)
    files.add(static_cast<int32_t>(t), numbered(model.tensors[t], t));
  files.finish();
}

// Returns the rows of the model's tensor that a stored tensor has.
std::vector<int64_t> rows_of(const Stored& stored) {
  std::vector<int64_t> rows;
  const auto cols = stored.shape.size() > 1 ? stored.shape[1] : 1;
  for (size_t i = 0; i < stored.values.size(); i += static_cast<size_t>(cols)) {
    const float value = stored.values[i];
    rows.push_back(static_cast<int64_t>((value - std::floor(value)) * 64));
  }
  return rows;
}

TEST_F(HfWeights, FusedTensorsBecomeTheirProjectionsByHeads) {
  const Model model = generate_model(tiny(), "tiny", true);
  write_model(path("."), model);
  auto stored = tensors_of(bytes_of("model.safetensors"));
  const std::string attention = "model.layers.1.self_attn.";
  // Groups of 4 rows of q, 2 of k, 2 of v.
  EXPECT_THAT(rows_of(stored.at(attention + "q_proj.weight")),
              ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_THAT(rows_of(stored.at(attention + "k_proj.weight")),
              ElementsAre(4, 5, 12, 13));
  EXPECT_THAT(rows_of(stored.at(attention + "v_proj.weight")),
              ElementsAre(6, 7, 14, 15));
  EXPECT_THAT(rows_of(stored.at("model.layers.0.mlp.gate_proj.weight")),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(rows_of(stored.at("model.layers.0.mlp.up_proj.weight")),
              ElementsAre(3, 4, 5));
  EXPECT_THAT(stored.at(attention + "k_proj.weight").shape, ElementsAre(4, 4));
}

// The unfused model is that of Hugging Face.
TEST_F(HfWeights, NamesAndShapesAreThoseOfTheUnfusedModel) {
  for (const Architecture& a : {tiny(), with_experts()}) {
    const Model model = generate_model(a, "m", true);
    write_model(path("."), model);
    std::map<std::string, std::vector<int64_t>> found, expected;
    for (const auto& [name, tensor] : tensors_of(bytes_of("model.safetensors")))
      found[name] = tensor.shape;
    for (const Tensor& tensor : generate_model(a, "m", false).tensors)
      expected[tensor.name] = tensor.shape;
    EXPECT_EQ(found, expected);
  }
}

TEST_F(HfWeights, OtherTensorsStayAsTheyAre) {
  const Model model = generate_model(with_experts(), "m", true);
  write_model(path("."), model);
  const auto stored = tensors_of(bytes_of("model.safetensors"));
  size_t checked = 0;
  for (size_t t = 0; t < model.tensors.size(); ++t) {
    if (model.tensors[t].sections.size() > 1) continue;
    ++checked;
    EXPECT_THAT(stored.at(model.tensors[t].name).values,
                ElementsAreArray(numbered(model.tensors[t], t)));
  }
  EXPECT_GT(checked, 10u);
}

TEST_F(HfWeights, AnUnfusedModelIsWrittenAsItIs) {
  const Model model = generate_model(tiny(), "tiny", false);
  write_model(path("."), model);
  EXPECT_EQ(tensors_of(bytes_of("model.safetensors")).size(),
            model.tensors.size());
}

// Several files together contain what one file would; none exceeds the limit
// unless it has a single tensor.
TEST_F(HfWeights, SeveralFilesHoldWhatOneWould) {
  const Model model = generate_model(with_experts(), "m", true);
  write_model(path("."), model);
  const auto whole = tensors_of(bytes_of("model.safetensors"));
  constexpr int64_t kMost = 100;
  write_model(path("."), model, {.max_file_bytes = kMost});
  const auto index =
      nlohmann::json::parse(bytes_of("model.safetensors.index.json"));
  std::map<std::string, std::map<std::string, Stored>> files;
  int64_t bytes = 0;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const auto where = file.get<std::string>();
    if (!files.contains(where)) files[where] = tensors_of(bytes_of(where));
    EXPECT_EQ(files[where].at(name).values, whole.at(name).values) << name;
    EXPECT_EQ(files[where].at(name).shape, whole.at(name).shape) << name;
  }
  size_t tensors = 0, alone = 0;
  for (const auto& [name, held] : files) {
    int64_t size = 0;
    for (const auto& [tensor, stored] : held)
      size += 4 * std::ssize(stored.values);
    EXPECT_TRUE(size <= kMost || held.size() == 1) << name;
    alone += size > kMost ? 1 : 0;
    bytes += size;
    tensors += held.size();
  }
  EXPECT_EQ(tensors, whole.size());
  EXPECT_GT(alone, 0u);
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
  const std::string count = cat(files.size());
  const std::string digits = std::string(5 - count.size(), '0') + count;
  EXPECT_TRUE(
      files.contains(cat("model-", digits, "-of-", digits, ".safetensors")));
}

TEST_F(HfWeights, TensorsComeWholeAndInOrder) {
  const Model model = generate_model(tiny(), "tiny", true);
  WeightFiles file(path("."), model);
  const std::vector<float> first = numbered(model.tensors[0], 0);
  EXPECT_THROW(file.add(1, first), InternalError);
  EXPECT_THROW(file.add(0, std::span(first).first(3)), InternalError);
}

}  // namespace
}  // namespace canzona::checkpoint::hf_weights_test
