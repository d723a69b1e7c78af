#include "canzona/base/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::json_reader_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Json parse(std::string_view text) { return parse_json(text, {.what = "x"}); }

template <class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ParseJson, ReadsAConfiguration) {
  const Json config = parse(R"({"hidden_size": 5120, "tied": false,
                                "theta": 1e6, "name": "q\u00e9", "ids": [1, 2],
                                "none": null, "in": {"a": {}}})");
  EXPECT_EQ(get_integer(config, "hidden_size", 1, 10000, "config"), 5120);
  EXPECT_FALSE(get_bool(config, "tied", "config"));
  EXPECT_EQ(get_number(config, "theta", "config"), 1e6);
  EXPECT_EQ(get_number(config, "hidden_size", "config"), 5120);
  EXPECT_EQ(get_string(config, "name", "config"), "q\xC3\xA9");
  EXPECT_EQ(config["ids"], Json::array({1, 2}));
  EXPECT_TRUE(config["none"].is_null());
  EXPECT_TRUE(config["in"]["a"].is_object());
}

TEST(ParseJson, ReadsPlainValuesAtTheTop) {
  EXPECT_EQ(parse("7"), 7);
  EXPECT_EQ(parse(" \"a\" "), "a");
  EXPECT_EQ(parse("-9223372036854775808").get<int64_t>(), INT64_MIN);
  EXPECT_EQ(parse("18446744073709551615").get<uint64_t>(), UINT64_MAX);
}

// The library's own reader is the oracle for ordinary text.
TEST(ParseJson, AgreesWithTheLibrary) {
  for (const char* text :
       {"[]", "{}", "[[],[[]],{}]", R"({"b":[{"a":1},2,[3,{"c":[]}]],"a":{}})",
        "[0.1,-0,1e-7,123456789012345678901234567890,true,null]",
        R"(["\ud83d\ude00","\\\"\/\b\f\n\r\t"])"}) {
    EXPECT_EQ(parse(text), Json::parse(text)) << text;
  }
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text :
       {"",    " ",        "{",  "[1,]",   "{\"a\":}", "{a:1}",      "nul",
        "01",  "1.",       "+1", "'a'",    "[1] x",    "{} {}",      "// c\n1",
        "NaN", "Infinity", "[1", "\"\n\"", "\"\\x\"",  "\"\\ud800\""}) {
    EXPECT_THAT(message_of([&] { parse(text); }),
                HasSubstr("x: not valid JSON at byte"))
        << text;
  }
}

TEST(ParseJson, RefusesNumbersThatAreNotFinite) {
  EXPECT_THROW(parse("1e999"), UsageError);
  EXPECT_THROW(parse("[-1e999]"), UsageError);
  EXPECT_EQ(parse("1e-999"), 0.0);
}

TEST(ParseJson, RefusesBrokenUtf8) {
  for (const char* text : {"\"\xFF\"", "\"\xC3\"", "\"\xED\xA0\x80\"",
                           "\"\xC0\x80\"", "{\"\x80\":1}"}) {
    EXPECT_THAT(message_of([&] { parse(text); }), HasSubstr("not valid JSON"));
  }
}

TEST(ParseJson, RefusesDuplicateKeysAtAnyDepth) {
  EXPECT_THAT(message_of([] { parse(R"({"a": 1, "a": 2})"); }),
              AllOf(HasSubstr("x: the key 'a' comes twice"),
                    HasSubstr("near byte 12")));
  EXPECT_THROW(parse(R"([{"b": {"a": 1, "\u0061": 1}}])"), UsageError);
  EXPECT_NO_THROW(parse(R"([{"a": 1}, {"a": {"a": 1}}])"));
}

std::string nested(int depth) {
  const auto size = static_cast<size_t>(depth);
  return std::string(size, '[') + std::string(size, ']');
}

TEST(ParseJson, BoundsDepth) {
  EXPECT_NO_THROW(parse(nested(32)));
  EXPECT_THAT(message_of([] { parse(nested(33)); }),
              AllOf(HasSubstr("deeper than 32"), HasSubstr("near byte 33")));
  EXPECT_THROW(parse(std::string(1'000'000, '[')), UsageError);
  EXPECT_THROW(parse_json("[]", {.max_depth = 0}), UsageError);
  EXPECT_NO_THROW(parse_json("1", {.max_depth = 0}));
}

TEST(ParseJson, BoundsTheNumberOfValues) {
  EXPECT_NO_THROW(parse_json("[1,2,3]", {.max_values = 4}));
  EXPECT_NO_THROW(parse_json(R"({"a":1,"b":2})", {.max_values = 3}));
  EXPECT_THAT(message_of([] { parse_json("[1,2,3]", {.max_values = 3}); }),
              HasSubstr("more than 3 values"));
}

TEST(ParseJson, BoundsBytes) {
  EXPECT_NO_THROW(parse_json("[1]", {.max_bytes = 3}));
  EXPECT_THAT(message_of([] {
                parse_json("[1 ]", {.what = "model.json", .max_bytes = 3});
              }),
              AllOf(HasSubstr("model.json"), HasSubstr("4 bytes"),
                    HasSubstr("limit is 3")));
}

TEST(ParseJson, MessagesAreShortAndPrintable) {
  const std::string text = "[\"" + std::string(10'000, 'y') + "\x1b\"]";
  const std::string message = message_of([&] { parse(text); });
  EXPECT_LT(message.size(), 500u);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

// Whatever the bytes, the answer is a tree or a UsageError.
TEST(ParseJson, SurvivesRandomChanges) {
  const std::string good = R"({"a": [1, 2.5, "x\n", {"b": null}], "c": true})";
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (size_t left = 1 + random() % 3; left > 0; --left) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    try {
      parse(text);
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 20'000);
}

TEST(GetMember, SaysWhatIsMissingOrWrong) {
  const Json object = parse(R"({"n": 12.5, "s": [1], "t": "x"})");
  EXPECT_EQ(message_of([&] { get_member(object, "m", "config.json"); }),
            "config.json: 'm' is missing");
  EXPECT_EQ(message_of([&] { get_integer(object, "n", 1, 9, "config.json"); }),
            "config.json: 'n' is 12.5, expected an integer from 1 to 9");
  EXPECT_EQ(message_of([&] { get_string(object, "s", "config.json"); }),
            "config.json: 's' is an array, expected a text");
  EXPECT_EQ(message_of([&] { get_bool(object, "t", "config.json"); }),
            "config.json: 't' is \"x\", expected true or false");
  EXPECT_EQ(message_of([&] { get_number(object, "t", "config.json"); }),
            "config.json: 't' is \"x\", expected a number");
  EXPECT_EQ(message_of([&] { get_member(object["s"], "a", "shapes"); }),
            "shapes: expected an object, got an array");
  EXPECT_EQ(message_of([&] { get_member(object["n"], "a", "shapes"); }),
            "shapes: expected an object, got 12.5");
}

// A streamed container arrives whole and in order, and is left out of the tree;
// the rest of the document is in it.
TEST(ParseJson, StreamsContainers) {
  std::string seen;
  const auto note = [&](std::string&& key, Json&& value) {
    seen += key + "=" + value.dump() + ";";
  };
  const char* text = R"({"a": {"list": [[1, 2], "x", {"list": [3]}],
      "map": {"p": 1, "q": [{"p": 2}], "a": null}, "rest": [4, [5]]},
      "list": [6], "b": {"list": [7]}, "c": [{"list": [8]}]})";
  const Json tree = parse_json(text, {.what = "x"},
                               {{{"a", "list"}, note}, {{"a", "map"}, note}});
  EXPECT_EQ(seen, R"(=[1,2];="x";={"list":[3]};p=1;q=[{"p":2}];a=null;)");
  EXPECT_EQ(tree, parse(R"({"a": {"list": [], "map": {}, "rest": [4, [5]]},
      "list": [6], "b": {"list": [7]}, "c": [{"list": [8]}]})"));
  seen.clear();
  EXPECT_EQ(parse_json(R"({"a": {"list": 5}})", {}, {{{"a", "list"}, note}}),
            parse(R"({"a": {"list": 5}})"));
  EXPECT_EQ(seen, "");
  seen.clear();
  EXPECT_EQ(parse_json("[1, [2]]", {}, {{{}, note}}), Json::array());
  EXPECT_EQ(seen, "=1;=[2];");
  seen.clear();
  EXPECT_EQ(parse_json(R"({"l": [1], "o": 2})", {}, {{{"l"}, note}}),
            parse(R"({"l": [], "o": 2})"));
  EXPECT_EQ(seen, "=1;");
  // A value is held until it is complete.
  EXPECT_NO_THROW(
      parse_json("[[1, 2], [3, 4]]", {.max_held = 4}, {{{}, note}}));
  EXPECT_THROW(parse_json("[[1, 2], [3, 4]]", {.max_held = 3}, {{{}, note}}),
               UsageError);
  // Limits also count what has left the tree.
  EXPECT_THROW(parse_json(text, {.max_values = 5}, {{{"a", "list"}, note}}),
               UsageError);
}

TEST(GetIntegers, AreFewAndOf64Bits) {
  const Json object = parse(
      R"({"a": [1, -2, 9223372036854775807], "b": [9223372036854775808],
          "c": [1.5], "d": 7, "e": [[1]], "f": ["1"]})");
  EXPECT_EQ(get_integers(object, "a", 3, "x"),
            (std::vector<int64_t>{1, -2, INT64_MAX}));
  EXPECT_EQ(message_of([&] { get_integers(object, "a", 2, "x"); }),
            "x: 'a' has 3 numbers, expected at most 2");
  for (const char* key : {"b", "c", "d", "e", "f", "gone"})
    EXPECT_THROW(get_integers(object, key, 3, "x"), UsageError) << key;
}

TEST(GetInteger, HoldsItsRange) {
  const Json object = parse(
      R"({"low": 1, "high": 9, "below": 0, "above": 10, "negative": -1,
          "wraps": 18446744073709551615, "huge": 1e30, "whole": 4.0})");
  EXPECT_EQ(get_integer(object, "low", 1, 9, "x"), 1);
  EXPECT_EQ(get_integer(object, "high", 1, 9, "x"), 9);
  EXPECT_EQ(get_integer(object, "negative", -5, 9, "x"), -1);
  for (const char* key : {"below", "above", "negative", "huge", "whole"}) {
    EXPECT_THROW(get_integer(object, key, 1, 9, "x"), UsageError) << key;
  }
  EXPECT_THROW(get_integer(object, "wraps", INT64_MIN, INT64_MAX, "x"),
               UsageError);
}

TEST(RequireKnownKeys, NamesTheNearest) {
  const Json object = parse(R"({"mesh": 1, "modle": 2})");
  EXPECT_EQ(message_of([&] {
              require_known_keys(object, {"mesh", "model"}, "plan");
            }),
            "plan: unknown key 'modle' (did you mean 'model'?)");
  EXPECT_NO_THROW(require_known_keys(object, {"modle", "mesh", "z"}, "plan"));
  EXPECT_THROW(require_known_keys(object, {}, "plan"), UsageError);
  EXPECT_THROW(require_known_keys(Json::array(), {}, "plan"), UsageError);
  EXPECT_NO_THROW(require_known_keys(Json::object(), {}, "plan"));
}

}  // namespace
}  // namespace canzona::json_reader_test
