#include "canzona/plan/storage/storage_basis.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "canzona/base/error.h"
#include "canzona/plan/storage/storage_owners.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/plan/predict/loads.h"

namespace canzona::plan {
namespace {

constexpr int64_t kLongestCommonPeriod = 10'000;
constexpr size_t kMostKinds = 128;

// Returns the phase that is refreshed in a step; -1 if none.
int32_t phase_in(const GroupPeriod& group, int64_t step) {
  const auto phase =
      static_cast<int32_t>((group.period - step % group.period) % group.period);
  return phase < group.phases ? phase : -1;
}

}  // namespace

StepKinds::StepKinds(std::vector<GroupPeriod> groups)
    : groups_(std::move(groups)) {
  GroupPeriod first;
  for (const GroupPeriod& group : groups_)
    if (first.period == 1) first = group;
  alike_ = std::all_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    return group.period == 1 || group == first;
  });
  if (alike_ && first.phases < static_cast<int32_t>(kMostKinds)) {
    period_ = first.period;
    steps_ = steps_of(first.period, first.phases);
    return;
  }
  alike_ = false;
  if (walk_steps()) return;
  averaged_ = true;
  period_ = 1;
  steps_ = {1};
}

// Returns false if there would be too many steps or kinds.
bool StepKinds::walk_steps() {
  period_ = 1;
  for (const GroupPeriod& group : groups_) {
    period_ = std::lcm(period_, group.period);
    if (period_ > kLongestCommonPeriod) return false;
  }
  std::map<std::vector<int32_t>, int64_t> count;
  for (int64_t step = 0; step < period_; ++step) {
    std::vector<int32_t> kind;
    for (const GroupPeriod& group : groups_)
      kind.push_back(phase_in(group, step));
    ++count[kind];
    if (count.size() > kMostKinds) return false;
  }
  for (const auto& [kind, steps] : count) {
    kinds_.push_back(kind);
    steps_.push_back(steps);
  }
  return true;
}

std::vector<int64_t> StepKinds::load(const MatrixCost& cost, int32_t group,
                                     int32_t phase) const {
  const GroupPeriod& own = groups_[index(group)];
  const int64_t every = cost.every_step.value();
  const int64_t refresh = cost.refresh.value();
  if (averaged_) return {every + (refresh + own.period - 1) / own.period};
  if (own.period == 1)
    return std::vector<int64_t>(steps_.size(), every + refresh);
  if (alike_) return load_by_step(cost, phase, own.period, own.phases);
  std::vector<int64_t> load;
  for (const auto& kind : kinds_)
    load.push_back(every + (kind[index(group)] == phase ? refresh : 0));
  return load;
}

int64_t StepKinds::period_load(const MatrixCost& cost, int32_t group,
                               int32_t phase) const {
  const std::vector<int64_t> by_kind = load(cost, group, phase);
  return std::inner_product(by_kind.begin(), by_kind.end(), steps_.begin(),
                            int64_t{0});
}

StepKinds step_kinds(const StorageRequest& request) {
  const auto facts = group_facts(request.groups);
  std::vector<GroupPeriod> groups(facts.size());
  for (const CutTensor& tensor : request.tensors) {
    const size_t g = index(tensor.group);
    groups[g] = {facts[g]->period(), facts[g]->phases()};
  }
  return StepKinds(std::move(groups));
}

std::vector<std::vector<int64_t>> storage_loads(const StoragePlan& plan,
                                                const StepKinds& kinds,
                                                Computing who) {
  std::vector<std::vector<int64_t>> loads(
      index(plan.world), std::vector<int64_t>(kinds.steps().size(), 0));
  StorageShares shares(plan);
  for (size_t i = 0; i < plan.matrices.size(); ++i) {
    const OwnedMatrix& m = plan.matrices[i];
    const auto add = [&](int32_t rank, const MatrixCost& cost) {
      const auto own =
          kinds.load(cost, plan.tensors[index(m.tensor)].group, m.phase);
      auto& load = loads[index(rank)];
      for (size_t k = 0; k < own.size(); ++k) load[k] += own[k];
    };
    if (m.team.empty() || who == Computing::kFirstOwners) {
      add(m.owner, m.cost);
      continue;
    }
    for (const MatrixShare& share : shares.shares(i)) add(share.t, share.cost);
  }
  return loads;
}

namespace {

// Returns the longest path of a team, by kind of step.
std::vector<int64_t> longest_paths(const StoragePlan& plan,
                                   const StepKinds& kinds) {
  std::vector<int64_t> longest(kinds.steps().size(), 0);
  StorageShares shares(plan);
  for (size_t i = 0; i < plan.matrices.size(); ++i) {
    if (!shares.is_team(i)) continue;
    const OwnedMatrix& m = plan.matrices[i];
    const MatrixCost cost{Ticks(shares.of(i).path),
                          Ticks(shares.refresh(i).path)};
    const auto path =
        kinds.load(cost, plan.tensors[index(m.tensor)].group, m.phase);
    for (size_t k = 0; k < path.size(); ++k)
      longest[k] = std::max(longest[k], path[k]);
  }
  return longest;
}

}  // namespace

Ticks storage_makespan(const StoragePlan& plan, const StepKinds& kinds,
                       Computing who) {
  const auto loads = storage_loads(plan, kinds, who);
  std::vector<int64_t> paths(kinds.steps().size(), 0);
  if (who == Computing::kAsPlanned) paths = longest_paths(plan, kinds);
  int64_t sum = 0;
  for (size_t k = 0; k < kinds.steps().size(); ++k) {
    int64_t most = paths[k];
    for (const auto& load : loads) most = std::max(most, load[k]);
    sum += kinds.steps()[k] * most;
  }
  return Ticks(sum);
}

namespace {

RanksOfClass ranks_of_class(const ReplicaClass& c, int32_t world) {
  RanksOfClass out{std::vector<int32_t>(index(world), -1),
                   std::vector<int32_t>(index(world), -1)};
  for (size_t i = 0; i < c.lines.size(); ++i)
    for (const int32_t rank : c.lines[i])
      out.line[index(rank)] = static_cast<int32_t>(i);
  for (size_t i = 0; i < c.replicas.size(); ++i)
    for (const int32_t rank : c.replicas[i])
      out.set[index(rank)] = static_cast<int32_t>(i);
  return out;
}

}  // namespace

StorageBasis::StorageBasis(const StoragePlan& plan)
    : plan_(plan),
      pieces_(stored_pieces(plan)),
      holders_(plan, pieces_),
      kinds_(step_kinds(plan)),
      shares_(plan) {
  for (const auto& facts : group_facts(plan.groups))
    fields_.push_back(facts->gather_fields());
  for (const ReplicaClass& c : plan.classes)
    ranks_.push_back(ranks_of_class(c, plan.world));
}

int64_t StorageBasis::work_of(size_t matrix) const {
  const OwnedMatrix& m = plan_.matrices[matrix];
  return kinds_.period_load(m.cost, plan_.tensors[index(m.tensor)].group,
                            m.phase);
}

int32_t StorageBasis::owner_of(size_t item) const {
  if (is_matrix(item)) return plan_.matrices[item].owner;
  const RanksOfClass& ranks = ranks_of(class_of(item));
  for (const Holder& holder : holders_[item])
    if (ranks.line[index(holder.rank)] == elements(item).line)
      return holder.rank;
  return -1;
}

std::vector<int32_t> StorageBasis::owners_of(size_t item) const {
  if (!is_matrix(item)) return {owner_of(item)};
  return distinct(plan_.matrices[item].owners());
}

std::vector<StorageBasis::Moved> StorageBasis::moved_of(size_t matrix) const {
  std::vector<Moved> out;
  const RanksOfClass& ranks = ranks_of(class_of(matrix));
  for (const MatrixShare& share : shares_.shares(matrix))
    for (const Holder& holder : holders_[matrix]) {
      if (holder.rank == share.t ||
          ranks.line[index(holder.rank)] != line_of(matrix))
        continue;
      const int64_t elements = elements_within(
          plan_, static_cast<int32_t>(matrix), holder.rank, share.rectangles);
      if (elements > 0) out.push_back({holder.rank, share.t, elements, 0});
    }
  if (shares_.is_team(matrix)) add_team_bytes(matrix, out);
  return out;
}

namespace {

Collective counted_as(Purpose of_team) {
  return of_team == Purpose::kTeamFactors || of_team == Purpose::kTeamPasses
             ? Collective::kTeamFactors
             : Collective::kTeamSums;
}

}  // namespace

void StorageBasis::add_team_bytes(size_t matrix,
                                  std::vector<Moved>& out) const {
  const std::vector<int32_t>& members = plan_.matrices[matrix].team;
  const auto size = static_cast<int32_t>(members.size());
  SharedMatrix team;
  team.facts = shares_.strips(matrix);
  team.members.resize(members.size());
  std::iota(team.members.begin(), team.members.end(), 0);
  for (int p = 0; p < kNumTeamPurposes; ++p) {
    const auto purpose =
        static_cast<Purpose>(static_cast<int>(Purpose::kTeamNorms) + p);
    if (!is_exchanged(team.facts, purpose, !team.facts.factors_at_refresh))
      continue;
    // Norms once more after strips were scaled; the others in each segment.
    const int64_t times =
        purpose == Purpose::kTeamNorms ? 2 : std::max(team.facts.segments, 1);
    for (team.member = 0; team.member < size; ++team.member) {
      const ExchangeTable moved = team_exchange(team, size, purpose);
      for (int32_t to = 0; to < size; ++to)
        if (const int64_t bytes = moved.send_bytes[index(to)];
            to != team.member && bytes > 0)
          out.push_back({members[index(team.member)], members[index(to)], 0,
                         bytes * times, counted_as(purpose)});
    }
  }
}

int32_t StorageBasis::line_of(size_t item) const {
  if (!is_matrix(item)) return elements(item).line;
  return ranks_of(class_of(item)).line[index(plan_.matrices[item].owner)];
}

namespace {

// A rank broadcasts one block per round: updates of matrices, then weights of
// element-wise tensors, each of which begins at an aligned offset.
class BroadcastBlocks {
 public:
  BroadcastBlocks(const StorageBasis& basis, const StoragePlan& plan)
      : basis_(basis), wire_(size_of(plan.options.wire)) {}

  // Returns the padding in the block before an item whose bytes are sent from a
  // root to a replica. Must be called for all items in order.
  int64_t gap_before(size_t item, int32_t from, int32_t to, int64_t bytes) {
    const int32_t round = basis_.round_of(item);
    int64_t& end = end_[{basis_.class_of(item), round, from, to}];
    const int64_t first =
        basis_.is_matrix(item) ? end : aligned_elements(end / wire_) * wire_;
    const int64_t gap = first - end;
    end = first + bytes;
    return gap;
  }

 private:
  const StorageBasis& basis_;
  int64_t wire_;
  // The bytes of a block so far: by class, round, root and replica.
  std::map<std::array<int32_t, 4>, int64_t> end_;
};

}  // namespace

std::vector<RankCost> storage_wire(const StorageBasis& basis,
                                   const StoragePlan& plan) {
  std::vector<RankCost> out(index(plan.world));
  const auto node = [&](int32_t rank) {
    return rank / plan.options.ranks_per_node;
  };
  const auto count = [&](Collective collective, int32_t from, int32_t to,
                         int64_t bytes) {
    const bool near = node(from) == node(to);
    const auto c = static_cast<size_t>(collective);
    WireBytes& sender = out[index(from)].wire[c];
    WireBytes& receiver = out[index(to)].wire[c];
    (near ? sender.sent_intra : sender.sent_inter) += bytes;
    (near ? receiver.received_intra : receiver.received_inter) += bytes;
  };
  if (plan.elements.empty()) {
    for (size_t i = 0; i < basis.holders().size(); ++i)
      basis.each_message(i, count);
    return out;
  }
  BroadcastBlocks blocks(basis, plan);
  for (size_t i = 0; i < basis.holders().size(); ++i)
    basis.each_message(
        i, [&](Collective collective, int32_t from, int32_t to, int64_t bytes) {
          if (collective == Collective::kBroadcast)
            bytes += blocks.gap_before(i, from, to, bytes);
          count(collective, from, to, bytes);
        });
  return out;
}

LoadSummary summarize_storage(const StorageBasis& basis,
                              const StoragePlan& plan) {
  LoadSummary s;
  s.makespan = storage_makespan(plan, basis.kinds());
  s.bound = storage_bound(
      basis, plan,
      storage_makespan(plan, basis.kinds(), Computing::kFirstOwners));
  double work = 0;
  std::vector<bool> owns(index(plan.world), false);
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    work += static_cast<double>(basis.work_of(m));
    for (const int32_t rank : plan.matrices[m].owners())
      owns[index(rank)] = true;
  }
  s.mean = work / plan.world;
  s.idle_ranks =
      static_cast<int32_t>(std::count(owns.begin(), owns.end(), false));
  for (const RankCost& rank : storage_wire(basis, plan))
    s.bytes_per_rank_max =
        std::max(s.bytes_per_rank_max, Bytes(rank.bytes_sent()));
  return s;
}

}  // namespace canzona::plan
