#include "canzona/report/page.h"

#include <gmock/gmock.h>

#include "canzona/base/json_writer.h"

namespace canzona::report::page_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kKinds[] = {
    "runs.js",    "plan.js", "plan_drawings.js", "tensors.js",
    "storage.js", "zero.js", "bars.js",          "cluster.js"};

TEST(Page, AsksTheNetworkForNothing) {
  for (const std::string_view kind : kKinds) {
    const std::string page = make_page("{}", {kind});
    EXPECT_THAT(page, HasSubstr("default-src 'none'"));
    EXPECT_THAT(page, HasSubstr("script-src 'sha256-"));
    EXPECT_THAT(page, HasSubstr("<noscript>"));
    EXPECT_THAT(page, Not(HasSubstr("{{")));
    for (const char* word :
         {"http://", "https://", "<link", "src=", "@import", "url(h"})
      EXPECT_THAT(page, Not(HasSubstr(word)));
  }
}

// Text that becomes markup would not be text any more.
TEST(Page, ScriptsNeverParseMarkup) {
  for (const std::string_view kind : kKinds)
    for (const char* word :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
          "eval(", "DOMParser", "createContextualFragment", "new Function"})
      EXPECT_THAT(make_page("{}", {kind}), Not(HasSubstr(word)));
}

TEST(Page, HoldsTheReportAsJsonThatCannotEndItsScript) {
  JsonWriter out;
  out.value("</script><b>{{style}}");
  const std::string page = make_page(out.text(), {"runs.js"});
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
  EXPECT_THAT(page,
              HasSubstr("id=\"report\">\"\\u003c/script\\u003e\\u003cb\\u003e"
                        "{{style}}\"</script>"));
}

TEST(Page, AnUnknownFileIsAnError) {
  EXPECT_THROW(page_file("no.js"), std::out_of_range);
}

}  // namespace
}  // namespace canzona::report::page_test
