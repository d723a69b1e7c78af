#include <algorithm>
#include <numeric>

#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/predict_parts.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/schedule/runs.h"
#include "canzona/plan/schedule/sum_order.h"

namespace canzona {
namespace {

// Bytes of collectives that are pairwise exchanges: everybody sends every peer
// that peer's run (reduce-scatter) or its own run (all-gather). They are linear
// in the runs, so that all buckets of a buffer are counted at once.
class BufferBytes {
 public:
  BufferBytes(const PlanPart& plan, const Nodes& nodes, int32_t buffer,
              std::vector<RankCost>& out)
      : plan_(plan),
        nodes_(nodes),
        buffer_(plan.buffers[static_cast<size_t>(buffer)]),
        out_(out) {
    for (const Bucket& bucket : plan.buckets)
      if (bucket.buffer == buffer) buckets_.push_back(&bucket);
  }

  void add() {
    const ZeroSizes& zero = plan_.options.zero.sizes;
    const int64_t parameter = bytes_per_parameter(plan_);
    const auto all_reduce = Collective::kAllReduce;
    if (adds_replicas_at_once(plan_)) {
      // Nothing is summed in one replica (predict_zero.h).
    } else if (!is_scattered(plan_.traffic)) {
      exchange(Collective::kReduceScatter, zero.z2, kBytesPerFp32, all_reduce);
      exchange(Collective::kAllGather, zero.z2, kBytesPerFp32, all_reduce);
    } else if (plan_.options.zero.replica_sum == ReplicaSum::kScatter) {
      exchange(Collective::kReduceScatter, zero.z2, kBytesPerFp32,
               Collective::kReduceScatter);
    }
    if (plan_.traffic != Traffic::kAllReduce)
      exchange(Collective::kAllGather, zero.z3, parameter,
               is_scattered(plan_.traffic) ? Collective::kAllGather
                                           : Collective::kBroadcast);
  }

 private:
  // Ranks among which runs go round: those at the same place of a group of z
  // homes, in the first tp plane, in order, so that those of a node stand in a
  // row.
  struct Circle {
    std::vector<int32_t> ranks;
    std::vector<size_t> homes;    // of the buffer
    std::vector<int32_t> slices;  // of each rank
  };

  Circle circle_of(int32_t position, int32_t z) const {
    Circle circle;
    const Mesh& grid = plan_.grid;
    for (int32_t h = 0; h < buffer_.num_homes; ++h) {
      const int32_t home = plan_.stage_home(buffer_, h);
      for (int32_t place = position; place < grid.places; place += z) {
        circle.ranks.push_back(
            grid.rank(buffer_.stage, home, place * grid.tp_ranks()));
        circle.homes.push_back(static_cast<size_t>(h));
        circle.slices.push_back(grid.slice_of(place));
      }
    }
    return circle;
  }

  // What each home keeps of a slice of all buckets.
  const std::vector<int64_t>& kept(int32_t slice) {
    kept_.resize(static_cast<size_t>(plan_.grid.places));
    std::vector<int64_t>& sums = kept_[static_cast<size_t>(slice)];
    if (!sums.empty()) return sums;
    sums.resize(static_cast<size_t>(buffer_.num_homes), 0);
    for (const Bucket* bucket : buckets_) {
      const std::vector<int64_t> matrices = matrix_runs(plan_, *bucket, slice);
      const std::vector<int64_t> others = adamw_runs(plan_, *bucket, slice);
      for (size_t h = 0; h < sums.size(); ++h)
        sums[h] += matrices[h] + others[h];
    }
    return sums;
  }

  std::vector<int64_t> kept_runs(const Circle& c) {
    std::vector<int64_t> runs;
    for (size_t i = 0; i < c.ranks.size(); ++i)
      runs.push_back(kept(c.slices[i])[c.homes[i]]);
    return runs;
  }

  // Shares of an all-reduce of all that the ranks keep, the same slices.
  std::vector<int64_t> even_runs(const Circle& c) const {
    std::vector<int64_t> runs(c.ranks.size(), 0);
    const auto count = std::ssize(runs);
    for (const Bucket* bucket : buckets_) {
      const int64_t elements = matrix_slice(plan_, *bucket, c.slices[0]) +
                               adamw_slice(plan_, *bucket, c.slices[0]);
      for (int64_t i = 0; i < count; ++i)
        runs[static_cast<size_t>(i)] +=
            elements * (i + 1) / count - elements * i / count;
    }
    return runs;
  }

  // Counts as `field` what goes round in the manner of `kind`.
  void exchange(Collective kind, int32_t z, int64_t bytes, Collective field) {
    for (int32_t position = 0; position < z; ++position) {
      Circle circle = circle_of(position, z);
      const std::vector<int64_t> runs = field == Collective::kAllReduce
                                            ? even_runs(circle)
                                            : kept_runs(circle);
      for (int32_t t = 0; t < plan_.grid.tp_ranks(); ++t) {
        send(kind, circle.ranks, runs, bytes, field);
        for (int32_t& rank : circle.ranks) ++rank;
      }
    }
  }

  void send(Collective kind, const std::vector<int32_t>& ranks,
            const std::vector<int64_t>& runs, int64_t bytes, Collective field) {
    const auto node = [&](size_t i) {
      return nodes_[static_cast<size_t>(ranks[i])];
    };
    const auto all = std::reduce(runs.begin(), runs.end());
    for (size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
      int64_t here = 0;  // elements of the node
      for (; end < ranks.size() && node(end) == node(begin); ++end)
        here += runs[end];
      const auto near = static_cast<int64_t>(end - begin) - 1;
      const int64_t far = std::ssize(ranks) - 1 - near;
      for (size_t i = begin; i < end; ++i) {
        const int64_t own = runs[i] * bytes;
        const WireBytes gathered{own * near, own * far, here * bytes - own,
                                 (all - here) * bytes};
        out_[static_cast<size_t>(ranks[i])].wire[static_cast<size_t>(field)] +=
            kind == Collective::kAllGather
                ? gathered
                : WireBytes{gathered.received_intra, gathered.received_inter,
                            gathered.sent_intra, gathered.sent_inter};
      }
    }
  }

  const PlanPart& plan_;
  const Nodes& nodes_;
  const Buffer& buffer_;
  std::vector<RankCost>& out_;
  std::vector<const Bucket*> buckets_;
  std::vector<std::vector<int64_t>> kept_;  // [slice][home], once asked for
};

// Messages between the tp ranks of homes.
class Exchange {
 public:
  Exchange(const PlanPart& plan, const RuleFacts& rule, const Nodes& nodes,
           std::vector<RankCost>& ranks)
      : plan_(plan),
        ranks_(ranks),
        nodes_(nodes),
        gathered_(rule.gather_bytes_per_element()),
        scattered_(rule.scatter_bytes_per_element()) {}

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
          send(first + t, owner, Collective::kGather, own * gathered_);
        if (!repeated)
          send(owner, first + t, Collective::kScatter, own * scattered_);
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
      send(from, to, Collective::kGather, elements * gathered_);
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
  const Nodes& nodes_;
  int64_t gathered_, scattered_;  // bytes per element
};

}  // namespace

void add_bucket_bytes(const PlanPart& plan, const Nodes& nodes,
                      std::vector<RankCost>& ranks) {
  for (size_t b = 0; b < plan.buffers.size(); ++b)
    BufferBytes(plan, nodes, static_cast<int32_t>(b), ranks).add();
}

void add_exchange_bytes(const PlanPart& plan, const RuleFacts& rule,
                        const Nodes& nodes, std::vector<RankCost>& ranks) {
  if (plan.grid.tp == 1) return;
  Exchange exchange(plan, rule, nodes, ranks);
  if (plan.traffic == Traffic::kAllReduce) {
    exchange.add_repeated();
    return;
  }
  for (size_t m = 0; m < plan.matrices.size(); ++m) exchange.add(m);
}

}  // namespace canzona
