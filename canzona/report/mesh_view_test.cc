#include "canzona/report/mesh_view.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/report/test_meshes.h"

namespace canzona::report::mesh_view_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MeshView : public ::testing::Test {
 protected:
  ShownMeshes shown() const { return sample_.shown(); }

  SampleMeshes sample_{"toys <b>"};
};

TEST_F(MeshView, TextHasTheChoiceAndWhyOthersLose) {
  const std::string text = print_text(mesh_view(shown()), Ink());
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("The fastest (predicted)"), HasSubstr("dp=8,tp=8"),
            HasSubstr("sums over tp 500 ms"),
            HasSubstr("35.00 GiB on the fullest rank of the cap of 40.00 GiB"),
            HasSubstr("12,345 layouts: 300 cannot fit"),
            HasSubstr("no other one is faster"),
            HasSubstr("virtual pipeline stages"),
            HasSubstr("400 Tflop/s, nominal"),
            HasSubstr("11 % slower: bubble 8 %, 3 % exposed")));
  EXPECT_THAT(text, AllOf(HasSubstr("loses 25.0 %"), HasSubstr("the same"),
                          HasSubstr("no layout fits"),
                          HasSubstr("\n    canzona train --mesh dp=8,tp=8\n"),
                          HasSubstr("not the best: it has no stages")));
}

TEST_F(MeshView, ASearchWithoutProofSaysHowFarItIsOff) {
  sample_.answer.proven = false;
  sample_.answer.gap = 0.034;
  sample_.answer.counts.left = 500;
  EXPECT_THAT(print_text(mesh_view(shown()), Ink()),
              AllOf(HasSubstr("500 are undecided"), HasSubstr("3.4 % faster"),
                    Not(HasSubstr("no other one is faster"))));
}

TEST_F(MeshView, JsonHasPartsThatAddUp) {
  const Json json = parse_json(to_json(mesh_view(shown())), {});
  EXPECT_EQ(json["world"], 64);
  EXPECT_EQ(json["search"]["in_space"], 12345);
  EXPECT_EQ(json["choice"]["mesh"]["tp"], 8);
  ASSERT_EQ(json["kinds"].size(), 2u);
  EXPECT_EQ(json["kinds"][1]["zero_name"], "hier:8");
  EXPECT_EQ(json["kinds"][1]["recompute"], true);
  for (const Json& kind : json["kinds"]) {
    double sum = 0;
    for (const char* key :
         {"compute_seconds", "bubble_seconds", "tp_seconds", "ep_seconds",
          "pp_seconds", "dp_seconds", "step_seconds"})
      sum += kind[key].get<double>();
    EXPECT_DOUBLE_EQ(sum, kind["seconds"].get<double>());
    int64_t bytes = 0;
    for (const auto& [name, value] : kind["memory"].items())
      bytes += value.get<int64_t>();
    EXPECT_EQ(bytes, kind["memory_bytes"].get<int64_t>());
  }
  ASSERT_EQ(json["changes"].size(), 3u);
  EXPECT_DOUBLE_EQ(json["changes"][0]["kept_loses"], 0.25);
  EXPECT_TRUE(json["changes"][2]["best"].is_null());
  EXPECT_EQ(json["commands"][1]["why_not"], "it has no stages");
}

TEST_F(MeshView, AnEngineThatLacksTheBestRunsAnother) {
  ShownMeshes other = shown();
  sample_.answer.kinds[1].weighed.time.seconds = 10.5;
  other.commands = {{"PyTorch", "torchrun", "it has no tp", 1}};
  EXPECT_THAT(print_text(mesh_view(other), Ink()),
              AllOf(HasSubstr("PyTorch, hierarchical zero (5.0 % slower):"),
                    HasSubstr("not the best: it has no tp"),
                    HasSubstr("\n    torchrun\n")));
}

TEST_F(MeshView, SideBySideThereAreTimesAndMemoryOfEachKind) {
  const std::string text = print_text(meshes_view(shown()), Ink());
  EXPECT_THAT(text,
              AllOf(HasSubstr("Where the time goes"), HasSubstr("activations"),
                    HasSubstr("42.0 %"), Not(HasSubstr("To copy"))));
  // No kind exchanges tokens.
  EXPECT_THAT(text, Not(HasSubstr(" ep ")));
}

TEST_F(MeshView, ThePageHoldsTheJson) {
  const std::string page = mesh_html(shown());
  EXPECT_THAT(page, AllOf(HasSubstr("links half as fast"),
                          HasSubstr("kept_loses"), Not(HasSubstr("toys <b>"))));
}

}  // namespace
}  // namespace canzona::report::mesh_view_test
