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
  part_copy_ = copy_seconds(transfer, copy_bytes_per_second_) /
               static_cast<double>(transfer.parts);
  num_to_post_ = num_to_copy_ = transfer.parts;
  post();
  events_.at(arrival_, [this] { arrived(); });
}

void Issuer::post() {
  --num_to_post_;
  arrival_ = ports_.book(part_, events_.now());
}

void Issuer::arrived() {
  if (num_to_post_ > 0) post();
  if (part_copy_ == 0) return copied();
  processor_.copying(+1);
  events_.at(events_.now() + part_copy_, [this] {
    processor_.copying(-1);
    copied();
  });
}

void Issuer::copied() {
  if (--num_to_copy_ > 0) {
    events_.at(std::max(arrival_, events_.now()), [this] { arrived(); });
    return;
  }
  is_busy_ = false;
  const auto done = std::exchange(done_, nullptr);
  done();
}

}  // namespace canzona
