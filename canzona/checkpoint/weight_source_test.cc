#include "canzona/checkpoint/weight_source.h"

#include <gmock/gmock.h>

#include <map>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/shard_writer.h"
#include "canzona/checkpoint/store.h"
#include "canzona/checkpoint/test_hf_files.h"
#include "canzona/shapes/architecture.h"

namespace canzona::checkpoint::weight_source_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

// 4 query heads in 2 groups of 3 rows a head.
Architecture small() {
  return {.layers = 2,
          .hidden = 5,
          .ffn = 4,
          .vocab = 6,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 3,
          .qk_norm = true};
}

// The folder has a distinct number for every name, row and column.
float number_at(const std::string& name, int64_t row, int64_t col) {
  uint32_t seed = 7;
  for (const char c : name) seed = seed * 31 + static_cast<unsigned char>(c);
  return static_cast<float>(seed % 997) + static_cast<float>(row) / 32 +
         static_cast<float>(col) / 2048;
}

RawTensor raw_of(const std::string& name, const std::vector<int64_t>& shape) {
  std::vector<float> values;
  const int64_t cols = shape.size() > 1 ? shape[1] : 1;
  for (int64_t row = 0; row < shape[0]; ++row)
    for (int64_t col = 0; col < cols; ++col)
      values.push_back(number_at(name, row, col));
  return {name, "F32", shape, raw_bytes(values)};
}

// The unfused layout of Hugging Face.
std::vector<RawTensor> raw_model(const Architecture& a) {
  std::vector<RawTensor> all;
  for (const Tensor& tensor : generate_model(a, "m", false).tensors)
    all.push_back(raw_of(tensor.name, tensor.shape));
  return all;
}

// Finds the element of a fused tensor by plain counting.
float expected_at(const Architecture& a, const Tensor& tensor, int64_t row,
                  int64_t col) {
  const auto named = [&](const char* fused, const std::string& part) {
    std::string name = tensor.name;
    return name.replace(name.find(fused), std::string(fused).size(), part);
  };
  if (tensor.name.find("qkv_proj") != std::string::npos) {
    const int64_t dim = a.head_dim, per_group = a.heads / a.kv_heads;
    const int64_t group = row / ((per_group + 2) * dim);
    const int64_t head = row / dim % (per_group + 2);
    const int64_t in_head = row % dim;
    if (head < per_group)
      return number_at(named("qkv_proj", "q_proj"),
                       (group * per_group + head) * dim + in_head, col);
    return number_at(named("qkv_proj", head == per_group ? "k_proj" : "v_proj"),
                     group * dim + in_head, col);
  }
  if (tensor.name.find("gate_up_proj") != std::string::npos) {
    const int64_t ffn = tensor.rows() / 2;
    return number_at(named("gate_up_proj", row < ffn ? "gate_proj" : "up_proj"),
                     row % ffn, col);
  }
  return number_at(tensor.name, row, col);
}

std::vector<float> expected_of(const Architecture& a, const Tensor& tensor) {
  std::vector<float> values;
  for (int64_t row = 0; row < tensor.rows(); ++row)
    for (int64_t col = 0; col < tensor.cols(); ++col)
      values.push_back(expected_at(a, tensor, row, col));
  return values;
}

// Reads whole tensors, and pieces that begin and end anywhere.
void expect_source(const WeightSource& source, const Architecture& a,
                   const Model& model) {
  for (const Tensor& tensor : model.tensors) {
    const std::vector<float> right = expected_of(a, tensor);
    std::vector<float> whole(right.size());
    source.read(tensor, {{0, whole}});
    EXPECT_EQ(whole, right) << tensor.name;
    for (size_t step : {size_t{1}, size_t{3}, size_t{7}, size_t{22}}) {
      std::vector<float> parts(right.size());
      std::vector<TensorPiece> pieces;
      for (size_t at = 0; at < parts.size(); at += step)
        pieces.push_back(
            {static_cast<int64_t>(at),
             std::span(parts).subspan(at, std::min(step, parts.size() - at))});
      source.read(tensor, pieces);
      EXPECT_EQ(parts, right) << tensor.name << " by " << step;
    }
  }
}

class WeightSources : public FolderTest {
 protected:
  std::unique_ptr<WeightSource> source_of(std::vector<RawTensor> tensors,
                                          const Architecture& a) {
    folder_.write("model.safetensors", raw_safetensors(tensors));
    return hf_source(HfFolder::open(path("")), generate_model(a, "m", true));
  }
};

TEST_F(WeightSources, GiveAnyPieceOfAFusedModel) {
  Architecture experts = small();
  experts.experts = {.count = 3, .ffn = 2, .first_layer = 1};
  Architecture llama = small();
  llama.qk_norm = false;
  llama.tied = true;
  for (const Architecture& a : {small(), experts, llama})
    expect_source(*source_of(raw_model(a), a), a, generate_model(a, "m", true));
}

// Names as left by DDP, torch.compile and FSDP with checkpointed layers.
TEST_F(WeightSources, S6FindAModelThatPyTorchHadWrapped) {
  const Architecture a = small();
  const auto with_layers_in = [](std::string name, const std::string& inside) {
    const std::string layers = "model.layers.";
    if (!name.starts_with(layers)) return name;
    return name.insert(name.find('.', layers.size()) + 1, inside);
  };
  for (const auto& [before, inside] :
       std::vector<std::pair<std::string, std::string>>{
           {"module.", ""},
           {"_orig_mod.", ""},
           {"module._orig_mod.", ""},
           {"_fsdp_wrapped_module.",
            "_fsdp_wrapped_module._checkpoint_wrapped_module."}}) {
    std::vector<RawTensor> tensors = raw_model(a);
    for (RawTensor& tensor : tensors)
      tensor.name = before + with_layers_in(tensor.name, inside);
    expect_source(*source_of(tensors, a), a, generate_model(a, "m", true));
    tensors[1].dtype = "I32";
    EXPECT_THAT([&] { source_of(tensors, a); },
                ThrowsMessage<CheckpointRefused>(HasSubstr(tensors[1].name)));
  }
}

TEST_F(WeightSources, GiveAnyPieceOfACheckpointOfSeveralRanks) {
  const Architecture a = small();
  const Model model = generate_model(a, "m", true);
  constexpr int64_t kRanks = 3;
  CheckpointStore store(path("ckpt"), "test");
  PendingCheckpoint pending = store.begin(4);
  std::vector<std::string> records;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    std::vector<std::string> bytes;
    bytes.reserve(model.tensors.size());
    std::vector<BoxSource> sources;
    for (const Tensor& tensor : model.tensors) {
      const std::vector<float> all = expected_of(a, tensor);
      const int64_t first = tensor.rows() * rank / kRanks;
      const int64_t end = tensor.rows() * (rank + 1) / kRanks;
      bytes.push_back(
          raw_bytes(std::vector<float>(all.begin() + first * tensor.cols(),
                                       all.begin() + end * tensor.cols())));
      Box box{{first}, {end - first}};
      if (tensor.shape.size() == 2) {
        box.first.push_back(0);
        box.count.push_back(tensor.cols());
      }
      sources.push_back({{"model/" + tensor.name, DType::kFp32, tensor.shape},
                         box,
                         std::as_bytes(std::span(bytes.back()))});
    }
    records.push_back(
        write_shard(pending.folder(), {4, rank, kRanks}, sources));
  }
  pending.commit(records, "");
  const auto open = [&] { return open_checkpoint(path("ckpt/step_00000004")); };
  expect_source(*checkpoint_source(open(), model), a, model);
  Architecture deeper = a;
  deeper.layers = 3;
  EXPECT_THAT(
      [&] { checkpoint_source(open(), generate_model(deeper, "m", true)); },
      ThrowsMessage<CheckpointRefused>(
          AllOf(HasSubstr("tensors are missing in the checkpoint"),
                HasSubstr("'model/model.layers.2."))));
}

TEST_F(WeightSources, ListWhatIsMissingBesidesOrOfAnotherShape) {
  std::vector<RawTensor> tensors = raw_model(small());
  const auto named = [&](const std::string& name) {
    return std::ranges::find(tensors, name, &RawTensor::name);
  };
  tensors.erase(named("model.norm.weight"));
  *named("lm_head.weight") = raw_of("lm_head.weight", {6, 4});
  tensors.push_back(raw_of("model.layers.0.self_attn.q_proj.bias", {12}));
  EXPECT_THAT(
      [&] { source_of(tensors, small()); },
      ThrowsMessage<CheckpointRefused>(AllOf(
          HasSubstr("1 tensor of another type or shape:\n  'lm_head.weight': "
                    "saved F32 [6, 4], expected F32 [6, 5]"),
          HasSubstr("1 tensor is missing in the folder:\n"
                    "  'model.norm.weight'"),
          HasSubstr("1 tensor that only the folder has:\n"
                    "  'model.layers.0.self_attn.q_proj.bias'"),
          HasSubstr(path("")))));
}

TEST_F(WeightSources, ListTenOfAKind) {
  Architecture deep = small();
  deep.layers = 9;
  EXPECT_THAT(
      [&] { source_of(raw_model(small()), deep); },
      ThrowsMessage<CheckpointRefused>(AllOf(
          HasSubstr("77 tensors are missing in the folder"),
          HasSubstr("… and 67 more"), Not(HasSubstr("only the folder has")))));
}

TEST_F(WeightSources, NameATypeThatCannotBeRead) {
  std::vector<RawTensor> tensors = raw_model(small());
  tensors[1].dtype = "I32";
  EXPECT_THAT([&] { source_of(tensors, small()); },
              ThrowsMessage<CheckpointRefused>(HasSubstr("dtype I32")));
  tensors[1].dtype = "F8_E4M3";
  tensors[1].bytes.resize(tensors[1].bytes.size() / 4);
  EXPECT_THAT([&] { source_of(tensors, small()); },
              ThrowsMessage<CheckpointRefused>(AllOf(
                  HasSubstr(tensors[1].name), HasSubstr("dtype F8_E4M3"))));
}

// Files of tied models often contain the head as well, and old ones the rotary
// angles.
TEST_F(WeightSources, TakeATiedHeadThatIsTheEmbedding) {
  Architecture tied = small();
  tied.tied = true;
  std::vector<RawTensor> tensors = raw_model(tied);
  RawTensor head = *std::ranges::find(tensors, "model.embed_tokens.weight",
                                      &RawTensor::name);
  head.name = "lm_head.weight";
  tensors.push_back(head);
  tensors.push_back(
      raw_of("model.layers.0.self_attn.rotary_emb.inv_freq", {4}));
  expect_source(*source_of(tensors, tied), tied,
                generate_model(tied, "m", true));
  tensors[tensors.size() - 2] = raw_of("lm_head.weight", {6, 5});
  EXPECT_THAT([&] { source_of(tensors, tied); },
              ThrowsMessage<CheckpointRefused>(
                  HasSubstr("lm_head.weight is not model.embed_tokens")));
}

}  // namespace
}  // namespace canzona::checkpoint::weight_source_test
