#include "canzona/plan/schedule/updates.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/equal_batches.h"
#include "canzona/base/error.h"

namespace canzona {
namespace {

class UpdatePlanner {
 public:
  UpdatePlanner(const PlanPart& part, const RankLayout& layout,
                const Kept& kept, const RulesOfTensors& rules, int64_t width)
      : part_(part),
        layout_(layout),
        kept_(kept),
        rules_(rules),
        width_(width) {
    join_buckets();
  }

  UpdatePlan make(const std::vector<Round>& rounds) {
    out_.exp_avg = request(kept_.num_elements);
    out_.exp_avg_sq = request(kept_.num_elements);
    for (const KeptMatrix& matrix : kept_.matrices) add_shard_states(matrix);
    if (rounds.empty())
      out_.batches.push_back(batches_by_stretch(in_forward_order()));
    for (const Round& round : rounds) {
      std::vector<ComputedMatrix> computed;
      for (const SlotMatrix& matrix : round.computed)
        computed.push_back(
            computed_matrix(matrix.kept, matrix.block, matrix.own.num_rows,
                            matrix.own.num_cols, matrix.segment));
      out_.batches.push_back(batches_with_states(computed));
      std::vector<SharedStates>& shared = out_.shared.emplace_back();
      for (const SharedMatrix& matrix : round.shared)
        shared.push_back(states_of(matrix));
    }
    lay_out_states();
    return std::move(out_);
  }

 private:
  using Facts = std::vector<std::shared_ptr<const StateFact>>;
  // Returns the number of a request for elements, which lay_out_states()
  // replaces by the first of them.
  int64_t request(int64_t elements) {
    requested_.push_back(elements);
    return std::ssize(requested_) - 1;
  }

  // Devices are fast where a matrix begins at the start of a cache line. States
  // that fill whole lines come first, so that a few counters of one batch do
  // not push all matrices after them off their lines.
  std::vector<int64_t> first_elements() {
    constexpr int64_t kLine = 32;  // elements
    std::vector<int64_t> first(requested_.size());
    for (const bool whole_lines : {true, false})
      for (size_t i = 0; i < requested_.size(); ++i) {
        if ((requested_[i] % kLine == 0) != whole_lines) continue;
        first[i] = out_.num_state_elements;
        out_.num_state_elements += requested_[i];
      }
    return first;
  }

  void lay_out_states() {
    const std::vector<int64_t> first = first_elements();
    const auto settle = [&](int64_t& request) {
      request = first[index(request)];
    };
    const auto settle_all = [&](std::vector<KeptState>& states) {
      for (KeptState& state : states) settle(state.first);
    };
    settle(out_.exp_avg);
    settle(out_.exp_avg_sq);
    for (auto& states : out_.with_shard) settle_all(states);
    for (auto& batches : out_.batches)
      for (UpdateBatch& batch : batches) settle_all(batch.owned);
    for (auto& round : out_.shared)
      for (SharedStates& matrix : round) settle_all(matrix.own);
  }

  int32_t tensor(int32_t kept) const {
    return part_.matrices[index(kept_.matrices[index(kept)].matrix)].tensor;
  }
  // Matrices of the same shape and rule share their facts.
  const Facts& facts(int32_t t, const std::vector<int64_t>& dims) {
    const auto [known, is_new] =
        facts_.try_emplace({rules_.number[index(t)], dims[0], dims[1]});
    if (is_new)
      for (StateFact& fact : rules_.of(t).tensor_states(dims))
        known->second.push_back(
            std::make_shared<const StateFact>(std::move(fact)));
    return known->second;
  }

  // A state that lives with the shard has the rank's pieces of the matrix.
  void add_shard_states(const KeptMatrix& matrix) {
    std::vector<KeptState> states;
    const int32_t t = part_.matrices[index(matrix.matrix)].tensor;
    for (const auto& fact : facts(t, matrix.dims)) {
      if (fact->lives != Lives::kWithShard) continue;
      CANZONA_CHECK_EQ(fact->elements(), matrix.dims[0] * matrix.dims[1]);
      states.push_back({fact, request(matrix.kept.count)});
    }
    out_.with_shard.push_back(std::move(states));
  }

  SharedStates states_of(const SharedMatrix& matrix) {
    SharedStates out{matrix.kept, {}, {}, {}};
    if (!matrix.is_member()) return out;
    const std::vector<int64_t>& dims = kept_.matrices[index(matrix.kept)].dims;
    for (TeamState& state :
         rules_.of(tensor(matrix.kept))
             .team_states({dims[0], dims[1]}, matrix.size(), matrix.member)) {
      const int64_t first = request(state.own.elements());
      out.own.push_back(
          {std::make_shared<const StateFact>(std::move(state.own)), first});
      out.in_matrix.push_back(std::move(state.in_matrix));
      out.given.push_back(state.given);
    }
    return out;
  }

  // Returns buckets in the order of forward, which is that of backward
  // reversed.
  std::vector<int32_t> in_forward_order() const {
    std::vector<int32_t> order(kept_.matrices.size());
    std::vector<int32_t> buckets;
    for (size_t k = 0; k < order.size(); ++k) {
      order[k] = static_cast<int32_t>(k);
      buckets.push_back(bucket(order[k]));
    }
    std::ranges::stable_sort(order, std::ranges::greater(),
                             [&](int32_t k) { return buckets[index(k)]; });
    return order;
  }
  int32_t bucket(int32_t kept) const {
    return layout_.gradients.tensors[index(tensor(kept))].bucket;
  }

  // A bucket is published when its last matrix is updated, so buckets are
  // updated one after the other. If the engine prefers large batches,
  // neighbouring buckets are joined until they have enough elements; if nothing
  // is published, all buckets are joined.
  void join_buckets() {
    constexpr int64_t kEnough = int64_t{1} << 26;  // elements
    stretch_of_.resize(part_.buckets.size());
    std::iota(stretch_of_.begin(), stretch_of_.end(), 0);
    if (width_ <= 1) return;
    std::vector<int64_t> elements(part_.buckets.size());
    bool any_leave = false;
    for (size_t k = 0; k < kept_.matrices.size(); ++k) {
      const KeptMatrix& matrix = kept_.matrices[k];
      const auto kept = static_cast<int32_t>(k);
      elements[index(bucket(kept))] += matrix.dims[0] * matrix.dims[1];
      any_leave = any_leave || (part_.grid.homes() > 1 &&
                                part_.home[index(tensor(kept))] != kEveryHome);
    }
    int64_t joined = 0;
    int32_t stretch = 0;
    for (size_t b = elements.size(); b-- > 0;) {
      stretch_of_[b] = stretch;
      joined += elements[b];
      if (!any_leave || joined < kEnough) continue;
      joined = 0;
      ++stretch;
    }
  }

  // Returns batches such that each stretch of buckets is finished before the
  // next begins.
  std::vector<UpdateBatch> batches_by_stretch(
      const std::vector<int32_t>& matrices) {
    std::vector<ComputedMatrix> computed;
    for (int32_t k : matrices) {
      const std::vector<int64_t>& dims = kept_.matrices[index(k)].dims;
      computed.push_back(computed_matrix(k, -1, dims[0], dims[1],
                                         stretch_of_[index(bucket(k))]));
    }
    std::vector<UpdateBatch> batches = batches_with_states(computed);
    for (UpdateBatch& batch : batches) batch.segment = 0;
    return batches;
  }

  ComputedMatrix computed_matrix(int32_t kept, int32_t block, int64_t rows,
                                 int64_t cols, int32_t apart) const {
    return {kept,
            block,
            rows,
            cols,
            part_.phase[index(kept_.matrices[index(kept)].matrix)],
            rules_.number[index(tensor(kept))],
            apart};
  }

  std::vector<UpdateBatch> batches_with_states(
      const std::vector<ComputedMatrix>& computed) {
    std::vector<UpdateBatch> batches = batches_of(computed, width_);
    for (UpdateBatch& batch : batches) {
      for (size_t i = 0; i < batch.members.size(); ++i)
        batch.in_matrix.push_back(
            states_in_matrix(batch.members[i], batch.blocks[i]));
      add_owner_states(batch);
    }
    return batches;
  }

  std::vector<BlockState> states_in_matrix(int32_t kept, int32_t block) const {
    if (block < 0) return {};
    const std::vector<int64_t>& dims = kept_.matrices[index(kept)].dims;
    return rules_.of(tensor(kept)).block_states({dims[0], dims[1]}, block);
  }

  void add_owner_states(UpdateBatch& batch) {
    const auto count = static_cast<int64_t>(batch.members.size());
    for (const auto& fact : facts(tensor(batch.members[0]), batch.dims)) {
      if (fact->lives != Lives::kWithOwner) continue;
      const int64_t first = request(count * fact->elements());
      batch.owned.push_back({fact, first});
    }
    for (size_t i = 0; i < batch.members.size(); ++i)
      if (batch.blocks[i] >= 0)
        CANZONA_CHECK_EQ(batch.in_matrix[i].size(), batch.owned.size());
  }

  const PlanPart& part_;
  const RankLayout& layout_;
  const Kept& kept_;
  const RulesOfTensors& rules_;
  int64_t width_;
  std::vector<int32_t> stretch_of_;  // by bucket
  // Keyed by the number of the rule and the matrix's shape.
  std::map<std::tuple<int32_t, int64_t, int64_t>, Facts> facts_;
  std::vector<int64_t> requested_;  // elements of states, by request
  UpdatePlan out_;
};

}  // namespace

// A batch is limited by what the engine takes at once and by the elements that
// scratch may hold.
std::vector<UpdateBatch> batches_of(const std::vector<ComputedMatrix>& computed,
                                    int64_t width) {
  constexpr int64_t kMostElements = int64_t{1} << 28;
  // A kind is (apart, rows, columns, phase, rule).
  using Kind = std::tuple<int32_t, int64_t, int64_t, int32_t, int32_t>;
  std::vector<Kind> kinds;
  for (const ComputedMatrix& matrix : computed)
    kinds.emplace_back(matrix.apart, matrix.rows, matrix.cols, matrix.phase,
                       matrix.rule);
  const auto most = [width](const Kind& kind) {
    // A matrix may have no elements.
    const int64_t each =
        std::max<int64_t>(std::get<1>(kind) * std::get<2>(kind), 1);
    return std::clamp<int64_t>(kMostElements / each, 1,
                               std::max<int64_t>(width, 1));
  };
  std::vector<UpdateBatch> batches;
  for (const std::vector<size_t>& alike : equal_batches(kinds, most)) {
    const auto& [apart, rows, cols, phase, rule] = kinds[alike[0]];
    UpdateBatch& batch = batches.emplace_back();
    batch.dims = {rows, cols};
    batch.phase = phase;
    batch.rule = rule;
    batch.segment = apart;
    for (const size_t at : alike) {
      batch.members.push_back(computed[at].kept);
      batch.blocks.push_back(computed[at].block);
    }
  }
  return batches;
}

UpdatePlan plan_updates(const PlanPart& part, const RankLayout& layout,
                        const Kept& kept, const std::vector<Round>& rounds,
                        const RulesOfTensors& rules, int64_t width) {
  return UpdatePlanner(part, layout, kept, rules, width).make(rounds);
}

}  // namespace canzona
