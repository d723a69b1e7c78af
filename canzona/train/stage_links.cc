#include "canzona/train/stage_links.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona::train {
namespace {

// Adds pairs of tasks of one direction.
void add_pairs(std::span<const StageTask> run, std::vector<StageTask>& pairs) {
  const bool forward = run.front().forward;
  const auto size = std::ssize(run);
  // The odd one is the last forward, or the first backward.
  const int64_t alone = size % 2 == 0 ? -1 : forward ? size - 1 : 0;
  for (int64_t i = 0; i < size;) {
    const int64_t count = i == alone ? 1 : 2;
    pairs.push_back({forward, run[static_cast<size_t>(i)].micro_batch, count});
    i += count;
  }
}

}  // namespace

std::vector<StageTask> schedule_1f1b(int64_t stage, int64_t num_stages,
                                     int64_t num_micro_batches) {
  const int64_t ahead = std::min(num_stages - 1 - stage, num_micro_batches);
  std::vector<StageTask> tasks;
  for (int64_t m = 0; m < ahead; ++m) tasks.push_back({true, m});
  for (int64_t m = ahead; m < num_micro_batches; ++m) {
    tasks.push_back({true, m});
    tasks.push_back({false, m - ahead});
  }
  for (int64_t m = num_micro_batches - ahead; m < num_micro_batches; ++m)
    tasks.push_back({false, m});
  return tasks;
}

std::vector<StageTask> pair_neighbours(std::span<const StageTask> tasks) {
  std::vector<StageTask> pairs;
  while (!tasks.empty()) {
    const auto other =
        std::ranges::find(tasks, !tasks.front().forward, &StageTask::forward);
    const auto size = static_cast<size_t>(other - tasks.begin());
    add_pairs(tasks.first(size), pairs);
    tasks = tasks.subspan(size);
  }
  return pairs;
}

int64_t most_in_flight(int64_t stage, int64_t num_stages,
                       int64_t num_micro_batches) {
  return std::min(num_stages - stage, num_micro_batches);
}

int64_t most_together(std::span<const StageTask> tasks) {
  int64_t most = 1;
  for (const StageTask& task : tasks)
    if (!task.forward) most = std::max(most, task.count);
  return most;
}

int64_t num_announcements(std::span<const StageTask> tasks) {
  return std::ranges::count(tasks, false, &StageTask::forward);
}

std::vector<TrainerCall> stage_calls(const Model& model, const Mesh& mesh,
                                     int32_t stage,
                                     std::span<const StageTask> tasks) {
  std::vector<Direction> passes;
  for (const StageTask& task : tasks)
    passes.push_back(task.forward ? Direction::kForward : Direction::kBackward);
  std::vector<TrainerCall> calls = calls_of(model, mesh, stage, passes);
  const bool lends = is_tied(model) && stage == 0 && mesh.pp > 1;
  if (lends)
    calls.insert(calls.begin(), {{TrainerCall::Kind::kWaitParams, 0},
                                 {TrainerCall::Kind::kReleaseParams, 0}});
  return calls;
}

std::vector<int32_t> waited_modules(std::span<const TrainerCall> calls) {
  std::vector<int32_t> modules;
  for (const TrainerCall& call : calls)
    if (call.kind == TrainerCall::Kind::kWaitParams)
      modules.push_back(call.module);
  return modules;
}

OneWay::OneWay(Communicator& world, int color, int key, bool from_lower,
               const std::string& name, int capacity)
    : name_(name),
      sender_(from_lower ? 0 : 1),
      pair_(world.split(color, key, name)) {
  if (pair_ == nullptr) return;
  CANZONA_CHECK_EQ(pair_->size(), 2);
  courier_ = std::make_unique<Courier>(*pair_, capacity);
}

Work OneWay::post(std::span<float> numbers) {
  return courier_->broadcast(sender_, std::as_writable_bytes(numbers),
                             {.label = name_});
}

Work OneWay::send(std::span<float> numbers) {
  CANZONA_CHECK_EQ(pair_->rank(), sender_);
  return post(numbers);
}

void OneWay::receive(std::span<float> numbers) {
  CANZONA_CHECK(pair_->rank() != sender_, name_, ": the sender receives");
  const int64_t begin = steady_nanoseconds();
  post(numbers).wait();
  waited_ += 1e-9 * static_cast<double>(steady_nanoseconds() - begin);
}

double OneWay::busy() const {
  return courier_ == nullptr
             ? 0
             : std::chrono::duration<double>(courier_->busy()).count();
}

StageLinks::StageLinks(Communicator& world, const Mesh& mesh,
                       const Coordinates& at, int64_t capacity) {
  const int32_t plane = at.home * mesh.tp + at.t;
  for (int32_t s = 0; s + 1 < mesh.pp; ++s) {
    const bool lower = at.stage == s;
    const bool upper = at.stage == s + 1;
    const int color = lower || upper ? plane : -1;
    const auto add = [&](bool forward) {
      all_.push_back(
          std::make_unique<OneWay>(world, color, at.stage, forward,
                                   cat(forward ? "activations" : "gradients",
                                       " between stages ", s, " and ", s + 1),
                                   static_cast<int>(capacity) + 1));
      return all_.back().get();
    };
    OneWay* forward = add(true);
    OneWay* backward = add(false);
    if (lower) {
      output_ = forward;
      output_gradient_ = backward;
    } else if (upper) {
      input_ = forward;
      input_gradient_ = backward;
    }
  }
}

void StageLinks::receive_input(std::span<float> numbers) {
  input_->receive(numbers);
}
Work StageLinks::send_output(std::span<float> numbers) {
  return output_->send(numbers);
}
void StageLinks::receive_output_gradient(std::span<float> numbers) {
  output_gradient_->receive(numbers);
}
Work StageLinks::send_input_gradient(std::span<float> numbers) {
  return input_gradient_->send(numbers);
}

double StageLinks::waited() const {
  double seconds = 0;
  for (const auto& way : all_) seconds += way->waited();
  return seconds;
}
double StageLinks::busy() const {
  double seconds = 0;
  for (const auto& way : all_) seconds += way->busy();
  return seconds;
}

}  // namespace canzona::train
