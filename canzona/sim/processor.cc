#include "canzona/sim/processor.h"

#include <algorithm>
#include <utility>

#include "canzona/base/check.h"

namespace canzona {

void Processor::start(double seconds, std::function<void()> done) {
  CANZONA_CHECK(!is_busy_, "work while there is work");
  is_busy_ = true;
  add({seconds, [this, done = std::move(done)] {
         is_busy_ = false;
         done();
       }});
}

void Processor::copy(double seconds, std::function<void()> done) {
  add({seconds, std::move(done)});
}

double Processor::speed() const {
  const auto others = static_cast<double>(jobs_.size()) - 1;
  return 1 / (1 + slowdown_ * std::max(0.0, others));
}

void Processor::add(Job job) {
  advance();
  jobs_.push_back(std::move(job));
  schedule();
}

void Processor::advance() {
  const double worked = (events_.now() - since_) * speed();
  for (Job& job : jobs_) job.left = std::max(0.0, job.left - worked);
  since_ = events_.now();
}

void Processor::schedule() {
  const int64_t number = ++number_;
  if (jobs_.empty()) return;
  const double least = std::ranges::min_element(jobs_, {}, &Job::left)->left;
  events_.at(since_ + least / speed(), [this, number] {
    if (number == number_) finish_shortest();
  });
}

// Finishes the first of equals; the others end in their turn, at the same time.
void Processor::finish_shortest() {
  advance();
  const auto shortest = std::ranges::min_element(jobs_, {}, &Job::left);
  const auto done = std::move(shortest->done);
  jobs_.erase(shortest);
  schedule();
  done();
}

}  // namespace canzona
