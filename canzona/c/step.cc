// Functions of canzona.h on steps.
#include <span>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/c/calls.h"
#include "canzona/c/canzona.h"
#include "canzona/c/handles.h"

namespace canzona::c {
namespace {

static_assert(CANZONA_NUMBERS == GradientCheck::kNumNumbers);

Handles<StepHandle>& step_handles() {
  static auto& handles = *new Handles<StepHandle>("step");
  return handles;
}

// Calls work(use) for the handle; returns the status of a C function.
template <class Work>
int with_step(canzona_step* step, const char* function, const Work& work) {
  return status_of([&] {
    const StepUse use(step_handles().get(step, function), function);
    work(use);
  });
}

// Returns the elements of an array that may be NULL; then all are null.
template <class To, class From>
std::vector<To> pointers(From* const* array, size_t count) {
  std::vector<To> result(count);
  for (size_t i = 0; array != nullptr && i < count; ++i)
    result[i] = reinterpret_cast<To>(array[i]);
  return result;
}

CallerMemory caller_memory(const StepHandle& handle, const CallerStep& step,
                           const canzona_memory& memory) {
  const size_t tensors = handle.plan().tensors.size();
  CallerMemory given;
  given.weights = pointers<std::byte*>(memory.weights, tensors);
  given.masters = pointers<std::byte*>(memory.masters, tensors);
  given.states =
      pointers<float*>(memory.states, step.schedule().memories.size());
  given.slots = static_cast<std::byte*>(memory.slots);
  given.rooms = static_cast<std::byte*>(memory.rooms);
  given.numbers = memory.numbers;
  return given;
}

DType gradient_dtype(const CutTensor& tensor, int32_t dtype) {
  if (dtype == CANZONA_FP32) return DType::kFp32;
  if (dtype == CANZONA_BF16) return DType::kBf16;
  throw UsageError(cat("canzona_step_begin: the gradient of ",
                       quoted(tensor.name), " has dtype ", dtype,
                       ", expected CANZONA_FP32 (0) or CANZONA_BF16 (1)"));
}

std::vector<CallerGradient> caller_gradients(
    const StoragePlan& plan, const canzona_gradient* gradients) {
  std::vector<CallerGradient> given(plan.tensors.size());
  for (size_t t = 0; t < given.size(); ++t)
    given[t] = {static_cast<std::byte*>(gradients[t].data),
                gradient_dtype(plan.tensors[t], gradients[t].dtype)};
  return given;
}

CallerReplay caller_replay(const StoragePlan& plan,
                           const canzona_replay& replay) {
  const std::span counts(replay.counts, plan.tensors.size());
  CallerReplay given{.counts = {counts.begin(), counts.end()},
                     .rates = {},
                     .skipped = replay.skipped,
                     .refused = replay.refused,
                     .limit = replay.limit,
                     .skip = replay.skip != 0};
  for (const canzona_rate& rate : std::span(replay.rates, plan.groups.size()))
    given.rates.push_back({rate.number,
                           static_cast<const std::byte*>(rate.live),
                           rate.is_double != 0 ? DType::kFp64 : DType::kFp32});
  return given;
}

RuleOptions read_options(std::string_view text) {
  const Json json = parse_json(text, {.what = "options"});
  if (!json.is_object())
    throw UsageError("options: expected a JSON object of strings");
  RuleOptions options;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string())
      throw UsageError(cat("options: the value of ", quoted(name),
                           " is not a string; write \"0.1\", not 0.1"));
    options[name] = value.get<std::string>();
  }
  return options;
}

}  // namespace
}  // namespace canzona::c

extern "C" {

canzona_step* canzona_step_new(const canzona_plan* plan, int32_t rank,
                               const char* device, void* stream,
                               int32_t threads,
                               const canzona_allocator* scratch) {
  return canzona::c::result_of([&] {
    using namespace canzona;
    using namespace canzona::c;
    const PlainArithmetic plain;  // inherited by threads
    auto planned = plan_of(plan, "canzona_step_new");
    require_argument(device, "canzona_step_new", "device");
    auto handle = std::make_shared<StepHandle>(
        std::move(planned),
        StepRequest{rank, device, stream, threads, scratch});
    return static_cast<canzona_step*>(step_handles().add(std::move(handle)));
  });
}

const char* canzona_step_layout(canzona_step* step) {
  const char* text = nullptr;
  canzona::c::with_step(step, "canzona_step_layout",
                        [&](const canzona::c::StepUse& use) {
                          text = use.handle().layout().c_str();
                        });
  return text;
}

void canzona_step_free(canzona_step* step) {
  canzona::c::status_of([&] { canzona::c::step_handles().remove(step); });
}

int canzona_step_bind(canzona_step* step, const canzona_memory* memory) {
  return canzona::c::with_step(
      step, "canzona_step_bind", [&](const canzona::c::StepUse& use) {
        canzona::c::require_argument(memory, "canzona_step_bind", "memory");
        use->bind(canzona::c::caller_memory(use.handle(), use.handle().step(),
                                            *memory));
      });
}

int canzona_step_options(canzona_step* step, int32_t group, const char* json,
                         int64_t length) {
  return canzona::c::with_step(
      step, "canzona_step_options", [&](const canzona::c::StepUse& use) {
        using namespace canzona;
        using namespace canzona::c;
        const auto groups =
            static_cast<int32_t>(use.handle().plan().groups.size());
        if (group < 0 || group >= groups)
          throw UsageError(cat("canzona_step_options: group ", group,
                               ", expected 0 to ", groups - 1));
        use->set_options(
            group, read_options(text_argument(json, length,
                                              "canzona_step_options", "json")));
      });
}

int canzona_step_begin(canzona_step* step, const canzona_gradient* gradients,
                       const int64_t* steps, const double* rates) {
  constexpr const char* kName = "canzona_step_begin";
  return canzona::c::with_step(
      step, kName, [&](const canzona::c::StepUse& use) {
        using namespace canzona;
        using namespace canzona::c;
        const StoragePlan& plan = use.handle().plan();
        require_argument(gradients, kName, "gradients");
        require_argument(steps, kName, "steps");
        require_argument(rates, kName, "rates");
        use->begin(caller_gradients(plan, gradients),
                   {steps, plan.tensors.size()}, {rates, plan.groups.size()});
      });
}

int canzona_step_look(canzona_step* step) {
  return canzona::c::with_step(
      step, "canzona_step_look",
      [](const canzona::c::StepUse& use) { use->look(); });
}

int canzona_step_squares(canzona_step* step) {
  return canzona::c::with_step(
      step, "canzona_step_squares",
      [](const canzona::c::StepUse& use) { use->squares(); });
}

int canzona_step_clip(canzona_step* step, double limit) {
  return canzona::c::with_step(
      step, "canzona_step_clip",
      [&](const canzona::c::StepUse& use) { use->clip(limit); });
}

int canzona_step_judge(canzona_step* step, int32_t skip) {
  return canzona::c::with_step(
      step, "canzona_step_judge",
      [&](const canzona::c::StepUse& use) { use->judge(skip != 0); });
}

int canzona_step_run(canzona_step* step, int32_t action) {
  return canzona::c::with_step(
      step, "canzona_step_run",
      [&](const canzona::c::StepUse& use) { use->run(action); });
}

int canzona_step_needs(canzona_step* step, int32_t action, int64_t number,
                       int32_t* needed) {
  constexpr const char* kName = "canzona_step_needs";
  return canzona::c::with_step(
      step, kName, [&](const canzona::c::StepUse& use) {
        canzona::c::require_argument(needed, kName, "needed");
        *needed = use->needs(action, number) ? 1 : 0;
      });
}

int canzona_step_end(canzona_step* step) {
  return canzona::c::with_step(
      step, "canzona_step_end",
      [](const canzona::c::StepUse& use) { use->end(); });
}

int canzona_step_abandon(canzona_step* step) {
  return canzona::c::with_step(
      step, "canzona_step_abandon",
      [](const canzona::c::StepUse& use) { use->abandon(); });
}

int canzona_step_capture(canzona_step* step, const canzona_gradient* gradients,
                         const canzona_replay* replay) {
  constexpr const char* kName = "canzona_step_capture";
  return canzona::c::with_step(
      step, kName, [&](const canzona::c::StepUse& use) {
        using namespace canzona;
        using namespace canzona::c;
        const StoragePlan& plan = use.handle().plan();
        require_argument(gradients, kName, "gradients");
        require_argument(replay, kName, "replay");
        require_argument(replay->counts, kName, "counts");
        require_argument(replay->rates, kName, "rates");
        require_argument(replay->skipped, kName, "skipped");
        require_argument(replay->refused, kName, "refused");
        use->capture(caller_gradients(plan, gradients),
                     caller_replay(plan, *replay));
      });
}

int canzona_step_outcome(canzona_step* step, canzona_outcome* outcome) {
  return canzona::c::with_step(
      step, "canzona_step_outcome", [&](const canzona::c::StepUse& use) {
        canzona::c::require_argument(outcome, "canzona_step_outcome",
                                     "outcome");
        const canzona::runtime::CallerOutcome found = use->outcome();
        *outcome = {found.skipped ? 1 : 0, found.nonfinite_tensor,
                    found.unlike ? 1 : 0, found.norm};
      });
}

}  // extern "C"
