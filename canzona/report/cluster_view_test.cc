#include "canzona/report/cluster_view.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::report::cluster_view_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ClusterView : public ::testing::Test {
 protected:
  ClusterView() {
    cluster_.name = "toys <b>";
    cluster_.card = {"toy card", 1e8};
    cluster_.levels = {{"node", 4, 1e6, 1e-5, 1}, {"all", 64, 1e5, 2e-5, 2}};
    cluster_.spread = {0.1, 0.2};
    work_.compute = {.tokens = 64, .length = 16, .width = 16};
    PlanOptions options;
    apply(cluster_, options, work_);
    plan_ = plan_of(toy_model(4), "pp=4,dp=4", options);
  }
  ShownCluster shown() const {
    return {plan_,  cluster_, work_,
            "ring", 1024,     predict_cluster(plan_, work_)};
  }

  Cluster cluster_;
  Workload work_;
  Plan plan_;
};

TEST_F(ClusterView, TextTellsTimesOfEachKindAndThatTheyArePredicted) {
  const std::string text = print_text(cluster_view(shown()), Ink());
  EXPECT_THAT(text,
              AllOf(HasSubstr("first stage"), HasSubstr("stage 2"),
                    HasSubstr("last stage"), HasSubstr("rings"),
                    HasSubstr("(predicted)"), HasSubstr("the slowest of 16")));
}

TEST_F(ClusterView, JsonHasPartsThatAddUp) {
  const ClusterPrediction p = shown().predicted;
  const Json json = parse_json(to_json(cluster_view(shown())), {});
  const Json& predicted = json["predicted"];
  EXPECT_EQ(predicted["iteration_seconds"], p.seconds());
  EXPECT_EQ(predicted["step_seconds"], p.step_seconds());
  EXPECT_EQ(json["cluster"]["collectives"], "ring");
  EXPECT_EQ(json["cluster"]["levels"][1]["oversubscription"], 2);
  EXPECT_EQ(json["cluster"]["spread"]["length"], 0.2);
  ASSERT_EQ(predicted["kinds"].size(), 3u);
  for (const Json& kind : predicted["kinds"]) {
    double sum = 0;
    for (const char* key : {"compute_seconds", "step_seconds", "bubble_seconds",
                            "waited_parameters_seconds",
                            "waited_gradients_seconds", "waited_step_seconds"})
      sum += kind[key].get<double>();
    EXPECT_NEAR(sum, kind["seconds"].get<double>(), 1e-9);
  }
  EXPECT_EQ(predicted["memory_per_rank_max"].get<int64_t>(),
            p.memory_bytes() + 1024);
}

TEST_F(ClusterView, PageHoldsTheJsonEscaped) {
  EXPECT_THAT(cluster_html(shown()),
              AllOf(HasSubstr("toys \\u003cb\\u003e"),
                    HasSubstr("\"report\":\"cluster\""), HasSubstr("Spread: "),
                    Not(HasSubstr("toys <b>"))));
}

}  // namespace
}  // namespace canzona::report::cluster_view_test
