#include "canzona/plan/mesh.h"

#include <gmock/gmock.h>

#include <set>

#include "canzona/base/error.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::mesh_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Mesh, IsReadFromItsAxes) {
  const Mesh mesh = parse_mesh("dp=32,tp=8");
  EXPECT_EQ(mesh, (Mesh{.dp = 32, .cp = 1, .tp = 8, .pp = 1, .ep = 1}));
  EXPECT_EQ(mesh.homes(), 32);
  EXPECT_EQ(mesh.world(), 256);
  EXPECT_EQ(mesh.rank(0, 3, 5), 29);
  EXPECT_EQ(to_string(mesh), "dp=32,tp=8");
}

TEST(Mesh, TakesAxesInAnyOrder) {
  const Mesh mesh = parse_mesh("ep=3,pp=2,tp=5,cp=7,dp=11");
  EXPECT_EQ(mesh, (Mesh{.dp = 11, .cp = 7, .tp = 5, .pp = 2, .ep = 3}));
  EXPECT_EQ(mesh.homes(), 231);
  EXPECT_EQ(mesh.expert_homes(), 77);
  EXPECT_EQ(mesh.ranks_per_stage(), 1155);
  EXPECT_EQ(mesh.world(), 2310);
  EXPECT_EQ(to_string(mesh), "dp=11,cp=7,tp=5,pp=2,ep=3");
  EXPECT_EQ(parse_mesh(to_string(mesh)), mesh);
}

TEST(Mesh, OfOneRankHasAName) {
  EXPECT_EQ(to_string(Mesh{}), "dp=1");
  EXPECT_EQ(parse_mesh("dp=1"), Mesh{});
  EXPECT_EQ(parse_mesh("tp=1,pp=1"), Mesh{});
}

TEST(Mesh, HasAtMostAMillionRanks) {
  EXPECT_EQ(parse_mesh("dp=1048576").world(), 1 << 20);
  EXPECT_EQ(parse_mesh("dp=1024,tp=1024").world(), 1 << 20);
}

struct Refused {
  const char* text;
  std::vector<const char*> says;
};

class RefusedMesh : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedMesh, NamesTheAxisAndTheValue) {
  for (const char* word : GetParam().says) {
    EXPECT_THAT([&] { parse_mesh(GetParam().text); },
                ThrowsMessage<UsageError>(HasSubstr(word)))
        << GetParam().text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedMesh,
    ::testing::Values(
        Refused{"", {"axis=size", "dp=32,tp=8", "''"}},
        Refused{"dp", {"axis=size", "'dp'"}},
        Refused{"dp=2,", {"axis=size", "''"}},
        Refused{"dp=", {"mesh axis dp", "''"}},
        Refused{"dp=0", {"mesh axis dp", "'0'", "1 to 1048576"}},
        Refused{"tp=-8", {"mesh axis tp", "'-8'", "1 to 1048576"}},
        Refused{"pp=x", {"mesh axis pp", "'x'"}},
        Refused{"dp=2.0", {"mesh axis dp", "'2.0'"}},
        Refused{"dp= 2", {"mesh axis dp"}},
        Refused{"dp=2 tp=4", {"mesh axis dp", "'2 tp=4'"}},
        Refused{"dp=99999999999999999999", {"mesh axis dp", "1048576"}},
        Refused{"dp=1048577", {"mesh axis dp", "'1048577'", "1048576"}},
        Refused{"dp=1024,tp=2048", {"'dp=1024,tp=2048'", "1048576 ranks"}},
        Refused{"dp=1048576,cp=1048576,tp=1048576,pp=1048576,ep=1048576",
                {"1048576 ranks"}},
        Refused{"dp=2,tp=2,dp=4", {"axis dp twice", "'dp=2,tp=2,dp=4'"}},
        Refused{"=4", {"unknown axis ''", "dp, cp, tp, pp, ep"}},
        Refused{"DP=4", {"unknown axis 'DP'", "dp, cp, tp, pp, ep"}},
        Refused{"data=4", {"unknown axis 'data'"}},
        Refused{"dpp=4", {"unknown axis 'dpp'", "did you mean 'dp'?"}}));

std::vector<Mesh> meshes() {
  std::vector<Mesh> all;
  for (int32_t dp : {1, 2, 4, 7, 8}) {
    all.push_back({.dp = dp});
    all.push_back({.dp = dp, .tp = 4});
    all.push_back({.dp = dp, .cp = 3, .tp = 2, .pp = 2, .ep = 2});
    all.push_back({.dp = dp, .cp = 2, .tp = 1, .pp = 1, .ep = 5});
  }
  return all;
}

// tp counts fastest, then cp, ep and dp, then stages.
TEST(Mesh, CountsEveryRankOnce) {
  for (const Mesh& mesh : meshes()) {
    int32_t next = 0;
    for (int32_t stage = 0; stage < mesh.pp; ++stage) {
      int32_t home = 0;
      for (int32_t d = 0; d < mesh.dp; ++d) {
        for (int32_t e = 0; e < mesh.ep; ++e) {
          for (int32_t c = 0; c < mesh.cp; ++c, ++home) {
            EXPECT_EQ(mesh.home_of_expert(d * mesh.cp + c, e), home);
            for (int32_t t = 0; t < mesh.tp; ++t) {
              EXPECT_EQ(mesh.rank(stage, home, t), next++);
            }
          }
        }
      }
      EXPECT_EQ(home, mesh.homes());
    }
    EXPECT_EQ(next, mesh.world()) << to_string(mesh);
  }
}

TEST(Mesh, GivesEveryExpertHomesOfItsOwn) {
  for (const Mesh& mesh : meshes()) {
    std::set<int32_t> homes;
    for (int32_t e = 0; e < mesh.ep; ++e) {
      for (int32_t x = 0; x < mesh.expert_homes(); ++x) {
        homes.insert(mesh.home_of_expert(x, e));
      }
    }
    EXPECT_EQ(homes.size(), static_cast<size_t>(mesh.homes()));
    EXPECT_EQ(*homes.begin(), 0);
    EXPECT_EQ(*homes.rbegin(), mesh.homes() - 1);
  }
}

// Returns the error of check_mesh for a model; "" if there is none.
std::string complaint(const std::string& mesh, const Model& model) {
  try {
    check_mesh(parse_mesh(mesh), model);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Mesh, FitsAModel) {
  for (const char* mesh :
       {"dp=7", "dp=3,cp=5,tp=2", "tp=4", "pp=2,tp=2", "dp=1048576"}) {
    EXPECT_EQ(complaint(mesh, toy_model()), "") << mesh;
  }
  EXPECT_EQ(complaint("ep=4,pp=2,tp=2", toy_moe()), "");
}

TEST(Mesh, SaysWhatDoesNotDivide) {
  EXPECT_EQ(complaint("tp=3", toy_model()),
            "mesh: tp=3 does not divide the 4 query heads");
  EXPECT_EQ(complaint("tp=8", toy_model()),
            "mesh: tp=8 does not divide the 4 query heads");
  EXPECT_EQ(complaint("pp=3", toy_model()),
            "mesh: pp=3 does not divide the 2 layers");
  EXPECT_EQ(complaint("ep=3", toy_moe()),
            "mesh: ep=3 does not divide the 4 experts");
  EXPECT_EQ(complaint("ep=2", toy_model()),
            "mesh: ep=2: the model has no experts");
  EXPECT_EQ(complaint("pp=2", squares({4})),
            "mesh: pp=2 does not divide the 0 layers");
}

TEST(Mesh, SaysWhichTensorDoesNotDivide) {
  Model model = model_of({matrix_tensor("wide", 6, 10, Cut::kColumns)});
  EXPECT_EQ(complaint("tp=4", model),
            "mesh: tp=4 does not divide the 10 columns of 'wide'");
  EXPECT_EQ(complaint("tp=5", model), "");
  model.tensors[0].cut = Cut::kRows;
  EXPECT_EQ(complaint("tp=4", model),
            "mesh: tp=4 does not divide the 6 rows of 'wide'");
  model.tensors[0].cut = Cut::kNone;
  EXPECT_EQ(complaint("tp=4", model), "");
  model.tensors.push_back(adamw_tensor("bias", 6));
  model.tensors[1].cut = Cut::kRows;
  EXPECT_EQ(complaint("tp=4", model),
            "mesh: tp=4 does not divide the 6 rows of 'bias'");
}

// 12 rows are 4 times 3, but q has 6 rows and k and v have 3 each.
TEST(Mesh, DividesEveryPart) {
  Model model = model_of({matrix_tensor("qkv", 12, 2, Cut::kRows)});
  model.tensors[0].sections = {
      {"q", {0, 6, 6, 1}, 1}, {"k", {6, 3, 3, 1}, 1}, {"v", {9, 3, 3, 1}, 1}};
  EXPECT_EQ(complaint("tp=4", model),
            "mesh: tp=4 does not divide the 6 rows of section q of 'qkv'");
  EXPECT_EQ(complaint("tp=2", model),
            "mesh: tp=2 does not divide the 3 rows of section k of 'qkv'");
  EXPECT_EQ(complaint("tp=3", model), "");
}

// Beyond the key/value heads their rows are cut, wherever heads end.
TEST(Mesh, CutsInsideKeyValueHeads) {
  Model model;
  model.query_heads = 24;
  model.kv_heads = 4;
  for (const char* mesh :
       {"tp=1", "tp=2", "tp=4", "tp=6", "tp=8", "tp=12", "tp=24"}) {
    EXPECT_EQ(complaint(mesh, model), "") << mesh;
  }
  EXPECT_EQ(complaint("tp=3", model),
            "mesh: tp=3 does not divide the 4 key/value heads");
  EXPECT_EQ(complaint("tp=48", model),
            "mesh: tp=48 does not divide the 24 query heads");
}

TEST(Mesh, SpreadsLayersOverStages) {
  const Model model = toy_model(4);
  const Mesh mesh = parse_mesh("pp=2");
  std::vector<int32_t> stages;
  for (const Tensor& t : model.tensors) {
    stages.push_back(stage_of(mesh, model, t));
  }
  // embedding, 4 layers of 5 tensors, head
  EXPECT_EQ(stages, (std::vector<int32_t>{0,              //
                                          0, 0, 0, 0, 0,  //
                                          0, 0, 0, 0, 0,  //
                                          1, 1, 1, 1, 1,  //
                                          1, 1, 1, 1, 1,  //
                                          1}));
}

TEST(Mesh, SpreadsExpertsOverTheirAxis) {
  const Model model = toy_moe(1, 6);
  std::vector<int32_t> seen;
  for (const Tensor& t : model.tensors) {
    if (t.name.ends_with("down")) {
      seen.push_back(ep_of(parse_mesh("ep=3"), model, t));
    }
    EXPECT_EQ(ep_of(parse_mesh("dp=3"), model, t), -1) << t.name;
  }
  EXPECT_EQ(seen, (std::vector<int32_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(ep_of(parse_mesh("ep=3"), model, model.tensors[1]), -1);
}

TEST(Mesh, CountsElementsOfShards) {
  const Mesh mesh = parse_mesh("dp=2,tp=4");
  EXPECT_EQ(shard_elements(mesh, matrix_tensor("m", 8, 6, Cut::kRows)), 12);
  EXPECT_EQ(shard_elements(mesh, matrix_tensor("m", 6, 8, Cut::kColumns)), 12);
  EXPECT_EQ(shard_elements(mesh, matrix_tensor("m", 6, 8)), 48);
  EXPECT_EQ(shard_elements(mesh, matrix_tensor("m", 0, 8, Cut::kRows)), 0);
  EXPECT_EQ(shard_elements(mesh, adamw_tensor("n", 7)), 7);
}

}  // namespace
}  // namespace canzona::plan::mesh_test
