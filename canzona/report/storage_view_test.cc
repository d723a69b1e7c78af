#include "canzona/report/storage_view.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/test_layouts.h"

namespace canzona::report::storage_view_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

// HSDP 2x2 with a name that is no HTML, splits, a lone row and shared elements.
StoragePlan hsdp_plan() {
  const std::vector<AxisCut> hsdp{{2, -1}, {2, 0}};
  CutTensor fused = storage_tensor("<b>qkv", {8, 4}, stored_by({8, 4}, hsdp));
  fused.splits = {4, 2, 2};
  StorageRequest request = storage_request(
      4, {fused, storage_tensor("up", {6, 4}, stored_by({6, 4}, hsdp)),
          storage_tensor("row", {1, 4}, stored_by({1, 4}, hsdp)),
          storage_tensor("norm", {4}, stored_by({4}, {{4, -1}}), 1)});
  request.options.share_states = true;
  request.options.ranks_per_node = 2;
  return make_storage_plan(request);
}

TEST(StorageView, TellsOwnersLoadsRoundsAndBytes) {
  const StoragePlan plan = hsdp_plan();
  EXPECT_THAT(print_text(storage_view(plan), Ink()),
              AllOf(HasSubstr("4 tensors, 5 matrices"),
                    HasSubstr("muon (3 tensors), adamw (1 tensor)"),
                    HasSubstr("states of replicas are shared"),
                    HasSubstr(plan.digest), HasSubstr("× bound"),
                    HasSubstr("ranks 0 to 1 and 1 line more like it"),
                    HasSubstr("broadcast")));
}

TEST(StorageView, JsonHasEveryNumber) {
  const StoragePlan plan = hsdp_plan();
  const Json json = parse_json(to_json(storage_view(plan)), {});
  EXPECT_EQ(json.at("digest"), plan.digest);
  EXPECT_EQ(json.at("matrices").size(), plan.matrices.size());
  EXPECT_EQ(json.at("matrices").at(1).at("name"), "<b>qkv:1");
  EXPECT_EQ(json.at("shared_elements").at(0).at("name"), "norm");
  EXPECT_EQ(json.at("classes").size(), plan.classes.size());
  double sum = 0;
  int64_t most = 0;
  for (const Json& rank : json.at("ranks")) {
    sum += rank.at("load").get<double>();
    int64_t sent = 0;
    for (const auto& [name, wire] : rank.at("bytes").items())
      sent += wire.at("sent_intra").get<int64_t>() +
              wire.at("sent_inter").get<int64_t>();
    most = std::max(most, sent);
  }
  EXPECT_DOUBLE_EQ(sum / 4, plan.summary.mean);
  EXPECT_EQ(most, plan.summary.bytes_per_rank_max.value());
}

// The bytes of a rank's steps are those of its messages.
TEST(StorageView, ARanksStepMovesItsBytes) {
  const StoragePlan plan = hsdp_plan();
  for (int32_t rank = 0; rank < 4; ++rank) {
    const Json json = parse_json(to_json(explain_storage_rank(plan, rank)), {});
    int64_t sent = 0, received = 0, in_steps = 0, into = 0;
    for (const auto& [name, wire] : json.at("bytes").items()) {
      sent += wire.at("sent_intra").get<int64_t>() +
              wire.at("sent_inter").get<int64_t>();
      received += wire.at("received_intra").get<int64_t>() +
                  wire.at("received_inter").get<int64_t>();
    }
    for (const Json& action : json.at("step")) {
      in_steps += action.value("sent", int64_t{0});
      into += action.value("received", int64_t{0});
    }
    EXPECT_EQ(in_steps, sent);
    EXPECT_EQ(into, received);
    size_t owned = 0;
    for (const OwnedMatrix& m : plan.matrices) owned += m.owner == rank;
    EXPECT_EQ(json.at("matrices").size(), owned);
    EXPECT_THAT(print_text(explain_storage_rank(plan, rank), Ink()),
                AllOf(HasSubstr(cat("Rank ", rank, " of 4, node ", rank / 2)),
                      HasSubstr("A step"), HasSubstr("transform round 0")));
  }
}

TEST(StorageView, AMatrixIsFoundByItsOwnAndItsTensorsName) {
  const StoragePlan plan = hsdp_plan();
  EXPECT_EQ(
      parse_json(to_json(explain_storage_matrix(plan, "<b>qkv")), {}).size(),
      3u);
  EXPECT_THAT(print_text(explain_storage_matrix(plan, "<b>qkv:1"), Ink()),
              AllOf(HasSubstr("<b>qkv:1, 2 × 4"), HasSubstr("owner"),
                    Not(HasSubstr("<b>qkv:2"))));
  EXPECT_THAT([&] { print_text(explain_storage_matrix(plan, "upp"), Ink()); },
              ThrowsMessage<UsageError>(HasSubstr("did you mean 'up'")));
  EXPECT_THAT([&] { print_text(explain_storage_matrix(plan, "norm"), Ink()); },
              ThrowsMessage<UsageError>(HasSubstr("element by element")));
}

TEST(StorageView, TheAuditHasEveryTensor) {
  const StoragePlan plan = hsdp_plan();
  const Json json = parse_json(to_json(storage_audit(plan)), {});
  ASSERT_EQ(json.size(), 6u);
  EXPECT_EQ(json.at(0).at("owner"), plan.matrices[0].owner);
  EXPECT_EQ(json.at(5).at("line"), plan.elements[0].line);
  EXPECT_THAT(print_text(storage_audit(plan), Ink()),
              AllOf(HasSubstr("row"), HasSubstr("norm"), HasSubstr("line ")));
}

TEST(StorageView, ThePageIsWholeAndEscaped) {
  const StoragePlan plan = hsdp_plan();
  const std::string page = storage_html(plan);
  EXPECT_EQ(page, storage_html(plan));
  EXPECT_THAT(page,
              AllOf(HasSubstr("\\u003cb\\u003eqkv:1"), HasSubstr("</html>"),
                    HasSubstr(plan.digest), HasSubstr("transform round 0")));
  EXPECT_THAT(page, Not(HasSubstr("<b>qkv")));
  EXPECT_THAT(page, Not(HasSubstr("https:")));
}

TEST(StorageView, ShowsPlansWithoutMatricesAndOfManyRanks) {
  const StoragePlan none = make_storage_plan(storage_request(2, {}));
  EXPECT_THAT(print_text(storage_view(none), Ink()),
              HasSubstr("nothing moves"));
  EXPECT_TRUE(
      parse_json(to_json(storage_view(none)), {}).at("matrices").empty());
  EXPECT_THAT(print_text(explain_storage_rank(none, 1), Ink()),
              HasSubstr("0 matrices"));
  const StoragePlan many = make_storage_plan(storage_request(
      200, {storage_tensor("w", {400, 4}, stored_by({400, 4}, {{200, 0}}))}));
  const Json json = parse_json(to_json(storage_view(many)), {});
  EXPECT_EQ(json.at("ranks").size(), 200u);
  EXPECT_EQ(json.at("classes").at(0).at("exchanged_over"), "ranks 0 to 199");
  EXPECT_EQ(json.at("order").at("columns").size(), 5u);
  EXPECT_THAT(print_text(storage_view(many), Ink()), HasSubstr("200 ranks"));
}

}  // namespace
}  // namespace canzona::report::storage_view_test
