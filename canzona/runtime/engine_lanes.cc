#include "canzona/runtime/engine_lanes.h"

#include <array>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/base/error.h"

namespace canzona::runtime {
namespace {

template <class T>
T* as(std::byte* data) {
  return reinterpret_cast<T*>(data);
}
template <class T>
const T* as(const std::byte* data) {
  return reinterpret_cast<const T*>(data);
}

}  // namespace

void EngineWireOps::add(Reduction reduction, std::byte* sum, const std::byte* a,
                        const std::byte* b, int64_t count) const {
  switch (reduction) {
    case Reduction::kFp32Sum:
    case Reduction::kFp32SumOfBf16:
      return memory_.add_fp32(as<float>(sum), as<float>(a), as<float>(b),
                              count);
    case Reduction::kInt64Sum:
      return memory_.add_int64(as<int64_t>(sum), as<int64_t>(a), as<int64_t>(b),
                               count);
    case Reduction::kInt64Max:
      return memory_.max_int64(as<int64_t>(sum), as<int64_t>(a), as<int64_t>(b),
                               count);
  }
}

void EngineWireOps::narrow(Reduction reduction, std::byte* wire,
                           const std::byte* from, int64_t count) const {
  CANZONA_CHECK(is_narrowed(reduction), to_string(reduction));
  memory_.to_bf16(as<uint16_t>(wire), as<float>(from), count);
}

void EngineWireOps::widen(Reduction reduction, std::byte* to,
                          const std::byte* wire, int64_t count) const {
  CANZONA_CHECK(is_narrowed(reduction), to_string(reduction));
  memory_.from_bf16(as<float>(to), as<uint16_t>(wire), count);
}

// Passes the pieces as pointers to their elements' type.
bool EngineWireOps::sum_at_once(Reduction reduction,
                                std::span<const std::byte* const> pieces,
                                int64_t count, std::byte* sum) const {
  constexpr size_t kMost = 64;
  const auto add = [&]<class T>(std::array<const T*, kMost>& typed) {
    for (size_t i = 0; i < pieces.size(); ++i) typed[i] = as<T>(pieces[i]);
    return memory_.add_tree(
        as<float>(sum), std::span<const T* const>(typed).first(pieces.size()),
        count);
  };
  if (pieces.size() > kMost) return false;
  std::array<const float*, kMost> wide{};
  std::array<const uint16_t*, kMost> narrow{};
  if (reduction == Reduction::kFp32Sum) return add(wide);
  return reduction == Reduction::kFp32SumOfBf16 && add(narrow);
}

bool EngineWireOps::sums_in_place(Reduction reduction, int num_pieces) const {
  return memory_.most_tree_pieces() > 0 &&
         (element_bytes(reduction) != 4 ||
          num_pieces <= memory_.most_tree_pieces());
}

// Integers may be added in any order; a piece already at the place of the sum
// comes first.
void EngineWireOps::join_in_place(Reduction reduction,
                                  std::span<const std::byte* const> pieces,
                                  int64_t count, std::byte* sum) const {
  size_t first = 0;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i] == sum) first = i;
  if (pieces[first] != sum)
    memory_.copy(sum, pieces[first], count * element_bytes(reduction));
  for (size_t i = 0; i < pieces.size(); ++i)
    if (i != first) add(reduction, sum, sum, pieces[i], count);
}

void EngineWireOps::sum_in_place(Reduction reduction,
                                 std::span<const std::byte* const> pieces,
                                 int64_t count, std::byte* sum) const {
  if (element_bytes(reduction) != 4)
    return join_in_place(reduction, pieces, count, sum);
  constexpr size_t kMost = 64;
  CANZONA_CHECK(pieces.size() <= kMost, "a sum of ", pieces.size(), " pieces");
  std::array<const float*, kMost> wide{};
  for (size_t i = 0; i < pieces.size(); ++i) wide[i] = as<float>(pieces[i]);
  const auto all = std::span<const float* const>(wide).first(pieces.size());
  const bool added = is_narrowed(reduction)
                         ? memory_.add_rounded_tree(as<float>(sum), all, count)
                         : memory_.add_tree(as<float>(sum), all, count);
  CANZONA_CHECK(added, "no sum of ", pieces.size(), " pieces at once");
}

namespace {

class EngineMark final : public Mark {
 public:
  explicit EngineMark(std::unique_ptr<Event> event)
      : event_(std::move(event)) {}
  bool reached() const override { return event_->reached(); }
  void wait() const override { event_->wait(); }
  Event& event() const { return *event_; }

 private:
  std::unique_ptr<Event> event_;
};

Event& event_of(const Mark& mark) {
  return static_cast<const EngineMark&>(mark).event();
}

}  // namespace

std::unique_ptr<Mark> EngineLane::make_mark() const {
  return std::make_unique<EngineMark>(lane_->make_event());
}
void EngineLane::record(Mark& mark) { lane_->record_in(event_of(mark)); }
void EngineLane::wait_for(const Mark& mark) {
  lane_->wait_until(event_of(mark));
}

const WireOps& ComputeLane::ops() const {
  throw InternalError("collectives are not issued to an engine");
}
std::unique_ptr<Mark> ComputeLane::make_mark() const {
  return std::make_unique<EngineMark>(engine_.make_event());
}
void ComputeLane::record(Mark& mark) { engine_.record_in(event_of(mark)); }
void ComputeLane::wait_for(const Mark& mark) {
  engine_.wait_until(event_of(mark));
}

LaneTimes::LaneTimes(Engine& engine, const std::function<int64_t()>& now)
    : engine_(engine), origin_(engine.make_timed_event()) {
  engine_.synchronize();
  engine_.record_in(*origin_);
  engine_.synchronize();
  host_ = now();
}

int64_t LaneTimes::time_of(const Event& event) const {
  return host_ + std::llround(event.seconds_after(*origin_) * 1e9);
}

int64_t LaneClock::stamp() {
  int64_t number = std::ssize(events_);
  if (!unused_.empty()) {
    number = unused_.back();
    unused_.pop_back();
  } else if (number == kMost) {
    return kMost - 1;
  } else {
    events_.push_back(times_.make_event());
  }
  record_(*events_[static_cast<size_t>(number)]);
  return number;
}

bool LaneClock::is_passed(int64_t stamp) const {
  return events_[static_cast<size_t>(stamp)]->reached();
}

int64_t LaneClock::time_of(int64_t stamp) {
  return times_.time_of(*events_[static_cast<size_t>(stamp)]);
}

}  // namespace canzona::runtime
