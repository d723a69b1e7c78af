#include "canzona/checkpoint/manifest.h"

#include <gmock/gmock.h>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"

namespace canzona::checkpoint::manifest_test {
namespace {

using ::testing::HasSubstr;

Manifest small() {
  Manifest manifest;
  manifest.step = 100;
  manifest.world = 2;
  manifest.plan_digest = std::string(64, 'b');
  const std::string hash(64, '0');
  const std::string chunk(32, '1');
  manifest.files = {{"config.json", 2, hash, {chunk}},
                    {"rank_00000.safetensors", 148, hash, {chunk}},
                    {"rank_00001.safetensors", 124, hash, {chunk}}};
  manifest.tensors = {{{"model/w", DType::kFp32, {4, 6}},
                       {{1, 100, {{0, 0}, {2, 6}}}, {2, 76, {{2, 0}, {2, 6}}}}},
                      {{"optim/none", DType::kFp32, {0}}, {}},
                      {{"optim/step", DType::kI64, {}}, {}}};
  manifest.tensors[2].boxes = {{1, 92, {{}, {}}}};
  return manifest;
}

// Returns the text with a corrected hash.
std::string signed_text(std::string text) {
  const size_t tail = text.rfind(",\"sha256\":\"");
  const std::string body = text.substr(0, tail);
  return body + ",\"sha256\":\"" + sha256_hex(body) + "\"}\n";
}

std::string replaced(std::string text, const std::string& from,
                     const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at == std::string::npos) return text;
  return signed_text(text.replace(at, from.size(), to));
}

std::string problem_of(const std::string& text) {
  try {
    parse_manifest(text, "manifest.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// The worked example of docs/checkpoints.md is of this form.
TEST(ManifestText, IsReadBack) {
  EXPECT_EQ(parse_manifest(manifest_text(small()), "m"), small());
  EXPECT_EQ(small().find("model/w")->boxes.size(), 2u);
  EXPECT_EQ(small().find("model/v"), nullptr);
  EXPECT_EQ(small().file_bytes(), 274);
}

TEST(ManifestText, C5_EveryFlippedByteIsNoticed) {
  const std::string text = manifest_text(small());
  for (size_t i = 0; i < text.size(); ++i)
    for (const int bit : {1, 2, 4, 32, 128}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      ASSERT_NE(problem_of(changed), "") << "byte " << i;
    }
}

TEST(ManifestText, C6_EveryTruncationIsNoticed) {
  const std::string text = manifest_text(small());
  for (size_t i = 0; i < text.size(); ++i)
    ASSERT_NE(problem_of(text.substr(0, i)), "") << i;
  EXPECT_NE(problem_of(text + "\n"), "");
}

// With a correct hash, a change is refused with a message or read; nothing else
// happens.
TEST(ManifestText, FlippedBytesWithTheRightHashDoNoHarm) {
  const std::string text = manifest_text(small());
  size_t refused = 0;
  const size_t body = text.rfind(",\"sha256\":\"");
  for (size_t i = 0; i < body; ++i)
    for (const int bit : {1, 2, 4, 8, 16, 32, 64, 128}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      refused += problem_of(signed_text(changed)).empty() ? 0 : 1;
    }
  EXPECT_GT(refused, body * 4);
}

TEST(ManifestText, C8_EditsWithTheRightHashAreNamed) {
  const std::string text = manifest_text(small());
  struct Edit {
    const char* from;
    const char* to;
    const char* problem;
  };
  const std::vector<Edit> edits = {
      {R"("first":[2,0],"count":[2,6])", R"("first":[1,0],"count":[2,6])",
       "overlap"},
      {R"("first":[2,0],"count":[2,6])", R"("first":[2,0],"count":[2,5])",
       "belong to no box"},
      {R"("first":[2,0])", R"("first":[3,0])", "exceeds the shape"},
      {R"("shape":[4,6])", R"("shape":[5,6])", "a hole"},
      {R"("shape":[4,6])", R"("shape":[4,6,1])", "a box has 2"},
      {R"("shape":[4,6])", R"("shape":[4,9999999999999])", "dimension"},
      {R"("dtype":"F32")", R"("dtype":"F8")", "unknown dtype 'F8'"},
      {R"("dtype":"F32")", R"("dtype":"F64")", "exceed"},
      {R"("offset":76)", R"("offset":75)", "belong to"},
      {R"("offset":76)", R"("offset":-1)", "exceed"},
      {R"("offset":76)", R"("offset":9223372036854775807)", "exceed"},
      {R"("file":2)", R"("file":3)", "file 3 of 3"},
      {R"("file":2)", R"("file":0)", "not a shard"},
      {R"("file":2)", R"("file":-1)", "file -1"},
      {R"("name":"model/w")", R"("name":"zzz/w")", "out of order"},
      {R"("name":"optim/none")", R"("name":"model/w")", "comes twice"},
      {R"("world":2,)", "", "'world' is missing"},
      {R"("world":2,)", R"("world":2,"world":2,)", "comes twice"},
      {R"("world":2,)", R"("world":2,"wrld":2,)", "unknown key 'wrld'"},
      {R"("world":2,)", R"("world":0,)", "world 0"},
      {R"("world":2,)", R"("world":1e999,)", ""},
      {R"("world":2,)", R"("world":2.5,)", "'world' is 2.5"},
      {R"("world":2,)", R"("world":"2",)", "'world' is \"2\""},
      {R"("world":2,)", R"("world":null,)", "'world' is null"},
      {R"("world":2,)", R"("world":[2],)", "'world' is an array"},
      {R"("step":100)", R"("step":-1)", "step below 0"},
      {R"("step":100)", R"("step":18446744073709551615)",
       "'step' is 18446744073709551615"},
      {R"("bytes":148)", R"("bytes":149)", "belong to no box"},
      {R"("bytes":148)", R"("bytes":9000000)", "checksums"},
      {R"("bytes":148)", R"("bytes":-1)", "-1 bytes"},
      {R"("chunk_bytes":4194304)", R"("chunk_bytes":0)", "chunks of 0"},
      {R"("format":"canzona-checkpoint")", R"("format":"other")", "'other'"},
      {R"("format":"canzona-checkpoint",)", "", "'format' is missing"},
      {R"("plan_digest":"bb)", R"("plan_digest":"Bb)", "plan_digest"},
  };
  for (const Edit& edit : edits) {
    const std::string found = problem_of(replaced(text, edit.from, edit.to));
    EXPECT_NE(found, "") << edit.to;
    EXPECT_THAT(found, HasSubstr(edit.problem)) << edit.to;
    EXPECT_THAT(found, HasSubstr("manifest.json")) << edit.to;
  }
}

TEST(ManifestText, C9_NewerFormats) {
  const std::string text = manifest_text(small());
  const std::string newer =
      replaced(text, R"("format_version":1,"min_reader_version":1)",
               R"("format_version":3,"min_reader_version":2)");
  EXPECT_THAT(problem_of(newer), HasSubstr("needs a reader of version 2"));
  // A manifest that older readers can read, with members that they do not know.
  std::string readable = replaced(
      text, R"("format_version":1,"min_reader_version":1)",
      R"("format_version":3,"min_reader_version":1,"new":{"a":[1,{"b":2}]})");
  readable = replaced(readable, R"("file":2)", R"("more":[[]],"file":2)");
  Manifest expected = small();
  expected.version = 3;
  EXPECT_EQ(parse_manifest(readable, "m"), expected);
  EXPECT_NE(problem_of(replaced(text, R"("format_version":1,)",
                                R"("format_version":0,)")),
            "");
}

TEST(ManifestText, HostileFileNamesAreRefused) {
  const std::string text = manifest_text(small());
  const std::vector<std::string> names = {
      "/etc/passwd",
      "../rank_00001.safetensors",
      "./rank_00001.safetensors",
      "a/rank_00001.safetensors",
      "rank_00001.safetensors/",
      "rank_00001.safetensors/..",
      "rank_1.safetensors",
      "rank_000001.safetensors",
      "rank_0000a.safetensors",
      "rank_00001.safetensorS",
      "RANK_00001.safetensors",
      "rank_00001.safetensors ",
      " rank_00001.safetensors",
      "rank_00001.safetensors\\u0000",
      "rank_00001\\u0000.safetensors",
      "rank_00001.safetensors\\n",
      "rank_-0001.safetensors",
      "rank_+0001.safetensors",
      "rank_00001.safetensors.tmp",
      "rank_00001.pt",
      "..",
      ".",
      "",
      "~",
      "~/.ssh/id_rsa",
      "\\\\\\\\host\\\\share",
      "C:\\\\x",
      ".config.json",
      "manifest.json",
      "Config.json",
      "con/fig.json",
      "config.json.",
      "\\u202econfig.json",
      "rank_\\u0660\\u0660\\u0660\\u0660\\u0660.safetensors",
      ".json",
      "$(id).json"};
  for (const std::string& name : names)
    EXPECT_NE(problem_of(replaced(text, "\"rank_00001.safetensors\"",
                                  "\"" + name + "\"")),
              "")
        << name;
}

TEST(ManifestText, BombsAreRefused) {
  const std::string start =
      R"({"format":"canzona-checkpoint","format_version":9,"min_reader_version":1,)";
  const std::string end = R"(,"sha256":""}
)";
  const auto bomb = [&](const std::string& middle) {
    return problem_of(signed_text(start + middle + end));
  };
  EXPECT_THAT(
      bomb("\"x\":" + std::string(100'000, '[') + std::string(100'000, ']')),
      HasSubstr("nested"));
  std::string tensors = "\"tensors\":[{\"name\":\"a\",\"shape\":[";
  for (int i = 0; i < 100'000; ++i) tensors += "1,";
  EXPECT_THAT(bomb(tensors + "1]}]"), HasSubstr("expected at most 8"));
  EXPECT_NE(bomb("\"a\":\"\xFF\""), "");
  for (const char* text :
       {"", "{", "{}", "[]", "null", "0", "\"\"", "[[[[", "{\"format\":"})
    EXPECT_NE(problem_of(signed_text(std::string(text) + end)), "") << text;
}

TEST(ManifestText, RecordsOfRanksMerge) {
  Manifest a = small();
  Manifest b = small();
  a.files = {a.files[0], a.files[1]};
  b.files = {b.files[2]};
  a.tensors[0].boxes.pop_back();
  b.tensors.resize(1);
  b.tensors[0].boxes.erase(b.tensors[0].boxes.begin());
  b.tensors[0].boxes[0].file = 0;
  EXPECT_EQ(merged({b, a}).find("model/w")->boxes.size(), 2u);
  EXPECT_EQ(merged({a, b}), small());
  EXPECT_EQ(parse_record(manifest_text(b), "r"), b);
  EXPECT_THROW(parse_manifest(manifest_text(b), "r"), UsageError);
  EXPECT_THROW(merged({a, a}), UsageError);
  b.tensors[0].tensor.shape = {4, 7};
  EXPECT_THROW(merged({a, b}), UsageError);
}

}  // namespace
}  // namespace canzona::checkpoint::manifest_test
