#include "canzona/plan/predict/home_step.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/plan/schedule/team_table.h"

namespace canzona {

HomeMatrix home_matrix(const SettledRequest& request, const Mesh& grid,
                       size_t matrix, int32_t round) {
  const Matrix& m = request.matrices[matrix];
  const Tensor& tensor = request.model.tensors[index(m.tensor)];
  return {.cost = request.costs[matrix],
          .phase = request.phase[matrix],
          .round = round,
          .bytes = m.rows * m.cols * kBytesPerFp32,
          .pieces = tensor.cut == Cut::kNone ? grid.places : grid.tp};
}

HomeTerms home_terms(const CostBasis& basis, const Links& links, bool near) {
  return {basis.seconds_per_tick,
          near ? links.intra_bytes_per_second : links.inter_bytes_per_second,
          links.latency_seconds};
}

HomeRounds::HomeRounds(int32_t ranks, int32_t phases)
    : phases_(index(phases)), ranks_(index(ranks)) {}

void HomeRounds::add(const HomeMatrix& matrix, std::span<const int32_t> owners,
                     const TeamSize& team) {
  const size_t round = index(matrix.round);
  num_rounds_ = std::max(num_rounds_, round + 1);
  if (owners.empty()) {
    for (int32_t t = 0; t < std::ssize(ranks_); ++t)
      add_share(t, matrix, team.member, true, 1);
    return;
  }
  for (size_t i = 0; i < owners.size(); ++i)
    add_share(owners[i], matrix, team_ticks(team, static_cast<int32_t>(i)),
              false, std::ssize(owners));
  if (team.size == 1) return;
  if (paths_.size() <= round) paths_.resize(round + 1, 0);
  paths_[round] = std::max(paths_[round], team.path);
}

void HomeRounds::add_share(int32_t t, const HomeMatrix& matrix, int64_t ticks,
                           bool repeated, int64_t members) {
  Rank& rank = ranks_[index(t)];
  const size_t round = index(matrix.round);
  if (rank.loads.size() <= round) {
    rank.loads.resize(round + 1);
    rank.refresh.resize((round + 1) * phases_, 0);
  }
  Load& load = rank.loads[round];
  load.every_step += ticks;
  rank.refresh[round * phases_ + index(matrix.phase)] +=
      matrix.cost.refresh.value();
  // The owner's port is the narrow place: it takes all shards and sends all
  // updates but its own. A member of a team has its share of both.
  const int64_t own = matrix.bytes / matrix.pieces;
  load.gathered += (matrix.bytes - own) / members;
  if (!repeated) load.scattered += own * (std::ssize(ranks_) - 1) / members;
}

int64_t HomeRounds::refresh(const Rank& rank, size_t round,
                            int32_t phase) const {
  return phase < 0 ? 0 : rank.refresh[round * phases_ + index(phase)];
}

double HomeRounds::seconds(const HomeTerms& terms, int32_t phase) const {
  const auto wire_seconds = [&](int64_t bytes) {
    if (bytes == 0 || ranks_.size() == 1) return 0.0;
    return terms.latency_seconds +
           static_cast<double>(bytes) / terms.bytes_per_second;
  };
  double gathered = 0, transformed = 0, scattered = 0;
  for (size_t round = 0; round < num_rounds_; ++round) {
    int64_t in = 0, out = 0;
    int64_t ticks = round < paths_.size() ? paths_[round] : 0;
    for (const Rank& rank : ranks_) {
      if (round >= rank.loads.size()) continue;
      const Load& load = rank.loads[round];
      in = std::max(in, load.gathered);
      out = std::max(out, load.scattered);
      ticks = std::max(ticks, load.every_step + refresh(rank, round, phase));
    }
    gathered += wire_seconds(in);
    transformed = std::max(transformed, gathered) +
                  static_cast<double>(ticks) * terms.seconds_per_tick;
    scattered = std::max(scattered, transformed) + wire_seconds(out);
  }
  return scattered;
}

}  // namespace canzona
