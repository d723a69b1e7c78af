#include "tests/conformance/fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/test_fixture.h"

namespace canzona::tests::fixture_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string message_of_bytes(const std::string& bytes) {
  try {
    read_fixture(bytes, "x.safetensors");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Fixture, TellsWhatTheReferenceWasGivenAndGave) {
  const Fixture fixture = adamw_fixture().read();
  EXPECT_EQ(fixture.rule, "adamw");
  EXPECT_EQ(fixture.preset, "torch");
  EXPECT_EQ(fixture.dtype, "f64");
  EXPECT_FALSE(fixture.injected);
  EXPECT_EQ(fixture.steps, 1);
  EXPECT_EQ(fixture.options.at("adam.beta2"), 0.75);
  EXPECT_EQ(fixture.tolerance.at("param"), 1e-12);
  EXPECT_THAT(fixture.tensor("param.1").values, ElementsAre(6.5, -4));
  EXPECT_THAT(fixture.tensor("param.1").dims, ElementsAre(2));
  EXPECT_EQ(fixture.find("momentum.1"), nullptr);
}

TEST(Fixture, WidensFp32AndReadsPermutations) {
  TestFixture f = adamw_fixture();
  f.tensors["param.0"] = test_tensor<float>("F32", {2}, {0.1f, -4});
  f.tensors["inject.perm_left.1"] = test_tensor<int64_t>("I64", {2}, {1, 0});
  const Fixture fixture = f.read();
  EXPECT_EQ(fixture.tensor("param.0").values[0], static_cast<double>(0.1f));
  EXPECT_THAT(fixture.tensor("inject.perm_left.1").integers, ElementsAre(1, 0));
}

TEST(Fixture, NullToleranceMeansNotToCompare) {
  TestFixture f = adamw_fixture();
  f.metadata["tolerance"] = R"({"param": null})";
  EXPECT_EQ(f.read().tolerance.at("param"), std::nullopt);
}

TEST(Fixture, NamesAreTakenApart) {
  const auto name = parse_tensor_name("inject.b12.factor_left.3");
  ASSERT_TRUE(name);
  EXPECT_TRUE(name->inject);
  EXPECT_EQ(name->block, 12);
  EXPECT_EQ(name->what, "factor_left");
  EXPECT_EQ(name->step, 3);
  EXPECT_EQ(to_string(*name), "inject.b12.factor_left.3");
  EXPECT_EQ(parse_tensor_name("basis_left.3")->block, -1);
  EXPECT_EQ(parse_tensor_name("out_f32.r8_3.10")->what, "out_f32.r8_3");
}

TEST(Fixture, OtherNamesAreRefused) {
  for (const char* name : {"", "param", "param.", "param.-1", "param.01",
                           "param.x", ".1", "b.param.1", "bx.param.1",
                           "PARAM.1", "a b.1", "param.99999999999999999999"})
    EXPECT_FALSE(parse_tensor_name(name)) << name;
  TestFixture f = adamw_fixture();
  f.tensors["param.2"] = f.tensors["param.1"];
  EXPECT_THAT(f.message(),
              AllOf(HasSubstr("x.safetensors"), HasSubstr("'param.2'"),
                    HasSubstr("of 1 step")));
}

TEST(Fixture, EveryTruncationIsRefused) {
  const std::string whole = adamw_fixture().bytes();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(message_of_bytes(whole.substr(0, size)),
                HasSubstr("x.safetensors"))
        << size;
  EXPECT_THAT(message_of_bytes(whole + "x"), HasSubstr("data ends"));
}

TEST(Fixture, AHeaderLongerThanTheFileIsRefused) {
  std::string bytes = adamw_fixture().bytes();
  bytes[3] = '\x7F';
  EXPECT_THAT(message_of_bytes(bytes), HasSubstr("header"));
  bytes[7] = '\x7F';
  EXPECT_THAT(message_of_bytes(bytes), HasSubstr("header"));
}

TEST(Fixture, MissingTensorsAreNamed) {
  for (const char* name : {"param.0", "grad.1", "param.1"}) {
    TestFixture f = adamw_fixture();
    f.tensors.erase(name);
    EXPECT_THAT(f.message(),
                AllOf(HasSubstr("x.safetensors"), HasSubstr(name)));
  }
}

TEST(Fixture, ShapesOfAStepMustAgree) {
  TestFixture f = adamw_fixture();
  f.tensors["grad.1"] = f64({1, 3}, {1, 2, 3});
  EXPECT_THAT(f.message(), AllOf(HasSubstr("'grad.1'"), HasSubstr("[1, 3]"),
                                 HasSubstr("[2]")));
}

TEST(Fixture, TypesThatDoNotFitAreRefused) {
  TestFixture f = adamw_fixture();
  f.tensors["grad.1"].dtype = "I64";
  EXPECT_THAT(f.message(), AllOf(HasSubstr("'grad.1'"), HasSubstr("I64")));
  f = adamw_fixture();
  f.tensors["inject.perm_left.1"] = f64({2}, {0, 1});
  EXPECT_THAT(f.message(), AllOf(HasSubstr("perm_left"), HasSubstr("F64")));
}

TEST(Fixture, MetadataIsChecked) {
  const auto with = [](const char* key, const char* value) {
    TestFixture f = adamw_fixture();
    f.metadata[key] = value;
    return f.message();
  };
  EXPECT_THAT(with("rule", "adamv"), HasSubstr("did you mean 'adamw'"));
  EXPECT_THAT(with("mode", "both"), HasSubstr("free|injected"));
  EXPECT_THAT(with("dtype", "f16"), HasSubstr("bf16_ns"));
  EXPECT_THAT(with("steps", "0"), HasSubstr("steps"));
  EXPECT_THAT(with("steps", "99999999"), HasSubstr("steps"));
  EXPECT_THAT(with("options", "{"), HasSubstr("options"));
  EXPECT_THAT(with("options", "[1]"), HasSubstr("no object"));
  EXPECT_THAT(with("options", R"({"lr": 1, "lr": 2})"), HasSubstr("lr"));
  EXPECT_THAT(with("tolerance", R"({"param": -1})"), HasSubstr("'param'"));
  EXPECT_THAT(with("tolerance", R"({"param": "x"})"), HasSubstr("'param'"));
  for (const char* key :
       {"rule", "preset", "dtype", "mode", "steps", "options", "tolerance"}) {
    TestFixture f = adamw_fixture();
    f.metadata.erase(key);
    EXPECT_THAT(f.message(), AllOf(HasSubstr(key), HasSubstr("missing")));
  }
}

}  // namespace
}  // namespace canzona::tests::fixture_test
