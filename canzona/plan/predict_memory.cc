#include <algorithm>

#include "canzona/plan/loads.h"
#include "canzona/plan/predict_parts.h"
#include "canzona/plan/routes.h"
#include "canzona/plan/runs.h"
#include "canzona/plan/state_bytes.h"

namespace canzona {
namespace {

// Calls visit(rank) for every tp rank of the homes that keep a tensor.
template <class Visit>
void each_rank_of_home(const PlanPart& plan, int32_t tensor, Visit visit) {
  each_home(plan, tensor, [&](int32_t stage, int32_t home) {
    for (int32_t t = 0; t < plan.grid.tp; ++t) {
      visit(plan.grid.rank(stage, home, t));
    }
  });
}

void add_matrix_states(const PlanPart& plan, std::vector<RankCost>& ranks) {
  const auto rule = make_rule_facts(plan.rule, plan.rule_options);
  StateBytesTable table(*rule);
  const int64_t master = master_bytes_per_element(plan.options.parameters);
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const Matrix& matrix = plan.matrices[m];
    const StateBytes& bytes = table.of({matrix.rows, matrix.cols});
    const int64_t per_element =
        bytes.with_shard / std::max<int64_t>(matrix.rows * matrix.cols, 1);
    const std::vector<int64_t> elements =
        elements_by_rank(plan, static_cast<int32_t>(m));
    each_rank_of_home(plan, matrix.tensor, [&](int32_t r) {
      RankCost& rank = ranks[static_cast<size_t>(r)];
      const int64_t own = elements[static_cast<size_t>(r % plan.grid.tp)];
      rank.elements += own;
      rank.memory.master += Bytes(own * master);
      rank.memory.states += Bytes(own * per_element);
    });
    each_computing_rank(plan, m, [&](int32_t r) {
      ranks[static_cast<size_t>(r)].memory.states += Bytes(bytes.with_owner);
    });
  }
}

// Bytes that a round of the exchange occupies on each rank of the world: whole
// matrices where it owns them, and its own shards on their way.
using RoundBytes = std::vector<std::vector<int64_t>>;

void add_to_round(RoundBytes& rounds, int32_t rank, int32_t round,
                  int64_t bytes) {
  std::vector<int64_t>& list = rounds[static_cast<size_t>(rank)];
  if (list.size() <= static_cast<size_t>(round)) {
    list.resize(static_cast<size_t>(round) + 1, 0);
  }
  list[static_cast<size_t>(round)] += bytes;
}

// An owner puts its own pieces where the whole matrix comes together.
bool lies_in_whole(const PlanPart& plan, size_t m, int32_t t) {
  return plan.owners[m].size() == 1 && plan.owners[m][0] == t;
}

RoundBytes round_bytes(const PlanPart& plan) {
  RoundBytes rounds(static_cast<size_t>(plan.grid.world()));
  const int64_t bytes =
      make_rule_facts(plan.rule, plan.rule_options)->gather_bytes_per_element();
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const Matrix& matrix = plan.matrices[m];
    const int32_t round = plan.micro_group[m];
    each_computing_rank(plan, m, [&](int32_t r) {
      add_to_round(rounds, r, round, matrix.rows * matrix.cols * bytes);
    });
    const std::vector<int64_t> elements =
        elements_by_rank(plan, static_cast<int32_t>(m));
    each_rank_of_home(plan, matrix.tensor, [&](int32_t r) {
      const int32_t t = r % plan.grid.tp;
      if (lies_in_whole(plan, m, t)) return;
      add_to_round(rounds, r, round, elements[static_cast<size_t>(t)] * bytes);
    });
  }
  return rounds;
}

void add_exchange_slots(const PlanPart& plan, std::vector<RankCost>& ranks) {
  const std::vector<int64_t> slots = exchange_slot_bytes(plan);
  const auto per_stage = static_cast<size_t>(plan.grid.ranks_per_stage());
  for (size_t r = 0; r < ranks.size(); ++r)
    ranks[r].memory.buffers = Bytes(kExchangeSlots * slots[r / per_stage]);
}

}  // namespace

// The largest round of any rank.
std::vector<int64_t> exchange_slot_bytes(const PlanPart& part) {
  std::vector<int64_t> largest(static_cast<size_t>(part.grid.pp), 0);
  if (part.grid.tp == 1) return largest;
  const RoundBytes rounds = round_bytes(part);
  const auto per_stage = static_cast<size_t>(part.grid.ranks_per_stage());
  for (size_t r = 0; r < rounds.size(); ++r)
    for (int64_t bytes : rounds[r])
      largest[r / per_stage] = std::max(largest[r / per_stage], bytes);
  return largest;
}

void add_matrix_memory(const PlanPart& plan, std::vector<RankCost>& ranks) {
  add_matrix_states(plan, ranks);
  add_exchange_slots(plan, ranks);
}

namespace {

// Of one bucket on the ranks of one place.
void add_place_memory(const PlanPart& plan, const Bucket& bucket, int32_t place,
                      std::vector<RankCost>& ranks) {
  const Buffer& buffer = plan.buffers[static_cast<size_t>(bucket.buffer)];
  const int64_t master = master_bytes_per_element(plan.options.parameters);
  const int64_t parameters =
      kept_elements(plan, bucket, place, Resting::kParameters);
  const int64_t gradients =
      kept_elements(plan, bucket, place, Resting::kGradients);
  const std::vector<int64_t> own =
      adamw_runs(plan, bucket, plan.grid.slice_of(place));
  for (int32_t h = 0; h < buffer.num_homes; ++h) {
    const int32_t home = plan.stage_home(buffer, h);
    const int64_t elements = own[static_cast<size_t>(h)];
    for (int32_t t = 0; t < plan.grid.tp_ranks(); ++t) {
      const int32_t plane = place * plan.grid.tp_ranks() + t;
      const int32_t rank = plan.grid.rank(buffer.stage, home, plane);
      RankMemory& memory = ranks[static_cast<size_t>(rank)].memory;
      memory.parameters += Bytes(parameters * bytes_per_parameter(plan));
      memory.gradients += Bytes(gradients * kBytesPerFp32);
      memory.master += Bytes(elements * master);
      memory.states += Bytes(elements * 2 * kBytesPerFp32);
    }
  }
}

}  // namespace

// Parameters and gradients at rest, and AdamW's states.
void add_bucket_memory(const PlanPart& plan, std::vector<RankCost>& ranks) {
  for (const Bucket& bucket : plan.buckets)
    for (int32_t place = 0; place < plan.grid.places; ++place)
      add_place_memory(plan, bucket, place, ranks);
  const auto per_stage = static_cast<size_t>(plan.grid.ranks_per_stage());
  for (int32_t stage = 0; stage < plan.grid.pp; ++stage) {
    const Bytes forgotten(forgotten_elements(plan, stage) * kBytesPerFp32);
    const size_t first = static_cast<size_t>(stage) * per_stage;
    for (size_t r = first; r < first + per_stage; ++r)
      ranks[r].memory.gradients += forgotten;
  }
}

}  // namespace canzona
