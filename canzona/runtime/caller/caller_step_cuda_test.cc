// Steps on the caller's memory of a GPU, shared by ranks that are threads.
#include <gtest/gtest.h>

#include <limits>

#include "canzona/linalg/cuda/test_cuda_calls.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/plan/storage/test_storage.h"
#include "canzona/runtime/engine_lanes.h"
#include "canzona/runtime/caller/caller_step.h"
#include "canzona/runtime/caller/test_caller.h"

namespace canzona::runtime::caller_step_cuda_test {
namespace {

StoragePlan gpu_plan(const std::string& rule, const MeshAxes& axes, DType wire,
                     bool share = false) {
  StorageRequest request = storage_request(rule,
                                           {{"a", {96, 64}},
                                            {"norm", {100}},
                                            {"b", {64, 96}},
                                            {"primes", {37, 23}},
                                            {"row", {1, 9}},
                                            {"stack", {3, 24, 16}},
                                            {"c", {96, 64}},
                                            {"bias", {7}}},
                                           axes);
  for (RuleGroup& group : request.groups)
    if (group.options.contains("device")) group.options["device"] = "cuda";
  request.options.wire = wire;
  request.options.share_states = share;
  return plan_by_lot(request, 11);
}

class CudaCallerStep : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!find_cuda_device(&why)) GTEST_SKIP() << why;
    ops_ = std::make_unique<EngineWireOps>(memory_ops("cuda"));
  }
  CallerTrial on_gpu(StoragePlan plan) const {
    CallerTrial trial{.plan = std::move(plan)};
    trial.make_engine = [] { return make_cuda_engine(); };
    trial.ops = ops_.get();
    trial.two_engines = true;
    return trial;
  }

 private:
  std::unique_ptr<EngineWireOps> ops_;
};

TEST_F(CudaCallerStep, RestoresMastersFromRemainders) {
  for (const std::string rule : {"muon", "soap", "adamw"})
    for (const MeshAxes& axes :
         {MeshAxes{}, MeshAxes{{0, 2}}, MeshAxes{{kReplicated, 2}}}) {
      StorageRequest request = gpu_plan(rule, axes, DType::kFp32);
      for (CutTensor& t : request.tensors) t.dtype = DType::kBf16;
      const CallerResult wide = run_caller(on_gpu(plan_by_lot(request, 11)));
      request.options.master = MasterForm::kRemainder;
      const CallerResult narrow = run_caller(on_gpu(plan_by_lot(request, 11)));
      EXPECT_EQ(narrow.values, wide.values) << rule;
    }
}

TEST_F(CudaCallerStep, HasOneResultPerWireOnEveryLayout) {
  const std::vector<std::pair<MeshAxes, bool>> layouts = {
      {{}, false},
      {{{kReplicated, 2}}, false},
      {{{kReplicated, 3}}, true},
      {{{0, 2}}, false},
      {{{0, 4}}, false},
      {{{-1, 3}}, false},
      {{{kReplicated, 2}, {0, 2}}, false},
      {{{0, 2}, {-1, 2}}, false}};
  for (const std::string rule : {"muon", "soap", "shampoo", "adamw"})
    for (const DType wire : {DType::kFp32, DType::kBf16})
      for (const bool bf16_gradients : {false, true}) {
        CallerResult expected;
        for (const auto& [axes, share] : layouts) {
          CallerTrial trial = on_gpu(gpu_plan(rule, axes, wire, share));
          for (OwnedMatrix& matrix : trial.plan.matrices) matrix.phase = 0;
          trial.bf16_gradients = bf16_gradients;
          trial.clip = 3;
          const CallerResult result = run_caller(trial);
          if (expected.values.empty()) expected = result;
          EXPECT_EQ(difference(result, expected), "")
              << rule << " on " << trial.plan.world << " ranks";
        }
      }
}

TEST_F(CudaCallerStep, SkipsWhatIsNotFinite) {
  CallerTrial trial = on_gpu(gpu_plan("muon", {{0, 2}}, DType::kFp32));
  trial.steps = 3;
  const CallerResult before = run_caller(trial);
  trial.steps = 4;
  trial.bad = [](int32_t tensor, int64_t step) -> std::optional<float> {
    if (step == 4 && tensor >= 2)
      return std::numeric_limits<float>::quiet_NaN();
    return {};
  };
  const CallerResult after = run_caller(trial);
  EXPECT_EQ(difference(after, before), "");
  EXPECT_TRUE(after.outcomes[3].skipped);
  EXPECT_EQ(after.outcomes[3].nonfinite_tensor, 2);
}

// Gradients move at every step; a single rank needs no collectives, so all
// calls are the step's own.
TEST_F(CudaCallerStep, WaitsForNothingAndCapturesNothingAfterTheThirdStep) {
  for (const std::string rule : {"muon", "adamw"})
    for (const DType wire : {DType::kFp32, DType::kBf16})
      for (const bool bf16_gradients : {false, true})
        for (const bool in_rounds : {false, true}) {
          CallerTrial trial = on_gpu(gpu_plan(rule, {}, wire));
          if (in_rounds && rule == "muon") {
            for (OwnedMatrix& matrix : trial.plan.matrices) matrix.round = 0;
            trial.plan.classes[0].num_rounds = 1;
          }
          trial.bf16_gradients = bf16_gradients;
          trial.clip = 1;
          run_ranks(1, [&](Communicator& world) {
            CallerDriver driver(trial, world);
            for (int64_t step = 1; step <= 3; ++step) {
              driver.make_gradients(step);
              driver.run(0.1);
            }
            driver.engine().synchronize();
            forget_cuda_calls();
            for (int64_t step = 4; step <= 8; ++step) {
              driver.make_gradients(step, false);
              driver.run(0.1);
            }
            EXPECT_EQ(cuda_calls(), "")
                << rule << (in_rounds ? ", in rounds" : "");
          });
        }
}

// Counts the allocations outstanding in another memory.
class CountingMemory final : public Memory {
 public:
  explicit CountingMemory(Memory& source) : source_(source) {}
  std::byte* allocate(int64_t bytes) override {
    ++num_out;
    ++num_taken;
    return source_.allocate(bytes);
  }
  void release(std::byte* memory) override {
    --num_out;
    source_.release(memory);
  }
  int64_t num_out = 0, num_taken = 0;

 private:
  Memory& source_;
};

TEST_F(CudaCallerStep, WorksOnStreamsAndScratchOfTheCaller) {
  CallerTrial trial = on_gpu(gpu_plan("muon", {}, DType::kFp32));
  const CallerResult expected = run_caller(trial);
  trial.two_engines = false;  // each would need a stream
  const auto other = make_cuda_engine();
  const auto lane = other->make_lane();
  CountingMemory memory(other->memory());
  for (void* stream : {lane->native(), default_cuda_stream()}) {
    trial.make_engine = [&] { return make_cuda_engine(0, stream, &memory); };
    EXPECT_EQ(difference(run_caller(trial), expected), "");
    EXPECT_GT(memory.num_taken, 0);
    EXPECT_EQ(memory.num_out, 0);
  }
}

// Boxes of fused matrices whose rows take turns: `rows` of each in every group.
std::vector<Box> in_turns(const std::vector<int64_t>& rows, int64_t groups,
                          int64_t cols) {
  std::vector<Box> boxes;
  for (int64_t g = 0; g < groups; ++g) {
    int64_t first = 0;
    for (const int64_t n : rows) {
      boxes.push_back({{first + g * n, 0}, {n, cols}});
      first += groups * n;
    }
  }
  return boxes;
}

// Groups of 16 rows or a multiple are read and written where they lie, others
// are put together first; `wide` is large enough for products of 16 bits.
TEST_F(CudaCallerStep, HasTheSameBitsWhereRowsTakeTurns) {
  const std::vector<RuleOptions> all_options = {{},
                                                {{"precision", "bf16"}},
                                                {{"precision", "fp32"}},
                                                {{"strips", "4"}},
                                                {{"equilibrate", "rows"}}};
  for (const RuleOptions& options : all_options)
    for (const DType wire : {DType::kFp32, DType::kBf16})
      for (const DType weights : {DType::kFp32, DType::kBf16}) {
        SCOPED_TRACE(cat(options.empty() ? "" : options.begin()->first, ", ",
                         to_string(wire), ", ", to_string(weights)));
        StorageRequest request =
            storage_request("muon",
                            {{"qkv", {192, 64}, {96, 48, 48}},
                             {"like q", {96, 64}},
                             {"odd", {57, 30}, {48, 9}},
                             {"short", {72, 32}, {24, 48}},
                             {"wide", {1024, 320}, {512, 256, 256}}},
                            {});
        for (const auto& [name, value] : options)
          request.groups[0].options[name] = value;
        request.groups[0].options["device"] = "cuda";
        request.options.wire = wire;
        for (CutTensor& tensor : request.tensors) tensor.dtype = weights;
        CallerTrial trial = on_gpu(plan_by_lot(request, 3));
        trial.bf16_gradients = weights == DType::kBf16;
        const CallerResult whole = run_caller(trial);
        request.tensors[0].stored[0] = in_turns({32, 16, 16}, 3, 64);
        request.tensors[2].stored[0] = in_turns({16, 3}, 3, 30);
        request.tensors[3].stored[0] = in_turns({8, 16}, 3, 32);
        request.tensors[4].stored[0] = in_turns({128, 64, 64}, 4, 320);
        trial.plan = plan_by_lot(request, 3);
        EXPECT_EQ(difference(run_caller(trial), whole), "");
      }
}

// Ranks that share matrices, on one GPU.
TEST_F(CudaCallerStep, HasTheSameBitsWhereRanksShareMatrices) {
  const std::vector<std::pair<std::string, RuleOptions>> rules = {
      {"muon", {{"strips", "4"}}},
      {"soap", {{"strips", "4"}, {"ignored_dims", "1"}}},
      {"soap", {{"precondition_frequency", "2"}}},
      {"shampoo", {{"max_preconditioner_dim", "64"}}}};
  for (const auto& [rule, options] : rules)
    for (const MeshAxes& axes :
         {MeshAxes{{0, 4}}, MeshAxes{{kReplicated, 2}, {0, 2}}}) {
      SCOPED_TRACE(cat(rule, ", ", options.size(), " options"));
      StorageRequest request = storage_request(rule,
                                               {{"a", {96, 264}},
                                                {"norm", {100}},
                                                {"b", {264, 64}},
                                                {"stack", {2, 128, 128}},
                                                {"primes", {37, 23}}},
                                               axes);
      for (const auto& [name, value] : options)
        request.groups[0].options[name] = value;
      for (RuleGroup& group : request.groups)
        if (group.options.contains("device")) group.options["device"] = "cuda";
      const CallerResult whole = run_caller(on_gpu(plan_by_lot(request, 3)));
      request.options.teams = kTeamsAuto;
      const StoragePlan plan = plan_by_lot(request, 3);
      EXPECT_TRUE(std::ranges::any_of(
          plan.matrices, [](const OwnedMatrix& m) { return !m.team.empty(); }));
      EXPECT_EQ(difference(run_caller(on_gpu(plan)), whole), "");
    }
}

}  // namespace
}  // namespace canzona::runtime::caller_step_cuda_test
