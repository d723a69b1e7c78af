#include "canzona/shapes/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/shapes/test_support.h"

namespace canzona::shapes::tensor_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Tensor, HasRowsColumnsAndRuns) {
  const Tensor norm{.name = "norm", .shape = {7}};
  EXPECT_EQ(norm.rows(), 7);
  EXPECT_EQ(norm.cols(), 1);
  const Tensor up{.name = "up", .shape = {6, 4}};
  EXPECT_EQ(up.elements(), 24);
  // k of two groups [q q k v]: rows 2 and 6.
  const RowRuns k{2, 1, 4, 2};
  EXPECT_EQ(k.rows(), 2);
  EXPECT_EQ(k.row(0), 2);
  EXPECT_EQ(k.row(1), 6);
}

TEST(Tensor, WordsOfRolesAndCutsReadBack) {
  for (const Role role : {Role::kMatrix, Role::kEmbedding, Role::kHead,
                          Role::kRouter, Role::kNorm, Role::kBias}) {
    EXPECT_EQ(parse_role(to_string(role)), role);
  }
  for (const Cut cut : {Cut::kNone, Cut::kRows, Cut::kColumns}) {
    EXPECT_EQ(parse_cut(to_string(cut)), cut);
  }
}

TEST(Tensor, UnknownWordsAreRefused) {
  EXPECT_THAT(message_of([] { parse_role("nrom"); }),
              AllOf(HasSubstr("'nrom'"), HasSubstr("did you mean 'norm'")));
  EXPECT_THAT(message_of([] { parse_cut("cols"); }),
              AllOf(HasSubstr("'cols'"), HasSubstr("none|rows|columns")));
}

}  // namespace
}  // namespace canzona::shapes::tensor_test
