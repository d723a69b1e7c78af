#include "canzona/sim/ports.h"

#include <algorithm>

namespace canzona {

PortSeconds Ports::part_of(const Transfer& transfer) const {
  PortSeconds seconds = port_seconds(transfer, links_);
  for (double& s : seconds) s /= static_cast<double>(transfer.parts);
  return seconds;
}

double Ports::book(const PortSeconds& part, double now) {
  double arrival = now;
  for (size_t p = 0; p < part.size(); ++p) {
    if (!(part[p] > 0)) continue;
    const double begin = std::max(now, free_[p]);
    free_[p] = begin + part[p];
    stretches_.push_back({begin, free_[p], static_cast<int>(p)});
    arrival = std::max(arrival, free_[p]);
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
