#include "canzona/sim/mesh_search.h"

#include <gmock/gmock.h>

#include <map>
#include <thread>

#include "canzona/sim/test_mesh.h"

namespace canzona::sim::mesh_search_test {
namespace {

using ::testing::HasSubstr;

// The best time of every kind, by trying everything.
std::map<LayoutKind, double> best_by_force(const MeshQuestion& question) {
  std::map<LayoutKind, double> best;
  for (const MeshChoice& choice : every_choice(question)) {
    try {
      const WeighedMesh one = weigh_mesh(question, choice);
      const auto [found, is_new] = best.try_emplace(kind_of(choice), INFINITY);
      if (one.fits) found->second = std::min(found->second, one.seconds());
    } catch (const UsageError&) {
      // The groups of this layout do not allow its collectives.
    }
  }
  std::erase_if(best,
                [](const auto& entry) { return entry.second == INFINITY; });
  return best;
}

void expect_best(const MeshQuestion& question) {
  const std::map<LayoutKind, double> expected = best_by_force(question);
  const MeshAnswer answer = search_meshes(question);
  ASSERT_EQ(answer.is_found(), !expected.empty());
  if (!answer.is_found()) return;
  double least = INFINITY;
  for (const auto& [kind, seconds] : expected) least = std::min(least, seconds);
  EXPECT_TRUE(answer.proven);
  EXPECT_EQ(answer.gap, 0);
  EXPECT_DOUBLE_EQ(answer.best().seconds(), least);
  EXPECT_EQ(answer.kinds.size(), expected.size());
  for (const RankedMesh& row : answer.kinds) {
    const double best = expected.at(row.kind);
    EXPECT_GE(row.weighed.seconds(), best) << to_string(row.kind);
    if (row.proven) {
      EXPECT_DOUBLE_EQ(row.weighed.seconds(), best) << to_string(row.kind);
    }
    EXPECT_LE(row.weighed.bound_seconds, row.weighed.seconds());
    EXPECT_NEAR(row.weighed.parts.total() / row.weighed.seconds(), 1, 1e-9)
        << to_string(row.kind);
  }
}

// Memory of a layout in the middle of the space, so that many do not fit.
int64_t tight_cap(const MeshQuestion& question) {
  const std::vector<MeshChoice> all = every_choice(question);
  return weigh_mesh(question, all[all.size() / 2]).memory_bytes();
}

struct Searched {
  int model;
  int32_t ranks;
  const char* fixed;  // so that the space is counted out in seconds
};

class SearchedMesh : public ::testing::TestWithParam<Searched> {};

TEST_P(SearchedMesh, IsTheBestOfAll) {
  const auto [model, ranks, fixed] = GetParam();
  AskedMesh asked(searched_model(model), ranks);
  if (*fixed != 0) asked.question.limits.fix(fixed);
  asked.question.options.memory_cap_bytes = tight_cap(asked.question);
  expect_best(asked.question);
  if (ranks > 8) return;
  asked.question.options.memory_cap_bytes = 0;
  expect_best(asked.question);
}

INSTANTIATE_TEST_SUITE_P(
    All, SearchedMesh,
    ::testing::Values(
        Searched{0, 1, ""}, Searched{1, 1, ""}, Searched{3, 4, ""},
        Searched{0, 8, "recompute=off,tokens=64,collectives=direct"},
        Searched{1, 4, "recompute=off,tokens=64,collectives=direct"},
        Searched{1, 8, "tokens=32,recompute=on,collectives=direct,tp=2"},
        Searched{2, 8, "recompute=off,tokens=32,tp=2"},
        Searched{3, 8, "recompute=off,tokens=32"},
        Searched{0, 16, "tokens=64,recompute=off,collectives=direct,tp=2"},
        Searched{1, 16, "tokens=64,recompute=off,tp=4,ep=2"},
        Searched{2, 16, "tokens=32,recompute=off,collectives=node,tp=4"},
        Searched{3, 16, "tokens=64,recompute=off,collectives=direct,tp=2"},
        Searched{0, 64, "tokens=32,recompute=off,collectives=direct,tp=4,pp=2"},
        Searched{1, 64, "tokens=32,recompute=off,tp=4,ep=4,pp=2"},
        Searched{3, 64, "tokens=32,recompute=off,collectives=node,tp=4"}));

TEST(MeshSearch, WeighsAsThePlannerPlans) {
  for (int model = 0; model < kNumSearchedModels; ++model) {
    AskedMesh asked(searched_model(model), 8);
    MeshQuestion& question = asked.question;
    question.options.memory_cap_bytes = int64_t{1} << 40;
    question.gradients = DType::kBf16;
    const std::vector<MeshChoice> all = every_choice(question);
    for (size_t i = 0; i < all.size(); i += all.size() / 10) {
      const MeshChoice& choice = all[i];
      if (choice.reach != Reach::kDirect) continue;
      const MemoryTerms terms = terms_of(question, choice);
      const Plan plan =
          plan_in_terms({*question.model, choice.mesh, *question.rule,
                         options_of(question, choice)},
                        terms);
      const IterationPrediction expected =
          predict_iteration(plan, work_of(question, choice));
      const WeighedMesh weighed = weigh_mesh(question, choice);
      EXPECT_DOUBLE_EQ(weighed.seconds(), expected.time.seconds);
      EXPECT_EQ(weighed.slow_bytes, expected.slow_bytes);
      EXPECT_EQ(weighed.fast_bytes, expected.fast_bytes);
      EXPECT_EQ(weighed.memory.total(),
                fullest_memory(predict_in_terms(plan, terms)).total());
    }
  }
}

TEST(MeshSearch, DoesNotDependOnThreads) {
  AskedMesh asked(searched_model(1), 8);
  MeshQuestion& question = asked.question;
  question.options.memory_cap_bytes = tight_cap(question);
  question.most_planned = 20;
  const MeshAnswer one = search_meshes(question);
  question.each = [](size_t count, const std::function<void(size_t)>& work) {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (size_t i = t; i < count; i += 3) work(i);
      });
  };
  const MeshAnswer three = search_meshes(question);
  ASSERT_EQ(one.kinds.size(), three.kinds.size());
  for (size_t k = 0; k < one.kinds.size(); ++k) {
    EXPECT_EQ(one.kinds[k].weighed.choice, three.kinds[k].weighed.choice);
    EXPECT_EQ(one.kinds[k].reason, three.kinds[k].reason);
  }
  EXPECT_EQ(one.counts.planned, three.counts.planned);
  EXPECT_EQ(one.counts.simulated, three.counts.simulated);
  EXPECT_EQ(one.gap, three.gap);
}

TEST(MeshSearch, ALimitLeavesAGap) {
  AskedMesh asked(searched_model(0), 8);
  asked.question.most_planned = 1;
  const MeshAnswer answer = search_meshes(asked.question);
  ASSERT_TRUE(answer.is_found());
  EXPECT_FALSE(answer.proven);
  EXPECT_GT(answer.gap, 0);
  EXPECT_LT(answer.gap, 1);
  EXPECT_THAT(answer.kinds.front().reason, HasSubstr("more than"));
}

TEST(MeshSearch, SaysWhatIsNearestIfNothingFits) {
  AskedMesh asked(searched_model(0), 4);
  MeshQuestion& question = asked.question;
  question.options.memory_cap_bytes = 1000;
  MeshAnswer answer = search_meshes(question);
  EXPECT_FALSE(answer.is_found());
  ASSERT_TRUE(answer.nearest.has_value());
  EXPECT_THAT(answer.nearest->cure, HasSubstr("--memory-cap "));
  EXPECT_THAT(answer.summary(), HasSubstr("no layout fits"));
  // The cap that is named is enough.
  question.options.memory_cap_bytes += answer.nearest->lacks_bytes;
  EXPECT_TRUE(search_meshes(question).is_found());
  --question.options.memory_cap_bytes;
  EXPECT_EQ(weigh_mesh(question, answer.nearest->choice).fits, false);
  // The sizes that are fixed need a byte more.
  AskedMesh other(toy_model(4), 4);
  other.question.limits.fix("dp=4,zero=zero1,recompute=off,tokens=32");
  const int64_t whole = search_meshes(other.question).best().memory_bytes();
  other.question.options.memory_cap_bytes = whole - 1;
  answer = search_meshes(other.question);
  ASSERT_TRUE(answer.nearest.has_value());
  EXPECT_EQ(answer.nearest->cure, "recomputing activations");
}

TEST(MeshSearch, RefusesQuestionsWithoutAnyLayout) {
  AskedMesh asked(toy_model(3), 7);
  EXPECT_EQ(search_meshes(asked.question).best().choice.mesh.dp, 7);
  asked.question.limits.fix("dp=1");
  EXPECT_THROW(search_meshes(asked.question), UsageError);
  AskedMesh shorter(toy_model(1), 4);
  shorter.question.global_batch = 31;
  EXPECT_THROW(search_meshes(shorter.question), UsageError);
}

// States over more ranks take less memory.
TEST(MeshSearch, NamesTheRanksThatFit) {
  constexpr const char* kFixed = "tp=1,pp=1,zero=zero1,recompute=on,tokens=32";
  AskedMesh many(toy_model(4), 8);
  many.question.limits.fix(kFixed);
  const int64_t enough = search_meshes(many.question).best().memory_bytes();
  AskedMesh few(toy_model(4), 1);
  few.question.limits.fix(kFixed);
  few.question.global_batch = many.question.global_batch;
  few.question.options.memory_cap_bytes = enough;
  const MeshAnswer answer = search_meshes(few.question);
  ASSERT_TRUE(answer.nearest.has_value());
  EXPECT_NE(answer.nearest->cure, "");
  EXPECT_GT(answer.nearest->lacks_bytes, 0);
}

TEST(MeshSearch, RefusesWhatIsFixedAndForbidden) {
  for (const auto& [fixed, forbidden] :
       {std::pair("tp=2", "tp"), std::pair("recompute=on", "recompute"),
        std::pair("zero=zero3", "zero"), std::pair("zero=hier:2", "zero"),
        std::pair("zero=hier:2", "hierarchical")}) {
    AskedMesh asked(toy_model(2), 4);
    asked.question.limits.fix(fixed);
    asked.question.limits.forbid(forbidden);
    EXPECT_THROW(search_meshes(asked.question), UsageError) << fixed;
  }
  AskedMesh asked(toy_model(2), 4);
  asked.question.limits.fix("tp=1,zero=zero3");
  asked.question.limits.forbid("tp,hierarchical");
  EXPECT_TRUE(search_meshes(asked.question).is_found());
}

TEST(MeshSearch, CountsEveryLayoutOnce) {
  AskedMesh asked(searched_model(3), 8);
  asked.question.limits.fix("collectives=direct");
  const MeshCounts counts = search_meshes(asked.question).counts;
  EXPECT_EQ(counts.in_space, std::ssize(every_choice(asked.question)));
  EXPECT_EQ(counts.in_space,
            counts.over_cap + counts.too_slow + counts.simulated + counts.left);
}

}  // namespace
}  // namespace canzona::sim::mesh_search_test
