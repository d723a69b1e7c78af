// Thread ranks that step on the memory of a test, with the collectives of comm
// in place of a trainer's library.
//
//   CallerTrial trial{.plan = plan, .steps = 5};
//   const CallerResult result = run_caller(trial);
//   EXPECT_EQ(result.values, reference(trial).values);
//
// Gradients depend on the tensor, the element's index in it and the step, and
// are at a new address at every step.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/master_bits.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/linalg/engine.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/rules/optimizer.h"
#include "canzona/runtime/caller/caller_step.h"

namespace canzona::runtime {

struct CallerTrial {
  StoragePlan plan;
  int64_t steps = 5;
  int threads = 0;  // number of lanes; 0: one engine, or two
  bool two_engines = false;
  bool bf16_gradients = false;
  double clip = 0;  // 0: the norm is not requested
  bool looks = true;
  bool skips = true;
  double rate = 0.01;
  // Element i of a whole tensor, and of its gradient in a step; default: random
  // numbers.
  std::function<float(int32_t tensor, int64_t i)> weight = {};
  std::function<float(int32_t tensor, int64_t step, int64_t i)> gradient = {};
  std::function<bool(int32_t tensor, int64_t step)> missing = {};
  // Replaces the gradient's first element.
  std::function<std::optional<float>(int32_t tensor, int64_t step)> bad = {};
  std::function<std::unique_ptr<Engine>()> make_engine = [] {
    return make_cpu_engine();
  };
  const WireOps* ops = nullptr;  // for collectives
  // Called around every step of rank 0, when all ranks have arrived.
  std::function<void(int64_t step)> before_step = {}, after_step = {};
};

// Whole tensors by name: weights, and states as "momentum of w".
struct CallerResult {
  std::map<std::string, std::vector<uint32_t>> values;  // bits
  std::vector<CallerOutcome> outcomes;                  // by step
};

inline float caller_weight(int32_t tensor, int64_t i) {
  return uniform_at(static_cast<uint64_t>(tensor) + 7, index(i));
}

inline uint16_t to_bf16_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U)
    return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}
inline float from_bf16_bits(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float wide = 0;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

// Element i of a whole tensor.
inline float caller_gradient(const CallerTrial& trial, int32_t tensor,
                             int64_t step, int64_t i) {
  if (i == 0 && trial.bad)
    if (const auto number = trial.bad(tensor, step)) return *number;
  if (trial.gradient) return trial.gradient(tensor, step, i);
  const float g =
      uniform_at(static_cast<uint64_t>(tensor * 1000 + step), index(i));
  return trial.bf16_gradients ? from_bf16_bits(to_bf16_bits(g)) : g;
}

// Calls work(index in the whole tensor, index in the rank's storage).
template <class Work>
void for_each_stored(const CutTensor& tensor, int32_t rank, const Work& work) {
  int64_t at = 0;
  for (const Box& box : tensor.stored[index(rank)]) {
    std::vector<int64_t> place(box.count.size(), 0);
    for (int64_t i = 0; i < box.elements(); ++i) {
      int64_t whole = 0;
      for (size_t d = 0; d < place.size(); ++d)
        whole = whole * tensor.shape[d] + box.first[d] + place[d];
      work(whole, at++);
      for (size_t d = place.size(); d-- > 0;) {
        if (++place[d] < box.count[d]) break;
        place[d] = 0;
      }
    }
  }
}

inline std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty())
    std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

// One rank, its memory and the caller's side.
class CallerDriver {
 public:
  CallerDriver(const CallerTrial& trial, Communicator& world)
      : trial_(trial), plan_(trial.plan), world_(world) {
    if (trial.threads > 0)
      lanes_ = std::make_unique<Lanes>(trial.threads, trial.make_engine);
    else
      alone_ = trial.make_engine();
    if (trial.two_engines) beside_ = trial.make_engine();
    engine_ = lanes_ ? &lanes_->lane(0) : alone_.get();
    memory_ = std::make_unique<EngineMemory>(*engine_);
    std::vector<Engine*> engines = {engine_};
    if (beside_) engines.push_back(beside_.get());
    step_ = lanes_ ? std::make_unique<CallerStep>(plan_, world.rank(), *lanes_)
                   : std::make_unique<CallerStep>(plan_, world.rank(), engines);
    for (const std::vector<int32_t>& group : step_->schedule().groups) {
      const bool in = std::ranges::count(group, world.rank()) > 0;
      groups_.push_back(
          world.split(in ? 0 : -1, world.rank(), "group", {}, trial.ops));
    }
    all_ = world.split(0, world.rank(), "all", {}, trial.ops);
    lend();
  }
  ~CallerDriver() {
    step_.reset();
    engine_->synchronize();
  }

  CallerStep& step() { return *step_; }
  Engine& engine() { return *engine_; }
  const CallerMemory& memory() const { return bound_; }

  // Uploads the gradients of a step to a different address than those of the
  // previous step, or reuses those uploaded there two steps earlier.
  void make_gradients(int64_t step, bool uploads = true) {
    gradients_.assign(plan_.tensors.size(), {});
    numbers_.assign(plan_.tensors.size(), 0);
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) {
      numbers_[index(t)] = step - missed_[index(t)];
      if (trial_.missing && trial_.missing(t, step)) {
        ++missed_[index(t)];
        continue;
      }
      gradients_[index(t)] = {
          places_[index(t)][index(step % 2)],
          trial_.bf16_gradients ? DType::kBf16 : DType::kFp32};
      if (uploads) upload_gradient(t, step);
    }
    if (uploads) synchronize();
  }

  // How often this driver waited for the engine.
  int64_t num_waits() const { return num_waits_; }

  void run(double rate) {
    const std::vector<double> rates(plan_.groups.size(), rate);
    issue(rates);
  }

  // Allocates nothing.
  void issue(std::span<const double> rates) {
    step_->begin(gradients_, numbers_, rates);
    if (trial_.looks) {
      step_->look();
      reduce(Reduction::kInt64Max, 0, 4);
      if (trial_.clip > 0) {
        step_->squares();
        reduce(Reduction::kInt64Sum, 4, 8);
        step_->clip(trial_.clip);
      }
      step_->judge(trial_.skips);
    }
    const auto& actions = step_->schedule().actions;
    for (size_t a = 0; a < actions.size(); ++a)
      if (actions[a].is_compute())
        step_->run(static_cast<int32_t>(a));
      else if (is_of_team(actions[a].purpose))
        exchange(static_cast<int32_t>(a), actions[a]);
      else if (actions[a].kind != EntryKind::kWait)
        carry_out(actions[a]);
    step_->end();
  }

  void collect(CallerResult& result, std::mutex& mutex) {
    engine_->synchronize();
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) {
      const CutTensor& tensor = plan_.tensors[index(t)];
      if (stored(t) == 0) continue;
      const std::vector<float> weights = stored_weights(t);
      put(result, mutex, tensor.name, t, weights, nullptr);
      if (tensor.dtype == DType::kBf16)
        put(result, mutex, cat("master of ", tensor.name), t, stored_masters(t),
            nullptr);
    }
    for (const ScheduledState& state : step_->schedule().states) {
      const std::string& name = plan_.tensors[index(state.tensor)].name;
      const std::vector<float> values = memory_->get<float>(
          reinterpret_cast<std::byte*>(bound_.states[index(state.memory)] +
                                       state.at),
          state.elements());
      if (state.matrix < 0) {
        put(result, mutex, cat(state.name, " of ", name), state.tensor, values,
            &state);
        continue;
      }
      const std::lock_guard lock(mutex);
      const OwnedMatrix& m = plan_.matrices[index(state.matrix)];
      std::vector<uint32_t>& whole = result.values[cat(
          state.name, " of ", name, " ", m.number, " ", m.first_row)];
      if (state.in_matrix.shape.empty())
        whole = bits_of(values);
      else if (state.is_given)
        put_part(state, bits_of(values), whole);
    }
  }

 private:
  int64_t stored(int32_t t) const {
    return stored_elements(plan_, t, world_.rank());
  }

  void lend() {
    const RankSchedule& schedule = step_->schedule();
    missed_.assign(plan_.tensors.size(), 0);
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) lend_tensor(t);
    for (const int64_t elements : schedule.memories)
      bound_.states.push_back(
          reinterpret_cast<float*>(memory_->zeros(elements).data));
    for (const ScheduledState& state : schedule.states)
      if (state.initially == Initially::kIdentity)
        fill_initially(*engine_,
                       {.name = state.name,
                        .shape = state.shape,
                        .dtype = "fp32",
                        .initially = state.initially},
                       run_of(bound_.states[index(state.memory)] + state.at),
                       1);
    bound_.slots = memory_->zeros(schedule.slot_elements).data;
    bound_.rooms = memory_->zeros(schedule.room_bytes / 4).data;
    bound_.numbers = reinterpret_cast<int64_t*>(
        memory_->zeros(GradientCheck::kNumNumbers, DType::kFp64).data);
    engine_->synchronize();
    step_->bind(bound_);
  }

  // Offset by one element, so that nothing relies on alignment.
  std::byte* odd(int64_t count, int64_t bytes) {
    return memory_->take((count + 1) * bytes, DType::kBf16).data + bytes;
  }

  std::vector<float> stored_masters(int32_t t) const {
    std::byte* const masters = bound_.masters[index(t)];
    if (plan_.options.master == MasterForm::kFp32)
      return memory_->get<float>(masters, stored(t));
    const auto rest = memory_->get<uint16_t>(masters, stored(t));
    const auto upper =
        memory_->get<uint16_t>(bound_.weights[index(t)], stored(t));
    std::vector<float> values;
    for (size_t i = 0; i < rest.size(); ++i)
      values.push_back(std::bit_cast<float>(master_of(upper[i], rest[i])));
    return values;
  }

  void lend_tensor(int32_t t) {
    const CutTensor& tensor = plan_.tensors[index(t)];
    std::vector<float> values(index(stored(t)));
    for_each_stored(tensor, world_.rank(), [&](int64_t whole, int64_t at) {
      values[index(at)] =
          trial_.weight ? trial_.weight(t, whole) : caller_weight(t, whole);
    });
    places_.push_back({odd(stored(t), 4), odd(stored(t), 4)});
    bound_.weights.push_back(nullptr);
    bound_.masters.push_back(nullptr);
    if (values.empty()) return;
    if (tensor.dtype == DType::kFp32) {
      bound_.weights.back() = odd(stored(t), 4);
      upload(bound_.weights.back(), values);
      return;
    }
    std::vector<uint16_t> narrow;
    for (float& value : values) {
      narrow.push_back(to_bf16_bits(value));
      value = from_bf16_bits(narrow.back());
    }
    bound_.weights.back() = odd(stored(t), 2);
    upload(bound_.weights.back(), narrow);
    if (plan_.options.master == MasterForm::kRemainder) {
      bound_.masters.back() = odd(stored(t), 2);
      upload(bound_.masters.back(), std::vector<uint16_t>(values.size()));
      return;
    }
    bound_.masters.back() = odd(stored(t), 4);
    upload(bound_.masters.back(), values);
  }

  template <class T>
  void upload(std::byte* to, const std::vector<T>& values) {
    engine_->upload(to, reinterpret_cast<const std::byte*>(values.data()),
                    static_cast<int64_t>(values.size() * sizeof(T)));
  }

  void upload_gradient(int32_t t, int64_t step) {
    std::vector<float> values(index(stored(t)));
    for_each_stored(
        plan_.tensors[index(t)], world_.rank(), [&](int64_t whole, int64_t at) {
          values[index(at)] = caller_gradient(trial_, t, step, whole);
        });
    if (!trial_.bf16_gradients)
      return upload(gradients_[index(t)].data, values);
    std::vector<uint16_t> narrow;
    for (const float value : values) narrow.push_back(to_bf16_bits(value));
    upload(gradients_[index(t)].data, narrow);
  }

  void synchronize() {
    ++num_waits_;
    engine_->synchronize();
  }

  void reduce(Reduction reduction, int64_t first, int64_t count) {
    if (world_.size() == 1) return;
    synchronize();
    all_->all_reduce(reduction,
                     {reinterpret_cast<std::byte*>(bound_.numbers + first),
                      index(count * 8)});
  }

  // Waits for the engine first, so that the collective is complete on return.
  void carry_out(const ScheduleEntry& e) {
    synchronize();
    const int64_t size = plan_.options.wire == DType::kBf16 ? 2 : 4;
    Communicator& group = *groups_[index(e.ranks_of)];
    std::byte* slot =
        bound_.slots + step_->schedule().rounds[index(e.round)].slot_at * size;
    if (e.kind != EntryKind::kBroadcast) return exchange_in(slot, e);
    const auto& ranks = step_->schedule().groups[index(e.ranks_of)];
    const auto root = std::ranges::lower_bound(ranks, e.root);
    group.broadcast(static_cast<int>(root - ranks.begin()),
                    {slot + e.all.first * size, index(e.all.count * size)},
                    {.label = e.label});
  }
  void exchange(int32_t number, const ScheduleEntry& e) {
    if (!step_->needs(number, numbers_[index(e.tensors[0])])) return;
    synchronize();
    exchange_in(bound_.rooms, e);
  }
  void exchange_in(std::byte* memory, const ScheduleEntry& e) {
    const ExchangeTable& moved = e.exchange;
    const auto area = [&](const Extent& extent) {
      return std::span(memory + extent.first, index(extent.count));
    };
    groups_[index(e.ranks_of)]->all_to_all_v(
        {area(moved.source), moved.send_bytes, moved.send_offsets},
        {area(moved.target), moved.receive_bytes, moved.receive_offsets},
        {.label = e.label});
  }

  std::vector<float> stored_weights(int32_t t) {
    if (plan_.tensors[index(t)].dtype == DType::kFp32)
      return memory_->get<float>(bound_.weights[index(t)], stored(t));
    std::vector<float> wide;
    for (const uint16_t value :
         memory_->get<uint16_t>(bound_.weights[index(t)], stored(t)))
      wide.push_back(from_bf16_bits(value));
    return wide;
  }

  // Puts the part of a state that one rank of several has into the whole.
  static void put_part(const ScheduledState& state,
                       const std::vector<uint32_t>& part,
                       std::vector<uint32_t>& whole) {
    const std::vector<int64_t>& shape = state.in_matrix.shape;
    whole.resize(index(num_elements(shape)));
    std::vector<int64_t> place(shape.size(), 0);
    for (const uint32_t value : part) {
      int64_t at = 0;
      for (size_t d = 0; d < shape.size(); ++d)
        at = at * shape[d] + state.in_matrix.first[d] + place[d];
      whole.at(index(at)) = value;
      for (size_t d = place.size(); d-- > 0;) {
        if (++place[d] < state.shape[d]) break;
        place[d] = 0;
      }
    }
  }

  // Replicas must agree. With `state`, only elements that it lists as kept.
  void put(CallerResult& result, std::mutex& mutex, const std::string& name,
           int32_t t, const std::vector<float>& values,
           const ScheduledState* state) {
    const CutTensor& tensor = plan_.tensors[index(t)];
    const std::vector<uint32_t> bits = bits_of(values);
    const std::lock_guard lock(mutex);
    std::vector<uint32_t>& whole = result.values[name];
    constexpr uint32_t kNobody = 0xFFC0DEAD;
    if (whole.empty()) whole.assign(index(num_elements(tensor.shape)), kNobody);
    for_each_stored(tensor, world_.rank(), [&](int64_t place, int64_t at) {
      if (state != nullptr &&
          std::ranges::none_of(state->kept, [&](const Extent& kept) {
            return kept.contains(at);
          }))
        return;
      uint32_t& there = whole[index(place)];
      if (there != kNobody) {
        EXPECT_EQ(there, bits[index(at)]) << name << ", element " << place;
      }
      there = bits[index(at)];
    });
  }

  const CallerTrial& trial_;
  const StoragePlan& plan_;
  Communicator& world_;
  std::unique_ptr<Lanes> lanes_;
  std::unique_ptr<Engine> alone_, beside_;
  Engine* engine_ = nullptr;
  std::unique_ptr<EngineMemory> memory_;
  std::unique_ptr<CallerStep> step_;
  std::vector<std::unique_ptr<Communicator>> groups_;
  std::unique_ptr<Communicator> all_;
  CallerMemory bound_;
  std::vector<std::vector<std::byte*>> places_;  // of gradients, by tensor
  std::vector<CallerGradient> gradients_;
  std::vector<int64_t> numbers_, missed_;
  int64_t num_waits_ = 0;
};

inline CallerResult run_caller(const CallerTrial& trial) {
  CallerResult result;
  std::mutex mutex;
  run_ranks(trial.plan.world, [&](Communicator& world) {
    CallerDriver driver(trial, world);
    const std::vector<double> rates(trial.plan.groups.size(), trial.rate);
    for (int64_t step = 1; step <= trial.steps; ++step) {
      driver.make_gradients(step);
      world.barrier();
      if (world.rank() == 0 && trial.before_step) trial.before_step(step);
      world.barrier();
      driver.issue(rates);
      world.barrier();
      if (world.rank() == 0 && trial.after_step) trial.after_step(step);
      world.barrier();
      if (world.rank() == 0) result.outcomes.push_back(driver.step().outcome());
    }
    driver.collect(result, mutex);
  });
  return result;
}

// The same by Optimizers on whole matrices, each an independent tensor.
// Requires phases of 0, gradients for all tensors, and no clipping.
inline CallerResult reference(const CallerTrial& trial) {
  CallerResult result;
  const StoragePlan& plan = trial.plan;
  const auto engine = make_cpu_engine();
  EngineMemory memory(*engine);
  std::vector<Run> weights, grads;
  for (int32_t t = 0; t < std::ssize(plan.tensors); ++t) {
    std::vector<float> values(
        index(num_elements(plan.tensors[index(t)].shape)));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = caller_weight(t, static_cast<int64_t>(i));
      if (plan.tensors[index(t)].dtype == DType::kBf16)
        values[i] = from_bf16_bits(to_bf16_bits(values[i]));
    }
    weights.push_back(memory.put(values));
    grads.push_back(memory.put(values));
  }
  const auto at = [](Run run, int64_t elements) {
    return Run{run.data + elements * 4, run.dtype};
  };
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (int32_t g = 0; g < std::ssize(plan.groups); ++g) {
    std::vector<Optimizer::Tensor> tensors;
    std::vector<int32_t> of;
    const auto add = [&](int32_t t, const std::string& name, Dims dims,
                         int64_t first) {
      tensors.push_back({name, std::move(dims), at(weights[index(t)], first),
                         at(grads[index(t)], first)});
      of.push_back(t);
    };
    for (int32_t t = 0; t < std::ssize(plan.tensors); ++t) {
      const CutTensor& tensor = plan.tensors[index(t)];
      if (tensor.group != g) continue;
      if (plan.first_matrix[index(t)] == plan.first_matrix[index(t) + 1])
        add(t, tensor.name, {1, num_elements(tensor.shape)}, 0);
      for (int32_t m = plan.first_matrix[index(t)];
           m < plan.first_matrix[index(t) + 1]; ++m) {
        const OwnedMatrix& matrix = plan.matrices[index(m)];
        const int64_t rows = tensor.shape[tensor.shape.size() - 2];
        add(t, cat(tensor.name, " ", matrix.number, " ", matrix.first_row),
            {matrix.rows, matrix.cols},
            (matrix.number * rows + matrix.first_row) * matrix.cols);
      }
    }
    optimizers.push_back(
        tensors.empty()
            ? nullptr
            : std::make_unique<Optimizer>(
                  make_rule(plan.groups[index(g)].rule,
                            plan.groups[index(g)].options, DType::kFp32),
                  tensors, std::vector<Engine*>{engine.get()}));
  }
  for (int64_t step = 1; step <= trial.steps; ++step) {
    for (int32_t t = 0; t < std::ssize(plan.tensors); ++t) {
      std::vector<float> values(
          index(num_elements(plan.tensors[index(t)].shape)));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = caller_gradient(trial, t, step, static_cast<int64_t>(i));
      memory.set(grads[index(t)], values);
    }
    for (const auto& optimizer : optimizers)
      if (optimizer) optimizer->step(trial.rate);
  }
  for (int32_t t = 0; t < std::ssize(plan.tensors); ++t) {
    const CutTensor& tensor = plan.tensors[index(t)];
    std::vector<float> values =
        memory.get<float>(weights[index(t)].data, num_elements(tensor.shape));
    if (tensor.dtype == DType::kBf16) {
      result.values[cat("master of ", tensor.name)] = bits_of(values);
      for (float& value : values) value = from_bf16_bits(to_bf16_bits(value));
    }
    result.values[tensor.name] = bits_of(values);
  }
  std::vector<size_t> next(plan.groups.size(), 0);
  for (int32_t t = 0; t < std::ssize(plan.tensors); ++t) {
    const CutTensor& tensor = plan.tensors[index(t)];
    const size_t g = index(tensor.group);
    const int32_t first = plan.first_matrix[index(t)];
    const int32_t end = plan.first_matrix[index(t) + 1];
    for (int32_t m = first; m < std::max(end, first + 1); ++m) {
      const TensorStates& states = optimizers[g]->states(next[g]++);
      for (size_t s = 0; s < states.facts.size(); ++s) {
        const std::vector<uint32_t> bits = bits_of(
            memory.get<float>(states.runs[s].data, states.facts[s].elements()));
        std::string name = cat(states.facts[s].name, " of ", tensor.name);
        if (states.facts[s].lives == Lives::kWithOwner) {
          const OwnedMatrix& it = plan.matrices[index(m)];
          name += cat(" ", it.number, " ", it.first_row);
        }
        std::vector<uint32_t>& all = result.values[name];
        all.insert(all.end(), bits.begin(), bits.end());
      }
    }
  }
  return result;
}

// The names that differ, for messages.
inline std::string difference(const CallerResult& a, const CallerResult& b) {
  std::string text;
  for (const auto& [name, values] : a.values) {
    const auto other = b.values.find(name);
    if (other == b.values.end())
      text += cat(name, " is missing; ");
    else if (other->second != values)
      text += cat(name, " differs; ");
  }
  for (const auto& [name, values] : b.values)
    if (!a.values.contains(name)) text += cat(name, " is new; ");
  return text;
}

}  // namespace canzona::runtime
