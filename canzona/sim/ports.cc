#include "canzona/sim/ports.h"

#include <algorithm>

namespace canzona {

double Ports::book(const PartSeconds& part, double now) {
  double arrival = now;
  for (size_t p = 0; p < part.held.size(); ++p) {
    if (!(part.held[p] > 0)) {
      arrival = std::max(arrival, now + part.latency[p]);
      continue;
    }
    const double begin = std::max(now, free_[p]);
    free_[p] = begin + part.held[p];
    stretches_.push_back({begin, free_[p], static_cast<int>(p)});
    arrival = std::max(arrival, free_[p] + part.latency[p]);
  }
  return arrival;
}

double Ports::busy(Which which, double begin, double end) const {
  std::vector<Stretch> chosen;
  for (const Stretch& s : stretches_) {
    const bool intra = s.port < kNumPorts / 2;
    if (which == Which::kAny || (which == Which::kIntra) == intra)
      chosen.push_back({std::max(s.begin, begin), std::min(s.end, end), 0});
  }
  std::ranges::sort(chosen, {}, &Stretch::begin);
  double sum = 0, covered = begin;
  for (const Stretch& s : chosen) {
    if (s.end <= std::max(s.begin, covered)) continue;
    sum += s.end - std::max(s.begin, covered);
    covered = s.end;
  }
  return sum;
}

void Ports::forget_before(double time) {
  std::erase_if(stretches_, [&](const Stretch& s) { return s.end <= time; });
}

}  // namespace canzona
