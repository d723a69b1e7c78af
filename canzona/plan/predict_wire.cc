#include <algorithm>

#include "canzona/plan/loads.h"
#include "canzona/plan/predict_parts.h"
#include "canzona/plan/routes.h"

namespace canzona {
namespace {

// Ranks of one data-parallel group exchanging runs pairwise: everybody sends
// every peer that peer's run (reduce-scatter) or its own run (all-gather).
class GroupExchange {
 public:
  GroupExchange(const Plan& plan, const Buffer& buffer, int32_t t,
                std::vector<int64_t> runs)
      : runs_(std::move(runs)) {
    for (int32_t h = 0; h < buffer.num_homes; ++h) {
      const int32_t rank =
          plan.mesh.rank(buffer.stage, plan.stage_home(buffer, h), t);
      ranks_.push_back(rank);
      const int32_t node = rank / plan.options.ranks_per_node;
      if (nodes_.empty() || nodes_.back().node != node) {
        nodes_.push_back({node, 0, 0});
      }
      nodes_.back().elements += runs_[static_cast<size_t>(h)];
      ++nodes_.back().ranks;
      node_of_.push_back(nodes_.size() - 1);
      total_ += runs_[static_cast<size_t>(h)];
    }
  }

  void add_reduce_scatter(std::vector<RankCost>& out, Collective collective,
                          int64_t bytes) const {
    for (size_t h = 0; h < ranks_.size(); ++h) {
      WireBytes& w = wire(out, h, collective);
      const auto [near, far] = peers(h);
      w.sent_intra += (node(h).elements - runs_[h]) * bytes;
      w.sent_inter += (total_ - node(h).elements) * bytes;
      w.received_intra += runs_[h] * near * bytes;
      w.received_inter += runs_[h] * far * bytes;
    }
  }

  void add_all_gather(std::vector<RankCost>& out, Collective collective,
                      int64_t bytes) const {
    for (size_t h = 0; h < ranks_.size(); ++h) {
      WireBytes& w = wire(out, h, collective);
      const auto [near, far] = peers(h);
      w.received_intra += (node(h).elements - runs_[h]) * bytes;
      w.received_inter += (total_ - node(h).elements) * bytes;
      w.sent_intra += runs_[h] * near * bytes;
      w.sent_inter += runs_[h] * far * bytes;
    }
  }

 private:
  struct Node {
    int32_t node;
    int64_t elements;
    int64_t ranks;
  };

  const Node& node(size_t h) const { return nodes_[node_of_[h]]; }
  std::pair<int64_t, int64_t> peers(size_t h) const {
    return {node(h).ranks - 1,
            static_cast<int64_t>(ranks_.size()) - node(h).ranks};
  }
  WireBytes& wire(std::vector<RankCost>& out, size_t h, Collective c) const {
    return out[static_cast<size_t>(ranks_[h])].wire[static_cast<size_t>(c)];
  }

  std::vector<int64_t> runs_;    // per home
  std::vector<int32_t> ranks_;   // per home
  std::vector<size_t> node_of_;  // per home
  std::vector<Node> nodes_;      // homes of a node are neighbours
  int64_t total_ = 0;
};

std::vector<int64_t> even_runs(int64_t elements, int32_t homes) {
  std::vector<int64_t> runs;
  for (int64_t h = 0; h < homes; ++h) {
    runs.push_back(elements * (h + 1) / homes - elements * h / homes);
  }
  return runs;
}

// Elements whose new weights each home sends out.
std::vector<int64_t> kept_runs(const Plan& plan, const Bucket& bucket,
                               int32_t homes) {
  const int64_t padded =
      plan.traffic == Traffic::kPadded ? longest_run(bucket) : -1;
  std::vector<int64_t> runs;
  for (int32_t h = 0; h < homes; ++h) {
    runs.push_back((padded >= 0 ? padded : matrix_elements_at(bucket, h)) +
                   adamw_elements_at(bucket, h));
  }
  if (plan.traffic != Traffic::kBroadcast) return runs;
  for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
    const int32_t t = bucket.tensors[static_cast<size_t>(i)];
    runs[static_cast<size_t>(plan.home[static_cast<size_t>(t)])] +=
        shard_elements(plan.mesh, plan.model.tensors[static_cast<size_t>(t)]);
  }
  return runs;
}

void add_bucket(const Plan& plan, const Bucket& bucket, int32_t t,
                std::vector<RankCost>& ranks) {
  const Buffer& buffer = plan.buffers[static_cast<size_t>(bucket.buffer)];
  const int32_t homes = buffer.num_homes;
  const bool reduce_all = plan.traffic == Traffic::kAllReduce ||
                          plan.traffic == Traffic::kBroadcast;
  if (reduce_all) {
    const int64_t elements =
        matrix_elements(plan, bucket) + adamw_elements(plan, bucket);
    const GroupExchange even(plan, buffer, t, even_runs(elements, homes));
    even.add_reduce_scatter(ranks, Collective::kAllReduce, kBytesPerFp32);
    even.add_all_gather(ranks, Collective::kAllReduce, kBytesPerFp32);
    if (plan.traffic == Traffic::kAllReduce) return;
  }
  const GroupExchange kept(plan, buffer, t, kept_runs(plan, bucket, homes));
  if (!reduce_all) {
    kept.add_reduce_scatter(ranks, Collective::kReduceScatter, kBytesPerFp32);
  }
  kept.add_all_gather(
      ranks, reduce_all ? Collective::kBroadcast : Collective::kAllGather,
      bytes_per_parameter(plan));
}

// Messages between the tp ranks of homes.
class Exchange {
 public:
  Exchange(const Plan& plan, std::vector<RankCost>& ranks)
      : plan_(plan),
        ranks_(ranks),
        rule_(make_rule_facts(plan.rule, plan.rule_options)) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      nodes_.push_back(static_cast<int32_t>(r) / plan.options.ranks_per_node);
    }
  }

  // Every rank of every home gathers everything: what a tp rank sends is the
  // same at all homes of an ep coordinate, but the links it takes are not.
  void add_repeated() {
    const auto tp = static_cast<size_t>(plan_.mesh.tp);
    std::vector<int64_t> sent(ranks_.size(), 0);  // to each peer, where counted
    for (size_t m = 0; m < plan_.matrices.size(); ++m) {
      const Matrix& matrix = plan_.matrices[m];
      if (plan_.model.tensors[static_cast<size_t>(matrix.tensor)].cut ==
          Cut::kNone) {
        continue;
      }
      const std::vector<int64_t> elements =
          elements_by_rank(plan_, static_cast<int32_t>(m));
      each_home(plan_, matrix.tensor, [&](int32_t stage, int32_t home) {
        const auto first = static_cast<size_t>(plan_.mesh.rank(stage, home, 0));
        for (size_t t = 0; t < tp; ++t) sent[first + t] += elements[t];
      });
    }
    for (size_t from = 0; from < ranks_.size(); ++from) {
      const int32_t counted =
          counted_rank(plan_.mesh, static_cast<int32_t>(from));
      const int64_t bytes = sent[static_cast<size_t>(counted)] *
                            rule_->gather_bytes_per_element();
      const size_t first = from - from % tp;
      for (size_t to = first; to < first + tp; ++to) {
        send(static_cast<int32_t>(from), static_cast<int32_t>(to),
             Collective::kGather, bytes);
      }
    }
  }

  // Shards to every rank that computes the matrix, updates back from an owner.
  void add(size_t m) {
    const Matrix& matrix = plan_.matrices[m];
    const bool cut =
        plan_.model.tensors[static_cast<size_t>(matrix.tensor)].cut !=
        Cut::kNone;
    const bool repeated = plan_.owners[m].empty();
    const std::vector<int64_t> elements =
        elements_by_rank(plan_, static_cast<int32_t>(m));
    each_computing_rank(plan_, m, [&](int32_t owner) {
      const int32_t first = owner - owner % plan_.mesh.tp;
      for (size_t t = 0; t < elements.size(); ++t) {
        const int32_t peer = first + static_cast<int32_t>(t);
        if (cut) {
          send(peer, owner, Collective::kGather,
               elements[t] * rule_->gather_bytes_per_element());
        }
        if (!repeated) {
          send(owner, peer, Collective::kScatter,
               elements[t] * rule_->scatter_bytes_per_element());
        }
      }
    });
  }

 private:
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

  const Plan& plan_;
  std::vector<RankCost>& ranks_;
  std::unique_ptr<RuleFacts> rule_;
  std::vector<int32_t> nodes_;  // per rank
};

}  // namespace

void add_bucket_bytes(const Plan& plan, std::vector<RankCost>& ranks) {
  for (const Bucket& bucket : plan.buckets) {
    for (int32_t t = 0; t < plan.mesh.tp; ++t) {
      add_bucket(plan, bucket, t, ranks);
    }
  }
}

void add_exchange_bytes(const Plan& plan, std::vector<RankCost>& ranks) {
  if (plan.mesh.tp == 1) return;
  Exchange exchange(plan, ranks);
  if (plan.traffic == Traffic::kAllReduce) {
    exchange.add_repeated();
    return;
  }
  for (size_t m = 0; m < plan.matrices.size(); ++m) exchange.add(m);
}

}  // namespace canzona
