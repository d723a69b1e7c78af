#include "canzona/checkpoint/shard_writer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/shapes/safetensors.h"

namespace canzona::checkpoint::safetensors_writer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class SafetensorsWriting : public FolderTest {};

SafetensorsHeader header_of(const std::string& bytes) {
  return read_safetensors_header(bytes, static_cast<int64_t>(bytes.size()),
                                 "a.safetensors");
}

// Every byte, written down by hand.
TEST_F(SafetensorsWriting, ATinyFileIsTheseBytes) {
  SafetensorsWriter file(path("a"), {{"a", DType::kFp32, {2}}}, {});
  file.add(std::vector<float>{1, -2});
  // As sha256sum prints it.
  EXPECT_EQ(file.finish(),
            "8aa3e2b342431367d957dd15ae626330"
            "3c3f27376d40e2d1bbec7012945eecf1");
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_EQ(header.size(), 54u);
  EXPECT_EQ(bytes_of("a"), std::string("\x38\0\0\0\0\0\0\0", 8) + header +
                               "  " + std::string("\0\0\x80\x3F\0\0\0\xC0", 8));
}

TEST_F(SafetensorsWriting, TheReaderFindsNamesShapesAndData) {
  SafetensorsWriter file(path("a"),
                         {{"w", DType::kBf16, {2, 3}},
                          {"scalar", DType::kFp32, {}},
                          {"b", DType::kFp32, {2}}},
                         {{"format", "pt"}, {"step", "7 <&>"}});
  // Pieces need not end at tensor boundaries.
  file.add(std::vector<float>{1, 2, 3, 4});
  file.add(std::vector<float>{5, 6, 7, 8});
  file.add(std::vector<float>{9});
  file.finish();
  const std::string bytes = bytes_of("a");
  const SafetensorsHeader header = header_of(bytes);
  ASSERT_THAT(header.tensors, SizeIs(3));
  EXPECT_EQ(header.metadata.at("step"), "7 <&>");
  EXPECT_EQ(header.tensors[0].dtype, "BF16");
  EXPECT_THAT(header.tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(header.tensors[0].begin % 8, 0);
  EXPECT_THAT(header.tensors[1].shape, SizeIs(0));
  EXPECT_EQ(bytes.substr(static_cast<size_t>(header.tensors[0].begin), 4),
            std::string("\x80\x3F\0\x40", 4));
  EXPECT_EQ(bytes.substr(static_cast<size_t>(header.tensors[2].begin)),
            std::string("\0\0\0\x41\0\0\x10\x41", 8));
}

TEST_F(SafetensorsWriting, Bf16IsTheNearestAndTheLargerOfTwo) {
  const std::vector<std::pair<float, uint16_t>> cases = {
      {1.0F, 0x3F80},        {0x1.01p0F, 0x3F81},
      {-0x1.01p0F, 0xBF81},  {0x1.03p0F, 0x3F82},
      {0x1.0101p0F, 0x3F81}, {-0x1.0101p0F, 0xBF81},
      {0.0F, 0x0000},        {-0.0F, 0x8000},
      {0x1.ffp127F, 0x7F80}, {std::numeric_limits<float>::infinity(), 0x7F80},
      {0x1p-149F, 0x0000},
  };
  std::vector<float> values;
  for (const auto& [value, bits] : cases) values.push_back(value);
  values.push_back(std::nanf("1"));
  SafetensorsWriter file(
      path("a"), {{"a", DType::kBf16, {static_cast<int64_t>(values.size())}}},
      {});
  file.add(values);
  file.finish();
  const std::string bytes = bytes_of("a");
  const size_t begin = bytes.size() - 2 * values.size();
  const auto bits_at = [&](size_t i) {
    return static_cast<unsigned char>(bytes[begin + 2 * i]) |
           static_cast<unsigned char>(bytes[begin + 2 * i + 1]) << 8;
  };
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(bits_at(i), cases[i].second) << cases[i].first;
  EXPECT_GT(bits_at(cases.size()) & 0x7FFF, 0x7F80);
}

TEST_F(SafetensorsWriting, LargeTensorsComeWhole) {
  std::vector<float> values(200'001);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) * 0.5F;
  SafetensorsWriter file(path("a"), {{"a", DType::kFp32, {200'001}}}, {});
  file.add(values);
  file.finish();
  const std::string bytes = bytes_of("a");
  const StoredTensor a = header_of(bytes).tensors[0];
  ASSERT_EQ(a.end - a.begin, 800'004);
  EXPECT_EQ(std::memcmp(bytes.data() + a.begin, values.data(), 800'004), 0);
}

TEST_F(SafetensorsWriting, WithoutAllElementsThereIsNoFile) {
  {
    SafetensorsWriter file(path("a"), {{"a", DType::kFp32, {2}}}, {});
    file.add(std::vector<float>{1});
    EXPECT_THROW(file.finish(), InternalError);
  }
  EXPECT_FALSE(std::filesystem::exists(path("a")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  SafetensorsWriter file(path("b"), {{"a", DType::kFp32, {2}}}, {});
  EXPECT_THROW(file.add(std::vector<float>{1, 2, 3}), InternalError);
}

TEST_F(SafetensorsWriting, NoTensorsAreAFileToo) {
  SafetensorsWriter file(path("a"), {}, {});
  file.finish();
  EXPECT_THAT(header_of(bytes_of("a")).tensors, SizeIs(0));
}

TEST_F(SafetensorsWriting, RefusesANameThatComesTwice) {
  EXPECT_THROW(
      SafetensorsWriter(
          path("a"), {{"a", DType::kFp32, {1}}, {"a", DType::kFp32, {1}}}, {}),
      UsageError);
  EXPECT_THROW(
      SafetensorsWriter(path("a"), {{"__metadata__", DType::kFp32, {1}}}, {}),
      UsageError);
  EXPECT_THROW(SafetensorsWriter(path("no/a"), {}, {}), UsageError);
}

}  // namespace
}  // namespace canzona::checkpoint::safetensors_writer_test
