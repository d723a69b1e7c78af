#include "canzona/sim/issuer.h"

#include <algorithm>
#include <utility>

#include "canzona/base/check.h"

namespace canzona {

void Issuer::start(const Transfer& transfer, std::function<void()> done) {
  CANZONA_CHECK(!is_busy_, "an operation while one is under way");
  is_busy_ = true;
  done_ = std::move(done);
  part_ = ports_.part_of(transfer);
  copies_ = copy_seconds(transfer, copy_bytes_per_second_);
  num_to_post_ = transfer.parts;
  work(copies_.pack, &Issuer::begin_part);
}

void Issuer::work(double seconds, void (Issuer::*then)()) {
  if (seconds == 0) return (this->*then)();
  processor_.copy(seconds, [this, then] { (this->*then)(); });
}

void Issuer::post() {
  --num_to_post_;
  arrival_ = ports_.book(part_, events_.now());
}

void Issuer::begin_part() {
  post();
  work(copies_.on_wire, &Issuer::await);
}

void Issuer::await() {
  events_.at(std::max(arrival_, events_.now()), [this] { meet(); });
}

void Issuer::meet() {
  const double seconds =
      processor_.is_busy() ? meetings_.beside_compute : meetings_.idle;
  if (seconds == 0) return arrived();
  events_.at(events_.now() + seconds, [this] { arrived(); });
}

void Issuer::arrived() {
  if (num_to_post_ == 0) return work(copies_.arrived, &Issuer::finish);
  post();
  work(copies_.arrived + copies_.on_wire, &Issuer::await);
}

void Issuer::finish() {
  is_busy_ = false;
  const auto done = std::exchange(done_, nullptr);
  done();
}

}  // namespace canzona
