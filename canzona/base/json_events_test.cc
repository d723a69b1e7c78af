#include "canzona/base/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::json_events_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Records the events.
class Log : public JsonEvents {
 public:
  Log() : JsonEvents("log.json") {}
  std::string text;

 private:
  void on_open(char bracket) override { text += cat(bracket, depth(), " "); }
  void on_close() override { text += cat("close", depth(), " "); }
  void on_key(std::string& key) override { text += cat(key, ": "); }
  void on_string(std::string& value) override { text += cat("'", value, "' "); }
  void on_integer(int64_t number) override { text += cat(number, " "); }
  void on_other(std::string_view kind) override { text += cat(kind, "; "); }
};

std::string events(std::string_view json) {
  Log log;
  log.read(json);
  return log.text;
}

TEST(JsonEvents, ComeInTheOrderOfTheText) {
  EXPECT_EQ(events(R"({"a": [1, -2, "x"], "b": {}})"),
            "{1 a: [2 1 -2 'x' close2 b: {2 close2 close1 ");
}

TEST(JsonEvents, NumbersThatAreNoIntegersAreOther) {
  EXPECT_EQ(events("[9223372036854775807, -9223372036854775808]"),
            "[1 9223372036854775807 -9223372036854775808 close1 ");
  EXPECT_EQ(
      events("[9223372036854775808, 1.5, null, true]"),
      "[1 a number of more than 64 bits; number 1.5; null; true; close1 ");
}

TEST(JsonEvents, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_NO_THROW(events(nested(32)));
  EXPECT_THAT([&] { events(nested(33)); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("log.json"), HasSubstr("32 deep"))));
  EXPECT_THROW(events(nested(100'000)), UsageError);
}

TEST(JsonEvents, BrokenTextIsRefused) {
  for (const char* text : {"", "[1,]", "{\"a\" 1}", "[1] 2", "1e999",
                           "\"\xC3\x28\"", "nul", "[01]"}) {
    EXPECT_THAT(
        [&] { events(text); },
        ThrowsMessage<UsageError>(HasSubstr("log.json: invalid JSON at byte")))
        << text;
  }
}

}  // namespace
}  // namespace canzona::json_events_test
