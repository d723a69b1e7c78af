#include "canzona/measure/planned_bytes.h"

#include <algorithm>
#include <map>
#include <span>

#include "canzona/plan/schedule/entries.h"

namespace canzona::measure {
namespace {

double port_seconds(const WireBytes& bytes, const LinkModel& link) {
  const auto most = [](int64_t a, int64_t b) {
    return static_cast<double>(std::max(a, b));
  };
  return std::max(most(bytes.sent_intra, bytes.received_intra) /
                      link.intra_bytes_per_second,
                  most(bytes.sent_inter, bytes.received_inter) /
                      link.inter_bytes_per_second);
}

double slowest_port(const std::vector<WireBytes>& ranks,
                    const LinkModel& link) {
  double most = 0;
  for (const WireBytes& rank : ranks)
    most = std::max(most, port_seconds(rank, link));
  return most;
}

// Calls visit(bytes) for every entry of a rank between these calls.
template <class Visit>
void visit_bytes(const Plan& plan, int32_t rank,
                 std::span<const TrainerCall> calls, DType wire, Visit visit) {
  std::map<int32_t, int32_t> rank_in;  // by part
  for (const RankInPart& at : parts_of_rank(plan, rank))
    rank_in[at.part] = at.rank;
  for (const ScheduleEntry& entry : iteration_of(plan, rank, calls))
    visit(wire_bytes_of(plan.parts[static_cast<size_t>(entry.part)],
                        rank_in[entry.part], entry, size_of(wire)));
}

}  // namespace

int64_t PlannedBytes::most_sent() const {
  int64_t most = 0;
  for (const WireBytes& rank : ranks) most = std::max(most, rank.sent());
  return most;
}

int64_t PlannedBytes::most_slow() const {
  int64_t most = 0;
  for (const WireBytes& rank : ranks) most = std::max(most, rank.sent_inter);
  return most;
}

double PlannedBytes::seconds(const LinkModel& link) const {
  return slowest_port(ranks, link);
}

PlannedBytes planned_bytes(const Plan& plan, DType wire,
                           const CallsOfStage& calls_of_stage) {
  PlannedBytes out;
  for (int32_t rank = 0; rank < plan.mesh.world(); ++rank) {
    const std::vector<TrainerCall> calls =
        calls_of_stage(coordinates_of(plan.mesh, rank).stage);
    WireBytes& sum = out.ranks.emplace_back();
    visit_bytes(plan, rank, calls, wire,
                [&](const WireBytes& bytes) { sum += bytes; });
  }
  return out;
}

PlannedBytes planned_bytes(const Plan& plan, DType wire,
                           int64_t num_micro_batches) {
  return planned_bytes(plan, wire, [&](int32_t stage) {
    return usual_calls(plan, stage, num_micro_batches);
  });
}

}  // namespace canzona::measure
