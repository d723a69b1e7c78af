#include "canzona/report/document.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"

namespace canzona::report::document_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A view with everything: what it prints and what it is as JSON.
Document links() {
  Listing levels;
  for (const int64_t bytes : {1'000, 2'000'000}) {
    Row& row = levels.add({{"name", "~level", "a\x1b[2Jb"},
                           {"bytes", ">per rank", as_bytes(bytes)},
                           {"", "<note", "text alone"}});
    row.set("ranks", std::vector<int>{0, 1});
  }
  Document out;
  out.heading("Links", " of a cluster").set("world", 8);
  out.labelled({"card", "card", "H200"}, 10);
  return out.title("Levels").table("levels", levels);
}

TEST(Document, PrintsText) {
  EXPECT_EQ(print_text(links(), Ink()),
            "Links of a cluster\n"
            "  card      H200\n"
            "\n"
            "Levels\n"
            "  level   per rank  note\n"
            "  a?[2Jb    1000 B  text alone\n"
            "  a?[2Jb  1.91 MiB  text alone\n");
}

TEST(Document, IsOneObjectOfJson) {
  const Json json = parse_json(to_json(links()), {});
  EXPECT_EQ(json.size(), 3U);
  EXPECT_EQ(json["world"], 8);
  EXPECT_EQ(json["card"], "H200");
  ASSERT_EQ(json["levels"].size(), 2U);
  EXPECT_EQ(json["levels"][1].size(), 3U);
  EXPECT_EQ(json["levels"][1]["bytes"], 2'000'000);
  EXPECT_EQ(json["levels"][0]["name"], "a\x1b[2Jb");
  EXPECT_EQ(json["levels"][0]["ranks"], Json::parse("[0, 1]"));
}

TEST(Document, OnlyInkHasColours) {
  EXPECT_THAT(print_text(links(), Ink()), Not(HasSubstr("\x1b")));
  EXPECT_THAT(print_text(links(), Ink(true)), HasSubstr("\x1b[1mLinks\x1b[0m"));
  EXPECT_THAT(to_json(links(), 0), Not(HasSubstr("\n")));
}

TEST(Document, PeopleSeeTheFirstRowsAndProgramsAll) {
  Listing rows(2);
  for (int i = 0; i < 5; ++i) rows.add({{"i", ">i", i}});
  const Document out = Document().table("rows", rows);
  EXPECT_EQ(print_text(out, Ink()), "  i\n  0\n  1\n  … and 3 more, in JSON\n");
  EXPECT_EQ(parse_json(to_json(out), {})["rows"].size(), 5U);
}

TEST(Document, RowsWithNamesAreAnObjectAndRowsWithoutKeysAreNone) {
  Listing named = Listing::by_name(), texts;
  named.add("gather", {{"sent", ">sent", 1}});
  texts.add({{"", "<a", "b"}});
  Document out;
  out.table("named", named)
      .table("texts", texts)
      .table("none", Listing(), "nothing");
  out.set("no_names", Listing::by_name().value());
  const Json json = parse_json(to_json(out), {});
  EXPECT_EQ(json["named"]["gather"]["sent"], 1);
  EXPECT_EQ(json["texts"], Json::array());
  EXPECT_EQ(json["none"], Json::array());
  EXPECT_EQ(json["no_names"], Json::object());
  EXPECT_THAT(print_text(out, Ink()), HasSubstr("  nothing\n"));
}

TEST(Document, TakesOthersIn) {
  Document out;
  out.add(Document().line("one").set("a", 1));
  out.add("part", Document().line("two").set("b", 2));
  out.add_text(Document().line("three").set("c", 3));
  EXPECT_EQ(print_text(out, Ink()), "  one\n  two\n  three\n");
  EXPECT_EQ(parse_json(to_json(out), {}),
            Json::parse(R"({"a": 1, "part": {"b": 2}})"));
}

TEST(Document, AMemberWithoutAKeyIsTheWhole) {
  const Document out = Document().set("", std::vector<Value>{1, "two", true});
  EXPECT_EQ(parse_json(to_json(out), {}), Json::parse(R"([1, "two", true])"));
}

TEST(Value, WritesEveryKind) {
  const Document out =
      Document()
          .set("null", nullptr)
          .set("number", 0.5)
          .set("object", {{"a", 1}, {"b", {{"c", "<d>"}}}})
          .set("nested", std::vector<std::vector<int>>{{1}, {2, 3}})
          .set("written", [](JsonWriter& to) { to.value("later"); });
  EXPECT_EQ(parse_json(to_json(out), {}),
            Json::parse(R"({"null": null, "number": 0.5,
                            "object": {"a": 1, "b": {"c": "<d>"}},
                            "nested": [[1], [2, 3]], "written": "later"})"));
}

}  // namespace
}  // namespace canzona::report::document_test
