#include "canzona/plan/storage/storage_sharing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/plan/layout/problem.h"
#include "canzona/plan/storage/storage_basis.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/plan/predict/step_times.h"
#include "canzona/plan/search/owners.h"
#include "canzona/plan/search/teams.h"

namespace canzona::plan {

MatrixSharing& StorageShares::sharing(size_t matrix) {
  const size_t group =
      index(plan_.tensors[index(plan_.matrices[matrix].tensor)].group);
  if (!of_group_[group])
    of_group_[group] = std::make_unique<MatrixSharing>(
        make_rule_facts(plan_.groups[group].rule, plan_.groups[group].options),
        plan_.cost_basis, plan_.options.links);
  return *of_group_[group];
}

namespace {

int32_t place_in(const std::vector<int32_t>& line, int32_t rank) {
  return static_cast<int32_t>(std::ranges::lower_bound(line, rank) -
                              line.begin());
}

}  // namespace

SharedMatrix StorageShares::team_in(size_t matrix,
                                    const std::vector<int32_t>& line,
                                    int32_t rank) {
  std::vector<int32_t> planes;
  for (const int32_t member : plan_.matrices[matrix].team)
    planes.push_back(place_in(line, member));
  return shared_matrix(matrix, std::move(planes), place_in(line, rank));
}

int64_t elements_within(const StoragePlan& plan, int32_t matrix, int32_t rank,
                        std::span<const Rectangle> within) {
  int64_t sum = 0;
  for (const Piece& piece : storage_pieces(plan, matrix, rank))
    for (const Rectangle& rectangle : within)
      sum += meet(piece, rectangle).elements();
  return sum;
}

namespace {

// Knows which pieces of some matrices the ranks of a line store.
class LinePieces : public GivenPieces {
 public:
  LinePieces(const StoragePlan& plan, const std::vector<int32_t>& line,
             std::vector<int32_t> matrices)
      : plan_(plan), line_(line), matrices_(std::move(matrices)) {}

  int32_t rank_in_whole(int32_t rank) const override {
    return line_[index(rank)];
  }
  std::vector<Rectangle> pieces(int32_t matrix, int32_t t) const override {
    const std::vector<Piece> found =
        storage_pieces(plan_, matrices_[index(matrix)], line_[index(t)]);
    return {found.begin(), found.end()};
  }
  int64_t bytes_per_element() const override {
    return size_of(plan_.options.wire);
  }

 private:
  const StoragePlan& plan_;
  const std::vector<int32_t>& line_;
  const std::vector<int32_t> matrices_;  // their numbers in the plan
};

// Matrices of one shape are alike if ranks store whole rows of both, or of
// neither.
Cut cut_of(const StoragePlan& plan, int32_t matrix) {
  const OwnedMatrix& m = plan.matrices[index(matrix)];
  for (const Piece& piece : storage_pieces(plan, matrix, m.owner))
    if (piece.num_cols < m.cols) return Cut::kColumns;
  return Cut::kRows;
}

// A line of several ranks, and those of its matrices that move and that one
// group updates.
struct LineOfClass {
  const std::vector<int32_t>* ranks = nullptr;
  int32_t group = 0;
  std::vector<int32_t> matrices;  // their numbers in the plan
};

std::vector<LineOfClass> lines_of(const StoragePlan& plan) {
  std::map<std::array<int32_t, 3>, LineOfClass> lines;
  const StorageBasis basis(plan);
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    if (plan.matrices[m].round < 0) continue;
    const int32_t c = basis.class_of(m), line = basis.line_of(m);
    const int32_t group = plan.tensors[index(basis.tensor_of(m))].group;
    LineOfClass& of = lines[{c, line, group}];
    of.ranks = &plan.classes[index(c)].lines[index(line)];
    of.group = group;
    of.matrices.push_back(static_cast<int32_t>(m));
  }
  std::vector<LineOfClass> out;
  for (auto& [key, line] : lines) out.push_back(std::move(line));
  return out;
}

// The line as a part with one home, whose planes are the line's ranks in order.
// The plan must outlive it.
PlanPart part_of(const StoragePlan& plan, const LineOfClass& line,
                 const RuleFacts& rule) {
  PlanPart part;
  part.rule = rule.name();
  part.rule_options = rule.options();
  part.cost_basis = plan.cost_basis;
  part.options.links = plan.options.links;
  part.options.teams = plan.options.teams;
  part.options.capacity_bytes = plan.options.capacity_bytes;
  part.options.ranks_per_node = plan.options.ranks_per_node;
  part.options.micro_groups = "balanced";
  part.grid.tp = part.mesh.tp = static_cast<int32_t>(line.ranks->size());
  part.period = rule.period();
  part.phases = rule.phases();
  for (const int32_t m : line.matrices) {
    const OwnedMatrix& it = plan.matrices[index(m)];
    part.matrices.push_back({.tensor = static_cast<int32_t>(part.home.size()),
                             .rows = it.rows,
                             .cols = it.cols});
    part.model.tensors.push_back({.shape = {it.rows, it.cols},
                                  .cut = cut_of(plan, m),
                                  .matrix_rule = true});
    part.costs.push_back(it.cost);
    part.phase.push_back(it.phase);
    part.micro_group.push_back(it.round);
    part.home.push_back(0);
    std::vector<int32_t> planes;
    for (const int32_t rank : it.owners())
      planes.push_back(place_in(*line.ranks, rank));
    part.owners.push_back(planes);
  }
  part.first_matrix.resize(line.matrices.size() + 1);
  std::iota(part.first_matrix.begin(), part.first_matrix.end(), 0);
  part.given = std::make_shared<LinePieces>(plan, *line.ranks, line.matrices);
  return part;
}

// Only matrices of which all ranks of the line store something are shared.
void keep_shareable(const StoragePlan& plan, LineOfClass& line) {
  const StorageBasis basis(plan);
  std::erase_if(line.matrices, [&](int32_t m) {
    int64_t here = 0;
    for (const Holder& holder : basis.holders()[index(m)])
      here += std::ranges::binary_search(*line.ranks, holder.rank);
    return here < std::ssize(*line.ranks);
  });
}

// The searches for teams and for owners of blocks, in one line.
void share_in(StoragePlan& plan, const LineOfClass& line) {
  const RuleGroup& group = plan.groups[index(line.group)];
  const auto rule = make_rule_facts(group.rule, group.options);
  const PlanPart part = part_of(plan, line, *rule);
  Problem p{.model = part.model,
            .grid = part.grid,
            .rule = *rule,
            .options = part.options,
            .matrices = part.matrices,
            .first_matrix = part.first_matrix,
            .costs = part.costs,
            .phase = part.phase};
  p.buffers.resize(1);
  p.buckets.resize(1);
  p.buckets[0].matrix_tensors.resize(line.matrices.size());
  std::iota(p.buckets[0].matrix_tensors.begin(),
            p.buckets[0].matrix_tensors.end(), 0);
  p.buffer_of.assign(line.matrices.size(), 0);
  Assignment a{part.home, {}, part.micro_group};
  for (size_t m = 0; m < line.matrices.size(); ++m)
    a.owner.push_back(part.owners[m].front());
  share_matrices(part, p, a);
  own_blocks(part, p, a);
  if (a.teams.empty()) return;
  for (size_t m = 0; m < line.matrices.size(); ++m)
    plan.matrices[index(line.matrices[m])].owner =
        (*line.ranks)[index(a.owner[m])];
  for (const auto& [m, planes] : a.teams)
    for (const int32_t plane : planes)
      plan.matrices[index(line.matrices[index(m)])].team.push_back(
          (*line.ranks)[index(plane)]);
}

}  // namespace

bool share_storage_matrices(StoragePlan& plan) {
  if (plan.options.teams == kTeamsOff) return false;
  const std::vector<OwnedMatrix> before = plan.matrices;
  for (LineOfClass& line : lines_of(plan)) {
    keep_shareable(plan, line);
    if (!line.matrices.empty()) share_in(plan, line);
  }
  return plan.matrices != before;
}

namespace {

// Adds the seconds of a line's rounds to those of its ranks.
void add_line_seconds(const StoragePlan& plan, const LineOfClass& line,
                      std::vector<double>& seconds) {
  const RuleGroup& group = plan.groups[index(line.group)];
  const auto rule = make_rule_facts(group.rule, group.options);
  const PlanPart part = part_of(plan, line, *rule);
  TeamCosts costs(*rule, part.cost_basis, part.options.links);
  std::vector<HomeMatrix> matrices;
  for (size_t m = 0; m < line.matrices.size(); ++m)
    matrices.push_back(
        {static_cast<int32_t>(m), part.micro_group[m], part.owners[m]});
  std::ranges::sort(matrices, {}, [](const HomeMatrix& of) {
    return std::pair(of.round, of.matrix);
  });
  std::vector<int32_t> nodes;
  for (const int32_t rank : *line.ranks)
    nodes.push_back(rank / plan.options.ranks_per_node);
  const HomeStep step(part, *rule, costs, matrices, nodes);
  const auto add = [&](int32_t phase, double weight) {
    const HomeStepTimes times = step.times(phase);
    for (size_t i = 0; i < nodes.size(); ++i)
      seconds[index((*line.ranks)[i])] += weight * times.rank_seconds[i];
  };
  if (part.period == 1) return add(0, 1);
  const double each = 1.0 / part.period;
  if (part.period > part.phases) add(-1, (part.period - part.phases) * each);
  for (int32_t phase = 0; phase < part.phases; ++phase) add(phase, each);
}

}  // namespace

std::vector<double> storage_step_seconds(const StoragePlan& plan) {
  std::vector<double> seconds(index(plan.world), 0);
  for (const LineOfClass& line : lines_of(plan))
    if (line.ranks->size() > 1) add_line_seconds(plan, line, seconds);
  const StorageBasis basis(plan);
  const double per_step = plan.cost_basis.seconds_per_tick /
                          static_cast<double>(basis.kinds().period());
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const OwnedMatrix& it = plan.matrices[m];
    if (it.round < 0 ||
        plan.classes[index(basis.class_of(m))].lines.front().size() == 1)
      seconds[index(it.owner)] +=
          static_cast<double>(basis.work_of(m)) * per_step;
  }
  const std::vector<RankCost> ranks = storage_wire(basis, plan);
  const Links& links = plan.options.links;
  for (size_t r = 0; r < seconds.size(); ++r) {
    const WireBytes& of =
        ranks[r].wire[static_cast<size_t>(Collective::kBroadcast)];
    const auto add = [&](bool near, int64_t most) {
      if (most > 0)
        seconds[r] += links.port_seconds(near, most) + links.latency(near);
    };
    add(true, std::max(of.sent_intra, of.received_intra));
    add(false, std::max(of.sent_inter, of.received_inter));
  }
  return seconds;
}

}  // namespace canzona::plan
