#include "canzona/data/token_source.h"

#include <gmock/gmock.h>

#include <limits>

#include "canzona/base/error.h"
#include "canzona/data/test_files.h"

namespace canzona::data::data_megatron_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kGood = megatron_idx(8, {{2, 0}, {3, 4}});
constexpr int64_t kBinBytes = 10;

MegatronIndex read(const std::string& file, int64_t bin_bytes = kBinBytes) {
  return megatron_index(std::as_bytes(std::span(file)), bin_bytes, "x.idx");
}

void refused(const std::string& file, const char* place, const char* found) {
  EXPECT_THAT([&] { read(file); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("x.idx"), HasSubstr(place),
                        HasSubstr("expected"), HasSubstr(found))));
}

template <class Number>
std::string with(std::string file, size_t at, Number number) {
  return file.replace(at, sizeof number, reinterpret_cast<const char*>(&number),
                      sizeof number);
}

TEST(MegatronIndex, JoinsSequencesThatLieSideBySide) {
  const MegatronIndex index = read(kGood);
  EXPECT_EQ(index.num_sequences, 2);
  EXPECT_EQ(index.num_tokens, 5);
  EXPECT_EQ(index.type, PackedType::kU16);
  ASSERT_EQ(index.runs.size(), 1U);
  EXPECT_EQ(read(megatron_idx(8, {{2, 0}, {2, 6}})).runs.size(), 2U);
  EXPECT_EQ(read(megatron_idx(8, {})).num_tokens, 0);
  EXPECT_EQ(read(kGood + "modes").num_tokens, 5);
}

TEST(MegatronIndex, KnowsTheTypesOfIntegers) {
  const auto type = [](uint8_t code) {
    return read(megatron_idx(code, {{1, 0}})).type;
  };
  EXPECT_EQ(type(1), PackedType::kU8);
  EXPECT_EQ(type(2), PackedType::kI8);
  EXPECT_EQ(type(3), PackedType::kI16);
  EXPECT_EQ(type(4), PackedType::kI32);
  EXPECT_EQ(type(5), PackedType::kI64);
  EXPECT_EQ(type(8), PackedType::kU16);
  for (uint8_t code : {0, 6, 7, 9, 255})
    refused(megatron_idx(code, {{1, 0}}), "byte 17",
            std::to_string(code).c_str());
}

TEST(MegatronIndex, RefusesEveryCutFile) {
  for (size_t size = 0; size < kGood.size(); ++size)
    EXPECT_THROW(read(kGood.substr(0, size)), UsageError) << size;
  EXPECT_NO_THROW(read(kGood));
}

TEST(MegatronIndex, RefusesOtherMagicAndVersion) {
  refused("MMIDIDY" + kGood.substr(7), "byte 0", "other bytes");
  refused(with(kGood, 9, uint64_t{2}), "byte 9", "found 2");
}

TEST(MegatronIndex, RefusesCountsThatTheFileCannotHold) {
  for (uint64_t count : {uint64_t{5}, uint64_t{1} << 62, uint64_t{1} << 63,
                         std::numeric_limits<uint64_t>::max(),
                         std::numeric_limits<uint64_t>::max() / 12 + 2}) {
    refused(with(kGood, 18, count), "sequences, byte 18",
            std::to_string(count).c_str());
    refused(with(kGood, 26, count), "documents, byte 26",
            std::to_string(count).c_str());
  }
}

TEST(MegatronIndex, RefusesSequencesOutsideTheBin) {
  refused(with(kGood, 34, int32_t{-1}), "length of sequence 0, byte 34",
          "found -1");
  refused(with(kGood, 38, int32_t{4}), "start of sequence 1", "found 4");
  refused(with(kGood, 38, std::numeric_limits<int32_t>::max()),
          "start of sequence 1", "found 4");
  for (int64_t byte : {int64_t{-1}, int64_t{5}, int64_t{11}, int64_t{1} << 62,
                       std::numeric_limits<int64_t>::min(),
                       std::numeric_limits<int64_t>::max()})
    refused(with(kGood, 50, byte), "start of sequence 1, byte 50",
            std::to_string(byte).c_str());
  EXPECT_THROW(read(kGood, 9), UsageError);
  EXPECT_THROW(read(kGood, 0), UsageError);
}

}  // namespace
}  // namespace canzona::data::data_megatron_test
