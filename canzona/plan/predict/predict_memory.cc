#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/rank_costs.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_layout.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona::plan {

// Passes over memory that are not part of a matrix's cost.

namespace {

// Bytes read and written for an element, all in fp32.
constexpr int64_t kGradient = 2 * kBytesPerFp32;  // scaled and checked
constexpr int64_t kAdamw = 7 * kBytesPerFp32;  // gradient; moments and weight
constexpr int64_t kRounded = 2;                // the bf16 copy
constexpr int64_t kCopy = 2 * kBytesPerFp32;

class ElementWise {
 public:
  ElementWise(const PlanPart& part, const RuleFacts& rule)
      : part_(part),
        fields_(rule.gather_fields()),
        rounded_(part.options.parameters == DType::kBf16 ? kRounded : 0) {}

  // Returns the bytes that passes over a rank's matrices read and write. With
  // an exchange, fields are written into a slot and updates read from one; an
  // owner assembles matrices from slots and splits their updates.
  double matrix_bytes(const RankCost& rank) const {
    const bool exchanged = part_.grid.tp > 1;
    const int64_t slots = exchanged ? (fields_ + 1) * kBytesPerFp32 : 0;
    const int64_t copies = exchanged ? (fields_ + 1) * kCopy : 0;
    return product(rank.elements, kGradient + rounded_ + slots) +
           product(rank.computed, copies);
  }

  double adamw_bytes(int64_t elements) const {
    return product(elements, kGradient + kAdamw + rounded_);
  }

 private:
  static double product(int64_t elements, int64_t bytes) {
    return static_cast<double>(elements) * static_cast<double>(bytes);
  }

  const PlanPart& part_;
  int64_t fields_;
  int64_t rounded_;
};

void add_adamw(const PlanPart& part, const ElementWise& passes,
               std::vector<RankCost>& ranks) {
  for (const Bucket& bucket : part.buckets) {
    const Buffer& buffer = part.buffers[static_cast<size_t>(bucket.buffer)];
    for (int32_t place = 0; place < part.grid.places; ++place) {
      const std::vector<int64_t> kept =
          adamw_runs(part, bucket, part.grid.slice_of(place));
      for (int32_t h = 0; h < buffer.num_homes; ++h) {
        const int32_t first =
            part.grid.rank(buffer.stage, part.stage_home(buffer, h),
                           place * part.grid.tp_ranks());
        for (int32_t r = first; r < first + part.grid.tp_ranks(); ++r)
          ranks[static_cast<size_t>(r)].element_wise_bytes +=
              passes.adamw_bytes(kept[static_cast<size_t>(h)]);
      }
    }
  }
}

}  // namespace

void add_element_wise(const PlanPart& part, const RuleFacts& rule,
                      std::vector<RankCost>& ranks) {
  const ElementWise passes(part, rule);
  for (RankCost& rank : ranks)
    rank.element_wise_bytes = passes.matrix_bytes(rank);
  add_adamw(part, passes, ranks);
}

namespace {

// Returns the elements that an owner of a matrix, or of a part of it, assembles
// and does not store itself.
int64_t arriving_elements(const PlanPart& part, TeamTable& teams, size_t m,
                          const MatrixShare& share) {
  const auto matrix = static_cast<int32_t>(m);
  if (!teams.is_shared(m))
    return share.elements() - elements_on(part, matrix, share.t);
  return share.elements() -
         elements_within(part, matrix,
                         share.rectangles)[static_cast<size_t>(share.t)];
}

}  // namespace

}  // namespace canzona::plan

namespace canzona {
using namespace plan;

// Counts the largest round of any rank: the whole matrices that it owns, and
// its own shards in transit.
std::vector<int64_t> exchange_slot_bytes(const PlanPart& part,
                                         const RuleFacts& rule) {
  const auto tp = static_cast<size_t>(part.grid.tp);
  const auto homes = static_cast<size_t>(part.grid.homes());
  std::vector<int64_t> largest(static_cast<size_t>(part.grid.pp), 0);
  if (tp == 1) return largest;
  TeamTable teams(part);
  // Elements of each home, at [round · tp + t].
  std::vector<std::vector<int64_t>> rounds(largest.size() * homes);
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const Matrix& matrix = part.matrices[m];
    const std::vector<int64_t> elements =
        elements_by_rank(part, static_cast<int32_t>(m));
    const bool repeated = part.owners[m].empty();
    const std::vector<MatrixShare> shares = teams.shares(m);
    const size_t first = static_cast<size_t>(part.micro_group[m]) * tp;
    each_home(part, matrix.tensor, [&](int32_t stage, int32_t home) {
      std::vector<int64_t>& list = rounds[static_cast<size_t>(stage) * homes +
                                          static_cast<size_t>(home)];
      if (list.size() < first + tp) list.resize(first + tp, 0);
      for (size_t t = 0; t < tp; ++t) {
        list[first + t] += elements[t];
        if (repeated) list[first + t] += matrix.rows * matrix.cols;
      }
      // A rank that computes a matrix or a share of it stores its own pieces in
      // place.
      for (const MatrixShare& share : shares)
        list[first + static_cast<size_t>(share.t)] +=
            arriving_elements(part, teams, m, share);
    });
  }
  for (size_t h = 0; h < rounds.size(); ++h)
    for (const int64_t round : rounds[h])
      largest[h / homes] = std::max(largest[h / homes], round);
  for (int64_t& bytes : largest) bytes *= rule.gather_bytes_per_element();
  return largest;
}

std::vector<int64_t> team_room_bytes(const PlanPart& part) {
  std::vector<int64_t> largest(static_cast<size_t>(part.grid.pp), 0);
  const auto per_stage = static_cast<size_t>(part.grid.ranks_per_stage());
  TeamTable teams(part);
  std::map<std::pair<size_t, int32_t>, int64_t> rounds;  // by rank
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    if (!teams.is_team(m)) continue;
    SharedMatrix shared;
    shared.members.assign(part.owners[m].begin(), part.owners[m].end());
    shared.facts = teams.strips(m);
    each_computing_rank(part, m, [&](int32_t rank) {
      shared.member = (shared.member + 1) % shared.size();
      shared.own = teams.rectangle(m, shared.member);
      const auto r = static_cast<size_t>(rank);
      int64_t& bytes = rounds[{r, part.micro_group[m]}];
      bytes += team_room(shared).bytes;
      largest[r / per_stage] = std::max(largest[r / per_stage], bytes);
    });
  }
  return largest;
}

namespace {

// Returns the bytes of states at one of the ranks that share a matrix: the
// owner of some of its blocks, or a member of its team.
int64_t owner_bytes(StateBytesTable& table, const RuleFacts& rule,
                    MatrixShape shape, std::span<const MatrixShare> shares,
                    size_t member) {
  const MatrixShare& share = shares[member];
  int64_t bytes = 0;
  if (share.blocks.empty()) {
    for (const TeamState& state : rule.team_states(
             shape, static_cast<int>(shares.size()), static_cast<int>(member)))
      bytes += state.own.bytes().value();
    return bytes;
  }
  for (const Rectangle& block : share.rectangles)
    bytes += table.of({block.num_rows, block.num_cols}).with_owner;
  return bytes;
}

}  // namespace

namespace {

// Adds what ranks of a home keep of matrices. Models have thousands of matrices
// of which the same ranks keep equally much: they are counted and added at
// once.
class ShardElements {
 public:
  ShardElements(int64_t master, std::vector<RankCost>& ranks)
      : master_(master), ranks_(ranks) {}
  ShardElements(const ShardElements&) = delete;
  ShardElements& operator=(const ShardElements&) = delete;
  ~ShardElements() {
    for (const Alike& alike : pending_) flush(alike);
  }

  // `elements` are by rank, from the first one of a home.
  void add(int32_t first, int64_t state_bytes,
           const std::vector<int64_t>& elements) {
    for (Alike& alike : pending_)
      if (alike.first == first && alike.state_bytes == state_bytes &&
          alike.elements == elements) {
        ++alike.count;
        return;
      }
    Alike& next = pending_[next_++ % pending_.size()];
    flush(next);
    next = {first, state_bytes, elements, 1};
  }

 private:
  struct Alike {
    int32_t first = 0;
    int64_t state_bytes = 0;  // of an element
    std::vector<int64_t> elements = {};
    int64_t count = 0;
  };

  void flush(const Alike& alike) {
    for (size_t t = 0; t < alike.elements.size(); ++t) {
      RankCost& rank = ranks_[static_cast<size_t>(alike.first) + t];
      const int64_t elements = alike.count * alike.elements[t];
      rank.elements += elements;
      rank.memory.master += Bytes(elements * master_);
      rank.memory.states += Bytes(elements * alike.state_bytes);
    }
  }

  int64_t master_;
  std::vector<RankCost>& ranks_;
  std::array<Alike, 4> pending_;
  size_t next_ = 0;
};

}  // namespace

}  // namespace canzona

namespace canzona::plan {

void add_matrix_memory(const PlanPart& part, const RuleFacts& rule,
                       std::vector<RankCost>& ranks) {
  StateBytesTable table(rule);
  TeamTable teams(part);
  ShardElements kept(master_bytes_per_element(part.options), ranks);
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const Matrix& matrix = part.matrices[m];
    const StateBytes& bytes = table.of(shape_of(matrix));
    const int64_t per_element =
        bytes.with_shard / std::max<int64_t>(matrix.rows * matrix.cols, 1);
    const std::vector<int64_t> elements =
        elements_by_rank(part, static_cast<int32_t>(m));
    each_home(part, matrix.tensor, [&](int32_t stage, int32_t home) {
      kept.add(part.grid.rank(stage, home, 0), per_element, elements);
    });
    std::vector<MatrixShare> shares;
    if (teams.is_shared(m)) shares = teams.shares(m);
    size_t next = 0;
    each_computing_rank(part, m, [&](int32_t r) {
      int64_t own = bytes.with_owner;
      if (next < shares.size())
        own = owner_bytes(table, rule, shape_of(matrix), shares, next++);
      ranks[static_cast<size_t>(r)].memory.states += Bytes(own);
    });
  }
  const std::vector<int64_t> slots = exchange_slot_bytes(part, rule);
  const std::vector<int64_t> rooms = team_room_bytes(part);
  const auto per_stage = static_cast<size_t>(part.grid.ranks_per_stage());
  for (size_t r = 0; r < ranks.size(); ++r)
    ranks[r].memory.buffers =
        Bytes(kExchangeSlots * slots[r / per_stage] + rooms[r / per_stage]);
}

namespace {

// Adds the memory of one bucket on the ranks of one place, which keep this many
// elements of its parameters and gradients.
void add_place_memory(const PlanPart& part, const Bucket& bucket, int32_t place,
                      int64_t parameters, int64_t gradients,
                      std::vector<RankCost>& ranks) {
  const Buffer& buffer = part.buffers[static_cast<size_t>(bucket.buffer)];
  const int64_t master = master_bytes_per_element(part.options);
  const std::vector<int64_t> own =
      adamw_runs(part, bucket, part.grid.slice_of(place));
  for (int32_t h = 0; h < buffer.num_homes; ++h) {
    const int32_t home = part.stage_home(buffer, h);
    const int64_t elements = own[static_cast<size_t>(h)];
    for (int32_t t = 0; t < part.grid.tp_ranks(); ++t) {
      const int32_t rank =
          part.grid.rank(buffer.stage, home, part.grid.plane(place, t));
      RankMemory& memory = ranks[static_cast<size_t>(rank)].memory;
      memory.parameters += Bytes(parameters * bytes_per_parameter(part));
      memory.gradients += Bytes(gradients * kBytesPerFp32);
      memory.master += Bytes(elements * master);
      memory.states += Bytes(elements * 2 * kBytesPerFp32);
    }
  }
}

}  // namespace

// Adds parameters and gradients at rest, and AdamW's states.
void add_bucket_memory(const PlanPart& part, std::vector<RankCost>& ranks) {
  for (const Bucket& bucket : part.buckets) {
    const std::vector<int64_t> parameters =
        kept_elements(part, bucket, Resting::kParameters);
    const std::vector<int64_t> gradients =
        kept_elements(part, bucket, Resting::kGradients);
    for (int32_t place = 0; place < part.grid.places; ++place)
      add_place_memory(part, bucket, place,
                       parameters[static_cast<size_t>(place)],
                       gradients[static_cast<size_t>(place)], ranks);
  }
  const auto per_stage = static_cast<size_t>(part.grid.ranks_per_stage());
  for (int32_t stage = 0; stage < part.grid.pp; ++stage) {
    const Bytes forgotten(forgotten_elements(part, stage) * kBytesPerFp32);
    const size_t first = static_cast<size_t>(stage) * per_stage;
    for (size_t r = first; r < first + per_stage; ++r)
      ranks[r].memory.gradients += forgotten;
  }
}

void add_pools(const PlanPart& part, std::vector<RankCost>& ranks) {
  if (part.grid.places == 1) return;
  for (int32_t stage = 0; stage < part.grid.pp; ++stage) {
    const PoolSizes pools = pool_sizes(part, stage);
    const Bytes bytes(pools.gather_bytes(bytes_per_parameter(part)) +
                      pools.scatter_bytes());
    const auto per_stage = static_cast<size_t>(part.grid.ranks_per_stage());
    for (size_t r = 0; r < per_stage; ++r)
      ranks[static_cast<size_t>(stage) * per_stage + r].memory.pools = bytes;
  }
}

}  // namespace canzona::plan
