#include "canzona/plan/layout/layout.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>

#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::adamw_cuts_test {
namespace {

using ::testing::ElementsAre;
using Bytes64 = std::vector<int64_t>;

// With bf16 parameters every AdamW element keeps 4 bytes of master weight and 8
// of moments; Muon keeps 4 + 4 for an element of a matrix.
constexpr int64_t kAdamWBytes = 12;
constexpr int64_t kMuonBytes = 8;

// A problem with buckets that lack only their AdamW cuts.
class Case {
 public:
  Case(Model model, const std::string& mesh, int64_t bucket_elements,
       const std::string& rule = "muon")
      : model_(std::move(model)),
        rule_(make_rule_facts(rule, {})),
        plan_(make_plan(request(mesh, bucket_elements))),
        problem_(make_problem(plan_.parts[0], *rule_, nullptr, false)) {
    a_.home.assign(model_.tensors.size(), kEveryHome);
    a_.owner.assign(problem_.matrices.size(), 0);
    for (const OpenBucket& open : problem_.buckets) {
      Bucket bucket;
      bucket.buffer = open.buffer;
      bucket.tensors = open.matrix_tensors;
      bucket.num_matrix_tensors = static_cast<int32_t>(bucket.tensors.size());
      bucket.tensors.insert(bucket.tensors.end(), open.adamw_tensors.begin(),
                            open.adamw_tensors.end());
      buckets.push_back(std::move(bucket));
    }
  }

  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  const Problem& problem() const { return problem_; }
  Assignment& assignment() { return a_; }
  void cut_level() { cut_adamw_level(problem_, a_, buckets); }
  void cut_evenly() { cut_adamw_evenly(problem_, buckets); }

  // Returns the AdamW elements of all buckets that home h of buffer 0 keeps.
  int64_t kept(size_t h) const {
    int64_t sum = 0;
    for (const Bucket& b : buckets) {
      if (b.buffer == 0) sum += b.adamw_cuts[h + 1] - b.adamw_cuts[h];
    }
    return sum;
  }

  std::vector<Bucket> buckets;

 private:
  PlanRequest request(const std::string& mesh, int64_t bucket_elements) const {
    PlanOptions options;
    options.alpha = 1;
    options.weight = Weight::kCost;
    options.bucket_elements = bucket_elements;
    return {model_, parse_mesh(mesh), *rule_, options};
  }

  Model model_;
  std::unique_ptr<RuleFacts> rule_;
  Plan plan_;
  Problem problem_;
  Assignment a_;
};

// Home h owns one column of rows[h] elements; AdamW tensors lie between.
std::unique_ptr<Case> columns(const Bytes64& rows, const Bytes64& adamw,
                              int64_t bucket_elements) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < std::max(rows.size(), adamw.size()); ++i) {
    if (i < adamw.size()) {
      tensors.push_back(adamw_tensor(cat("n", i), adamw[i]));
    }
    if (i < rows.size()) {
      tensors.push_back(matrix_tensor(cat("m", i), rows[i], 1));
    }
  }
  auto c = std::make_unique<Case>(model_of(std::move(tensors)),
                                  cat("dp=", rows.size()), bucket_elements);
  for (size_t t = 0, home = 0; t < c->problem().model.tensors.size(); ++t) {
    if (c->problem().model.tensors[t].matrix_rule) {
      c->assignment().home[t] = static_cast<int32_t>(home++);
    }
  }
  return c;
}

// 30 elements of AdamW on homes that keep 80, 200 and 800 bytes: 360 bytes
// raise the first two to 320, the third stays dry.
TEST(AdamWCuts, LevelWhatHomesKeep) {
  const auto c = columns({10, 25, 100}, {30}, 1'000'000);
  c->cut_level();
  ASSERT_EQ(c->buckets.size(), 1u);
  EXPECT_THAT(c->buckets[0].adamw_cuts, ElementsAre(0, 20, 30, 30));
}

TEST(AdamWCuts, EvenSharesDifferByAtMostOne) {
  const auto c = columns({10, 20, 100}, {30, 5}, 1'000'000);
  c->cut_evenly();
  EXPECT_THAT(c->buckets[0].adamw_cuts, ElementsAre(0, 11, 23, 35));
}

// The oracle gives elements one by one to the home that keeps least.
int64_t poured_level(Bytes64 bytes, int64_t elements) {
  for (; elements > 0; --elements) {
    *std::min_element(bytes.begin(), bytes.end()) += kAdamWBytes;
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

void expect_cuts_cover(const Case& c) {
  for (const Bucket& b : c.buckets) {
    int64_t elements = 0;
    for (size_t i = static_cast<size_t>(b.num_matrix_tensors);
         i < b.tensors.size(); ++i) {
      elements += c.problem().shard_elements[static_cast<size_t>(b.tensors[i])];
    }
    const Buffer& buffer = c.problem().buffers[static_cast<size_t>(b.buffer)];
    ASSERT_EQ(b.adamw_cuts.size(), static_cast<size_t>(buffer.num_homes) + 1);
    EXPECT_EQ(b.adamw_cuts.front(), 0);
    EXPECT_EQ(b.adamw_cuts.back(), elements);
    EXPECT_TRUE(std::is_sorted(b.adamw_cuts.begin(), b.adamw_cuts.end()));
  }
}

class AdamWCutsOverHomes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Homes, AdamWCutsOverHomes,
                         ::testing::Values(1, 2, 4, 7, 8));

// In one bucket the result is optimal to within one element.
TEST_P(AdamWCutsOverHomes, OneBucketReachesTheWaterLevel) {
  Random random(static_cast<uint64_t>(GetParam()));
  for (int64_t elements : {0, 1, 2, 3, 17, 500}) {
    Bytes64 rows(static_cast<size_t>(GetParam())), bytes;
    for (int64_t& r : rows) r = random.between(0, 60);
    for (int64_t r : rows) bytes.push_back(r * kMuonBytes);
    const auto c = columns(rows, {elements}, 1'000'000);
    c->cut_level();
    expect_cuts_cover(*c);
    int64_t level = 0;
    for (size_t h = 0; h < rows.size(); ++h) {
      level = std::max(level, bytes[h] + c->kept(h) * kAdamWBytes);
    }
    EXPECT_LE(level, poured_level(bytes, elements) + kAdamWBytes)
        << elements << " elements";
  }
}

// Cutting every bucket in the same proportions keeps the sum within one
// element of what one bucket would give.
TEST_P(AdamWCutsOverHomes, ManyBucketsReachItTogether) {
  Random random(static_cast<uint64_t>(100 + GetParam()));
  for (int instance = 0; instance < 10; ++instance) {
    Bytes64 rows(static_cast<size_t>(GetParam())), adamw(rows.size() + 3);
    for (int64_t& r : rows) r = random.between(1, 60);
    for (int64_t& n : adamw) n = random.pick<int64_t>({0, 1, 5, 33, 100});
    const auto one = columns(rows, adamw, 1'000'000);
    one->cut_level();
    for (int64_t bucket_elements : {1, 40}) {
      const auto many = columns(rows, adamw, bucket_elements);
      many->cut_level();
      expect_cuts_cover(*many);
      for (size_t h = 0; h < rows.size(); ++h) {
        EXPECT_LE(std::abs(many->kept(h) - one->kept(h)), 1)
            << "home " << h << ", instance " << instance;
      }
    }
  }
}

TEST_P(AdamWCutsOverHomes, EvenSharesCover) {
  for (int64_t elements : {0, 1, 2, 6, 100}) {
    const auto c = columns(Bytes64(static_cast<size_t>(GetParam()), 5),
                           {elements, 1, 7}, 9);
    c->cut_evenly();
    expect_cuts_cover(*c);
    for (const Bucket& b : c->buckets) {
      int64_t least = INT64_MAX, most = 0;
      for (size_t h = 0; h + 1 < b.adamw_cuts.size(); ++h) {
        const int64_t share = b.adamw_cuts[h + 1] - b.adamw_cuts[h];
        least = std::min(least, share);
        most = std::max(most, share);
      }
      EXPECT_LE(most - least, 1);
    }
  }
}

// SOAP keeps 26 fp32 numbers of a 2x2 matrix at its owner. Home 0 has both its
// matrices at one rank, home 1 at two: 104 bytes less at its fullest rank,
// which are 8 or 9 elements of AdamW.
TEST(AdamWCuts, CountTheFullestRankOfAHome) {
  Case c(model_of({matrix_tensor("a", 2, 2), matrix_tensor("b", 2, 2),
                   matrix_tensor("c", 2, 2), matrix_tensor("d", 2, 2),
                   adamw_tensor("n", 20)}),
         "dp=2,tp=2", 1'000'000, "soap");
  c.assignment().home = {0, 0, 1, 1, kEveryHome};
  c.assignment().owner = {1, 1, 0, 1};
  c.cut_level();
  EXPECT_THAT(c.buckets[0].adamw_cuts, ElementsAre(0, 5, 20));
}

// Dense tensors are cut over all homes, experts' over those of their own.
TEST(AdamWCuts, FollowTheBuffers) {
  Model model = toy_moe(2, 4);
  for (int32_t e = 0; e < 4; ++e) {
    model.tensors.push_back(adamw_tensor(cat("bias.", e), 11 + e, 0));
    model.tensors.back().expert = e;
  }
  Case c(std::move(model), "dp=3,tp=2,pp=2,ep=2", 300);
  for (size_t t = 0; t < c.problem().model.tensors.size(); ++t) {
    if (c.problem().model.tensors[t].matrix_rule) {
      c.assignment().home[t] = static_cast<int32_t>(t % 3);
    }
  }
  c.cut_level();
  expect_cuts_cover(c);
  c.cut_evenly();
  expect_cuts_cover(c);
}

}  // namespace
}  // namespace canzona::plan::adamw_cuts_test
