#include <algorithm>
#include <map>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/rank_costs.h"
#include "canzona/plan/predict/step_times.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona::plan {
namespace {

Collective counted_as(const PlanPart& part, const BucketCollective& c) {
  if (c.purpose == Purpose::kPublish)
    return is_scattered(part.traffic) ? Collective::kAllGather
                                      : Collective::kBroadcast;
  const bool runs = c.pieces != BucketCollective::Pieces::kShares;
  return c.kind == EntryKind::kReduceScatter && runs
             ? Collective::kReduceScatter
             : Collective::kAllReduce;
}

// The collectives of all buckets of a buffer. Bytes are linear in pieces, so
// pieces are added up first.
class BufferBytes {
 public:
  BufferBytes(const PlanPart& part, int32_t buffer, std::vector<RankCost>& out)
      : part_(part), buffer_(part.buffers[index(buffer)]), out_(out) {
    for (const Bucket& bucket : part.buckets)
      if (bucket.buffer == buffer) buckets_.emplace_back(part, bucket);
  }

  void add() {
    const Mesh& mesh = part_.mesh;
    // Direct groups of different tp ranks differ only in their links.
    const bool alike = part_.options.zero.reach == Reach::kDirect;
    for (int32_t home = 0; home < mesh.homes(); ++home)
      for (int32_t t = 0; t < (alike ? 1 : mesh.tp); ++t)
        add_rank(mesh.rank(buffer_.stage, home, t), alike ? mesh.tp : 1);
  }

 private:
  void add_rank(int32_t rank, int32_t tp) {
    if (!coordinates_of(part_.mesh, rank).holds(buffer_)) return;
    for (const BucketCollectives& list :
         {sums_of(part_, buffer_, rank), publishes_of(part_, buffer_, rank)})
      for (const BucketCollective& c : list) add_group(c, rank, tp);
  }

  // Adds the group whose first member is `rank`, and those of the next tp
  // ranks, which have the same pieces.
  void add_group(const BucketCollective& c, int32_t rank, int32_t tp) {
    RankGroup group = ranks_of(part_, c, rank);
    if (group.first != rank || group.count == 1) return;
    std::vector<int64_t> counts(index(group.count), 0);
    for (BucketPieces& bucket : buckets_) {
      const std::vector<int64_t> own = bucket.counts(c, rank);
      CANZONA_CHECK(own.size() == counts.size(), "counts of ", own.size(),
                    " members, the group has ", counts.size());
      for (size_t i = 0; i < counts.size(); ++i) counts[i] += own[i];
    }
    for (int64_t& count : counts) count *= element_bytes(part_, c);
    const auto field = static_cast<size_t>(counted_as(part_, c));
    for (int32_t t = 0; t < tp; ++t, ++group.first)
      add_member_bytes(part_, group, c.kind, counts,
                       [&](int32_t member) -> WireBytes& {
                         return out_[index(member)].wire[field];
                       });
  }

  const PlanPart& part_;
  const Buffer& buffer_;
  std::vector<RankCost>& out_;
  std::vector<BucketPieces> buckets_;
};

// Messages between the tp ranks of homes.
class Exchange {
 public:
  Exchange(const PlanPart& part, const RuleFacts& rule, const Nodes& nodes,
           std::vector<RankCost>& ranks)
      : part_(part),
        ranks_(ranks),
        nodes_(nodes),
        teams_(part),
        gathered_(rule.gather_bytes_per_element()),
        scattered_(rule.scatter_bytes_per_element()) {}

  // Every rank of every home gathers everything. A plane sends the same bytes
  // at all homes of an ep coordinate, but over different links. Tensors that tp
  // does not cut go only to planes of the same tp rank.
  void add_repeated() {
    std::vector<int64_t> to_all(ranks_.size(), 0), to_same(ranks_.size(), 0);
    for (size_t m = 0; m < part_.matrices.size(); ++m) {
      const Matrix& matrix = part_.matrices[m];
      const Tensor& tensor =
          part_.model.tensors[static_cast<size_t>(matrix.tensor)];
      std::vector<int64_t>& sent = tensor.cut == Cut::kNone ? to_same : to_all;
      const std::vector<int64_t> elements =
          elements_by_rank(part_, static_cast<int32_t>(m));
      each_home(part_, matrix.tensor, [&](int32_t stage, int32_t home) {
        const auto first = static_cast<size_t>(part_.grid.rank(stage, home, 0));
        for (size_t t = 0; t < elements.size(); ++t)
          sent[first + t] += elements[t];
      });
    }
    for (size_t from = 0; from < ranks_.size(); ++from)
      send_repeated(static_cast<int32_t>(from), to_all, to_same);
  }

  // Adds shards sent to every rank that computes the matrix, and updates sent
  // back.
  void add(size_t m) {
    if (teams_.is_shared(m)) {
      add_shares(m);
      return;
    }
    const Matrix& matrix = part_.matrices[m];
    const Tensor& tensor =
        part_.model.tensors[static_cast<size_t>(matrix.tensor)];
    const bool repeated = part_.owners[m].empty();
    const std::vector<int64_t> elements =
        elements_by_rank(part_, static_cast<int32_t>(m));
    each_computing_rank(part_, m, [&](int32_t owner) {
      const int32_t first = first_of_home(part_.grid, owner);
      for (int32_t t = 0; t < part_.grid.tp; ++t) {
        const int64_t own = elements[static_cast<size_t>(t)];
        if (sends_to(part_.grid, tensor, t, owner - first))
          send(first + t, owner, Collective::kGather, own * gathered_);
        if (!repeated)
          send(owner, first + t, Collective::kScatter, own * scattered_);
      }
    });
  }

 private:
  // Does the same for ranks that compute strips or blocks of the matrix;
  // members of a team also exchange sums and factors.
  void add_shares(size_t m) {
    const Matrix& matrix = part_.matrices[m];
    const Tensor& tensor =
        part_.model.tensors[static_cast<size_t>(matrix.tensor)];
    const bool is_team = teams_.is_team(m);
    const std::vector<MatrixShare> shares = teams_.shares(m);
    int32_t member = 0;
    each_computing_rank(part_, m, [&](int32_t rank) {
      const int32_t first = first_of_home(part_.grid, rank);
      const std::vector<int64_t> elements =
          elements_within(part_, static_cast<int32_t>(m),
                          shares[static_cast<size_t>(member)].rectangles);
      for (int32_t t = 0; t < part_.grid.tp; ++t) {
        const int64_t own = elements[static_cast<size_t>(t)];
        if (sends_to(part_.grid, tensor, t, rank - first))
          send(first + t, rank, Collective::kGather, own * gathered_);
        send(rank, first + t, Collective::kScatter, own * scattered_);
      }
      if (is_team)
        add_inside_team(rank, ordinary_team_bytes(teams_.strips(m),
                                                  teams_.size(m), member));
      ++member;
    });
  }

  // Links inside a node suffice, because a team never spans nodes.
  void add_inside_team(int32_t rank, const TeamBytes& bytes) {
    auto& wire = ranks_[static_cast<size_t>(rank)].wire;
    WireBytes& sums = wire[static_cast<size_t>(Collective::kTeamSums)];
    WireBytes& factors = wire[static_cast<size_t>(Collective::kTeamFactors)];
    sums.sent_intra += bytes.sums_sent;
    sums.received_intra += bytes.sums_received;
    factors.sent_intra += bytes.factors_sent;
    factors.received_intra += bytes.factors_received;
  }

  void send_repeated(int32_t from, const std::vector<int64_t>& to_all,
                     const std::vector<int64_t>& to_same) {
    const auto counted = static_cast<size_t>(counted_rank(part_.grid, from));
    const Mesh& grid = part_.grid;
    const int32_t first = first_of_home(grid, from);
    const int32_t own = grid.tp_rank_of(from - first);
    for (int32_t t = 0; t < grid.tp; ++t) {
      const int64_t elements =
          to_all[counted] + (grid.tp_rank_of(t) == own ? to_same[counted] : 0);
      send(from, first + t, Collective::kGather, elements * gathered_);
    }
  }

  void send(int32_t from, int32_t to, Collective collective, int64_t bytes) {
    if (from == to || bytes == 0) return;
    const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
    const auto c = static_cast<size_t>(collective);
    WireBytes& sent = ranks_[a].wire[c];
    WireBytes& received = ranks_[b].wire[c];
    const bool near = nodes_[a] == nodes_[b];
    (near ? sent.sent_intra : sent.sent_inter) += bytes;
    (near ? received.received_intra : received.received_inter) += bytes;
  }

  const PlanPart& part_;
  std::vector<RankCost>& ranks_;
  const Nodes& nodes_;
  TeamTable teams_;
  int64_t gathered_, scattered_;  // bytes per element
};

}  // namespace

void add_bucket_bytes(const PlanPart& part, std::vector<RankCost>& world) {
  for (size_t b = 0; b < part.buffers.size(); ++b)
    BufferBytes(part, static_cast<int32_t>(b), world).add();
}

void add_exchange_bytes(const PlanPart& part, const RuleFacts& rule,
                        const Nodes& nodes, std::vector<RankCost>& ranks) {
  if (part.grid.tp == 1) return;
  Exchange exchange(part, rule, nodes, ranks);
  if (part.traffic == Traffic::kAllReduce) {
    exchange.add_repeated();
    return;
  }
  for (size_t m = 0; m < part.matrices.size(); ++m) exchange.add(m);
}

namespace {

// Returns the matrices of each home (index: first rank / tp), sorted by round.
std::vector<std::vector<HomeMatrix>> matrices_by_home(const PlanPart& part) {
  const Mesh& grid = part.grid;
  std::vector<std::vector<HomeMatrix>> homes(index(grid.pp * grid.homes()));
  for (size_t m = 0; m < part.matrices.size(); ++m)
    each_home(part, part.matrices[m].tensor, [&](int32_t stage, int32_t home) {
      homes[index(stage * grid.homes() + home)].push_back(
          {static_cast<int32_t>(m), part.micro_group[m], part.owners[m]});
    });
  for (std::vector<HomeMatrix>& some : homes)
    std::ranges::stable_sort(some, {}, &HomeMatrix::round);
  return homes;
}

// Returns the nodes of the home whose first rank is `first`.
std::span<const int32_t> nodes_of_home(const PlanPart& part, const Nodes& nodes,
                                       int32_t first) {
  return std::span(nodes).subspan(index(first), index(part.grid.tp));
}

// Times of a rank: an ordinary step, the sum over a period, the worst step.
struct PeriodSeconds {
  double ordinary = 0, sum = 0, worst = 0;
};

std::vector<PeriodSeconds> period_seconds(const PlanPart& part,
                                          const HomeStep& home) {
  std::vector<PeriodSeconds> out;
  for (const double seconds : home.times(part.period > 1 ? -1 : 0).rank_seconds)
    out.push_back({seconds, seconds * (part.period - part.phases), seconds});
  if (part.period == 1) {  // every step is the same
    for (PeriodSeconds& rank : out) rank.sum = rank.ordinary;
    return out;
  }
  for (int32_t phase = 0; phase < part.phases; ++phase) {
    const HomeStepTimes times = home.times(phase);
    for (size_t r = 0; r < out.size(); ++r) {
      out[r].sum += times.rank_seconds[r];
      out[r].worst = std::max(out[r].worst, times.rank_seconds[r]);
    }
  }
  return out;
}

void add_own_work(const PlanPart& part, RankCost& rank) {
  int64_t refresh = 0, worst = 0;
  for (const Ticks& r : rank.refresh) {
    refresh += r.value();
    worst = std::max(worst, r.value());
  }
  const double tick = part.cost_basis.seconds_per_tick;
  const auto every = static_cast<double>(rank.every_step.value());
  rank.transform_seconds_mean =
      tick * (every + static_cast<double>(refresh) / part.period);
  rank.transform_seconds_worst = tick * (every + static_cast<double>(worst));
}

// Broadcasts of weights happen inside the step and are not hidden.
double broadcast_seconds(const PlanPart& part, const RankCost& rank) {
  const WireBytes& w = rank.wire[static_cast<size_t>(Collective::kBroadcast)];
  return static_cast<double>(std::max(w.sent_intra, w.received_intra)) /
             part.options.links.intra_bytes_per_second +
         static_cast<double>(std::max(w.sent_inter, w.received_inter)) /
             part.options.links.inter_bytes_per_second;
}

}  // namespace

void add_step_times(const PlanPart& part, const RuleFacts& rule,
                    const Nodes& nodes, std::vector<RankCost>& ranks) {
  const std::vector<std::vector<HomeMatrix>> members = matrices_by_home(part);
  const int32_t tp = part.grid.tp;
  TeamCosts costs(rule, part.cost_basis, part.options.links);
  // Homes that repeat the updates of another home on equally distributed nodes
  // share its times.
  std::map<std::pair<int32_t, Nodes>, std::vector<PeriodSeconds>> known;
  for (int32_t first = 0; first < part.grid.world(); first += tp) {
    const bool repeats = part.traffic == Traffic::kAllReduce;
    const int32_t counted = repeats ? counted_rank(part.grid, first) : first;
    std::vector<PeriodSeconds> seconds;
    const auto compute = [&] {
      return period_seconds(
          part, HomeStep(part, rule, costs, members[index(counted / tp)],
                         nodes_of_home(part, nodes, first)));
    };
    if (repeats) {
      Nodes own(nodes.begin() + first, nodes.begin() + first + tp);
      for (size_t t = own.size(); t-- > 0;) own[t] -= own[0];
      const auto [found, is_new] = known.try_emplace({counted, std::move(own)});
      if (is_new) found->second = compute();
      seconds = found->second;
    } else {
      seconds = compute();
    }
    for (int32_t t = 0; t < tp; ++t) {
      RankCost& rank = ranks[index(first + t)];
      add_own_work(part, rank);
      rank.step_seconds = seconds[index(t)].ordinary;
      rank.step_seconds_mean = seconds[index(t)].sum / part.period;
      rank.step_seconds_worst = seconds[index(t)].worst;
    }
  }
}

namespace {

// Seconds of one part's ordinary step, on nodes like those of its first
// replica: by module until it is applied, and until everything is.
struct AppliedTimes {
  std::vector<double> modules;
  double all = 0;
};

AppliedTimes applied_times(const PlanPart& part) {
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  TeamCosts costs(*rule, part.cost_basis, part.options.links);
  AppliedTimes out;
  out.modules.assign(index(num_modules(part.model)), 0);
  Nodes nodes;
  for (int32_t r = 0; r < part.grid.world(); ++r)
    nodes.push_back(part.node_of(rank_in_part(part, r, 0)));
  const std::vector<std::vector<HomeMatrix>> members = matrices_by_home(part);
  for (size_t home = 0; home < members.size(); ++home) {
    if (members[home].empty()) continue;
    const auto first = static_cast<int32_t>(home) * part.grid.tp;
    const HomeStepTimes times = HomeStep(part, *rule, costs, members[home],
                                         nodes_of_home(part, nodes, first))
                                    .times(part.period > 1 ? -1 : 0);
    out.all = std::max(out.all, std::ranges::max(times.rank_seconds));
    for (const HomeMatrix& of : members[home]) {
      const Tensor& tensor =
          part.model.tensors[index(part.matrices[index(of.matrix)].tensor)];
      double& applied = out.modules[index(module_of(part.model, tensor))];
      applied =
          std::max(applied, std::ranges::max(times.applied[index(of.round)]));
    }
  }
  return out;
}

}  // namespace

}  // namespace canzona::plan

namespace canzona {
using namespace plan;

// Parts are updated one after the other; those of experts run in parallel.
std::vector<double> applied_shares(const Plan& plan) {
  std::vector<double> modules(index(num_modules(plan.model)), 0);
  double before = 0, all = 0;
  for (size_t p = 0; p < plan.parts.size(); ++p) {
    const AppliedTimes times = applied_times(plan.parts[p]);
    for (size_t m = 0; m < modules.size(); ++m)
      if (times.modules[m] > 0)
        modules[m] = std::max(modules[m], before + times.modules[m]);
    all = std::max(all, before + times.all);
    if (p == 0) before = times.all;
  }
  for (double& share : modules) share = all > 0 ? share / all : 1;
  return modules;
}

}  // namespace canzona

namespace canzona::plan {

void add_unhidden_times(const PlanPart& part, std::vector<RankCost>& world) {
  const double rate = part.cost_basis.element_wise_bytes_per_second;
  for (RankCost& rank : world) {
    const double broadcasts = broadcast_seconds(part, rank);
    if (rate > 0) rank.element_wise_seconds = rank.element_wise_bytes / rate;
    for (double* seconds : {&rank.step_seconds, &rank.step_seconds_mean,
                            &rank.step_seconds_worst}) {
      *seconds += broadcasts;
      *seconds += rank.element_wise_seconds;
    }
  }
}

}  // namespace canzona::plan
