#include "canzona/data/token_source.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/data/test_files.h"

namespace canzona::data::llmc_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kGood = llmc_file<uint16_t>(20240520, 1, {1, 2, 3});

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

PackedRegion tokens_of(const std::string& file) {
  const auto all = bytes(file);
  return llmc_tokens(all.first(std::min(all.size(), kLlmcHeaderBytes)),
                     std::ssize(file), "x.bin");
}

void refused(const std::string& file, const char* place, const char* found) {
  EXPECT_THAT([&] { tokens_of(file); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("x.bin"), HasSubstr(place),
                        HasSubstr("expected"), HasSubstr(found))));
}

TEST(Llmc, FindsTheTokensBehindTheHeader) {
  const PackedRegion tokens = tokens_of(kGood);
  EXPECT_EQ(tokens.size(), 3);
  EXPECT_EQ(tokens.begin, 1024);
  EXPECT_EQ(tokens.type, PackedType::kU16);
  EXPECT_TRUE(looks_like_llmc(bytes(kGood)));
  EXPECT_FALSE(looks_like_llmc(bytes("text")));
  EXPECT_FALSE(looks_like_llmc(bytes("")));
}

TEST(Llmc, RefusesEveryCutFile) {
  for (size_t size = 0; size < kGood.size(); ++size)
    EXPECT_THROW(tokens_of(kGood.substr(0, size)), UsageError) << size;
  refused(kGood.substr(0, 500), "header", "500");
  refused(kGood + "x", "byte 8", "7 bytes");
}

TEST(Llmc, RefusesOtherMagicVersionAndCount) {
  refused(llmc_file<uint16_t>(20240521, 1, {1}), "byte 0", "another number");
  refused(llmc_file<uint16_t>(20240520, 7, {1}), "byte 4", "found 7");
  refused(llmc_file<uint32_t>(20240801, 1, {1}), "byte 4", "found 1");
  for (int32_t count : {-1, 0, 4, 0x7FFFFFFF, -0x7FFFFFFF}) {
    std::string file = kGood;
    file.replace(8, 4, reinterpret_cast<const char*>(&count), 4);
    refused(file, "byte 8", std::to_string(count).c_str());
  }
}

}  // namespace
}  // namespace canzona::data::llmc_test
