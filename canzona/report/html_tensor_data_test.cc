#include "canzona/report/html_sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/json_reader.h"
#include "canzona/report/test_html_sample.h"

namespace canzona::html_tensor_data_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string joined(const NameParts& parts) {
  std::string name = parts.pieces[0];
  for (size_t i = 0; i < parts.numbers.size(); ++i) {
    name += std::to_string(parts.numbers[i]) + parts.pieces[i + 1];
  }
  return name;
}

TEST(HtmlTensorData, NamesLoseTheirNumbers) {
  const NameParts parts = split_name("layers.7.experts.12.up");
  EXPECT_THAT(parts.pieces, ElementsAre("layers.", ".experts.", ".up"));
  EXPECT_THAT(parts.numbers, ElementsAre(7, 12));
}

TEST(HtmlTensorData, NamesComeBackExactly) {
  for (const char* name :
       {"", "norm", "7", "layers.0.up", "layers.007.up", "x00", "1.2.3",
        "a99999999999999999999b", "123456789", "1234567890"}) {
    EXPECT_EQ(joined(split_name(name)), name);
  }
}

TEST(HtmlTensorData, RowsNameTheirParts) {
  const ReportPlan shown = make_sample({});
  const Json data = parse_json(tensor_data_json(shown.plan), {});
  ASSERT_EQ(data["rows"].size(), shown.plan.model.tensors.size());
  // The embedding: AdamW, so no home.
  EXPECT_EQ(data["rows"][0][3], -1);
  // "layers.0.attn.proj".
  const Json& row = data["rows"][1];
  EXPECT_EQ(data["patterns"][row[0].get<size_t>()],
            Json::array({"layers.", ".attn.proj"}));
  EXPECT_EQ(row[5], 0);
  EXPECT_EQ(row[3], shown.plan.parts[0].home[1]);
  const Json& kind = data["kinds"][row[1].get<size_t>()];
  EXPECT_EQ(kind[0], "1024 × 2048");
  EXPECT_EQ(kind[3], "muon");
}

TEST(HtmlTensorData, EqualTensorsShareOneKind) {
  const ReportPlan shown = make_sample({.layers = 50});
  const Json data = parse_json(tensor_data_json(shown.plan), {});
  EXPECT_LE(data["kinds"].size(), 8u);
  EXPECT_LE(data["patterns"].size(), 8u);
}

TEST(HtmlTensorData, NamesCannotEndTheScript) {
  const ReportPlan shown = make_sample({.first_name = "</script><b>"});
  EXPECT_THAT(tensor_data_json(shown.plan), Not(HasSubstr("<")));
}

TEST(HtmlTensorData, OwnersOfATensorAreListedOnce) {
  ReportPlan shown = make_sample({});
  Plan& plan = shown.plan;
  EXPECT_THAT(owners_of_tensor(plan.parts[0], 1), ElementsAre(0));
  EXPECT_THAT(owners_of_tensor(plan.parts[0], 2), ElementsAre(1));
  // One tensor of two matrices.
  plan.parts[0].first_matrix = {0, 0, 2};
  EXPECT_THAT(owners_of_tensor(plan.parts[0], 1), ElementsAre(0, 1));
}

}  // namespace
}  // namespace canzona::html_tensor_data_test
