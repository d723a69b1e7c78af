#include "canzona/shapes/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/read_model.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::scale_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Scale, DividesEveryWidthAndKeepsHeads) {
  const Model large = read_model("qwen3-1.7b", {.fused = true});
  const Model small =
      read_model("qwen3-1.7b", {.fused = true, .layers = 4, .divisor = 8});
  EXPECT_EQ(small.num_layers, 4);
  EXPECT_EQ(small.query_heads, large.query_heads);
  EXPECT_THAT(small.name, AllOf(HasSubstr("1/8"), HasSubstr("4 layers")));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(small.tensors[i].name, large.tensors[i].name);
    for (size_t d = 0; d < small.tensors[i].shape.size(); ++d)
      EXPECT_EQ(small.tensors[i].shape[d] * 8, large.tensors[i].shape[d]);
  }
  EXPECT_EQ(small.tensors.back().name, large.tensors.back().name);
}

TEST(Scale, FirstLayersAreThoseOfAShallowerModel) {
  Architecture numbers = *find_preset("qwen3-0.6b");
  Model model = generate_model(numbers, "x", false);
  keep_layers(model, 3);
  numbers.layers = 3;
  EXPECT_EQ(model, generate_model(numbers, "x", false));
}

TEST(Scale, EveryPresetFitsAnEighth) {
  for (const PresetInfo& preset : presets())
    EXPECT_NO_THROW(scaled_down(*find_preset(preset.name), 8, preset.name))
        << preset.name;
}

TEST(Scale, ModelsWhoseExpertLayersAreGoneHaveNone) {
  Model model = read_model("deepseek-v3", {});
  keep_layers(model, 3);
  EXPECT_EQ(model.num_experts, 0);
}

TEST(Scale, RefusesWhatDoesNotDivide) {
  EXPECT_THAT(message_of([] { read_model("qwen3-0.6b", {.divisor = 3}); }),
              AllOf(HasSubstr("1/3"), HasSubstr("1024")));
  EXPECT_THAT(message_of([] { read_model("qwen3-0.6b", {.layers = 29}); }),
              AllOf(HasSubstr("28 layers"), HasSubstr("29")));
  TestFolder folder;
  const std::string list =
      folder.write("list.json", shapes_list({{"layers.0.up", {4, 2}}}));
  EXPECT_THAT(message_of([&] { read_model(list, {.divisor = 2}); }),
              HasSubstr("lists actual tensors"));
}

TEST(Scale, ReadsFractions) {
  EXPECT_EQ(parse_scale("1/8"), 8);
  EXPECT_EQ(parse_scale("1"), 1);
  for (const char* wrong : {"", "8", "2/8", "1/0", "1/x"})
    EXPECT_THAT(message_of([&] { parse_scale(wrong); }), HasSubstr("scale"));
}

}  // namespace
}  // namespace canzona::shapes::scale_test
