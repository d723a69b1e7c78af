#include "canzona/report/models_view.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/report/test_plans.h"

namespace canzona::report::models_view_test {
namespace {

using ::testing::HasSubstr;

TEST(ModelsView, SummarizesAModel) {
  const ModelLine line = summarize(layered_model(3), "three layers");
  EXPECT_EQ(line.num_tensors, 9);
  EXPECT_EQ(line.num_matrices, 6);
  EXPECT_EQ(line.elements, 3 * (2 * 64 * 32 + 32));
  const std::string text =
      print_text(presets_view({line}, {"llama", "gpt2"}), Ink());
  EXPECT_THAT(text, HasSubstr("three layers"));
  EXPECT_THAT(text, HasSubstr("llama, gpt2."));
  const Json json =
      parse_json(to_json(presets_view({line}, {"llama", "gpt2"})), {});
  EXPECT_EQ(json.at("models").size(), 1U);
  EXPECT_EQ(json.at("families").at(1), "gpt2");
}

TEST(ModelsView, LooksIntoAModel) {
  const Model model = layered_model(3);
  EXPECT_THAT(print_text(model_view(model, {}), Ink()),
              HasSubstr("layers.*.up"));
  const Json json = parse_json(to_json(model_view(model, {})), {});
  EXPECT_EQ(json.at("tensors").size(), 3U);
  EXPECT_EQ(json.at("num_matrices"), 6);
}

}  // namespace
}  // namespace canzona::report::models_view_test
