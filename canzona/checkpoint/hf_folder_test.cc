#include "canzona/checkpoint/hf_folder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/test_hf_files.h"

namespace canzona::checkpoint::hf_folder_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class HfFolders : public FolderTest {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    folder_.write(name, bytes);
  }
  std::vector<float> values(const HfFolder& folder, const std::string& name,
                            int64_t first, size_t count) {
    std::vector<float> out(count);
    folder.read(*folder.find(name), first, out);
    return out;
  }
};

RawTensor four(const std::string& name) {
  return {name, "F32", {2, 2}, raw_bytes<float>({1, 2, 3, 4})};
}

TEST_F(HfFolders, ReadOneFileOfThreeTypes) {
  // 1.5, -2, the largest, the smallest above 0, 2^-14, infinity, -0.
  const std::vector<uint16_t> halves = {0x3E00, 0xC000, 0x7BFF, 0x0001,
                                        0x0400, 0x7C00, 0x8000};
  const std::vector<uint16_t> bf16 = {0x3FC0, 0xC000, 0x7F80, 0x0001};
  write("config.json", "{}");
  write("model.safetensors",
        raw_safetensors({{"b", "BF16", {4}, raw_bytes(bf16)},
                         {"h", "F16", {7}, raw_bytes(halves)},
                         four("a")}));
  const HfFolder folder = HfFolder::open(path(""));
  EXPECT_EQ(folder.config_json(), "{}");
  ASSERT_EQ(folder.entries().size(), 3U);
  EXPECT_EQ(folder.entries()[0].name, "a");
  EXPECT_EQ(folder.find("c"), nullptr);
  EXPECT_THAT(values(folder, "a", 0, 4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values(folder, "a", 1, 2), ElementsAre(2, 3));
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_THAT(values(folder, "h", 0, 7),
              ElementsAre(1.5F, -2, 65504, 0x1p-24F, 0x1p-14F, kInf, 0));
  EXPECT_TRUE(std::signbit(values(folder, "h", 6, 1)[0]));
  EXPECT_THAT(values(folder, "b", 0, 4),
              ElementsAre(1.5F, -2, kInf, 0x1p-133F));
}

TEST_F(HfFolders, ReadPiecesLongerThanABuffer) {
  std::vector<uint16_t> bits(200'000);
  std::vector<float> right;
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<uint16_t>(0x3F80 + i % 1000);
    const uint32_t wide = static_cast<uint32_t>(bits[i]) << 16;
    right.emplace_back();
    std::memcpy(&right.back(), &wide, sizeof wide);
  }
  write("model.safetensors",
        raw_safetensors({{"b", "BF16", {200'000}, raw_bytes(bits)}}));
  const HfFolder folder = HfFolder::open(path(""));
  EXPECT_EQ(values(folder, "b", 3, 199'990),
            std::vector<float>(right.begin() + 3, right.end() - 7));
}

TEST_F(HfFolders, ReadShards) {
  write("model-00001-of-00002.safetensors", raw_safetensors({four("a")}));
  write("model-00002-of-00002.safetensors",
        raw_safetensors({four("c"), four("b")}));
  write("model.safetensors.index.json",
        raw_index({{"a", "model-00001-of-00002.safetensors"},
                   {"b", "model-00002-of-00002.safetensors"},
                   {"c", "model-00002-of-00002.safetensors"}}));
  const HfFolder folder = HfFolder::open(path("") + "/");
  ASSERT_EQ(folder.entries().size(), 3U);
  for (const char* name : {"a", "b", "c"})
    EXPECT_THAT(values(folder, name, 2, 2), ElementsAre(3, 4)) << name;
}

TEST_F(HfFolders, S6FindWrappedNamesByTheModels) {
  write("model-00001-of-00002.safetensors",
        raw_safetensors({four("module.a"), four("b")}));
  write("model-00002-of-00002.safetensors",
        raw_safetensors({four("_fsdp_wrapped_module.x._orig_mod.c")}));
  write("model.safetensors.index.json",
        raw_index({{"module.a", "model-00001-of-00002.safetensors"},
                   {"b", "model-00001-of-00002.safetensors"},
                   {"_fsdp_wrapped_module.x._orig_mod.c",
                    "model-00002-of-00002.safetensors"}}));
  const HfFolder folder = HfFolder::open(path(""));
  ASSERT_EQ(folder.entries().size(), 3U);
  for (const char* name : {"a", "b", "x.c"}) {
    ASSERT_NE(folder.find(name), nullptr) << name;
    EXPECT_THAT(values(folder, name, 2, 2), ElementsAre(3, 4)) << name;
  }
  EXPECT_EQ(folder.find("module.a"), nullptr);
  EXPECT_EQ(folder.find("x.c")->stored_name,
            "_fsdp_wrapped_module.x._orig_mod.c");
}

struct BadFolder {
  const char* name;
  std::function<void(const std::string& path)> damage;
  const char* message;
};

void put(const std::string& path, const std::string& bytes) {
  write_file(path, bytes);
}

std::string of_header(const std::string& header, size_t data) {
  return with_length(header, std::string(data, 'x'));
}

const std::vector<BadFolder>& bad_folders() {
  const auto single = [](const std::string& bytes) {
    return [bytes](const std::string& path) {
      std::filesystem::remove(path + "/model.safetensors.index.json");
      put(path + "/model.safetensors", bytes);
    };
  };
  const auto index = [](const std::string& text) {
    return [text](const std::string& path) {
      put(path + "/model.safetensors.index.json", text);
    };
  };
  static const std::vector<BadFolder> table = {
      {"a shard is missing",
       [](const std::string& path) {
         std::filesystem::remove(path + "/model-00002-of-00002.safetensors");
       },
       "model-00002-of-00002.safetensors"},
      {"a shard is a link",
       [](const std::string& path) {
         const std::string shard = path + "/model-00002-of-00002.safetensors";
         std::filesystem::rename(shard, path + "/elsewhere");
         std::filesystem::create_symlink(path + "/elsewhere", shard);
       },
       "links are not followed"},
      {"a shard is a pipe",
       [](const std::string& path) {
         const std::string shard = path + "/model-00002-of-00002.safetensors";
         std::filesystem::remove(shard);
         ASSERT_EQ(::mkfifo(shard.c_str(), 0600), 0);
       },
       "is not a regular file"},
      {"a shard is a folder",
       [](const std::string& path) {
         const std::string shard = path + "/model-00002-of-00002.safetensors";
         std::filesystem::remove(shard);
         std::filesystem::create_directory(shard);
       },
       "is a folder"},
      {"the index is a link",
       [](const std::string& path) {
         const std::string file = path + "/model.safetensors.index.json";
         std::filesystem::rename(file, path + "/real");
         std::filesystem::create_symlink("real", file);
       },
       "links are not followed"},
      {"a shard of other weights",
       [](const std::string& path) {
         put(path + "/model-00003-of-00003.safetensors",
             raw_safetensors({four("z")}));
       },
       "is not listed in model.safetensors.index.json"},
      {"both forms",
       [](const std::string& path) {
         put(path + "/model.safetensors", raw_safetensors({four("z")}));
       },
       "has both"},
      {"a tensor in the wrong shard",
       [](const std::string& path) {
         put(path + "/model-00002-of-00002.safetensors",
             raw_safetensors({four("b"), four("a")}));
       },
       "holds tensor 'a', which the index does not place there"},
      {"a tensor that a shard lacks",
       [](const std::string& path) {
         put(path + "/model-00002-of-00002.safetensors",
             raw_safetensors({four("other")}));
       },
       "lacks tensor 'b'"},
      {"no JSON", index("{\"weight_map\": "), "index.json"},
      {"no map", index("{}"), "weight_map"},
      {"deep", index(std::string(100'000, '[')), "index.json"},
      {"an unknown type",
       single(of_header(
           R"({"a": {"dtype": "F9", "shape": [2], "data_offsets": [0, 8]}})",
           8)),
       "unknown dtype 'F9'"},
      {"overlap",
       single(of_header(
           R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
               "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
           12)),
       "no hole, no overlap"},
      {"a hole",
       single(of_header(
           R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
           12)),
       "no hole, no overlap"},
      {"a tensor twice",
       single(of_header(
           R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
               "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
           8)),
       "tensor 'a' comes twice"},
      {"S6: two names that differ by wrappers alone",
       single(raw_safetensors({four("module.a"), four("_orig_mod.a")})),
       "tensors 'module.a' and '_orig_mod.a' are both 'a'"},
      {"S6: the same in two shards",
       [](const std::string& path) {
         put(path + "/model-00002-of-00002.safetensors",
             raw_safetensors({four("module.a")}));
         put(path + "/model.safetensors.index.json",
             raw_index({{"a", "model-00001-of-00002.safetensors"},
                        {"module.a", "model-00002-of-00002.safetensors"}}));
       },
       "tensors 'a' and 'module.a' are both 'a'"},
      {"a product that wraps",
       single(of_header(
           R"({"a": {"dtype": "F32", "shape": [1099511627776, 1099511627776],
               "data_offsets": [0, 8]}})",
           8)),
       "a"},
      {"a header longer than the file",
       single(std::string("\xff\xff\xff\x05\0\0\0\0{}", 10)), "header"},
  };
  return table;
}

TEST_F(HfFolders, AreRefusedByName) {
  for (const BadFolder& bad : bad_folders()) {
    const TestFolder folder;
    folder.write("model-00001-of-00002.safetensors",
                 raw_safetensors({four("a")}));
    folder.write("model-00002-of-00002.safetensors",
                 raw_safetensors({four("b")}));
    folder.write("model.safetensors.index.json",
                 raw_index({{"a", "model-00001-of-00002.safetensors"},
                            {"b", "model-00002-of-00002.safetensors"}}));
    EXPECT_EQ(HfFolder::open(folder.path()).entries().size(), 2U);
    bad.damage(folder.path());
    try {
      HfFolder::open(folder.path());
      ADD_FAILURE() << bad.name << " was taken";
    } catch (const DataLost& error) {
      EXPECT_THAT(error.what(), HasSubstr(bad.message)) << bad.name;
      EXPECT_THAT(error.what(), HasSubstr(folder.path())) << bad.name;
    }
  }
}

TEST_F(HfFolders, RefuseNamesThatAreNoPlainFiles) {
  const std::string hostile[] = {"../a.safetensors",
                                 "..",
                                 ".",
                                 "",
                                 "/etc/passwd",
                                 "sub/a.safetensors",
                                 "a/../b",
                                 "..\\\\a",
                                 "a\\\\b",
                                 ".hidden",
                                 "a\\u0000b",
                                 "a\\nb",
                                 "a\\u001bb",
                                 "a..b",
                                 "a b",
                                 "a\\u007f",
                                 "é",
                                 "C:a",
                                 "a;rm",
                                 "$HOME",
                                 "~",
                                 "*",
                                 "a?",
                                 "|a",
                                 "a\\\"b",
                                 "-\\u0000",
                                 "\\u2028",
                                 "\\u202e",
                                 std::string(300, 'a'),
                                 "con\\u0000.safetensors"};
  for (const std::string& name : hostile) {
    const TestFolder folder;
    folder.write("model.safetensors.index.json", raw_index({{"a", name}}));
    EXPECT_THROW(HfFolder::open(folder.path()), CheckpointRefused) << name;
  }
}

TEST_F(HfFolders, RefuseFilesOfAnotherLength) {
  const std::string whole = raw_safetensors({four("a"), four("b")});
  for (size_t length = 0; length < whole.size(); ++length) {
    write("model.safetensors", whole.substr(0, length));
    EXPECT_THROW(HfFolder::open(path("")), CheckpointRefused) << length;
  }
  write("model.safetensors", whole + "x");
  EXPECT_THROW(HfFolder::open(path("")), CheckpointRefused);
}

TEST_F(HfFolders, ThatAreNoneAreAMistakeOfTheRequest) {
  EXPECT_THAT([&] { HfFolder::open(path("nowhere")); },
              ThrowsMessage<UsageError>(HasSubstr("nowhere")));
  EXPECT_THAT([&] { HfFolder::open(path("")); },
              ThrowsMessage<UsageError>(HasSubstr("holds no weights")));
  write("pytorch_model.bin", "x");
  EXPECT_THAT(
      [&] { HfFolder::open(path("")); },
      ThrowsMessage<UsageError>(HasSubstr("'pytorch_model.bin' is not read")));
  write("model.safetensors", raw_safetensors({four("a")}));
  const HfFolder folder = HfFolder::open(path(""));
  EXPECT_THAT([&] { folder.config_json(); },
              ThrowsMessage<UsageError>(HasSubstr("has no config.json")));
  std::filesystem::create_symlink(path("model.safetensors"),
                                  path("config.json"));
  EXPECT_THROW(folder.config_json(), CheckpointRefused);
}

TEST_F(HfFolders, RefuseTypesThatAreNoWeights) {
  write("model.safetensors",
        raw_safetensors({{"a", "I64", {1}, std::string(8, 'x')}}));
  const HfFolder folder = HfFolder::open(path(""));
  std::vector<float> one(1);
  EXPECT_THAT([&] { folder.read(*folder.find("a"), 0, one); },
              ThrowsMessage<CheckpointRefused>(
                  HasSubstr("tensor 'a' is of dtype I64, expected F32, BF16")));
}

TEST_F(HfFolders, NoticeAFileThatChanges) {
  write("model.safetensors", raw_safetensors({four("a")}));
  const HfFolder folder = HfFolder::open(path(""));
  write("model.safetensors", raw_safetensors({four("a"), four("b")}));
  std::vector<float> one(1);
  EXPECT_THAT([&] { folder.read(*folder.find("a"), 0, one); },
              ThrowsMessage<CheckpointRefused>(HasSubstr("has changed since")));
}

}  // namespace
}  // namespace canzona::checkpoint::hf_folder_test
