#include "canzona/comm/flight_record.h"

#include <utility>

#include "canzona/base/json_writer.h"

namespace canzona {
namespace {

std::string_view to_string(FlightRecord::State state) {
  switch (state) {
    case FlightRecord::State::kPosted:
      return "posted";
    case FlightRecord::State::kDone:
      return "done";
    case FlightRecord::State::kFailed:
      break;
  }
  return "failed";
}

}  // namespace

FlightRecord::FlightRecord(int rank, int capacity, Clock clock)
    : rank_(rank),
      clock_(std::move(clock)),
      entries_(static_cast<size_t>(std::max(capacity, 1))) {}

int64_t FlightRecord::begin(std::string_view group, Operation operation,
                            int64_t sequence, const Label& label) {
  const int64_t began = now();
  std::lock_guard lock(mutex_);
  const int64_t number = next_++;
  entry(number) = {.number = number,
                   .group = Label(group),
                   .operation = operation,
                   .sequence = sequence,
                   .label = label,
                   .began = began};
  return number;
}

void FlightRecord::end(int64_t number, State state, int64_t sent) {
  const int64_t ended = now();
  std::lock_guard lock(mutex_);
  Entry& ending = entry(number);
  // Other groups may have overwritten the entry meanwhile.
  if (ending.number != number) return;
  ending.state = state;
  ending.sent = sent;
  ending.ended = ended;
}

void FlightRecord::write(std::ostream& out) const {
  std::lock_guard lock(mutex_);
  const auto capacity = static_cast<int64_t>(entries_.size());
  for (int64_t i = std::max<int64_t>(0, next_ - capacity); i < next_; ++i)
    write_entry(out, entries_[static_cast<size_t>(i % capacity)]);
}

void FlightRecord::write_entry(std::ostream& out, const Entry& entry) const {
  JsonWriter json;
  json.begin_object()
      .field("rank", rank_)
      .field("group", entry.group.view())
      .field("operation", canzona::to_string(entry.operation))
      .field("sequence", entry.sequence)
      .field("label", entry.label.view())
      .field("state", to_string(entry.state))
      .field("sent", entry.sent)
      .field("began_ns", entry.began)
      .field("ended_ns", entry.ended)
      .end_object();
  out << json.text() << '\n';
}

void FlightRecord::note_error(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (error_ != nullptr) return;
  error_ = error;
  failed_thread_ = std::this_thread::get_id();
}

void FlightRecord::rethrow_of_other_thread() const {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    if (failed_thread_ != std::this_thread::get_id()) error = error_;
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace canzona
