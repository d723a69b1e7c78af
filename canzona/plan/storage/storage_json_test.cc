#include "canzona/plan/storage/storage_json.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/test_layouts.h"

namespace canzona::plan::storage_json_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

// Two matrices on two ranks and a norm that both have.
StoragePlan small_plan() {
  return make_storage_plan(storage_request(
      2, {storage_tensor("a", {4, 2}, stored_by({4, 2}, {{2, 0}})),
          storage_tensor("b", {4, 2}, stored_by({4, 2}, {{2, 0}})),
          storage_tensor("n", {3}, stored_by({3}, {{2, -1}}), 1)}));
}

TEST(StoragePlanJson, IsReadBackAsItWas) {
  Random random(17);
  for (const int32_t world : {1, 2, 4, 7, 8}) {
    for (int trial = 0; trial < 20; ++trial) {
      const StoragePlan plan =
          make_storage_plan(random_storage(random, world, random.small(0, 9)));
      const std::string text = storage_plan_to_json(plan);
      const ReadStoragePlan read = storage_plan_from_json(text, "p.json");
      EXPECT_TRUE(read.digest_matches);
      EXPECT_EQ(read.plan.tensors, plan.tensors);
      EXPECT_EQ(read.plan.matrices, plan.matrices);
      EXPECT_EQ(read.plan.elements, plan.elements);
      EXPECT_EQ(read.plan.classes, plan.classes);
      EXPECT_EQ(read.plan.class_of, plan.class_of);
      EXPECT_EQ(read.plan.first_matrix, plan.first_matrix);
      EXPECT_EQ(read.plan.summary, plan.summary);
      EXPECT_EQ(storage_plan_to_json(read.plan), text);
      EXPECT_THAT(validate(read.plan), IsEmpty());
    }
  }
}

// The digest of this plan is the same on every machine.
TEST(StoragePlanJson, HasTheSameBytesEverywhere) {
  const std::string text = storage_plan_to_json(small_plan());
  EXPECT_THAT(text, StartsWith(R"({"format":"canzona.plan","version":3,)"
                               R"("digest":")"));
  EXPECT_THAT(
      text,
      HasSubstr(
          R"("boxes":[[[[[0,0],[2,2]]],[[[2,0],[2,2]]]],)"
          R"([[[[0],[3]]],[[[0],[3]]]]],)"
          R"("tensors":[["a",[4,2],"fp32",0,[],0],)"
          R"(["b",[4,2],"fp32",0,[],0],["n",[3],"fp32",1,[],1]]},)"
          R"("decisions":{"owners":[1,0],"rounds":[0,0],"elements":[]}})"));
}

TEST(StoragePlanJson, TheDigestIsThatOfTheFileWithoutIt) {
  StoragePlan plan = small_plan();
  const std::string digest = plan.digest;
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(digest_of(plan), digest);
  plan.matrices[0].owner = 1 - plan.matrices[0].owner;
  EXPECT_NE(digest_of(plan), digest);
}

// Plans of versions 1 and 2, made before some options of the rules existed.
TEST(StoragePlanJson, FormerVersionsAreRead) {
  int read = 0;
  for (const char* name : {"experts", "fsdp", "hsdp_shared", "teams"}) {
    const std::string text =
        read_file(cat(CANZONA_TEST_DATA "/../../fuzz/corpus/storage/plan_",
                      name, ".json"),
                  1 << 20, "plan");
    ASSERT_THAT(text, HasSubstr("\"format\":\"canzona.placed_plan\""));
    const ReadStoragePlan former = storage_plan_from_json(text, "p.json");
    EXPECT_TRUE(former.digest_matches) << name;
    EXPECT_THAT(validate(former.plan), IsEmpty()) << name;
    const std::string now = storage_plan_to_json(former.plan);
    const ReadStoragePlan again = storage_plan_from_json(now, "p.json");
    EXPECT_TRUE(again.digest_matches);
    EXPECT_EQ(again.plan.matrices, former.plan.matrices);
    EXPECT_EQ(again.plan.options, former.plan.options);
    ++read;
  }
  EXPECT_EQ(read, 4);
}

Json json_of(const StoragePlan& plan) {
  return Json::parse(storage_plan_to_json(plan));
}

template <class Change>
void expect_unread(Change change, const std::string& says) {
  Json json = json_of(small_plan());
  change(json);
  EXPECT_THAT(
      [&] { storage_plan_from_json(json.dump(), "p.json"); },
      ThrowsMessage<UsageError>(AllOf(StartsWith("p.json"), HasSubstr(says))));
}

TEST(StoragePlanJson, WhatIsNoPlanIsRefused) {
  expect_unread([](Json& j) { j["storage"]["maker"] = "planner"; },
                "not a plan of given storage: the maker of its storage is "
                "'planner', expected caller");
  expect_unread([](Json& j) { j["version"] = 4; },
                "version 4, expected 3, or the former 1 and 2");
  expect_unread([](Json& j) { j["decisions"].erase("owners"); }, "owners");
  expect_unread([](Json& j) { j["more"] = 1; }, "more");
  expect_unread([](Json& j) { j["decisions"]["owners"].push_back(0); },
                "3 owners and 2 rounds of 2 matrices");
  expect_unread([](Json& j) { j["decisions"]["owners"][0] = 2; },
                "2 is not in 0..1");
  expect_unread([](Json& j) { j["storage"]["tensors"][0][5] = 2; },
                "tensor 'a': boxes: 2 is not in 0..1");
  expect_unread([](Json& j) { j["storage"]["boxes"][0][1][0][1][0] = 1; },
                "tensor 'a': no rank stores element [3, 0]");
  expect_unread(
      [](Json& j) { j["request"]["groups"][0]["options"]["steps"] = "auto"; },
      "options are not settled");
  expect_unread([](Json& j) { j["request"]["cost"]["ticks"] = Json::array(); },
                "no ticks for a 4×2 matrix");
  expect_unread(
      [](Json& j) {
        j["decisions"]["elements"].push_back({0, 0});
      },
      "1 elements, expected 0");
}

// Read, and then every violation is listed.
template <class Change>
std::vector<std::string> violations_after(Change change) {
  Json json = json_of(small_plan());
  change(json);
  const ReadStoragePlan read = storage_plan_from_json(json.dump(), "p.json");
  EXPECT_FALSE(read.digest_matches);
  return validate(read.plan);
}

TEST(ValidateStorage, ListsWrongDecisions) {
  EXPECT_THAT(violations_after([](Json& j) {
                j["decisions"]["rounds"] = {-1, 0};
              }),
              ElementsAre(HasSubstr("'a': no round, but its pieces are on 2"),
                          HasSubstr("digest")));
  EXPECT_THAT(violations_after([](Json& j) {
                j["decisions"]["rounds"] = {0, 2};
              }),
              ElementsAre(HasSubstr("2 rounds are used, up to 2, expected 3"),
                          HasSubstr("digest")));
  EXPECT_THAT(violations_after([](Json& j) {
                j["decisions"]["owners"] = {0, 0};
              }),
              ElementsAre(HasSubstr("predicted makespan"),
                          HasSubstr("predicted idle ranks 0, expected 1"),
                          HasSubstr("digest")));
  EXPECT_THAT(violations_after([](Json& j) {
                j["decisions"]["owners"] = {0, 0};
                j["request"]["options"]["capacity_bytes"] = 31;
                j["predicted"]["idle_ranks"] = 1;
                j["predicted"]["makespan_ticks"] =
                    2 * j["predicted"]["makespan_ticks"].get<int64_t>();
              }),
              ElementsAre(HasSubstr("round 0: 32 bytes of messages on rank 0"),
                          HasSubstr("round 0: 32 bytes of messages on rank 1"),
                          HasSubstr("digest")));
  EXPECT_THAT(
      violations_after(
          [](Json& j) { j["request"]["cost"]["ticks"][0][3] = 1; }),
      ElementsAre(HasSubstr("cost: 1 + 0 ticks for 'a'"), HasSubstr("digest")));
  EXPECT_THAT(
      violations_after([](Json& j) { j["predicted"]["bound_ticks"] = 0; }),
      ElementsAre(HasSubstr("predicted bound 0, expected"),
                  HasSubstr("digest")));
}

TEST(ValidateStorage, AnOwnerThatStoresNothingIsNamed) {
  const auto plan = make_storage_plan(storage_request(
      3, {storage_tensor("w", {2, 2}, stored_by({2, 2}, {{3, 0}}))}));
  StoragePlan wrong = plan;
  wrong.matrices[0].owner = 2;
  EXPECT_THAT(
      validate(wrong),
      ElementsAre("matrix 'w': its owner, rank 2, stores no piece of it",
                  HasSubstr("digest")));
}

TEST(ValidateStorage, ClassesAndMatricesAreThoseOfTheRequest) {
  StoragePlan plan = small_plan();
  plan.classes[0].lines = {{0}, {1}};
  EXPECT_THAT(validate(plan), ElementsAre(HasSubstr("class 0: lines or sets")));
  plan = small_plan();
  plan.matrices[1].rows = 3;
  EXPECT_THAT(validate(plan),
              ElementsAre(HasSubstr("matrix 1 does not match the request"),
                          HasSubstr("digest")));
  plan = small_plan();
  plan.tensors[0].stored[1].clear();
  EXPECT_THAT(validate(plan),
              ElementsAre(HasSubstr("tensor 'a': no rank stores element"),
                          HasSubstr("digest")));
}

TEST(StoragePlanJson, ValuesBesideThePlanAreRefused) {
  expect_unread(
      [](Json& j) {
        Json& boxes = j["storage"]["boxes"];
        boxes.push_back(boxes[0]);  // nobody uses it
        const StoragePlan plan = small_plan();
        j["digest"] = plan.digest;
      },
      "/storage/boxes/2 differs from the plan that the digest describes");
}

}  // namespace
}  // namespace canzona::plan::storage_json_test
