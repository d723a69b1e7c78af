#include "canzona/plan/storage/storage_plan.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "canzona/base/error.h"
#include "canzona/plan/storage/storage_basis.h"
#include "canzona/plan/storage/storage_json.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/plan/storage/test_layouts.h"

namespace canzona::plan::make_storage_plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(MakeStoragePlan, TwoRanksShareTheMatricesOfTwoRanks) {
  const StoragePlan plan = make_storage_plan(read_storage(R"({
    "canzona_storage": 1, "world": 2,
    "groups": [{"rule": "muon", "options": {"preset": "torch"}},
               {"rule": "adamw"}],
    "tensors": [
      {"name": "q", "shape": [4, 8], "group": 0,
       "stored": [[[[0, 0], [2, 8]]], [[[2, 0], [2, 8]]]]},
      {"name": "k", "shape": [4, 8], "group": 0, "stored": {"like": 0}},
      {"name": "norm", "shape": [8], "group": 1,
       "stored": [[[[0], [4]]], [[[4], [4]]]]}]})")
                                                 .request);
  ASSERT_EQ(plan.matrices.size(), 2u);
  EXPECT_NE(plan.matrices[0].owner, plan.matrices[1].owner);
  EXPECT_EQ(plan.matrices[0].round, 0);
  EXPECT_THAT(plan.class_of, ElementsAre(0, 0, -1));
  EXPECT_THAT(plan.first_matrix, ElementsAre(0, 1, 2, 2));
  EXPECT_EQ(plan.summary.makespan, plan.summary.bound);
  // Each sends half a matrix to be gathered and half of one as updates.
  EXPECT_EQ(plan.summary.bytes_per_rank_max, Bytes(2 * 16 * 4));
  EXPECT_EQ(plan.groups[0].options.at("preset"), "torch");
  EXPECT_GT(plan.groups[0].options.size(), 1u);
}

TEST(MakeStoragePlan, AMatrixThatLiesWholeOnItsOnlyHolderStays) {
  const auto plan = make_storage_plan(storage_request(
      4, {storage_tensor("one row", {1, 8}, stored_by({1, 8}, {{4, 0}}))}));
  EXPECT_EQ(plan.matrices[0].owner, 0);
  EXPECT_EQ(plan.matrices[0].round, -1);
  EXPECT_EQ(plan.classes[0].num_rounds, 0);
  EXPECT_EQ(plan.summary.bytes_per_rank_max, Bytes(0));
}

TEST(MakeStoragePlan, ReplicasShareTheWork) {
  std::vector<CutTensor> tensors;
  for (int t = 0; t < 8; ++t)
    tensors.push_back(
        storage_tensor(cat("t", t), {8, 8}, stored_by({8, 8}, {{4, -1}})));
  const auto plan = make_storage_plan(storage_request(4, tensors));
  std::map<int32_t, int> of_owner;
  for (const OwnedMatrix& m : plan.matrices) ++of_owner[m.owner];
  for (int32_t r = 0; r < 4; ++r) EXPECT_EQ(of_owner[r], 2);
  EXPECT_EQ(plan.classes[0].lines.size(), 4u);
  // Two matrices to three replicas each; nothing is gathered.
  EXPECT_EQ(plan.summary.bytes_per_rank_max, Bytes(2 * 3 * 64 * 4));
}

TEST(MakeStoragePlan, SharedStatesOfElementsAreSpreadOverLines) {
  std::vector<CutTensor> tensors{
      storage_tensor("m", {4, 4}, stored_by({4, 4}, {{2, -1}}))};
  for (int t = 0; t < 4; ++t)
    tensors.push_back(
        storage_tensor(cat("t", t), {8}, stored_by({8}, {{2, -1}}), 1));
  StorageRequest request = storage_request(2, tensors);
  EXPECT_TRUE(make_storage_plan(request).elements.empty());
  request.options.share_states = true;
  const auto plan = make_storage_plan(request);
  ASSERT_EQ(plan.elements.size(), 4u);
  int lines[2] = {};
  for (const SharedElements& e : plan.elements) ++lines[e.line];
  EXPECT_THAT(lines, ElementsAre(2, 2));
  EXPECT_THAT(plan.class_of, ElementsAre(0, 0, 0, 0, 0));
}

TEST(MakeStoragePlan, BadRequestsNameTheTensor) {
  const CutTensor good =
      storage_tensor("w", {4, 2}, stored_by({4, 2}, {{2, 0}}));
  const auto refused = [&](auto change, const std::string& says) {
    StorageRequest request = storage_request(2, {good});
    change(request);
    EXPECT_THAT([&] { make_storage_plan(request); },
                ThrowsMessage<UsageError>(HasSubstr(says)));
  };
  refused([](auto& r) { r.tensors.push_back(r.tensors[0]); },
          "tensor 'w': the name is used by two tensors");
  refused(
      [](auto& r) {
        r.tensors[0].splits = {1, 2};
      },
      "tensor 'w': splits [1, 2] add up to 3 rows, expected 4");
  refused(
      [](auto& r) {
        r.tensors[0].shape = {4, 0};
      },
      "tensor 'w': shape [4, 0]: expected sides of 1 to");
  refused(
      [](auto& r) {
        r.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
      },
      "tensor 'w': shape [1099511627776, 1099511627776]: its elements");
  refused([](auto& r) { r.tensors[0].shape = {8}; },
          "tensor 'w': rule muon needs two dimensions or more");
  refused([](auto& r) { r.groups[0].rule = "moun"; }, "group 0: unknown");
  refused([](auto& r) { r.groups[0].options["stepz"] = "3"; }, "'stepz'");
  refused([](auto& r) { r.tensors[0].group = 2; },
          "tensor 'w': group 2: there are 2 groups");
  refused([](auto& r) { r.tensors[0].stored.pop_back(); },
          "one entry for each of 2 ranks, got 1");
  refused([](auto& r) { r.options.capacity_bytes = 0; },
          "capacity_bytes 0: expected 1 or more");
}

// Small requests that ask for much.
TEST(MakeStoragePlan, WhatCannotBePlannedInTimeIsRefused) {
  const auto replicated = [](std::vector<int64_t> shape) {
    return storage_request(
        2, {storage_tensor("w", shape, stored_by(shape, {{2, -1}}))});
  };
  const auto refused = [](const StorageRequest& request,
                          const std::string& says) {
    EXPECT_THAT([&] { make_storage_plan(request); },
                ThrowsMessage<UsageError>(HasSubstr(says)));
  };
  refused(replicated({1 << 20, 2, 1, 1}),
          "tensor 'w': more than 1048576 matrices");
  refused(replicated({int64_t{1} << 40, int64_t{1} << 40}), "elements");
  refused(replicated({int64_t{1} << 30, int64_t{1} << 29}), "64-bit counts");
  StorageRequest narrow = replicated({200'000, 1, 1});
  narrow.options.capacity_bytes = 1;
  refused(narrow, "capacity_bytes 1: more than");
}

TEST(MakeStoragePlan, EmptyBoxesAreLeftOut) {
  CutTensor tensor = storage_tensor("w", {4, 2}, stored_by({4, 2}, {{2, 0}}));
  const StoragePlan expected = make_storage_plan(storage_request(2, {tensor}));
  tensor.stored[1].push_back({{4, 0}, {0, 2}});
  EXPECT_EQ(make_storage_plan(storage_request(2, {tensor})).tensors,
            expected.tensors);
}

// Counts what one step sends, element by element: it looks up who holds each
// element of each matrix, without pieces, boxes or lists of holders.
class ElementOracle {
 public:
  explicit ElementOracle(const StoragePlan& plan) : plan_(plan) {}

  // Returns the ranks that store an element of a tensor.
  std::vector<int32_t> holders(int32_t t,
                               const std::vector<int64_t>& element) const {
    std::vector<int32_t> out;
    const auto& stored = plan_.tensors[index(t)].stored;
    for (size_t r = 0; r < stored.size(); ++r) {
      for (const Box& box : stored[r]) {
        bool inside = true;
        for (size_t d = 0; d < element.size(); ++d)
          inside = inside && element[d] >= box.first[d] &&
                   element[d] < box.first[d] + box.count[d];
        if (inside) out.push_back(static_cast<int32_t>(r));
      }
    }
    return out;
  }

  // Returns the elements of a matrix as offsets in its tensor.
  std::vector<std::vector<int64_t>> elements(const OwnedMatrix& m) const {
    const CutTensor& tensor = plan_.tensors[index(m.tensor)];
    std::vector<std::vector<int64_t>> out;
    for (int64_t i = m.first_row; i < m.first_row + m.rows; ++i) {
      for (int64_t j = 0; j < m.cols; ++j) {
        if (tensor.shape.size() == 3)
          out.push_back({m.number, i, j});
        else
          out.push_back({i, j});
      }
    }
    return out;
  }

  // Returns a rank's line, which is its index among the holders of any element.
  static size_t place(const std::vector<int32_t>& holders, int32_t rank) {
    return static_cast<size_t>(std::find(holders.begin(), holders.end(), rank) -
                               holders.begin());
  }

  std::vector<int64_t> sent() const {
    std::vector<int64_t> out(index(plan_.world), 0);
    const int64_t wire = plan_.options.wire == DType::kFp32 ? 4 : 2;
    for (const OwnedMatrix& m : plan_.matrices) {
      const auto& group =
          plan_.groups[index(plan_.tensors[index(m.tensor)].group)];
      const int64_t fields =
          make_rule_facts(group.rule, group.options)->gather_fields();
      size_t line = 0;
      for (const auto& e : elements(m)) {
        const auto ranks = holders(m.tensor, e);
        if (place(ranks, m.owner) < ranks.size()) line = place(ranks, m.owner);
      }
      for (const auto& e : elements(m)) {
        const auto ranks = holders(m.tensor, e);
        const int32_t holder = ranks.at(line);
        if (holder != m.owner) {
          out[index(holder)] += fields * wire;
          out[index(m.owner)] += wire;
        }
        out[index(holder)] += wire * (std::ssize(ranks) - 1);
      }
    }
    return out;
  }

 private:
  const StoragePlan& plan_;
};

TEST(MakeStoragePlan, KeepsItsPromisesOnEveryLayout) {
  Random random(3);
  for (const int32_t world : {1, 2, 4, 7, 8}) {
    for (int trial = 0; trial < 40; ++trial) {
      const auto plan =
          make_storage_plan(random_storage(random, world, random.small(0, 9)));
      const ElementOracle oracle(plan);
      const std::vector<int64_t> sent = oracle.sent();
      for (const OwnedMatrix& m : plan.matrices) {
        std::set<int32_t> all;
        for (const auto& e : oracle.elements(m))
          for (const int32_t r : oracle.holders(m.tensor, e)) all.insert(r);
        ASSERT_TRUE(all.contains(m.owner));
        ASSERT_EQ(m.round < 0, all.size() == 1);
        ASSERT_LT(
            m.round,
            plan.classes[index(plan.class_of[index(m.tensor)])].num_rounds);
      }
      const auto bytes = storage_wire(StorageBasis(plan), plan);
      for (size_t r = 0; r < sent.size() && plan.elements.empty(); ++r)
        ASSERT_EQ(bytes[r].bytes_sent(), sent[r]) << "rank " << r;
      ASSERT_LE(plan.summary.bound, plan.summary.makespan);
    }
  }
}

// Ranks work side by side: equal matrices of all owners are in the same rounds.
TEST(MakeStoragePlan, OwnersFillRoundsInOneOrder) {
  std::vector<CutTensor> tensors;
  for (int t = 0; t < 12; ++t)
    tensors.push_back(
        storage_tensor(cat("t", t), {8, 8}, stored_by({8, 8}, {{4, 0}})));
  const auto plan = make_storage_plan(storage_request(4, tensors));
  EXPECT_EQ(plan.classes[0].num_rounds, 3);
  std::map<int32_t, std::set<int32_t>> owners_of;  // by round
  for (const OwnedMatrix& m : plan.matrices) owners_of[m.round].insert(m.owner);
  for (const auto& [round, owners] : owners_of) EXPECT_EQ(owners.size(), 4u);
}

// Returns the bytes that a rank's actions send.
int64_t sent_by_actions(const StoragePlan& plan, int32_t rank) {
  const RankSchedule schedule = make_storage_schedule(plan, rank, 4);
  const int64_t wire = plan.options.wire == DType::kFp32 ? 4 : 2;
  int64_t sent = 0;
  for (const ScheduleEntry& e : schedule.actions) {
    int64_t own = 0;
    if (e.kind == EntryKind::kAllToAll)
      for (const int64_t bytes : e.exchange.send_bytes) own += bytes;
    if (e.kind == EntryKind::kBroadcast && e.root == rank)
      own = e.all.count * wire *
            (std::ssize(schedule.groups[index(e.ranks_of)]) - 1);
    EXPECT_EQ(own, e.bytes.sent()) << e.label;
    sent += own;
  }
  return sent;
}

TEST(MakeStoragePlan, BytesAreThoseOfTheSchedule) {
  Random random(31);
  int64_t shared = 0;
  for (const int32_t world : {1, 2, 4, 7, 8}) {
    for (int trial = 0; trial < 90; ++trial) {
      StorageRequest request =
          random_storage(random, world, random.small(0, 9));
      request.options.share_states = trial % 4 != 0;
      const auto plan = make_storage_plan(request);
      const auto bytes = storage_wire(StorageBasis(plan), plan);
      for (int32_t r = 0; r < world; ++r)
        ASSERT_EQ(bytes[index(r)].bytes_sent(), sent_by_actions(plan, r))
            << "world " << world << ", trial " << trial << ", rank " << r;
      shared += std::ssize(plan.elements);
    }
  }
  EXPECT_GT(shared, 50);
}

// Every round is used, and either keeps the capacity or has one matrix of each
// owner, which are of one line if it is strict; counted element by element.
TEST(MakeStoragePlan, RoundsKeepTheCapacity) {
  Random random(5);
  for (int trial = 0; trial < 60; ++trial) {
    const int32_t world = random.pick<int32_t>({2, 4, 7, 8});
    StorageRequest request = random_storage(random, world, 9);
    request.options.share_states = false;
    request.options.strict_capacity = random.coin();
    const auto plan = make_storage_plan(request);
    EXPECT_THAT(validate(plan), testing::IsEmpty());
    const ElementOracle oracle(plan);
    // By class and round: matrices of an owner, updates received by a rank.
    std::map<std::pair<int32_t, int32_t>, std::map<int32_t, int>> items;
    std::map<std::pair<int32_t, int32_t>, std::map<int32_t, int64_t>> received;
    for (const OwnedMatrix& m : plan.matrices) {
      if (m.round < 0) continue;
      const std::pair at(plan.class_of[index(m.tensor)], m.round);
      ++items[at][m.owner];
      for (const auto& e : oracle.elements(m))
        for (const int32_t r : oracle.holders(m.tensor, e))
          if (r != m.owner)
            received[at][r] += plan.options.wire == DType::kFp32 ? 4 : 2;
    }
    for (size_t c = 0; c < plan.classes.size(); ++c)
      for (int32_t r = 0; r < plan.classes[c].num_rounds; ++r)
        ASSERT_TRUE(items.contains({static_cast<int32_t>(c), r}));
    for (const auto& [at, of_owner] : items) {
      const bool singles =
          std::all_of(of_owner.begin(), of_owner.end(),
                      [](const auto& entry) { return entry.second == 1; });
      const auto& lines = plan.classes[index(at.first)].lines;
      const auto has_all = [&](const std::vector<int32_t>& line) {
        return std::all_of(
            of_owner.begin(), of_owner.end(), [&](const auto& entry) {
              return std::find(line.begin(), line.end(), entry.first) !=
                     line.end();
            });
      };
      const bool may =
          singles && (!request.options.strict_capacity ||
                      std::any_of(lines.begin(), lines.end(), has_all));
      for (const auto& [rank, bytes] : received[at])
        ASSERT_TRUE(may || bytes <= plan.options.capacity_bytes)
            << bytes << " bytes on rank " << rank;
    }
  }
}

// Four large matrices under DDP: side by side, or one after another.
TEST(MakeStoragePlan, ReplicasReceiveNoMoreThanAStrictCapacity) {
  StorageRequest request = storage_request(4, {});
  const std::vector<int64_t> shape{64, 64};
  for (int t = 0; t < 4; ++t)
    request.tensors.push_back(
        storage_tensor(cat("t", t), shape, stored_by(shape, {{4, -1}}), 0));
  request.options.capacity_bytes = 64 * 64 * 4;
  EXPECT_EQ(make_storage_plan(request).classes[0].num_rounds, 1);
  request.options.strict_capacity = true;
  const StoragePlan plan = make_storage_plan(request);
  EXPECT_EQ(plan.classes[0].num_rounds, 4);
  EXPECT_THAT(validate(plan), testing::IsEmpty());
  const auto read = storage_plan_from_json(storage_plan_to_json(plan), "plan");
  EXPECT_TRUE(read.plan.options.strict_capacity && read.digest_matches);
  StoragePlan together = plan;
  for (OwnedMatrix& m : together.matrices) m.round = 0;
  count_storage_rounds(together);
  EXPECT_THAT(validate(together),
              testing::Contains(testing::HasSubstr("expected at most 16384")));
}

}  // namespace
}  // namespace canzona::plan::make_storage_plan_test
