#include "canzona/report/mesh_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace canzona::report::mesh_commands_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A mesh of 64 ranks in sequences of 4096 tokens.
LaunchedMesh launched(const Mesh& mesh, const ZeroSizes& sizes) {
  return {.model = "qwen3-8b",
          .rule = "muon",
          .mesh = mesh,
          .zero = {.sizes = sizes},
          .tokens = 8192,
          .num_micro_batches = 4,
          .length = 4096};
}

MeshCommand command_of(const LaunchedMesh& m, const std::string& runs) {
  for (const MeshCommand& one : mesh_commands({m}))
    if (one.runs == runs) return one;
  return {};
}

std::string train(const LaunchedMesh& m) {
  return command_of(m, "canzona train").line;
}
std::string torch(const LaunchedMesh& m) {
  return command_of(m, "PyTorch").line;
}
std::string megatron(const LaunchedMesh& m) {
  return command_of(m, "Megatron-Core").line;
}

TEST(MeshCommands, AMeshOfEveryAxis) {
  LaunchedMesh m = launched({.dp = 4, .tp = 2, .pp = 2, .ep = 4}, {16, 1, 1});
  m.recompute = true;
  EXPECT_EQ(train(m),
            "canzona train --model qwen3-8b --data DATA --mesh "
            "dp=4,tp=2,pp=2,ep=4 --rule muon --ranks-per-node 8 --set "
            "model.length=4096 --set batch.global=128 --set batch.micro=2 "
            "--set model.recompute=on");
  EXPECT_EQ(torch(m), "");
  EXPECT_THAT(
      megatron(m),
      AllOf(HasSubstr("--nnodes 8 --nproc-per-node 8"),
            HasSubstr("-m canzona.megatron pretrain_gpt.py --optimizer muon"),
            HasSubstr("--use-distributed-optimizer "
                      "--tensor-model-parallel-size 2 "
                      "--pipeline-model-parallel-size 2 "
                      "--expert-model-parallel-size 4 --seq-length 4096 "
                      "--micro-batch-size 2 --global-batch-size 128"),
            HasSubstr("--recompute-granularity full")));
}

TEST(MeshCommands, SizesOfZeroAreLayoutsOfPyTorch) {
  const auto layout = [](const ZeroSizes& sizes) {
    const std::string line = torch(launched({.dp = 64}, sizes));
    const size_t at = line.find("--layout ");
    const size_t end = line.find(" --micro-batches");
    return at == line.npos ? "none" : line.substr(at + 9, end - at - 9);
  };
  EXPECT_EQ(layout({1, 1, 1}), "ddp");
  EXPECT_EQ(layout({64, 1, 1}), "ddp --share-states");
  EXPECT_EQ(layout({64, 64, 1}), "fsdp2 --keep-parameters");
  EXPECT_EQ(layout({64, 64, 64}), "fsdp2");
  EXPECT_EQ(layout({8, 8, 8}), "hsdp:8");
  EXPECT_EQ(layout({64, 8, 8}), "hsdp:8 --share-states");
  EXPECT_EQ(layout({64, 8, 1}), "hsdp:8 --share-states --keep-parameters");
  for (const ZeroSizes& other :
       {ZeroSizes{64, 8, 4}, {64, 1, 8}, {32, 8, 8}, {8, 1, 1}})
    EXPECT_EQ(layout(other), "none") << to_string(other);
}

TEST(MeshCommands, OtherRulesAreNamed) {
  LaunchedMesh m = launched({.dp = 64}, {64, 64, 64});
  EXPECT_THAT(torch(m), Not(HasSubstr("--rule")));
  m.rule = "soap";
  EXPECT_THAT(torch(m), HasSubstr("--rule soap"));
  m.rule = "adamw";
  m.zero.sizes = {64, 1, 1};
  EXPECT_THAT(megatron(m), HasSubstr("pretrain_gpt.py --optimizer adam "
                                     "--use-distributed-optimizer"));
}

TEST(MeshCommands, OneNodeNeedsNoMeeting) {
  const LaunchedMesh m = launched({.dp = 2, .tp = 2}, {2, 2, 2});
  EXPECT_EQ(torch(m),
            "torchrun --standalone --nproc-per-node 4 "
            "examples/pytorch/layout.py --layout fsdp2 --tp 2 --micro-batches "
            "4");
}

TEST(MeshCommands, MegatronCutsStatesAlone) {
  EXPECT_THAT(megatron(launched({.dp = 8, .tp = 8}, {1, 1, 1})),
              AllOf(HasSubstr("--tensor-model-parallel-size 8"),
                    Not(HasSubstr("--use-distributed-optimizer"))));
  for (const ZeroSizes& sizes : {ZeroSizes{8, 8, 1}, {8, 2, 2}, {4, 1, 1}})
    EXPECT_EQ(megatron(launched({.dp = 8, .tp = 8}, sizes)), "");
  LaunchedMesh soap = launched({.dp = 8, .tp = 8}, {8, 1, 1});
  soap.rule = "soap";
  EXPECT_THAT(command_of(soap, "Megatron-Core").why_not, HasSubstr("soap"));
}

TEST(MeshCommands, WhatIsMissingIsSaid) {
  LaunchedMesh m = launched({.dp = 64}, {64, 1, 1});
  m.untrained = "no such architecture";
  EXPECT_EQ(command_of(m, "canzona train").why_not, m.untrained);
  m.untrained.clear();
  m.tokens = 6000;
  EXPECT_THAT(command_of(m, "canzona train").why_not,
              HasSubstr("6000 tokens is no whole number of sequences"));
  for (const MeshCommand& one : mesh_commands({m}))
    EXPECT_NE(one.line.empty(), one.why_not.empty()) << one.runs;
}

TEST(MeshCommands, AnEngineRunsTheFastestThatItHas) {
  const LaunchedMesh best = launched({.dp = 64}, {64, 8, 2});
  const LaunchedMesh next = launched({.dp = 64}, {64, 64, 64});
  const LaunchedMesh last = launched({.dp = 64}, {64, 1, 1});
  const std::vector<MeshCommand> all = mesh_commands({best, next, last});
  EXPECT_EQ(all[0].layout, 0u);
  EXPECT_EQ(all[1].layout, 1u);
  EXPECT_THAT(all[1].line, HasSubstr("--layout fsdp2 "));
  EXPECT_THAT(all[1].why_not, HasSubstr("z1=64,z2=8,z3=2"));
  EXPECT_EQ(all[2].layout, 2u);
  EXPECT_THAT(all[2].line, HasSubstr("--use-distributed-optimizer"));
}

TEST(MeshCommands, NamesAreOneWordOfAShell) {
  LaunchedMesh m = launched({.dp = 64}, {64, 1, 1});
  m.model = "my model's/config.json";
  EXPECT_THAT(train(m), HasSubstr("--model 'my model'\\''s/config.json' "));
}

}  // namespace
}  // namespace canzona::report::mesh_commands_test
