#include "canzona/shapes/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/read_model.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::safetensors_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TensorRecords read(const std::string& bytes) {
  return read_safetensors(bytes, static_cast<int64_t>(bytes.size()), "x.st");
}

std::string message(const std::string& header, size_t data_bytes = 0) {
  return message_of([&] { read(safetensors_bytes(header, data_bytes)); });
}

TEST(Safetensors, NamesAndShapesOfAHeader) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("up":{"dtype":"BF16","shape":[3,2],"data_offsets":[4,16]},)"
      R"("norm":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}}   )";
  const TensorRecords records = read(safetensors_bytes(header, 16));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].name, "up");
  EXPECT_THAT(records[0].shape, ElementsAre(3, 2));
  EXPECT_EQ(records[1].name, "norm");
}

TEST(Safetensors, WholeHeaderTellsMetadataAndPlaces) {
  const std::string header =
      R"({"up":{"dtype":"BF16","shape":[3,2],"data_offsets":[4,16]},)"
      R"("__metadata__":{"rule":"muon","note":""},)"
      R"("norm":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})";
  const std::string bytes = safetensors_bytes(header, 16);
  const auto size = static_cast<int64_t>(bytes.size());
  const SafetensorsHeader read = read_safetensors_header(bytes, size, "x.st");
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(read.tensors[0].name, "up");
  EXPECT_EQ(read.tensors[0].dtype, "BF16");
  EXPECT_THAT(read.tensors[0].shape, ElementsAre(3, 2));
  EXPECT_EQ(read.tensors[0].begin, size - 12);
  EXPECT_EQ(read.tensors[0].end, size);
  EXPECT_EQ(read.tensors[1].begin, size - 16);
  EXPECT_THAT(read.metadata,
              ElementsAre(std::pair("note", ""), std::pair("rule", "muon")));
}

TEST(Safetensors, WholeHeaderRefusesANameThatComesTwice) {
  const std::string bytes =
      safetensors_bytes(R"({"x":{"dtype":"I8","shape":[1],)"
                        R"("data_offsets":[0,1]},"x":{"dtype":"I8",)"
                        R"("shape":[1],"data_offsets":[1,2]}})",
                        2);
  EXPECT_THAT(message_of([&] {
                read_safetensors_header(
                    bytes, static_cast<int64_t>(bytes.size()), "x.st");
              }),
              AllOf(HasSubstr("x.st"), HasSubstr("'x' comes twice")));
}

TEST(Safetensors, OnlyTheHeaderIsNeeded) {
  const std::string bytes =
      safetensors_bytes(R"({"up":{"dtype":"F64","shape":[1048576,1024],)"
                        R"("data_offsets":[0,8589934592]}})");
  const auto header = static_cast<int64_t>(bytes.size());
  const Model model =
      model_from_safetensors_header(bytes, header + (int64_t{8} << 30), "m");
  EXPECT_EQ(model.tensors[0].rows(), 1'048'576);
}

TEST(Safetensors, OrderOfEntriesDoesNotMatter) {
  std::vector<TensorRecord> records = {{"lm_head.weight", {5, 2}}};
  for (int i = 0; i < 12; ++i) {
    records.push_back({cat("layers.", i, ".up"), {2, i + 1}});
  }
  const auto model = [](const std::vector<TensorRecord>& list) {
    const std::string bytes = safetensors_file(list);
    return model_from_safetensors_header(
        bytes, static_cast<int64_t>(bytes.size()), "m");
  };
  const Model expected = model(records);
  EXPECT_EQ(expected.tensors[10].name, "layers.10.up");
  for (unsigned seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(model(shuffled(records, seed)), expected);
  }
}

TEST(Safetensors, AllTypesAreKnown) {
  for (const auto& [type, bytes] : std::vector<std::pair<const char*, int>>{
           {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},
           {"U8", 8},      {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
           {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},
           {"BF16", 16},   {"I32", 32},    {"U32", 32},    {"F32", 32},
           {"F64", 64},    {"I64", 64},    {"U64", 64},    {"C64", 64}}) {
    EXPECT_EQ(message(cat(R"({"x":{"dtype":")", type,
                          R"(","shape":[8],"data_offsets":[0,)", bytes, "]}}"),
                      static_cast<size_t>(bytes)),
              "nothing was thrown")
        << type;
  }
}

TEST(Safetensors, FilesThatAreTooShortAreRefused) {
  const std::string whole = safetensors_file({{"x", {4}}});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(message_of([&] { read(whole.substr(0, size)); }),
              "nothing was thrown")
        << size;
  }
  EXPECT_THAT(message_of([] { read("1234567"); }), HasSubstr("7 bytes"));
  EXPECT_THAT(message_of([&] { read(whole.substr(0, 20)); }),
              HasSubstr("cut short"));
  EXPECT_THAT(
      message_of([&] { read_safetensors(whole.substr(0, 20), 999, "x"); }),
      HasSubstr("cut short"));
  EXPECT_THAT(message_of([&] { read(whole + "x"); }), HasSubstr("data ends"));
}

TEST(Safetensors, HeadersThatAreTooLargeAreRefused) {
  std::string bytes(8, '\xFF');
  EXPECT_THAT(message_of([&] { read_safetensors(bytes, INT64_MAX, "x"); }),
              HasSubstr("18446744073709551615"));
  bytes = std::string("\x01\xE1\xF5\x05\0\0\0\0", 8);  // 100,000,001
  EXPECT_THAT(message_of([&] { read_safetensors(bytes, INT64_MAX, "x"); }),
              HasSubstr("the limit is 100000000"));
}

TEST(Safetensors, HeadersMustBeginWithABrace) {
  EXPECT_THAT(message(" {}"), HasSubstr("no '{'"));
  EXPECT_THAT(message(""), HasSubstr("no '{'"));
  EXPECT_THAT(message("[]"), HasSubstr("no '{'"));
}

TEST(Safetensors, HeadersMustBeJson) {
  EXPECT_THAT(message("{"), HasSubstr("JSON"));
  EXPECT_THAT(message("{} x"), HasSubstr("JSON"));
  EXPECT_THAT(message("{\"\xFF\":{}}"), HasSubstr("JSON"));
  EXPECT_NE(message("{" + std::string(1000, '[')), "nothing was thrown");
}

// A header of one tensor 'x' with the given entry.
std::string entry_message(const std::string& entry, size_t data_bytes) {
  return message(cat(R"({"x":)", entry, "}"), data_bytes);
}

TEST(Safetensors, OffsetsMustFitShapeAndType) {
  EXPECT_THAT(
      entry_message(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4),
      AllOf(HasSubstr("'x'"), HasSubstr("4 bytes"), HasSubstr("[2]")));
  EXPECT_THAT(
      entry_message(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})", 1),
      HasSubstr("12 bits"));
  EXPECT_THAT(
      entry_message(R"({"dtype":"I8","shape":[4],"data_offsets":[4,0]})", 4),
      HasSubstr("[begin, end]"));
  EXPECT_THAT(
      entry_message(R"({"dtype":"I8","shape":[4],"data_offsets":[-4,0]})", 4),
      HasSubstr("[begin, end]"));
  EXPECT_THAT(
      entry_message(R"({"dtype":"I8","shape":[4],"data_offsets":[4]})", 4),
      HasSubstr("[begin, end]"));
  EXPECT_THAT(
      entry_message(
          R"({"dtype":"I8","shape":[4],"data_offsets":[0,0,0,0,0,0,0,0,4]})",
          4),
      HasSubstr("data_offsets"));
}

TEST(Safetensors, ShapesThatOverflowAreRefused) {
  EXPECT_NE(entry_message(R"({"dtype":"F64","data_offsets":[0,0],)"
                          R"("shape":[1099511627776,8388608]})",
                          0),
            "nothing was thrown");
  EXPECT_NE(entry_message(R"({"dtype":"F64","data_offsets":[0,0],)"
                          R"("shape":[4294967296,1073741824]})",
                          0),
            "nothing was thrown");
  EXPECT_THAT(entry_message(R"({"dtype":"F64","data_offsets":[0,0],)"
                            R"("shape":[0]})",
                            0),
              HasSubstr("from 1"));
}

TEST(Safetensors, HolesAndOverlapsAreRefused) {
  const auto two = [](const char* first, const char* second) {
    return cat(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":)", first,
               R"(},"b":{"dtype":"I8","shape":[4],"data_offsets":)", second,
               "}}");
  };
  EXPECT_EQ(message(two("[4,8]", "[0,4]"), 8), "nothing was thrown");
  EXPECT_THAT(message(two("[0,4]", "[5,9]"), 9), HasSubstr("no hole"));
  EXPECT_THAT(message(two("[0,4]", "[3,7]"), 7), HasSubstr("no overlap"));
  EXPECT_THAT(message(two("[0,4]", "[0,4]"), 4), HasSubstr("no overlap"));
  EXPECT_THAT(message(two("[1,5]", "[5,9]"), 9), HasSubstr("expected 0"));
  EXPECT_THAT(message(two("[0,4]", "[4,8]"), 9), HasSubstr("ends at 8"));
  EXPECT_THAT(message(two("[0,4]", "[4,8]"), 7), HasSubstr("the file's at 7"));
}

TEST(Safetensors, UnknownTypesAreRefusedByName) {
  EXPECT_THAT(
      entry_message(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})", 4),
      AllOf(HasSubstr("'x'"), HasSubstr("'F33'")));
}

TEST(Safetensors, OddEntriesAreRefused) {
  EXPECT_THAT(entry_message(R"({"dtype":"I8","shape":[1]})", 0),
              HasSubstr("'data_offsets' is missing"));
  EXPECT_THAT(entry_message(R"({"dtype":"I8","dtype":"I8"})", 0),
              HasSubstr("'dtype' comes twice"));
  EXPECT_THAT(entry_message(R"({"dtpye":"I8"})", 0),
              HasSubstr("did you mean 'dtype'"));
  for (const char* entry :
       {"7", "null", "[]", "\"x\"", R"({"dtype":8})", R"({"dtype":[]})",
        R"({"dtype":{}})", R"({"shape":1})", R"({"shape":{}})",
        R"({"shape":[1.5]})", R"({"shape":["1"]})", R"({"shape":[[1]]})",
        R"({"shape":[18446744073709551615]})",
        R"({"shape":[1,1,1,1,1,1,1,1,1]})"}) {
    EXPECT_THAT(entry_message(entry, 0), HasSubstr("'x'")) << entry;
  }
}

TEST(Safetensors, DuplicateAndOddNamesAreRefused) {
  const std::string entry = R"({"dtype":"I8","shape":[1],"data_offsets":)";
  const std::string bytes = safetensors_bytes(
      cat(R"({"x":)", entry, R"([0,1]},"x":)", entry, "[1,2]}}"), 2);
  EXPECT_THAT(message_of([&] {
                model_from_safetensors_header(
                    bytes, static_cast<int64_t>(bytes.size()), "m");
              }),
              HasSubstr("twice"));
  EXPECT_THAT(message(cat(R"({"":)", entry, "[0,1]}}"), 1),
              HasSubstr("is empty"));
  EXPECT_THAT(message(cat(R"({"a\u0007":)", entry, "[0,1]}}"), 1),
              HasSubstr("control characters"));
}

TEST(Safetensors, MetadataIsTextToText) {
  for (const char* metadata : {"1", "\"x\"", "[]", R"({"a":1})",
                               R"({"a":null})", R"({"a":{}})", R"({"a":[]})"}) {
    EXPECT_THAT(message(cat(R"({"__metadata__":)", metadata, "}")),
                HasSubstr("__metadata__"))
        << metadata;
  }
  EXPECT_THAT(message(R"({"__metadata__":{"a":"1","a":"2"}})"),
              HasSubstr("'a' comes twice"));
  EXPECT_THAT(message(R"({"__metadata__":{},"__metadata__":{}})"),
              HasSubstr("comes twice"));
}

TEST(Safetensors, AFileWithoutTensorsIsNoModel) {
  const std::string bytes = safetensors_bytes("{}");
  EXPECT_TRUE(read(bytes).empty());
  EXPECT_THAT(message_of([&] {
                model_from_safetensors_header(
                    bytes, static_cast<int64_t>(bytes.size()), "m");
              }),
              HasSubstr("no tensors"));
}

// No change of one byte of length or header may crash; most are refused.
TEST(Safetensors, FlippedBytesAreRefusedOrRead) {
  const std::string whole = safetensors_file({{"x", {4, 2}}, {"y", {3}}});
  for (size_t i = 0; i + 11 < whole.size(); ++i) {
    for (const int bit : {0, 1, 3, 6}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      try {
        EXPECT_EQ(read(bytes).size(), 2u);
      } catch (const UsageError&) {
      }
    }
  }
}

}  // namespace
}  // namespace canzona::shapes::safetensors_test
