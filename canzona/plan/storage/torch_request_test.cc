#include "canzona/plan/storage/torch_request.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/plan/storage/storage_json.h"
#include "canzona/plan/storage/test_layouts.h"
#include "canzona/shapes/read_model.h"

namespace canzona::plan::torch_request_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr auto kDdp = TorchLayout::Kind::kDdp;
constexpr auto kFsdp2 = TorchLayout::Kind::kFsdp2;
constexpr auto kHsdp = TorchLayout::Kind::kHsdp;

auto usage_error(const auto&... words) {
  return ThrowsMessage<UsageError>(AllOf(HasSubstr(words)...));
}

// "0:4 4:8 -": the rows that each rank stores, every other dimension whole.
std::string rows_of(const Stored& stored) {
  std::string out;
  for (const auto& boxes : stored) {
    if (!out.empty()) out += " ";
    if (boxes.empty()) out += "-";
    for (const Box& box : boxes)
      out += cat(box.first[0], ":", box.first[0] + box.count[0]);
  }
  return out;
}

std::string rows_of(std::vector<int64_t> shape, const TorchLayout& layout,
                    const char* mesh, int32_t tp_dim = -1) {
  return rows_of(torch_boxes(shape, tp_dim, layout, parse_mesh(mesh)));
}

TorchPlacement storage_by(TorchLayout layout, const char* mesh) {
  TorchPlacement placement{.layout = layout, .mesh = parse_mesh(mesh)};
  placement.matrices.rule = "muon";
  return placement;
}

const CutTensor& tensor_of(const StorageRequest& request,
                           const std::string& name) {
  for (const CutTensor& tensor : request.tensors)
    if (tensor.name == name) return tensor;
  ADD_FAILURE() << "no tensor " << name;
  return request.tensors.front();
}

Model toy(const std::string& tensors) {
  Model model = model_from_shapes(tensors, "toy");
  route(model, {});
  return model;
}

Model small() {
  return toy(R"([{"name": "embed_tokens.weight", "shape": [12, 8]},
                 {"name": "layers.0.self_attn.q_proj.weight", "shape": [8, 8]},
                 {"name": "layers.0.self_attn.o_proj.weight", "shape": [8, 8]},
                 {"name": "layers.0.input_layernorm.weight", "shape": [8]},
                 {"name": "lm_head.weight", "shape": [12, 8]}])");
}

// As recorded from fully_shard() of torch 2.13 on gloo ranks;
// python/tests/test_plan_layout.py compares whole plans.
TEST(TorchBoxes, AreThoseOfTorch) {
  EXPECT_EQ(rows_of({7, 6}, {kFsdp2}, "dp=4"), "0:2 2:4 4:6 6:7");
  EXPECT_EQ(rows_of({6, 6}, {kFsdp2}, "dp=4"), "0:2 2:4 4:6 -");
  EXPECT_EQ(rows_of({5, 6}, {kFsdp2}, "dp=4"), "0:2 2:4 4:5 -");
  EXPECT_EQ(rows_of({2, 6}, {kFsdp2}, "dp=4"), "0:1 1:2 - -");
  EXPECT_EQ(rows_of({1}, {kFsdp2}, "dp=4"), "0:1 - - -");
  EXPECT_EQ(rows_of({3, 4, 6}, {kFsdp2}, "dp=2"), "0:2 2:3");
  EXPECT_EQ(rows_of({7, 6}, {kHsdp, 2}, "dp=4"), "0:4 4:7 0:4 4:7");
  EXPECT_EQ(rows_of({7, 6}, {kDdp}, "dp=3"), "0:7 0:7 0:7");
  // Tensor parallelism cuts rows, then FSDP2 the rows of each shard.
  EXPECT_EQ(rows_of({12, 6}, {kFsdp2}, "dp=2,tp=2", 0), "0:3 6:9 3:6 9:12");
  EXPECT_EQ(rows_of({6, 6}, {kFsdp2}, "dp=2,tp=2", 0), "0:2 3:5 2:3 5:6");
  EXPECT_EQ(rows_of({2, 6}, {kFsdp2}, "dp=2,tp=2", 0), "0:1 1:2 - -");
  EXPECT_EQ(rows_of({6, 6}, {kHsdp, 1}, "dp=2,tp=2", 0), "0:3 3:6 0:3 3:6");
  EXPECT_EQ(rows_of({6, 6}, {kDdp}, "dp=2,tp=2", 0), "0:3 3:6 0:3 3:6");
}

TEST(TorchBoxes, CutColumnsBeforeRows) {
  const Stored stored =
      torch_boxes({3, 8}, 1, {kFsdp2}, parse_mesh("dp=2,tp=2"));
  EXPECT_THAT(stored, ElementsAre(std::vector{Box{{0, 0}, {2, 4}}},
                                  std::vector{Box{{0, 4}, {2, 4}}},
                                  std::vector{Box{{2, 0}, {1, 4}}},
                                  std::vector{Box{{2, 4}, {1, 4}}}));
}

// Every layout of every size stores every element, and replicas agree: a plan
// of it is sound and has its own file.
TEST(TorchRequest, MakesSoundPlans) {
  for (const TorchLayout& layout :
       {TorchLayout{kDdp}, TorchLayout{kFsdp2}, TorchLayout{kHsdp, 2}})
    for (const char* mesh : {"dp=2", "dp=4", "dp=6,tp=2", "dp=16,tp=4"}) {
      const StoragePlan plan =
          make_storage_plan(torch_request(small(), storage_by(layout, mesh)));
      EXPECT_THAT(validate(plan), IsEmpty()) << to_string(layout) << mesh;
      const std::string text = storage_plan_to_json(plan);
      EXPECT_EQ(storage_plan_to_json(storage_plan_from_json(text, "plan").plan),
                text);
    }
}

TEST(TorchRequest, PutsMatricesFirstAndTheRestToAdamW) {
  const StorageRequest request =
      torch_request(small(), storage_by({kFsdp2}, "dp=2,tp=2"));
  std::vector<std::string> names;
  for (const CutTensor& tensor : request.tensors)
    names.push_back(cat(tensor.group, " ", tensor.name));
  EXPECT_THAT(
      names,
      ElementsAre("0 layers.0.self_attn.o_proj.weight",
                  "0 layers.0.self_attn.q_proj.weight", "1 embed_tokens.weight",
                  "1 layers.0.input_layernorm.weight", "1 lm_head.weight"));
  ASSERT_EQ(request.groups.size(), 2U);
  EXPECT_EQ(request.groups[0].rule, "muon");
  EXPECT_EQ(request.groups[1].rule, "adamw");
  EXPECT_EQ(
      rows_of(tensor_of(request, "layers.0.self_attn.q_proj.weight").stored),
      "0:2 4:6 2:4 6:8");
  const Box columns =
      tensor_of(request, "layers.0.self_attn.o_proj.weight").stored[3][0];
  EXPECT_EQ(columns, (Box{{4, 4}, {4, 4}}));
  // What tensor parallelism leaves alone is replicated over it.
  EXPECT_EQ(
      rows_of(tensor_of(request, "layers.0.input_layernorm.weight").stored),
      "0:4 0:4 4:8 4:8");
}

TEST(TorchRequest, LeavesOutGroupsWithoutTensorsAndFrozenTensors) {
  Model model = small();
  freeze(model, {"*embed*", "*norm*", "lm_head*"});
  const StorageRequest request =
      torch_request(model, storage_by({kFsdp2}, "dp=2"));
  EXPECT_EQ(request.groups.size(), 1U);
  EXPECT_EQ(request.tensors.size(), 2U);
}

TEST(TorchRequest, HasOneGroupIfMatricesGoToAdamWToo) {
  TorchPlacement placement = storage_by({kFsdp2}, "dp=2");
  placement.matrices = {"adamw", {{"beta1", "0.8"}}};
  const StorageRequest request = torch_request(small(), placement);
  EXPECT_EQ(request.groups, std::vector{placement.matrices});
  EXPECT_EQ(request.tensors.front().name, "embed_tokens.weight");
}

// gpt-oss has the experts of a layer in one parameter; Qwen3-MoE has a module
// for each.
const char* const kStacked = R"([
    {"name": "layers.0.mlp.experts.0.gate_up_proj", "shape": [4, 6]},
    {"name": "layers.0.mlp.experts.1.gate_up_proj", "shape": [4, 6]},
    {"name": "layers.0.mlp.experts.2.gate_up_proj", "shape": [4, 6]},
    {"name": "layers.0.mlp.experts.0.down_proj.weight", "shape": [6, 4]},
    {"name": "layers.0.mlp.experts.1.down_proj.weight", "shape": [6, 4]}])";

TEST(TorchRequest, JoinsExpertsThatAreOneParameter) {
  const StorageRequest request =
      torch_request(toy(kStacked), storage_by({kFsdp2}, "dp=2"));
  EXPECT_EQ(request.tensors.size(), 3U);
  const CutTensor& stack =
      tensor_of(request, "layers.0.mlp.experts.gate_up_proj");
  EXPECT_THAT(stack.shape, ElementsAre(3, 4, 6));
  EXPECT_EQ(rows_of(stack.stored), "0:2 2:3");
  EXPECT_EQ(
      rows_of(
          tensor_of(request, "layers.0.mlp.experts.1.down_proj.weight").stored),
      "0:3 3:6");
}

TEST(TorchRequest, RefusesExpertsOfAStackThatDiffer) {
  Model model = toy(kStacked);
  route(model, {{"*.experts.1.gate_up_proj", false}});
  const auto request = [&] {
    torch_request(model, storage_by({kFsdp2}, "dp=2"));
  };
  EXPECT_THAT(request, usage_error("layers.0.mlp.experts.gate_up_proj",
                                   "experts.1.gate_up_proj", "one parameter"));
  model = toy(kStacked);
  model.tensors.back().shape = {2, 2};
  for (Tensor& tensor : model.tensors)
    if (tensor.name == "layers.0.mlp.experts.2.gate_up_proj")
      tensor.shape = {4, 7};
  EXPECT_THAT(request, usage_error("[4, 6]", "[4, 7]", "one shape"));
}

TEST(TorchRequest, SplitsConsecutiveRows) {
  Model model = read_model("qwen3-0.6b", {.fused = true, .layers = 1});
  route(model, {});
  TorchPlacement placement = storage_by({kFsdp2}, "dp=2");
  placement.splits = parse_splits("gate-up");
  const StorageRequest halves = torch_request(model, placement);
  EXPECT_THAT(
      tensor_of(halves, "model.layers.0.mlp.gate_up_proj.weight").splits,
      ElementsAre(3072, 3072));
  EXPECT_THAT(
      tensor_of(halves, "model.layers.0.self_attn.qkv_proj.weight").splits,
      IsEmpty());
  placement.splits = parse_splits("head");
  EXPECT_EQ(tensor_of(torch_request(model, placement),
                      "model.layers.0.self_attn.qkv_proj.weight")
                .splits,
            std::vector<int64_t>(32, 128));
  placement.splits = parse_splits("qkv");
  EXPECT_THAT([&] { torch_request(model, placement); },
              usage_error("split qkv", "qkv_proj", "interleaved"));
}

// Column heads are an option of the rule: tensors that have some form groups of
// their own.
TEST(TorchRequest, GroupsTensorsByTheirColumnHeads) {
  Model model = read_model("qwen3-0.6b", {.layers = 1});
  route(model, {});
  TorchPlacement placement{.layout = {kFsdp2}, .mesh = parse_mesh("dp=2,tp=2")};
  placement.matrices = {"muon", {{"device", "cpu"}}};
  placement.splits = parse_splits("output-head");
  const StorageRequest request = torch_request(model, placement);
  ASSERT_EQ(request.groups.size(), 3U);
  EXPECT_FALSE(request.groups[0].options.contains("column_heads"));
  EXPECT_EQ(request.groups[1].options.at("column_heads"), "16");
  EXPECT_EQ(request.groups[2].rule, "adamw");
  for (const CutTensor& tensor : request.tensors)
    EXPECT_EQ(tensor.group == 1, tensor.name.ends_with("o_proj.weight"));
  EXPECT_THAT(validate(make_storage_plan(request)), IsEmpty());
  placement.matrices = {"soap", {{"device", "cpu"}}};
  EXPECT_THAT([&] { torch_request(model, placement); },
              usage_error("output-head", "rule soap", "use rule muon"));
}

TEST(TorchRequest, RefusesAxesThatNoLayoutHas) {
  const auto of = [](TorchLayout layout, const char* mesh) {
    return [=] { torch_request(small(), storage_by(layout, mesh)); };
  };
  EXPECT_THAT(of({kFsdp2}, "dp=2,pp=2"), usage_error("pp=2", "fsdp2"));
  EXPECT_THAT(of({kDdp}, "dp=2,cp=2"), usage_error("cp=2", "dp"));
  EXPECT_THAT(of({kFsdp2}, "dp=2,ep=2"), usage_error("ep=2", "leave ep out"));
  EXPECT_THAT(of({kHsdp, 8}, "dp=12"), usage_error("hsdp:8", "dp=12"));
  EXPECT_THAT(of({kHsdp, 8}, "dp=4"), usage_error("hsdp:8", "dp=4"));
  EXPECT_THAT(of({kFsdp2}, "dp=2,tp=3"), usage_error("tp=3"));
}

TEST(TorchRequest, RefusesMoreBoxesThanAPlanCanList) {
  const auto request = [] {
    torch_request(small(), storage_by({kFsdp2}, "dp=1000000"));
  };
  EXPECT_THAT(request,
              usage_error("5 tensors on 1000000 ranks", "5000000", "4194304"));
}

TEST(TorchLayout, IsReadAndWritten) {
  for (const char* text : {"ddp", "fsdp2", "hsdp:1", "hsdp:8"})
    EXPECT_EQ(to_string(parse_torch_layout(text)), text);
  const auto parse = [](const char* text) {
    return [=] { parse_torch_layout(text); };
  };
  EXPECT_THAT(parse("fsdp"), usage_error("'fsdp'", "did you mean 'fsdp2'"));
  EXPECT_THAT(parse("hsdp"), usage_error("'hsdp'", "hsdp:N"));
  EXPECT_THAT(parse(""), usage_error("''"));
  EXPECT_THAT(parse("hsdp:0"), usage_error("hsdp", "0"));
  EXPECT_THAT(parse("hsdp:x"), usage_error("hsdp", "x"));
  EXPECT_THAT(parse("hsdp:99999999999"), usage_error("hsdp"));
}

}  // namespace
}  // namespace canzona::plan::torch_request_test
