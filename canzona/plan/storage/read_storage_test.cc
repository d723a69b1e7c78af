#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/plan/storage/storage_json.h"

namespace canzona::plan::read_storage_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

Json good() {
  return Json::parse(R"({
    "canzona_storage": 1, "world": 2, "wire": "bf16", "share_states": true,
    "capacity_bytes": 1000, "ranks_per_node": 4,
    "groups": [{"rule": "muon", "options": {"steps": 5, "nesterov": true}},
               {"rule": "adamw", "options": {}}],
    "tensors": [
      {"name": "w", "shape": [4, 2], "dtype": "bf16", "group": 0,
       "splits": [1, 3], "stored": [[[[0, 0], [4, 2]]], []]},
      {"name": "v", "shape": [4, 2], "group": 1, "stored": {"like": 0}}]})");
}

TEST(ReadStorage, ReadsEveryMember) {
  const StorageRequest request = read_storage(good().dump()).request;
  EXPECT_EQ(request.world, 2);
  EXPECT_EQ(request.options.wire, DType::kBf16);
  EXPECT_TRUE(request.options.share_states);
  EXPECT_EQ(request.options.capacity_bytes, 1000);
  EXPECT_EQ(request.options.ranks_per_node, 4);
  EXPECT_EQ(request.groups[0].options,
            (RuleOptions{{"steps", "5"}, {"nesterov", "on"}}));
  const CutTensor& w = request.tensors.at(0);
  EXPECT_EQ(w.dtype, DType::kBf16);
  EXPECT_EQ(w.splits, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(w.stored[0].at(0), (Box{{0, 0}, {4, 2}}));
  EXPECT_TRUE(w.stored[1].empty());
  EXPECT_EQ(request.tensors.at(1).stored, w.stored);
  EXPECT_EQ(request.tensors.at(1).dtype, DType::kFp32);
}

template <class Change>
void expect_refused(Change change, const std::string& says) {
  Json json = good();
  change(json);
  EXPECT_THAT([&] { read_storage(json.dump(), "p.json"); },
              ThrowsMessage<UsageError>(
                  AllOf(StartsWith("p.json: "), HasSubstr(says))));
}

TEST(ReadStorage, NamesWhatIsWrong) {
  expect_refused([](Json& j) { j["canzona_storage"] = 2; },
                 "version 2, expected 1");
  expect_refused([](Json& j) { j.erase("canzona_storage"); },
                 "canzona_storage");
  expect_refused([](Json& j) { j["world"] = 0; }, "world");
  expect_refused([](Json& j) { j["wire"] = "fp8"; }, "wire 'fp8'");
  expect_refused([](Json& j) { j["wird"] = "fp32"; }, "did you mean 'wire'");
  expect_refused([](Json& j) { j["tensors"][0]["dtype"] = "fp16"; },
                 "tensor 'w': dtype 'fp16', expected fp32 or bf16");
  expect_refused([](Json& j) { j["tensors"][0]["group"] = 2; },
                 "tensor 'w': group: 2 is not in 0..1");
  expect_refused([](Json& j) { j["tensors"][1]["stored"]["like"] = 1; },
                 "tensor 'v': like: 1 is not in 0..0");
  expect_refused([](Json& j) { j["tensors"][0]["stored"].erase(0); },
                 "tensor 'w': stored: expected one entry for each of 2 ranks");
  expect_refused([](Json& j) { j["tensors"][0]["stored"][1] = 3; },
                 "tensor 'w': stored, rank 1: expected an array");
  expect_refused([](Json& j) { j["tensors"][0]["stored"][0][0][0][1] = -1; },
                 "tensor 'w': stored, rank 0: -1 is not in 0..");
  expect_refused(
      [](Json& j) { j["groups"][0]["options"]["steps"] = Json::array(); },
      "option 'steps'");
}

Json table() {
  return Json::parse(R"({
    "format": "canzona.cost_table", "version": 1, "device": "Toy 1",
    "kind": "cpu", "precision": "fp32", "date": "2025-03-31",
    "measurements": [{"rule": "adamw", "algorithm": "elementwise",
      "entries": [{"rows": 4, "cols": 2, "seconds": 0.1}]}]})");
}

TEST(ReadStorage, ReadsATableOfCosts) {
  Json json = good();
  EXPECT_EQ(read_storage(json.dump()).table(), nullptr);
  json["cost_table"] = table();
  const StorageInput input = read_storage(json.dump());
  EXPECT_EQ(input.request, read_storage(good().dump()).request);
  ASSERT_NE(input.table(), nullptr);
  EXPECT_EQ(input.table()->device(), "Toy 1");
}

TEST(ReadStorage, RefusesTablesThatAreWrong) {
  const auto expect_bad_table = [](auto change, const std::string& says) {
    Json json = good();
    json["cost_table"] = table();
    change(json["cost_table"]);
    EXPECT_THAT([&] { read_storage(json.dump(), "p.json"); },
                ThrowsMessage<UsageError>(
                    AllOf(StartsWith("p.json: cost_table"), HasSubstr(says))));
  };
  expect_bad_table([](Json& t) { t["version"] = 2; }, "version");
  expect_bad_table([](Json& t) { t["devise"] = "x"; }, "'device'");
  expect_bad_table([](Json& t) { t = 3; }, "");
}

TEST(ReadStorage, SmallFilesThatAskForMuchAreRefused) {
  expect_refused(
      [](Json& j) {
        j["world"] = 1 << 20;
        for (int i = 0; i < 10; ++i) j["tensors"].push_back(j["tensors"][1]);
      },
      "lists of boxes");
}

}  // namespace
}  // namespace canzona::plan::read_storage_test
