// Communicator::run(), for the communicator's own sources.
#pragma once

#include "canzona/base/error.h"
#include "canzona/comm/communicator.h"

namespace canzona {

template <class Body>
void Communicator::run(const Announcement& announcement, const Call& call,
                       Body body) {
  const Label label(call.label);
  const int64_t sequence = ++sequence_;
  const int64_t number =
      flight_->begin(name(), announcement.operation, sequence, label);
  try {
    exchange_.begin(
        announcement.operation, sequence, label,
        call.deadline.count() > 0 ? call.deadline : options_.deadline);
    if (check_.enabled())
      check_.compare(exchange_, announcement, sequence, label);
    body();
    exchange_.end();
  } catch (const PeerLost&) {
    fail(number);
    flight_->rethrow_of_other_thread();
    throw;
  } catch (...) {
    fail(number);
    throw;
  }
  traffic_.count(announcement.operation, exchange_.sent());
  flight_->end(number, FlightRecord::State::kDone, exchange_.sent().all);
}

}  // namespace canzona
