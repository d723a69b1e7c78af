#include <algorithm>
#include <functional>
#include <map>

#include "canzona/plan/loads.h"
#include "canzona/plan/pairwise_bytes.h"
#include "canzona/plan/predict_parts.h"
#include "canzona/plan/routes.h"
#include "canzona/plan/runs.h"
#include "canzona/plan/sum_order.h"

namespace canzona {
namespace {

// The ranks of a buffer among which a run goes round: those at the same place
// of a group of z homes, in the same tp plane, in the order of ranks.
struct Circle {
  std::vector<int32_t> ranks;
  std::vector<int32_t> homes;   // of the grid
  std::vector<int32_t> slices;  // of each rank
};

Circle circle_of(const PlanPart& plan, const Buffer& buffer, int32_t position,
                 int32_t z, int32_t t) {
  Circle circle;
  const Mesh& grid = plan.grid;
  for (int32_t h = 0; h < buffer.num_homes; ++h) {
    const int32_t home = plan.stage_home(buffer, h);
    for (int32_t place = position; place < grid.places; place += z) {
      const int32_t plane = place * grid.tp_ranks() + t;
      circle.ranks.push_back(grid.rank(buffer.stage, home, plane));
      circle.homes.push_back(h);
      circle.slices.push_back(grid.slice_of(place));
    }
  }
  return circle;
}

// Elements that each rank of a circle keeps of a bucket.
std::vector<int64_t> kept_runs(const PlanPart& plan, const Bucket& bucket,
                               const Circle& circle) {
  std::map<int32_t, std::vector<int64_t>> by_slice;
  for (int32_t slice : circle.slices) {
    if (by_slice.contains(slice)) continue;
    std::vector<int64_t> runs = matrix_runs(plan, bucket, slice);
    const std::vector<int64_t> adamw = adamw_runs(plan, bucket, slice);
    for (size_t h = 0; h < runs.size(); ++h) runs[h] += adamw[h];
    by_slice.emplace(slice, std::move(runs));
  }
  std::vector<int64_t> out;
  for (size_t i = 0; i < circle.ranks.size(); ++i)
    out.push_back(
        by_slice.at(circle.slices[i])[static_cast<size_t>(circle.homes[i])]);
  return out;
}

class BucketBytes {
 public:
  BucketBytes(const PlanPart& plan, const Nodes& nodes,
              std::vector<RankCost>& out)
      : plan_(plan), nodes_(nodes), out_(out) {}

  void add(const Bucket& bucket) {
    const ZeroSizes& zero = plan_.options.zero.sizes;
    const bool reduce_all = plan_.traffic == Traffic::kAllReduce ||
                            plan_.traffic == Traffic::kBroadcast;
    if (adds_replicas_at_once(plan_)) {
      // Nothing is summed in one replica (predict_zero.h).
    } else if (reduce_all) {
      each_circle(bucket, zero.z2,
                  [&](const Circle& c) { all_reduce(bucket, c); });
    } else if (plan_.options.zero.replica_sum == ReplicaSum::kScatter) {
      each_circle(bucket, zero.z2, [&](const Circle& c) {
        sent(c, kept_runs(plan_, bucket, c))
            .add_reduce_scatter(fields(Collective::kReduceScatter),
                                kBytesPerFp32);
      });
    }
    if (plan_.traffic == Traffic::kAllReduce) return;
    const Collective publish =
        reduce_all ? Collective::kBroadcast : Collective::kAllGather;
    each_circle(bucket, zero.z3, [&](const Circle& c) {
      sent(c, kept_runs(plan_, bucket, c))
          .add_all_gather(fields(publish), bytes_per_parameter(plan_));
    });
  }

 private:
  template <class Visit>
  void each_circle(const Bucket& bucket, int32_t z, Visit visit) {
    const Buffer& buffer = plan_.buffers[static_cast<size_t>(bucket.buffer)];
    for (int32_t position = 0; position < z; ++position)
      for (int32_t t = 0; t < plan_.grid.tp_ranks(); ++t)
        visit(circle_of(plan_, buffer, position, z, t));
  }

  // All that the ranks keep; they keep the same slices.
  void all_reduce(const Bucket& bucket, const Circle& c) {
    const int64_t elements = matrix_slice(plan_, bucket, c.slices[0]) +
                             adamw_slice(plan_, bucket, c.slices[0]);
    const PairwiseBytes even =
        sent(c, even_runs(elements, std::ssize(c.ranks)));
    even.add_reduce_scatter(fields(Collective::kAllReduce), kBytesPerFp32);
    even.add_all_gather(fields(Collective::kAllReduce), kBytesPerFp32);
  }

  PairwiseBytes sent(const Circle& c, std::vector<int64_t> runs) const {
    std::vector<int32_t> nodes;
    for (int32_t r : c.ranks) nodes.push_back(nodes_[static_cast<size_t>(r)]);
    return {c.ranks, std::move(nodes), std::move(runs)};
  }
  std::function<WireBytes&(int32_t)> fields(Collective collective) {
    return [this, collective](int32_t rank) -> WireBytes& {
      return out_[static_cast<size_t>(rank)]
          .wire[static_cast<size_t>(collective)];
    };
  }

  const PlanPart& plan_;
  const Nodes& nodes_;
  std::vector<RankCost>& out_;
};

// Messages between the tp ranks of homes.
class Exchange {
 public:
  Exchange(const PlanPart& plan, const Nodes& nodes,
           std::vector<RankCost>& ranks)
      : plan_(plan),
        ranks_(ranks),
        rule_(make_rule_facts(plan.rule, plan.rule_options)),
        nodes_(nodes) {}

  // Every rank of every home gathers everything: what a plane sends is the
  // same at all homes of an ep coordinate, but the links it takes are not.
  // Tensors that tp does not cut go to planes of the same tp rank only.
  void add_repeated() {
    std::vector<int64_t> to_all(ranks_.size(), 0), to_same(ranks_.size(), 0);
    for (size_t m = 0; m < plan_.matrices.size(); ++m) {
      const Matrix& matrix = plan_.matrices[m];
      const Tensor& tensor =
          plan_.model.tensors[static_cast<size_t>(matrix.tensor)];
      std::vector<int64_t>& sent = tensor.cut == Cut::kNone ? to_same : to_all;
      const std::vector<int64_t> elements =
          elements_by_rank(plan_, static_cast<int32_t>(m));
      each_home(plan_, matrix.tensor, [&](int32_t stage, int32_t home) {
        const auto first = static_cast<size_t>(plan_.grid.rank(stage, home, 0));
        for (size_t t = 0; t < elements.size(); ++t)
          sent[first + t] += elements[t];
      });
    }
    for (size_t from = 0; from < ranks_.size(); ++from)
      send_repeated(static_cast<int32_t>(from), to_all, to_same);
  }

  // Shards to every rank that computes the matrix, updates back from an owner.
  void add(size_t m) {
    const Matrix& matrix = plan_.matrices[m];
    const Tensor& tensor =
        plan_.model.tensors[static_cast<size_t>(matrix.tensor)];
    const bool repeated = plan_.owners[m].empty();
    const std::vector<int64_t> elements =
        elements_by_rank(plan_, static_cast<int32_t>(m));
    each_computing_rank(plan_, m, [&](int32_t owner) {
      const int32_t first = owner - owner % plan_.grid.tp;
      for (int32_t t = 0; t < plan_.grid.tp; ++t) {
        const int64_t own = elements[static_cast<size_t>(t)];
        if (sends_to(plan_.grid, tensor, t, owner - first))
          send(first + t, owner, Collective::kGather,
               own * rule_->gather_bytes_per_element());
        if (!repeated)
          send(owner, first + t, Collective::kScatter,
               own * rule_->scatter_bytes_per_element());
      }
    });
  }

 private:
  void send_repeated(int32_t from, const std::vector<int64_t>& to_all,
                     const std::vector<int64_t>& to_same) {
    const auto counted = static_cast<size_t>(counted_rank(plan_.grid, from));
    const int32_t tp = plan_.grid.tp_ranks();
    const int32_t first = from - from % plan_.grid.tp;
    for (int32_t to = first; to < first + plan_.grid.tp; ++to) {
      const int64_t elements =
          to_all[counted] + (to % tp == from % tp ? to_same[counted] : 0);
      send(from, to, Collective::kGather,
           elements * rule_->gather_bytes_per_element());
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

  const PlanPart& plan_;
  std::vector<RankCost>& ranks_;
  std::unique_ptr<RuleFacts> rule_;
  const Nodes& nodes_;
};

}  // namespace

void add_bucket_bytes(const PlanPart& plan, const Nodes& nodes,
                      std::vector<RankCost>& ranks) {
  BucketBytes bytes(plan, nodes, ranks);
  for (const Bucket& bucket : plan.buckets) bytes.add(bucket);
}

void add_exchange_bytes(const PlanPart& plan, const Nodes& nodes,
                        std::vector<RankCost>& ranks) {
  if (plan.grid.tp == 1) return;
  Exchange exchange(plan, nodes, ranks);
  if (plan.traffic == Traffic::kAllReduce) {
    exchange.add_repeated();
    return;
  }
  for (size_t m = 0; m < plan.matrices.size(); ++m) exchange.add(m);
}

}  // namespace canzona
