#include "canzona/runtime/caller/caller_step.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/test_allocations.h"
#include "canzona/linalg/test_late_engine.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/test_storage.h"
#include "canzona/runtime/caller/test_caller.h"

namespace canzona::runtime::caller_step_test {
namespace {

using ::testing::HasSubstr;

const std::vector<NamedShape>& small_tensors() {
  static const std::vector<NamedShape> all = {
      {"a", {12, 8}},       {"norm", {13}},
      {"b", {8, 12}},       {"primes", {7, 5}},
      {"row", {1, 9}},      {"few", {3, 4}},
      {"bias", {1}},        {"one", {1, 1}},
      {"stack", {3, 6, 4}}, {"qkv", {12, 6}, {6, 4, 2}},
      {"c", {12, 8}}};
  return all;
}

struct Layout {
  std::string name;
  MeshAxes axes;
  bool share_states = false;
};
std::vector<Layout> layouts() {
  return {{"one rank", {}},
          {"ddp 2", {{kReplicated, 2}}},
          {"ddp 3", {{kReplicated, 3}}},
          {"ddp 4", {{kReplicated, 4}}},
          {"ddp 3, shared", {{kReplicated, 3}}, true},
          {"fsdp 2", {{0, 2}}},
          {"fsdp 3", {{0, 3}}},
          {"fsdp 4", {{0, 4}}},
          {"columns 3", {{-1, 3}}},
          {"tp rows 2", {{-2, 2}}},
          {"hsdp 2x2", {{kReplicated, 2}, {0, 2}}},
          {"hsdp 2x2, shared", {{kReplicated, 2}, {0, 2}}, true},
          {"fsdp x tp 2x2, two dims", {{0, 2}, {-1, 2}}},
          {"fsdp x tp 2x2, one dim", {{0, 2}, {0, 2}}}};
}

StorageRequest request_on(const Layout& layout, const std::string& rule,
                          DType wire) {
  std::vector<NamedShape> tensors = small_tensors();
  if (rule == "adamw")
    for (NamedShape& tensor : tensors) tensor.splits.clear();
  StorageRequest request = storage_request(rule, tensors, layout.axes);
  request.options.wire = wire;
  request.options.share_states = layout.share_states;
  request.options.capacity_bytes = 1024;
  return request;
}

// Frequent refreshes, all in phase: Optimizer has no phases.
void refresh_often(StorageRequest& request) {
  RuleOptions& options = request.groups[0].options;
  for (const auto& [name, value] :
       RuleOptions{{"period", "2"}, {"precondition_frequency", "2"}})
    if (options.contains(name)) options[name] = value;
}
StoragePlan without_phases(StoragePlan plan) {
  for (OwnedMatrix& matrix : plan.matrices) matrix.phase = 0;
  return plan;
}

class EveryRule : public testing::TestWithParam<std::string> {};

TEST_P(EveryRule, HasTheBitsOfAnOptimizerOnEveryLayout) {
  CallerResult expected;
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    StorageRequest request = request_on(layout, GetParam(), DType::kFp32);
    refresh_often(request);
    CallerTrial trial{.plan = without_phases(plan_by_lot(request, 3))};
    if (expected.values.empty()) expected = reference(trial);
    EXPECT_EQ(difference(run_caller(trial), expected), "");
    trial.plan = without_phases(make_storage_plan(request));
    EXPECT_EQ(difference(run_caller(trial), expected), "");
  }
}

TEST_P(EveryRule, HasOneResultPerWireOnEveryLayout) {
  CallerResult expected;
  for (const Layout& layout : layouts())
    for (const int threads : {0, 2}) {
      SCOPED_TRACE(cat(layout.name, ", ", threads, " threads"));
      StorageRequest request = request_on(layout, GetParam(), DType::kBf16);
      refresh_often(request);
      const CallerTrial trial{.plan = make_storage_plan(request),
                              .threads = threads};
      const CallerResult result = run_caller(trial);
      if (expected.values.empty()) expected = result;
      EXPECT_EQ(difference(result, expected), "");
    }
}

INSTANTIATE_TEST_SUITE_P(CallerStep, EveryRule,
                         testing::Values("muon", "soap", "shampoo", "adamw",
                                         "nsgd"),
                         [](const auto& of) { return of.param; });

CallerTrial muon_trial(const MeshAxes& axes, DType wire = DType::kFp32) {
  return {.plan = plan_by_lot(request_on({"", axes}, "muon", wire), 5)};
}

const std::vector<MeshAxes>& few_meshes() {
  static const std::vector<MeshAxes> all = {
      {}, {{kReplicated, 3}}, {{0, 3}}, {{kReplicated, 2}, {-1, 2}}};
  return all;
}

// The update itself is rounded, not only the gathered fields.
TEST(CallerStep, RoundsOnOneRankAsOnMany) {
  const CallerResult wide = run_caller(muon_trial({}));
  const CallerResult narrow = run_caller(muon_trial({}, DType::kBf16));
  EXPECT_NE(wide.values.at("a"), narrow.values.at("a"));
  EXPECT_EQ(wide.values.at("norm"), narrow.values.at("norm"));
  EXPECT_EQ(wide.values.at("momentum of a"), narrow.values.at("momentum of a"));
}

TEST(CallerStep, KeepsMastersOfBf16Weights) {
  CallerResult expected;
  for (const MeshAxes& axes : few_meshes())
    for (const bool bf16_gradients : {false, true})
      for (const bool share : {false, true})
        for (const MasterForm form :
             {MasterForm::kFp32, MasterForm::kRemainder}) {
          CallerTrial trial = muon_trial(axes);
          StorageRequest request = trial.plan;
          request.options.share_states = share;
          request.options.master = form;
          for (CutTensor& t : request.tensors) t.dtype = DType::kBf16;
          trial.plan = plan_by_lot(request, 6);
          trial.bf16_gradients = bf16_gradients;
          EXPECT_EQ(difference(run_caller(trial), reference(trial)), "");
        }
}

TEST(CallerStep, LeavesTensorsWithoutGradientsAlone) {
  CallerResult expected;
  for (const MeshAxes& axes : few_meshes())
    for (const bool share : {false, true})
      for (const DType wire : {DType::kFp32, DType::kBf16}) {
        StorageRequest request = request_on({"", axes, share}, "muon", wire);
        CallerTrial trial{.plan = plan_by_lot(request, 7)};
        trial.missing = [](int32_t tensor, int64_t step) {
          return tensor == 0 || (tensor + step) % 3 == 0;
        };
        const CallerResult result = run_caller(trial);
        if (expected.values.empty()) expected = result;
        for (const char* name : {"a", "momentum of a", "norm"}) {
          EXPECT_EQ(result.values.at(name), expected.values.at(name)) << name;
        }
        for (size_t i = 0; i < result.values.at("a").size(); ++i) {
          ASSERT_EQ(result.values.at("a")[i],
                    bits_of({caller_weight(0, static_cast<int64_t>(i))})[0]);
        }
      }
}

TEST(CallerStep, SkipsWhatIsNotFiniteOnAllRanks) {
  for (const MeshAxes& axes : few_meshes())
    for (const float bad : {std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      CallerTrial trial = muon_trial(axes);
      trial.steps = 3;
      const CallerResult before = run_caller(trial);
      trial.steps = 4;
      trial.bad = [&](int32_t tensor, int64_t step) -> std::optional<float> {
        if (step == 4 && (tensor == 3 || tensor == 8)) return bad;
        return {};
      };
      const CallerResult after = run_caller(trial);
      EXPECT_EQ(difference(after, before), "");
      EXPECT_FALSE(after.outcomes[2].skipped);
      EXPECT_TRUE(after.outcomes[3].skipped);
      EXPECT_EQ(after.outcomes[3].nonfinite_tensor, 3);
      EXPECT_FALSE(after.outcomes[3].unlike);
      trial.skips = false;
      const CallerResult passed = run_caller(trial);
      EXPECT_FALSE(passed.outcomes[3].skipped);
      EXPECT_NE(passed.values.at("a"), before.values.at("a"));
    }
}

// The norm is exact: correct, and the same for every layout.
TEST(CallerStep, ClipsByTheNormOfAllGradients) {
  CallerResult expected;
  for (const MeshAxes& axes : few_meshes()) {
    CallerTrial trial = muon_trial(axes);
    trial.clip = 0.5;
    const CallerResult result = run_caller(trial);
    if (expected.values.empty()) expected = result;
    EXPECT_EQ(difference(result, expected), "");
    double squares = 0;
    for (int32_t t = 0; t < std::ssize(trial.plan.tensors); ++t)
      for (int64_t i = 0; i < num_elements(trial.plan.tensors[index(t)].shape);
           ++i)
        squares += std::pow(caller_gradient(trial, t, 2, i), 2.0);
    EXPECT_NEAR(result.outcomes[1].norm, std::sqrt(squares), 1e-6);
    EXPECT_EQ(result.outcomes[1].norm, expected.outcomes[1].norm);
  }
}

TEST(CallerStep, TellsThatRanksHaveGradientsOfDifferentTensors) {
  CallerTrial trial = muon_trial({{0, 2}});
  run_ranks(2, [&](Communicator& world) {
    CallerTrial own = trial;
    own.missing = [&](int32_t tensor, int64_t) {
      return tensor == 2 && world.rank() == 1;
    };
    CallerDriver driver(own, world);
    driver.make_gradients(1);
    driver.run(0.1);
    const CallerOutcome outcome = driver.step().outcome();
    EXPECT_TRUE(outcome.unlike);
    EXPECT_TRUE(outcome.skipped);
    EXPECT_EQ(outcome.nonfinite_tensor, -1);
    driver.make_gradients(2);
  });
}

TEST(CallerStep, AllocatesNothingAfterTheThirdStep) {
  for (const std::string rule : {"muon", "adamw", "nsgd"})
    for (const MeshAxes& axes : few_meshes())
      for (const DType wire : {DType::kFp32, DType::kBf16})
        for (const int threads : {0, 2})
          for (const bool bf16 : {false, true}) {
            CallerTrial trial{
                .plan = plan_by_lot(request_on({"", axes}, rule, wire), 5),
                .steps = 6,
                .threads = threads,
                .bf16_gradients = bf16,
                .clip = 1};
            int64_t before = 0;
            trial.before_step = [&](int64_t) { before = num_allocations(); };
            trial.after_step = [&](int64_t step) {
              if (step > 3) {
                EXPECT_EQ(num_allocations(), before) << rule;
              }
            };
            run_caller(trial);
          }
}

TEST(CallerStep, TakesOptionsForTheStepsToCome) {
  CallerTrial trial = muon_trial({});
  run_ranks(1, [&](Communicator& world) {
    CallerDriver driver(trial, world);
    driver.step().set_options(0, {{"weight_decay", "0.5"}});
    EXPECT_THROW(driver.step().set_options(0, {{"weight_decoy", "0.5"}}),
                 UsageError);
    EXPECT_THROW(driver.step().set_options(2, {}), UsageError);
    EXPECT_THROW(driver.step().set_options(0, {{"device", "cuda"}}),
                 UsageError);
    driver.make_gradients(1);
    driver.run(0.1);
    CallerResult changed;
    std::mutex mutex;
    driver.collect(changed, mutex);
    trial.steps = 1;
    trial.rate = 0.1;
    EXPECT_NE(changed.values.at("a"), run_caller(trial).values.at("a"));
    EXPECT_EQ(changed.values.at("norm"), run_caller(trial).values.at("norm"));
  });
}

// An asynchronous device, which works at random times.
CallerTrial late(CallerTrial trial, LateDevice& device) {
  trial.make_engine = [&] { return std::make_unique<LateEngine>(device); };
  return trial;
}

TEST(CallerStep, HasTheSameBitsOnADeviceThatWorksLater) {
  for (const std::string rule : {"muon", "soap", "adamw"})
    for (const Layout& layout : layouts())
      for (const DType wire : {DType::kFp32, DType::kBf16}) {
        SCOPED_TRACE(cat(rule, ", ", layout.name));
        CallerTrial trial{
            .plan = plan_by_lot(request_on(layout, rule, wire), 3),
            .steps = 3,
            .bf16_gradients = layout.axes.size() == 1,
            .clip = 0.5};
        const CallerResult expected = run_caller(trial);
        trial.two_engines = layout.axes.size() != 1;
        LateDevice device({.seed = 5, .eagerness = 0.3});
        const CallerResult result = run_caller(late(trial, device));
        EXPECT_EQ(difference(result, expected), "");
        EXPECT_EQ(result.outcomes[1].norm, expected.outcomes[1].norm);
      }
}

TEST(CallerStep, SkipsOnADeviceThatWorksLater) {
  for (const MeshAxes& axes : std::vector<MeshAxes>{{}, {{0, 2}}}) {
    CallerTrial trial = muon_trial(axes);
    trial.bad = [](int32_t tensor, int64_t step) -> std::optional<float> {
      if (step > 3 && tensor == 4)
        return std::numeric_limits<float>::infinity();
      return {};
    };
    trial.two_engines = false;
    const CallerResult expected = run_caller(trial);
    trial.two_engines = true;
    LateDevice device({.seed = 6, .eagerness = 0.3});
    const CallerResult result = run_caller(late(trial, device));
    EXPECT_EQ(difference(result, expected), "");
    EXPECT_TRUE(result.outcomes[4].skipped);
    EXPECT_EQ(result.outcomes[4].nonfinite_tensor, 4);
  }
}

// Exchange rounds on a single rank: no collective ever waits.
StoragePlan in_rounds(StoragePlan plan) {
  int32_t next = 0;
  for (OwnedMatrix& matrix : plan.matrices) matrix.round = next++ / 2;
  plan.classes[0].num_rounds = (next + 1) / 2;
  return plan;
}

TEST(CallerStep, NeverWaitsForADevice) {
  for (const std::string rule : {"muon", "adamw"})
    for (const DType wire : {DType::kFp32, DType::kBf16})
      for (const bool rounds : {false, true}) {
        CallerTrial trial{
            .plan = plan_by_lot(request_on({"", {}}, rule, wire), 3),
            .two_engines = true,
            .clip = 0.5};
        if (rounds && rule == "muon") trial.plan = in_rounds(trial.plan);
        LateDevice device({.seed = 7, .eagerness = 0.1});
        const CallerTrial on_late = late(trial, device);
        run_ranks(1, [&](Communicator& world) {
          CallerDriver driver(on_late, world);
          auto& engine = static_cast<LateEngine&>(driver.engine());
          for (int64_t step = 1; step <= 4; ++step) {
            driver.make_gradients(step);
            const int64_t before = engine.waits();
            driver.run(0.1);
            EXPECT_EQ(engine.waits(), before);
          }
        });
      }
}

template <class Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CallerStep, NamesCallsOutOfOrder) {
  const CallerTrial trial = muon_trial({});
  run_ranks(1, [&](Communicator& world) {
    CallerDriver driver(trial, world);
    CallerStep& step = driver.step();
    EXPECT_THAT(message_of([&] { step.outcome(); }), HasSubstr("after begin"));
    EXPECT_THAT(message_of([&] { step.run(0); }), HasSubstr("after begin"));
    EXPECT_THAT(
        message_of([&] { step.look(); }),
        HasSubstr("look must be called between begin and the first action"));
    const std::vector<CallerGradient> none(trial.plan.tensors.size());
    const std::vector<int64_t> steps(none.size(), 1);
    const std::vector<double> rates(2, 0.1);
    // Gradients of an earlier step may be gone.
    step.begin(none, steps, rates);
    EXPECT_THAT(message_of([&] { step.squares(); }),
                HasSubstr("squares must be called after look"));
    step.begin(none, steps, rates);
    EXPECT_THAT(message_of([&] { step.clip(1); }),
                HasSubstr("clip must be called after look"));
    step.begin(none, steps, rates);
    EXPECT_THAT(message_of([&] { step.run(1); }),
                HasSubstr("action 1 is out of order; expected 0"));
    step.begin(none, steps, rates);
    EXPECT_THAT(message_of([&] { step.end(); }),
                HasSubstr("end was called before action 0"));
    EXPECT_THAT(
        message_of([&] { step.begin(none, steps, std::span(rates).first(1)); }),
        HasSubstr("1 learning rates; expected 2"));
  });
}

TEST(CallerStep, NamesWhatIsMissing) {
  CallerTrial trial = muon_trial({{0, 2}});
  for (CutTensor& t : trial.plan.tensors) t.dtype = DType::kBf16;
  run_ranks(2, [&](Communicator& world) {
    CallerDriver driver(trial, world);
    CallerStep& step = driver.step();
    CallerMemory memory = driver.memory();
    memory.weights[0] = nullptr;
    EXPECT_THAT(message_of([&] { step.bind(memory); }),
                HasSubstr("tensor 'a': no weights"));
    memory = driver.memory();
    memory.masters[0] = nullptr;
    EXPECT_THAT(message_of([&] { step.bind(memory); }),
                HasSubstr("tensor 'a': bf16 weights without masters (fp32)"));
    memory = driver.memory();
    memory.states[0] = nullptr;
    EXPECT_THAT(message_of([&] { step.bind(memory); }),
                HasSubstr("no memory for state momentum"));
    memory = driver.memory();
    memory.slots = nullptr;
    EXPECT_THAT(message_of([&] { step.bind(memory); }),
                HasSubstr("no memory for slots"));
    memory = driver.memory();
    memory.states.pop_back();
    EXPECT_THAT(message_of([&] { step.bind(memory); }),
                HasSubstr("addresses of states; expected"));
    std::vector<CallerGradient> odd(trial.plan.tensors.size());
    odd[1] = {driver.memory().slots, DType::kFp16};
    const std::vector<int64_t> steps(odd.size(), 1);
    const std::vector<double> rates(2, 0.1);
    EXPECT_THAT(message_of([&] { step.begin(odd, steps, rates); }),
                HasSubstr("tensor 'norm': a gradient in fp16"));
  });
}

}  // namespace
}  // namespace canzona::runtime::caller_step_test
