#include "canzona/report/shown_plan.h"

#include <gmock/gmock.h>

#include "canzona/base/json_reader.h"
#include "canzona/report/explain.h"
#include "canzona/report/models_view.h"
#include "canzona/report/plan_figures.h"
#include "canzona/report/test_plans.h"
#include "canzona/report/zero_view.h"

namespace canzona::report::in_parts_test {
namespace {

TEST(InParts, TheFirstExampleAsItStands) {
  const Plan plan = shown_in_parts().plan;
  const std::vector<PlanPart>& parts = plan.parts;
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].name, "dense tensors");
  EXPECT_EQ(parts[2].name, "experts of ep 1");
  // Ranks 2, 3, 6 and 7 have ep coordinate 1.
  const std::vector<PlannedRank> at = planned_ranks(plan, 6);
  ASSERT_EQ(at.size(), 2U);
  EXPECT_EQ(at[0].rank, 6);
  EXPECT_EQ(at[1].part->name, "experts of ep 1");
  EXPECT_EQ(at[1].rank, 2);
}

TEST(InParts, TensorsAndMatricesKeepTheirNames) {
  for (const PartsWish& wish : wishes_of_parts()) {
    const Plan plan = shown_in_parts(wish).plan;
    for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t) {
      const PlannedTensor at = planned_tensor(plan, t);
      EXPECT_EQ(at.part->model.tensors[static_cast<size_t>(at.tensor)].name,
                plan.model.tensors[static_cast<size_t>(t)].name);
    }
    for (int32_t m = 0; m < std::ssize(plan.matrices); ++m) {
      const MatrixInPart at = matrix_in_part(plan, m);
      EXPECT_EQ(name_of(*at.part, at.matrix), name_of(plan, m));
    }
  }
}

TEST(InParts, EveryBucketHasANumber) {
  for (const PartsWish& wish : wishes_of_parts()) {
    const Plan plan = shown_in_parts(wish).plan;
    std::vector<int32_t> tensors(static_cast<size_t>(num_buckets(plan)), 0);
    for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t) {
      const PlannedTensor at = planned_tensor(plan, t);
      const int32_t number = bucket_number(*at.part, at.tensor);
      ++tensors.at(static_cast<size_t>(number));
      const PlannedBucket found = find_bucket(plan, number);
      EXPECT_EQ(found.part, at.part);
      EXPECT_EQ(found.bucket,
                at.part->bucket_of[static_cast<size_t>(at.tensor)]);
    }
    for (int32_t b = 0; b < num_buckets(plan); ++b) {
      const PlannedBucket at = find_bucket(plan, b);
      EXPECT_EQ(
          tensors[static_cast<size_t>(b)],
          std::ssize(at.part->buckets[static_cast<size_t>(at.bucket)].tensors));
    }
  }
}

// Owners are of the expert's ep coordinate, agree with computes(), and are as
// many as the prediction counts.
TEST(InParts, OwnersAreRanksOfTheWorld) {
  for (const PartsWish& wish : wishes_of_parts()) {
    const ReportPlan shown = shown_in_parts(wish);
    const Plan& plan = shown.plan;
    std::vector<int32_t> computed(shown.ranks.size(), 0);
    for (int32_t m = 0; m < std::ssize(plan.matrices); ++m) {
      const MatrixInPart at = matrix_in_part(plan, m);
      const auto tensor =
          static_cast<size_t>(plan.matrices[static_cast<size_t>(m)].tensor);
      const int32_t ep =
          ep_of(plan.mesh, plan.model, plan.model.tensors[tensor]);
      for (const int32_t rank : owner_ranks(*at.part, at.matrix)) {
        ++computed.at(static_cast<size_t>(rank));
        EXPECT_TRUE(ep < 0 || coordinates_of(plan.mesh, rank).ep == ep);
        bool found = false;
        for (const PlannedRank& own : planned_ranks(plan, rank))
          found |=
              own.part == at.part && computes(*at.part, own.rank, at.matrix);
        EXPECT_TRUE(found) << wish.mesh << " " << rank;
      }
    }
    for (size_t r = 0; r < computed.size(); ++r)
      EXPECT_EQ(computed[r], shown.ranks[r].num_matrices) << wish.mesh;
  }
}

// The same bytes by two ways: matrix by matrix, and rank by rank.
TEST(InParts, MovesAddUpToThePredictedBytes) {
  for (const PartsWish& wish : wishes_of_parts()) {
    if (wish.strategy != "balanced") continue;
    const ReportPlan shown = shown_in_parts(wish);
    int64_t moved = 0, sent = 0;
    for (int32_t m = 0; m < std::ssize(shown.plan.matrices); ++m) {
      const Moves moves = moves_of(shown.plan, m);
      moved += (moves.gather.value() + moves.scatter.value()) *
               matrix_in_part(shown.plan, m).part->num_replicas();
    }
    for (size_t r = 0; r < shown.ranks.size(); ++r) {
      const PurposeBytes bytes =
          zero_bytes(shown.plan, shown.ranks[r], static_cast<int32_t>(r));
      sent += of(bytes, Purpose::kGatherMatrices).sent() +
              of(bytes, Purpose::kScatterMatrices).sent();
    }
    EXPECT_EQ(moved, sent) << wish.mesh;
  }
}

TEST(InParts, TheAuditHasEveryMatrix) {
  const Plan plan = shown_in_parts().plan;
  const std::vector<AuditRow> rows = audit(plan);
  size_t owned = 0;
  for (const AuditRow& row : rows) owned += row.owners.empty() ? 0 : 1;
  EXPECT_EQ(owned, plan.matrices.size());
  EXPECT_NE(print_text(audit_view(plan), Ink()), "");
}

TEST(InParts, RanksAreWrittenAsRuns) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({0, 1, 2}), "ranks 0 to 2");
  EXPECT_EQ(ranks_text({0, 1, 4, 5, 9}), "ranks 0 to 1, 4 to 5, 9");
}

// As the page's script does it.
int64_t world_rank(const Json& data, const Json& row, int64_t t) {
  const Json& bucket = data["buckets"][row[2].get<size_t>()];
  const Json& part = data["parts"][bucket[1].get<size_t>()];
  const int64_t stage = bucket[0], tp = part[0], homes = part[1], e = part[2];
  const int64_t rank = row[3].get<int64_t>() * tp + t;
  if (e < 0) return stage * homes * tp + rank;
  const int64_t whole_tp = data["mesh"][0], cp = data["mesh"][1],
                ep = data["mesh"][2];
  const int64_t x = rank / whole_tp;
  const int64_t place = (x / cp * ep + e) * cp + x % cp;
  return stage * homes * tp * ep + place * whole_tp + rank % whole_tp;
}

Json tensors_of(const Plan& plan) {
  JsonWriter out;
  write_tensors(out, plan);
  return parse_json(out.text(), {});
}

TEST(InParts, TheTableOfThePageKnowsOwners) {
  for (const PartsWish& wish : wishes_of_parts()) {
    const Plan plan = shown_in_parts(wish).plan;
    const Json data = tensors_of(plan);
    for (int32_t t = 0; t < std::ssize(plan.model.tensors); ++t) {
      const Json& row = data["rows"][static_cast<size_t>(t)];
      const PlannedTensor at = planned_tensor(plan, t);
      EXPECT_EQ(row[2], bucket_number(*at.part, at.tensor));
      if (row[3] == -1 || !row[4].is_number() || row[4] == -1) continue;
      const int32_t first =
          at.part->first_matrix[static_cast<size_t>(at.tensor)];
      EXPECT_EQ(world_rank(data, row, row[4]),
                owner_ranks(*at.part, first).front())
          << wish.mesh << " " << t;
    }
  }
}

TEST(InParts, APlanWithoutPartsIsItsOwnPart) {
  const Plan plan = plan_of(toy_moe(), "dp=2,ep=2");
  EXPECT_EQ(plan.parts.size(), 1U);
  EXPECT_EQ(num_buckets(plan), std::ssize(plan.parts[0].buckets));
  EXPECT_EQ(matrix_in_part(plan, 3).matrix, 3);
  EXPECT_EQ(find_bucket(plan, 1).bucket, 1);
  EXPECT_EQ(tensors_of(plan).at("parts").size(), 1U);
}

}  // namespace
}  // namespace canzona::report::in_parts_test
