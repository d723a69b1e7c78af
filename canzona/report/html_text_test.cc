#include "canzona/report/html.h"

#include <gtest/gtest.h>

namespace canzona::html_text_test {
namespace {

TEST(HtmlText, EscapesWhatIsPutUnlessItIsMarkup) {
  Html out;
  out.add("<p>");
  out.put("{} {:.2f} {}", "<b> & \"x\"", 1.5, Markup{"<br>"});
  EXPECT_EQ(out.take(), "<p>&lt;b&gt; &amp; &quot;x&quot; 1.50 <br>");
}

TEST(HtmlText, EscapesEveryKindOfString) {
  const std::string text = "<";
  const char* pointer = "<";
  Html out;
  out.put("{}{}{}{}", text, std::string_view(text), pointer, "<");
  EXPECT_EQ(out.text(), "&lt;&lt;&lt;&lt;");
}

TEST(HtmlText, EscapesQuotesOfBothKinds) {
  EXPECT_EQ(escape_html("a'b\"c"), "a&#39;b&quot;c");
}

TEST(HtmlText, KeepsUtf8AndReplacesWhatIsNone) {
  EXPECT_EQ(escape_html("λ→😀"), "λ→😀");
  EXPECT_EQ(escape_html("a\xFFz"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(escape_html("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(HtmlText, ReplacesControlCharacters) {
  EXPECT_EQ(escape_html(std::string_view("a\0b\x1B", 4)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(escape_html("a\tb\nc"), "a b c");
}

TEST(HtmlText, CountsThings) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(1024, "rank"), "1,024 ranks");
  EXPECT_EQ(counted(2, "matrix"), "2 matrices");
}

}  // namespace
}  // namespace canzona::html_text_test
