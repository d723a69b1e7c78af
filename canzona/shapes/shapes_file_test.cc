#include "canzona/shapes/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/read_model.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::shapes_file_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ShapesFile, ListsNamesAndShapes) {
  const Model model = model_from_shapes(
      R"([{"name": "layers.0.mlp.up", "shape": [3072, 1024], "tp": "rows"},
          {"name": "layers.0.norm", "shape": [1024], "role": "norm"},
          {"shape": [8, 4], "tp": "none", "name": "layers.0.mlp.down"}])",
      "list.json");
  EXPECT_EQ(model.name, "list.json");
  EXPECT_EQ(model.num_layers, 1);
  ASSERT_EQ(model.tensors.size(), 3u);
  EXPECT_EQ(model.tensors[0].name, "layers.0.mlp.down");
  EXPECT_EQ(model.tensors[0].cut, Cut::kNone);
  EXPECT_EQ(model.tensors[1].name, "layers.0.mlp.up");
  EXPECT_THAT(model.tensors[1].shape, ElementsAre(3072, 1024));
  EXPECT_EQ(model.tensors[1].cut, Cut::kRows);
  EXPECT_TRUE(model.tensors[1].matrix_rule);
  EXPECT_EQ(model.tensors[2].role, Role::kNorm);
}

TEST(ShapesFile, OrderOfEntriesDoesNotMatter) {
  std::vector<TensorRecord> records = {{"embed", {16, 4}}, {"head", {16, 4}}};
  for (int layer = 0; layer < 12; ++layer) {
    records.push_back({cat("layers.", layer, ".up"), {8, 4}});
    records.push_back({cat("layers.", layer, ".down"), {4, 8}});
  }
  const Model expected = model_from_shapes(shapes_list(records), "list");
  EXPECT_EQ(expected.tensors.front().name, "embed");
  EXPECT_EQ(expected.tensors.back().name, "head");
  for (unsigned seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(model_from_shapes(shapes_list(shuffled(records, seed)), "list"),
              expected);
  }
}

std::string message(std::string_view text) {
  return message_of([&] { model_from_shapes(text, "list.json"); });
}

TEST(ShapesFile, UnknownKeysAreRefused) {
  EXPECT_THAT(message(R"([{"name": "x", "shpae": [1]}])"),
              AllOf(HasSubstr("list.json"), HasSubstr("'x'"),
                    HasSubstr("'shpae'"), HasSubstr("did you mean 'shape'")));
}

TEST(ShapesFile, MissingAndDoubleKeysAreRefused) {
  EXPECT_THAT(message(R"([{"name": "x"}])"), HasSubstr("'shape' is missing"));
  EXPECT_THAT(message(R"([{"name": "y", "shape": [1]}, {"shape": [1]}])"),
              AllOf(HasSubstr("entry 2"), HasSubstr("'name' is missing")));
  EXPECT_THAT(message(R"([{"name": "x", "shape": [1], "name": "y"}])"),
              HasSubstr("'name' comes twice"));
}

TEST(ShapesFile, EmptyListsAndDuplicatesAreRefused) {
  EXPECT_THAT(message("[]"), HasSubstr("no tensors"));
  EXPECT_THAT(message(R"([{"name": "x", "shape": [1]},
                          {"name": "x", "shape": [1]}])"),
              AllOf(HasSubstr("'x'"), HasSubstr("twice")));
}

TEST(ShapesFile, OddSizesAreRefused) {
  for (const char* shape :
       {"[0]", "[4, -1]", "[1099511627777]", "[9223372036854775808]",
        "[18446744073709551616]", "[1.5]", "[\"1\"]", "[null]", "[[1]]", "{}",
        "7", "null", "\"x\"", "true", "[1,1,1,1,1,1,1,1,1]",
        "[1099511627776, 1099511627776]", "[1e3]", "[true]"}) {
    EXPECT_THAT(message(cat(R"([{"name": "x", "shape": )", shape, "}]")),
                AllOf(HasSubstr("list.json"), HasSubstr("x")))
        << shape;
  }
  EXPECT_EQ(message(R"([{"name": "x", "shape": [1048576, 1048576]}])"),
            "nothing was thrown");
}

TEST(ShapesFile, OddNamesAndWordsAreRefused) {
  for (const char* entry :
       {R"({"name": "", "shape": [1]})", R"({"name": "a\u0000", "shape": [1]})",
        R"({"name": "\u001b[31m", "shape": [1]})",
        R"({"name": 5, "shape": [1]})", R"({"name": {}, "shape": [1]})",
        R"({"name": null, "shape": [1]})",
        R"({"name": "x", "shape": [1], "tp": "cols"})",
        R"({"name": "x", "shape": [1], "tp": 1})",
        R"({"name": "x", "shape": [1], "tp": "columns"})",
        R"({"name": "x", "shape": [1], "role": "matrix"})",
        R"({"name": "x", "shape": [1], "role": "odd"})",
        R"({"name": "layers.10000.up", "shape": [1, 1]})"}) {
    EXPECT_NE(message(cat("[", entry, "]")), "nothing was thrown") << entry;
  }
  EXPECT_THAT(message(R"([{"name": "x", "shape": [1], "tp": "row"}])"),
              AllOf(HasSubstr("entry 1 ('x')"), HasSubstr("did you mean")));
}

TEST(ShapesFile, BrokenTextIsRefused) {
  for (const char* text :
       {"", " ", "[", "[{", "{}", "7", "null", "\"x\"", "[1]", "[[]]", "[null]",
        R"([{"name": "x", "shape": [1]}] x)",
        R"([{"name": "x", "shape": [1]},])",
        "[{\"name\": \"\xFF\", \"shape\": [1]}]"}) {
    EXPECT_THAT(message(text), HasSubstr("list.json: ")) << text;
  }
  EXPECT_THAT(message(std::string(100'000, '[')), HasSubstr("list.json: "));
}

}  // namespace
}  // namespace canzona::shapes::shapes_file_test
