#include "canzona/sim/ports.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::sim {

Transfer both(const Transfer& a, const Transfer& b) {
  Transfer out = a;
  out.bytes += b.bytes;
  out.messages_intra += b.messages_intra;
  out.messages_inter += b.messages_inter;
  out.packed_bytes += b.packed_bytes;
  out.copied_bytes += b.copied_bytes;
  out.parts = std::max(a.parts, b.parts);
  out.far_scale = std::max(a.far_scale, b.far_scale);
  out.added_latency_seconds =
      std::max(a.added_latency_seconds, b.added_latency_seconds);
  return out;
}

Transfer slower(const Transfer& a, const Transfer& b) {
  Transfer out;
  out.bytes = largest(a.bytes, b.bytes);
  out.messages_intra = std::max(a.messages_intra, b.messages_intra);
  out.messages_inter = std::max(a.messages_inter, b.messages_inter);
  out.packed_bytes = std::max(a.packed_bytes, b.packed_bytes);
  out.copied_bytes = std::max(a.copied_bytes, b.copied_bytes);
  out.parts = std::max(a.parts, b.parts);
  out.far_scale = std::max(a.far_scale, b.far_scale);
  out.added_latency_seconds =
      std::max(a.added_latency_seconds, b.added_latency_seconds);
  return out;
}

Legs both(const Legs& a, const Legs& b) {
  return {both(a.first, b.first), both(a.second, b.second)};
}

Legs slower(const Legs& a, const Legs& b) {
  return {slower(a.first, b.first), slower(a.second, b.second)};
}

PortSeconds port_seconds(const Transfer& transfer, const Links& links) {
  const auto intra = [&](int64_t bytes) {
    return bytes == 0
               ? 0.0
               : links.port_seconds(true, bytes, transfer.messages_intra);
  };
  const auto inter = [&](int64_t bytes) {
    return bytes == 0 ? 0.0
                      : links.port_seconds(false, 0, transfer.messages_inter) +
                            transfer.far_scale * static_cast<double>(bytes) /
                                links.inter_bytes_per_second;
  };
  const WireBytes& bytes = transfer.bytes;
  return {intra(bytes.sent_intra), intra(bytes.received_intra),
          inter(bytes.sent_inter), inter(bytes.received_inter)};
}

PartSeconds part_seconds(const Transfer& transfer, const Links& links) {
  const WireBytes& bytes = transfer.bytes;
  const std::array<int64_t, kNumPorts> on_port{
      bytes.sent_intra, bytes.received_intra, bytes.sent_inter,
      bytes.received_inter};
  PartSeconds part{.held = port_seconds(transfer, links)};
  for (size_t p = 0; p < on_port.size(); ++p) {
    part.held[p] /= static_cast<double>(transfer.parts);
    if (on_port[p] > 0)
      part.latency[p] =
          links.latency(p < kNumPorts / 2) + transfer.added_latency_seconds;
  }
  return part;
}

CopySeconds copy_seconds(const Transfer& transfer,
                         double copy_bytes_per_second) {
  if (!(copy_bytes_per_second > 0)) return {};
  const auto seconds = [&](int64_t bytes, int64_t parts) {
    return static_cast<double>(bytes) /
           (static_cast<double>(parts) * copy_bytes_per_second);
  };
  return {seconds(transfer.packed_bytes, 1),
          seconds(transfer.bytes.received(), transfer.parts),
          seconds(transfer.copied_bytes, transfer.parts)};
}

double seconds_alone(const Transfer& transfer, const Links& links,
                     double copy_bytes_per_second) {
  const auto parts = static_cast<double>(transfer.parts);
  const PartSeconds part = part_seconds(transfer, links);
  double wire = 0;
  for (size_t p = 0; p < part.held.size(); ++p)
    wire = std::max(wire, part.held[p] + part.latency[p]);
  const CopySeconds copy = copy_seconds(transfer, copy_bytes_per_second);
  return copy.pack + std::max(wire, copy.on_wire) +
         (parts - 1) * std::max(wire, copy.arrived + copy.on_wire) +
         copy.arrived;
}

double seconds_alone(const Legs& legs, const Links& links,
                     double copy_bytes_per_second) {
  return seconds_alone(legs.first, links, copy_bytes_per_second) +
         seconds_alone(legs.second, links, copy_bytes_per_second);
}

void check_transfer(const Transfer& transfer) {
  const WireBytes& bytes = transfer.bytes;
  const int64_t least = std::min(
      {bytes.sent_intra, bytes.sent_inter, bytes.received_intra,
       bytes.received_inter, transfer.messages_intra, transfer.messages_inter,
       transfer.packed_bytes, transfer.copied_bytes});
  if (least < 0)
    throw UsageError(cat("a transfer counts bytes and messages, got ", least));
  if (transfer.parts < 1)
    throw UsageError(
        cat("a transfer has at least one part, got ", transfer.parts));
  if (!(transfer.far_scale > 0) || !(transfer.added_latency_seconds >= 0))
    throw UsageError(
        cat("a transfer is scaled by more than 0 and delayed by 0 "
            "or more, got ",
            transfer.far_scale, " and ", transfer.added_latency_seconds));
}

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

}  // namespace canzona::sim
