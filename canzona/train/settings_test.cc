#include "canzona/train/settings.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"

namespace canzona::train::settings_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// "key=value@origin", sorted by key as both readers return them.
std::vector<std::string> texts(const Settings& settings) {
  std::vector<std::string> out;
  for (const Setting& setting : settings)
    out.push_back(
        cat(setting.key, "=", describe(setting.value), "@", setting.origin));
  return out;
}

// True if this build reads TOML.
bool has_toml() {
  try {
    toml_settings("", "probe");
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

TEST(Settings, FlattensJson) {
  EXPECT_THAT(texts(json_settings(
                  R"({"a": {"b": 1, "c": {"d": "x"}}, "e": true, "f.g": 1.5})",
                  "f.json")),
              testing::ElementsAre("a.b=1@f.json", "a.c.d=the text 'x'@f.json",
                                   "e=true@f.json", "f.g=1.5@f.json"));
}

TEST(Settings, RefusesBrokenJson) {
  for (const char* text : {"", "{", "[1]", "3", R"({"a": 1, "a": 2})",
                           R"({"a.b": 1, "a": {"b": 2}})"})
    EXPECT_THROW(json_settings(text, "f.json"), UsageError) << text;
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += R"({"a":)";
  EXPECT_THROW(json_settings(deep, "f.json"), UsageError);
}

TEST(Settings, ReadsTomlWithLines) {
  if (!has_toml()) GTEST_SKIP() << "built without toml++";
  EXPECT_THAT(
      texts(toml_settings("steps = 3\n"
                          "[rule]\n"
                          "name = 'soap'  # a comment\n"
                          "option.max_dim = 4_096\n"
                          "[model]\n"
                          "tied = true\n"
                          "rope_base = 1e4\n",
                          "run.toml")),
      testing::UnorderedElementsAre(
          "steps=3@run.toml:1", "rule.name=the text 'soap'@run.toml:3",
          "rule.option.max_dim=4096@run.toml:4", "model.tied=true@run.toml:6",
          "model.rope_base=10000.0@run.toml:7"));
}

TEST(Settings, RefusesBrokenTomlWithTheLine) {
  if (!has_toml()) GTEST_SKIP() << "built without toml++";
  const auto refused = [](const std::string& text, const char* place) {
    EXPECT_THAT([&] { toml_settings(text, "run.toml"); },
                ThrowsMessage<UsageError>(HasSubstr(place)))
        << text.substr(0, 40);
  };
  refused("a = 1\nb = = 2\n", "run.toml:2");
  refused("a = 1\na = 2\n", "run.toml:2");
  refused("a = 1\n[$]\n", "run.toml");
  refused("a = 1\n[\n", "run.toml");
  refused("a = 1\n\u0415 = 1\n", "run.toml:2");
  refused("a = [1, 2]\n", "an array");
  refused("a = 1979-05-27\n", "a date");
  refused("a = \"\xFF\"\n", "run.toml:1");
  std::string dots = "a";
  for (int i = 0; i < 400'000; ++i) dots += ".a";
  refused("x = 1\n" + dots + " = 1\n", "run.toml:2");
  refused("[" + dots + "]\n", "run.toml:1");
  refused("a = " + std::string(400'000, '['), "run.toml:1");
  std::string braces = "a = ";
  for (int i = 0; i < 100'000; ++i) braces += "{a=";
  refused(braces, "run.toml:1");
}

class SettingsFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              cat("canzona_settings_", getpid());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const char* name, const std::string& text) const {
    write_file((folder_ / name).string(), text);
    return (folder_ / name).string();
  }
  std::filesystem::path folder_;
};

TEST_F(SettingsFile, TellsTheFormatByNameOrContent) {
  EXPECT_EQ(read_config_file(write("a.json", "{\"a\": 1}")).size(), 1U);
  EXPECT_EQ(read_config_file(write("a.conf", " {\"a\": 1}")).size(), 1U);
  EXPECT_THROW(read_config_file(write("b.json", "a = 1")), UsageError);
  if (!has_toml()) GTEST_SKIP() << "built without toml++";
  EXPECT_EQ(read_config_file(write("a.toml", "a = 1")).size(), 1U);
  EXPECT_EQ(read_config_file(write("b.conf", "a = 1")).size(), 1U);
  EXPECT_EQ(read_config_file(write("empty.toml", "")).size(), 0U);
}

TEST_F(SettingsFile, RefusesHugeAndAbsentFiles) {
  EXPECT_THAT(
      [&] { read_config_file(write("a.toml", std::string(2 << 20, '\n'))); },
      ThrowsMessage<UsageError>(HasSubstr("limit")));
  EXPECT_THAT([&] { read_config_file((folder_ / "absent.toml").string()); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("absent.toml"), HasSubstr("configuration"))));
}

}  // namespace
}  // namespace canzona::train::settings_test
