#include "canzona/rules/muon/facts.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "canzona/base/error.h"

namespace canzona::rules::muon_facts_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

int64_t flops(const RuleOptions& options, MatrixShape shape) {
  return MuonFacts(options).work(shape).every_step.value();
}

RuleOptions form(const char* name) { return {{"newton_schulz", name}}; }

TEST(MuonFacts, CountsTheGateOfQwen3_32b) {
  const MatrixShape gate{25600, 5120};
  EXPECT_EQ(flops(form("standard"), gate), 14'763'950'080'000);
  EXPECT_EQ(flops(form("symmetric"), gate), 10'737'418'240'000);
  EXPECT_EQ(flops(form("gram"), gate), 5'905'580'032'000);
  EXPECT_EQ(flops({}, gate), 5'905'580'032'000);
  EXPECT_EQ(MuonFacts({}).algorithm(gate), "gram");
}

// 761 and 348 us, 36 and 17 us at 790 TFLOP/s.
TEST(MuonFacts, CountsSmallerMatrices) {
  EXPECT_EQ(flops(form("standard"), {2048, 6144}), 601'295'421'440);
  EXPECT_EQ(flops(form("gram"), {2048, 6144}), 274'877'906'944);
  EXPECT_EQ(flops(form("standard"), {768, 2048}), 28'689'039'360);
  EXPECT_EQ(flops(form("gram"), {768, 2048}), 13'589'544'960);
}

TEST(MuonFacts, CountsRestarts) {
  const auto with = [](const char* restarts) {
    return RuleOptions{
        {"newton_schulz", "gram"}, {"restarts", restarts}, {"unsafe", "on"}};
  };
  EXPECT_EQ(flops(with("0"), {1000, 3000}), 26'000'000'000);
  EXPECT_EQ(flops(with("1"), {1000, 3000}), 32'000'000'000);
  EXPECT_EQ(flops(with("2"), {1000, 3000}), 38'000'000'000);
}

TEST(MuonFacts, SquareMatricesCostTwentyCubesInEveryTriangularForm) {
  EXPECT_EQ(flops(form("symmetric"), {100, 100}), 20'000'000);
  for (const char* restarts : {"0", "1", "2", "3", "4"}) {
    EXPECT_EQ(flops({{"newton_schulz", "gram"},
                     {"restarts", restarts},
                     {"unsafe", "on"}},
                    {100, 100}),
              20'000'000);
  }
  EXPECT_EQ(flops(form("standard"), {100, 100}), 30'000'000);
  EXPECT_EQ(MuonFacts({}).algorithm({100, 100}), "symmetric");
}

// The matrices of Qwen3-32B, whole: 1.545 PFLOP per step.
TEST(MuonFacts, AddsUpToTheWorkOfQwen3_32b) {
  const int64_t total =
      64 * flops({}, {8192, 5120}) + 64 * flops({}, {5120, 8192}) +
      128 * flops({}, {1024, 5120}) + 192 * flops({}, {25600, 5120});
  EXPECT_EQ(total, 1'545'363'592'839'168);
}

TEST(MuonFacts, AutoIsTheGramFormFromAnAspectOn) {
  for (int64_t m : {0, 1, 2, 3, 7, 128, 1000}) {
    for (int64_t n = m; n < m + 300; n += 1 + n / 7) {
      const int64_t symmetric = 15 * m * m * n + 5 * m * m * m;
      const int64_t gram = 6 * m * m * n + 14 * m * m * m;
      const bool by_gram = m > 0 && 4 * n >= 5 * m && m != n;
      EXPECT_EQ(flops({}, {m, n}), by_gram ? gram : symmetric);
      EXPECT_EQ(flops({}, {n, m}), by_gram ? gram : symmetric);
      EXPECT_EQ(MuonFacts({}).algorithm({m, n}),
                by_gram ? "gram" : "symmetric");
    }
  }
}

TEST(MuonFacts, AutoCostsNoMoreThanAnyFormWhereTheAspectTells) {
  for (int steps = 1; steps <= 20; ++steps) {
    for (int restarts = 0; restarts < steps; ++restarts) {
      for (MatrixShape shape : {MatrixShape{5, 5}, MatrixShape{5, 7},
                                MatrixShape{40, 5}, MatrixShape{1, 9}}) {
        RuleOptions options{{"steps", std::to_string(steps)},
                            {"restarts", std::to_string(restarts)},
                            {"unsafe", "on"}};
        const int64_t automatic = flops(options, shape);
        int64_t fewest = automatic + 1;
        for (const char* name : {"standard", "symmetric", "gram"}) {
          options["newton_schulz"] = name;
          fewest = std::min(fewest, flops(options, shape));
        }
        EXPECT_EQ(automatic, fewest) << steps << " " << restarts;
      }
    }
  }
}

TEST(MuonFacts, TakesASecondRestartInBf16) {
  const RuleOptions bf16{{"precision", "bf16"}};
  EXPECT_EQ(MuonFacts(bf16).options().at("restarts"), "2");
  EXPECT_THAT(MuonFacts(bf16).restart_steps(), ElementsAre(2, 4));
  EXPECT_EQ(flops(bf16, {1000, 3000}), 38'000'000'000);
  EXPECT_THAT(MuonFacts(RuleOptions{{"precision", "fp32"}}).restart_steps(),
              ElementsAre(2));
}

TEST(MuonFacts, RestartsAsOftenAsTheStepsNeed) {
  const auto after = [](const char* set, const char* precision) {
    return MuonFacts(
               RuleOptions{{"coefficients", set}, {"precision", precision}})
        .restart_steps();
  };
  EXPECT_THAT(after("minimax4", "bf16"), ElementsAre(2));
  EXPECT_THAT(after("quintic", "bf16"), ElementsAre(2, 4));
  EXPECT_THAT(after("polar_express", "bf16"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(after("polar_express", "fp16"), ElementsAre(2, 4));
  EXPECT_THAT(after("quintic", "fp16"), ElementsAre(2));
  EXPECT_THAT(after("deepseekv4", "bf16"), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(after("deepseekv4", "fp16"), ElementsAre(3, 5, 8));
  EXPECT_THAT(MuonFacts(RuleOptions{{"steps", "3"}}).restart_steps(),
              ElementsAre());
}

// As many restarts as requested, each after a step, in order.
TEST(MuonFacts, RestartsLieBetweenTheSteps) {
  for (int steps = 1; steps <= 20; ++steps) {
    for (int restarts = 0; restarts < steps; ++restarts) {
      const MuonFacts facts(RuleOptions{{"steps", std::to_string(steps)},
                                        {"restarts", std::to_string(restarts)},
                                        {"unsafe", "on"}});
      int64_t previous = 0;
      for (int64_t after : facts.restart_steps()) {
        EXPECT_GT(after, previous);
        previous = after;
      }
      EXPECT_LT(previous, std::max(steps, 1));
      EXPECT_EQ(facts.restart_steps().size(), static_cast<size_t>(restarts));
    }
  }
}

// Up to 64 rows, bf16 means fp32, with its forms, restarts and flops.
TEST(MuonFacts, ComputesSmallMatricesInFp32WhereTheOthersAreInBf16) {
  for (const char* device : {"cpu", "cuda"})
    for (const char* set : {"simple", "polar-dion"})
      for (const char* form : {"auto", "standard", "symmetric", "gram"}) {
        const auto facts = [&](const char* precision) {
          return MuonFacts(RuleOptions{{"device", device},
                                       {"coefficients", set},
                                       {"newton_schulz", form},
                                       {"precision", precision}});
        };
        const MuonFacts bf16 = facts("bf16"), fp32 = facts("fp32");
        for (MatrixShape shape :
             {MatrixShape{1, 7}, MatrixShape{64, 64}, MatrixShape{64, 640},
              MatrixShape{4096, 31}}) {
          EXPECT_EQ(bf16.precision(shape), "fp32");
          EXPECT_EQ(bf16.algorithm(shape), fp32.algorithm(shape) + "_fp32");
          EXPECT_EQ(bf16.work(shape).every_step, fp32.work(shape).every_step);
        }
        EXPECT_EQ(bf16.restart_steps(true), fp32.restart_steps());
        EXPECT_EQ(bf16.precision({65, 640}), "bf16");
        EXPECT_EQ(bf16.form({65, 640}), facts("bf16").way({65, 640}).form);
      }
  const MuonFacts asked(RuleOptions{{"precision", "bf16"}, {"unsafe", "on"}});
  EXPECT_EQ(asked.precision({4, 4}), "bf16");
  EXPECT_EQ(MuonFacts(RuleOptions{{"precision", "fp16"}}).precision({4, 4}),
            "fp16");
}

TEST(MuonFacts, RefusesTooFewRestartsInShortNumbers) {
  EXPECT_THAT(
      [] {
        MuonFacts(RuleOptions{{"precision", "bf16"}, {"restarts", "1"}});
      },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("restarts=1 in bf16"), HasSubstr("needs 2"))));
  EXPECT_NO_THROW(MuonFacts(RuleOptions{{"precision", "bf16"},
                                        {"restarts", "1"},
                                        {"newton_schulz", "symmetric"}}));
  EXPECT_NO_THROW(
      MuonFacts(RuleOptions{{"precision", "fp32"}, {"restarts", "0"}}));
  EXPECT_EQ(
      MuonFacts(RuleOptions{
                    {"precision", "bf16"}, {"restarts", "1"}, {"unsafe", "on"}})
          .restarts(),
      1);
}

TEST(MuonFacts, HasFewerRestartsThanSteps) {
  EXPECT_EQ(MuonFacts(RuleOptions{{"steps", "1"}}).restarts(), 0);
  for (const char* unsafe : {"on", "off"}) {
    EXPECT_THAT(
        [&] {
          MuonFacts(RuleOptions{{"restarts", "5"}, {"unsafe", unsafe}});
        },
        ThrowsMessage<UsageError>(HasSubstr("steps-1=4")));
  }
}

TEST(MuonFacts, OptionsInForceAreAllNamed) {
  EXPECT_EQ(MuonFacts({}).options(), (RuleOptions{
                                         {"beta2", "0.95"},
                                         {"column_heads", "1"},
                                         {"constraint", "none"},
                                         {"constraint_eps", "1e-15"},
                                         {"constraint_radius", "current"},
                                         {"decay_lr", "base"},
                                         {"equilibrate", "off"},
                                         {"equilibrate_eps", "1e-06"},
                                         {"renorm", "off"},
                                         {"renorm_eps", "1e-06"},
                                         {"second_moment", "none"},
                                         {"second_moment_axis", "long"},
                                         {"second_moment_eps", "1e-08"},
                                         {"second_moment_eps_mode", "add"},
                                         {"second_moment_norm_eps", "1e-08"},
                                         {"cautious_decay", "off"},
                                         {"coefficients", "simple"},
                                         {"decay_form", "decoupled"},
                                         {"device", "cuda"},
                                         {"epsilon", "1e-07"},
                                         {"epsilon_mode", "clamp"},
                                         {"flatten", "none"},
                                         {"learning_rate", "0.001"},
                                         {"momentum", "0.95"},
                                         {"momentum_form", "ema"},
                                         {"nesterov", "on"},
                                         {"newton_schulz", "auto"},
                                         {"norm_factor", "1"},
                                         {"normalization", "frobenius"},
                                         {"overrun", "last"},
                                         {"precision", "fp16"},
                                         {"preset", "canzona"},
                                         {"restarts", "1"},
                                         {"scale", "match_rms"},
                                         {"scale_extra", "1"},
                                         {"scale_shape", "matrix"},
                                         {"steps", "5"},
                                         {"strips", "auto"},
                                         {"unsafe", "off"},
                                         {"weight_decay", "0.1"},
                                     }));
}

TEST(MuonFacts, RefusesSetsThatDoHarm) {
  const auto refused = [](RuleOptions options, const char* why) {
    EXPECT_THAT([&] { MuonFacts{options}; },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr(why), HasSubstr("unsafe=on"))));
    options["unsafe"] = "on";
    EXPECT_NO_THROW(MuonFacts{options});
  };
  refused({{"coefficients", "aol"}}, "rows scaled");
  refused({{"coefficients", "aol_fast"}}, "rows scaled");
  refused({{"coefficients", "cans"}, {"precision", "bf16"}}, "1e11");
  refused({{"coefficients", "cans"}, {"norm_factor", "1"}}, "at least 1.01");
  refused({{"coefficients", "cubic5"}, {"norm_factor", "1"}}, "at least 1.01");
  refused({{"coefficients", "4.0098,-7.0585,2.4635"}}, "changes its sign");
  EXPECT_NO_THROW(MuonFacts(RuleOptions{{"coefficients", "cans"}}));
  EXPECT_NO_THROW(MuonFacts(
      RuleOptions{{"coefficients", "cubic5"}, {"precision", "bf16"}}));
  EXPECT_NO_THROW(MuonFacts(
      RuleOptions{{"coefficients", "3.4445,-4.775,2.0315"}, {"steps", "5"}}));
}

TEST(MuonFacts, KnowsHowManyStepsASetHas) {
  EXPECT_EQ(MuonFacts(RuleOptions{{"coefficients", "deepseekv4"}}).steps(), 10);
  EXPECT_EQ(
      MuonFacts(RuleOptions{{"coefficients", "2,-1.5,0.5;1.5,-0.5,0"}}).steps(),
      2);
  EXPECT_THAT(
      [] {
        MuonFacts(RuleOptions{{"coefficients", "cubic5"}, {"steps", "6"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("exactly 5")));
  // nanochat takes the first ones of them.
  EXPECT_EQ(MuonFacts(RuleOptions{{"coefficients", "polar-dion"},
                                  {"steps", "3"},
                                  {"unsafe", "on"}})
                .steps(),
            3);
}

// Without c there is no square: 15a, and 6a + 9 in Gram space.
TEST(MuonFacts, CountsNoSquaresForCubicSteps) {
  const auto cubic = [](const char* newton_schulz) {
    return RuleOptions{{"coefficients", "cubic5"},
                       {"newton_schulz", newton_schulz}};
  };
  EXPECT_EQ(flops(cubic("symmetric"), {1000, 2000}), 30'000'000'000);
  EXPECT_EQ(flops(cubic("gram"), {1000, 2000}), 21'000'000'000);
}

TEST(MuonFacts, ChoosesTheFormByDeviceAndPrecision) {
  const auto form = [](const char* precision, MatrixShape shape) {
    return MuonFacts(RuleOptions{{"device", "cpu"}, {"precision", precision}})
        .algorithm(shape);
  };
  EXPECT_EQ(form("bf16", {1024, 1536}), "symmetric");
  EXPECT_EQ(form("bf16", {1024, 2048}), "gram");
  EXPECT_EQ(form("bf16", {2048, 1024}), "gram");
  EXPECT_EQ(form("fp32", {1024, 1024}), "symmetric");
  EXPECT_EQ(form("fp32", {1024, 3072}), "gram");
  EXPECT_EQ(form("bf16", {127, 512}), "symmetric");
  EXPECT_EQ(form("fp32", {64, 640}), "gram");
  EXPECT_EQ(form("fp32", {640, 63}), "symmetric");
  EXPECT_THAT(
      [&] {
        form("fp16", {1, 1});
      },
      ThrowsMessage<UsageError>(HasSubstr("fp16 needs cuda")));
}

// Does not query the machine: the program that runs the plan sets the option
// for its own device.
TEST(MuonFacts, TakesThePrecisionThatTheDeviceIsMadeFor) {
  const auto precision = [](RuleOptions options) {
    return MuonFacts(options).options().at("precision");
  };
  EXPECT_EQ(precision({}), "fp16");
  EXPECT_EQ(precision({{"device", "cuda"}, {"precision", "auto"}}), "fp16");
  EXPECT_EQ(precision({{"device", "cpu"}}), "bf16");
  EXPECT_EQ(precision({{"device", "cpu"}, {"precision", "auto"}}), "bf16");
  EXPECT_EQ(precision({{"device", "cpu"}, {"precision", "fp32"}}), "fp32");
  EXPECT_EQ(precision({{"device", "cpu"}, {"coefficients", "cans"}}), "fp32");
}

TEST(MuonFacts, KeepsTheMomentumWithTheShard) {
  const auto states = MuonFacts({}).states({5120, 25600});
  ASSERT_EQ(states.size(), 1U);
  EXPECT_EQ(states[0].name, "momentum");
  EXPECT_EQ(states[0].lives, Lives::kWithShard);
  EXPECT_EQ(states[0].bytes(), Bytes(524'288'000));
}

TEST(MuonFacts, AFlattenedTensorIsOneMatrix) {
  const MuonFacts stacked({});
  EXPECT_EQ(stacked.stack_of({8, 3, 5, 2}).shape, (MatrixShape{5, 2}));
  EXPECT_EQ(stacked.stack_of({8, 3, 5, 2}).count, 24);
  EXPECT_EQ(stacked.tensor_states({8, 3, 5, 2})[0].shape,
            (std::vector<int64_t>{24, 5, 2}));
  const MuonFacts flat(RuleOptions{{"flatten", "first_dim"}});
  EXPECT_EQ(flat.stack_of({8, 3, 5, 2}).shape, (MatrixShape{8, 30}));
  EXPECT_EQ(flat.stack_of({8, 3, 5, 2}).count, 1);
  EXPECT_EQ(flat.stack_of({8, 3}).shape, (MatrixShape{8, 3}));
  EXPECT_EQ(flat.tensor_states({8, 3, 5, 2})[0].shape,
            (std::vector<int64_t>{8, 30}));
  EXPECT_EQ(flat.work({8, 30}).every_step, stacked.work({8, 30}).every_step);
  EXPECT_THROW(flat.stack_of({8}), UsageError);
}

TEST(MuonFacts, CautiousDecayIsOneOfWeights) {
  EXPECT_THAT(
      [] {
        MuonFacts(RuleOptions{{"cautious_decay", "on"}, {"decay_form", "l2"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("cautious_decay=on")));
  EXPECT_NO_THROW(
      MuonFacts(RuleOptions{{"cautious_decay", "on"}, {"decay_form", "palm"}}));
}

TEST(MuonFacts, NeverRefreshesAndNeedsWholeMatrices) {
  const MuonFacts muon({});
  EXPECT_EQ(muon.period(), 1);
  EXPECT_EQ(muon.work({64, 64}).refresh, Flops(0));
  EXPECT_TRUE(muon.needs_whole_matrix());
  EXPECT_EQ(muon.gather_bytes_per_element(), 4);
  EXPECT_EQ(muon.scatter_bytes_per_element(), 4);
}

// A segment costs 3m²n flops of strips, and the head 4K - 3g products of m³
// with g segments over K steps.
TEST(MuonFacts, StripsAndHeadAreTheWork) {
  for (const char* name : {"standard", "symmetric", "gram"})
    for (const char* precision : {"fp16", "bf16", "fp32"})
      for (const char* wanted : {"2", "4", "8"})
        for (MatrixShape shape : {MatrixShape{512, 2048}, MatrixShape{2048, 96},
                                  MatrixShape{1024, 1024}}) {
          const MuonFacts facts(RuleOptions{{"newton_schulz", name},
                                            {"precision", precision},
                                            {"strips", wanted}});
          const StripFacts strips = facts.strips(shape);
          EXPECT_EQ(strips.strips, std::stoi(wanted));
          EXPECT_EQ(strips.strips * strips.strip + strips.head,
                    facts.work(shape).every_step);
          const auto [m, n] = std::minmax(shape.rows, shape.cols);
          const int64_t k = 5, g = strips.segments;
          const bool standard = name == std::string("standard");
          EXPECT_EQ(strips.head.value(),
                    (standard ? 2 * k : 4 * k - 3 * g) * m * m * m);
          EXPECT_EQ(strips.strip.value() * strips.strips,
                    (standard ? 4 : 3) * g * m * m * n);
          EXPECT_EQ(strips.sum_elements, m * (m + 1) / 2);
          EXPECT_EQ(strips.factor_bytes,
                    32 + (precision == std::string("fp32") ? 4 : 2) *
                             strips.sum_elements);
        }
}

TEST(MuonFacts, StripsFollowTheLongSide) {
  const MuonFacts eight(RuleOptions{{"strips", "8"}});
  EXPECT_EQ(eight.strips({100, 511}).strips, 4);
  EXPECT_EQ(eight.strips({511, 100}).strips, 4);
  EXPECT_EQ(eight.strips({100, 127}), StripFacts{});
  EXPECT_EQ(eight.strips({0, 0}), StripFacts{});
  EXPECT_EQ(MuonFacts(RuleOptions{{"strips", "1"}}).strips({5120, 25600}),
            StripFacts{});
  // The widest strip between 0, 128 and 300.
  const MuonFacts two(RuleOptions{{"strips", "2"}, {"newton_schulz", "gram"}});
  EXPECT_EQ(two.strips({100, 300}).strip.value(), 3 * 2 * 100 * 100 * 172);
  EXPECT_THAT(
      [] {
        MuonFacts(RuleOptions{{"strips", "3"}});
      },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("strips"), HasSubstr("auto|1|2|4|8"))));
}

// Depends on shape and device alone; small matrices have one strip.
TEST(MuonFacts, AutoHasStripsWhereTheyCostLittle) {
  const auto strips = [](const char* device, MatrixShape shape) {
    return MuonFacts(RuleOptions{{"device", device}}).strips(shape).strips;
  };
  EXPECT_EQ(strips("cuda", {8192, 7 * 12288}), 8);
  EXPECT_EQ(strips("cuda", {5120, 51200}), 4);
  EXPECT_EQ(strips("cuda", {25600, 5120}), 2);
  EXPECT_EQ(strips("cuda", {4096, 12288}), 2);
  EXPECT_EQ(strips("cuda", {4096, 12287}), 1);
  EXPECT_EQ(strips("cuda", {1023, 51200}), 1);
  EXPECT_EQ(MuonFacts(RuleOptions{{"normalization", "schatten4"}})
                .strips({5120, 51200})
                .strips,
            1);
  EXPECT_EQ(strips("cpu", {5120, 51200}), 8);
  EXPECT_EQ(strips("cpu", {51200, 5120}), 8);
  EXPECT_EQ(strips("cpu", {1023, 51200}), 1);
  EXPECT_EQ(strips("cpu", {1024, 4095}), 1);
  EXPECT_EQ(strips("cpu", {1024, 4096}), 2);
  EXPECT_EQ(strips("cpu", {8192, 2048}), 4);
  EXPECT_EQ(strips("cpu", {1024, 1 << 20}), 8);
  for (const char* precision : {"bf16", "fp32"})
    EXPECT_EQ(
        MuonFacts(RuleOptions{{"device", "cpu"}, {"precision", precision}})
            .strips({5120, 51200})
            .strips,
        8);
}

// The form that runs is counted if it fits in 64 bits, even if the other does
// not.
TEST(MuonFacts, CountsOnlyTheFormThatRuns) {
  const int64_t m = 1'000'000;
  const int64_t n = 1'200'000;
  EXPECT_THROW(flops(form("symmetric"), {m, n}), UsageError);
  EXPECT_THROW(flops({}, {m, n}), UsageError);
  EXPECT_THROW(flops(form("symmetric"), {400'000, 4'000'000}), UsageError);
  EXPECT_EQ(flops({}, {400'000, 4'000'000}), 4'736'000'000'000'000'000);
}

}  // namespace
}  // namespace canzona::rules::muon_facts_test
