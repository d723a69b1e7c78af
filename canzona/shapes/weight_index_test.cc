#include "canzona/shapes/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/test_support.h"

namespace canzona::shapes::weight_index_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(WeightIndex, SaysWhichShardHoldsWhat) {
  const WeightIndex index = parse_weight_index(
      R"({"metadata": {"total_size": 48, "more": [{"a": null}, 1.5]},
          "weight_map": {"b": "m-2.safetensors", "c": "m-1.safetensors",
                         "a": "m-1.safetensors"}})",
      "index.json");
  EXPECT_THAT(index.shards, ElementsAre("m-2.safetensors", "m-1.safetensors"));
  EXPECT_THAT(index.entries, ElementsAre(WeightIndex::Entry{"b", 0},
                                         WeightIndex::Entry{"a", 1},
                                         WeightIndex::Entry{"c", 1}));
}

std::string message(std::string_view json) {
  return message_of([&] { parse_weight_index(json, "index.json"); });
}

TEST(WeightIndex, NamesOfShardsArePlainFileNames) {
  const std::vector<std::string> hostile = {
      "",        ".",           "..",     "../x",
      "a/b",     "/etc/passwd", "a\\\\b", ".hidden",
      "a..b",    "x\\u0000",    "x\\n",   "x\\u001b[31m",
      "\\u007f", "~/../x",      "./x",    "x/",
      "..\\\\x", "\\t",         "a/../b", std::string(256, 'a')};
  for (const std::string& name : hostile) {
    EXPECT_THAT(
        message(cat(R"({"weight_map": {"t": ")", name, "\"}}")),
        AllOf(HasSubstr("index.json"), HasSubstr("not a plain file name")))
        << name;
  }
}

TEST(WeightIndex, BrokenIndexesAreRefused) {
  EXPECT_THAT(message("{}"), HasSubstr("'weight_map' is missing"));
  EXPECT_THAT(message(R"({"weight_map": {}})"), HasSubstr("no tensors"));
  EXPECT_THAT(message(R"({"weight_map": {"a": "x", "a": "y"}})"),
              HasSubstr("'a' comes twice"));
  EXPECT_THAT(message(R"({"weight_map": {"a": "x"}, "weight_map": {}})"),
              HasSubstr("comes twice"));
  EXPECT_THAT(message(R"({"metadata": {}, "metadata": {}})"),
              HasSubstr("comes twice"));
  for (const char* map :
       {"1", "null", "[]", "\"x\"", R"({"a": 1})", R"({"a": null})",
        R"({"a": ["x"]})", R"({"a": {}})"}) {
    EXPECT_THAT(message(cat(R"({"weight_map": )", map, "}")),
                HasSubstr("weight_map"))
        << map;
  }
  for (const char* text : {"", "[]", "7", "\"x\"", "null", "{", "{} {}"}) {
    EXPECT_THAT(message(text), HasSubstr("index.json: ")) << text;
  }
}

class Shards : public testing::Test {
 protected:
  TensorRecords read(std::string_view map) const {
    return read_shards(
        parse_weight_index(cat(R"({"weight_map": )", map, "}"), "index.json"),
        folder_.path());
  }
  std::string read_message(std::string_view map) const {
    return message_of([&] { read(map); });
  }

  TestFolder folder_;
};

TEST_F(Shards, MustAgreeWithTheIndex) {
  folder_.write("1.st", safetensors_file({{"a", {2}}, {"b", {3}}}));
  folder_.write("2.st", safetensors_file({{"c", {4}}}));
  const TensorRecords records =
      read(R"({"c": "2.st", "b": "1.st", "a": "1.st"})");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].name, "c");
  EXPECT_EQ(records[2].name, "b");

  EXPECT_THAT(read_message(R"({"c": "2.st", "a": "1.st"})"),
              AllOf(HasSubstr("1.st"), HasSubstr("holds tensor 'b'")));
  EXPECT_THAT(read_message(R"({"c": "2.st", "d": "2.st"})"),
              AllOf(HasSubstr("2.st"), HasSubstr("lacks tensor 'd'")));
  EXPECT_THAT(read_message(R"({"a": "2.st"})"), HasSubstr("lacks tensor 'a'"));
  EXPECT_THAT(read_message(R"({"d": "2.st"})"), HasSubstr("holds tensor 'c'"));
}

TEST_F(Shards, ThatAreMissingOrBrokenAreNamed) {
  EXPECT_THAT(read_message(R"({"a": "gone.st"})"), HasSubstr("gone.st"));
  folder_.write("short.st", safetensors_file({{"a", {2}}}).substr(0, 30));
  EXPECT_THAT(read_message(R"({"a": "short.st"})"), HasSubstr("short.st"));
  folder_.write("twice.st", safetensors_file({{"a", {1}}, {"a", {1}}}));
  EXPECT_THAT(read_message(R"({"a": "twice.st"})"), HasSubstr("twice.st"));
}

}  // namespace
}  // namespace canzona::shapes::weight_index_test
