#include "canzona/plan/pairwise_bytes.h"

#include <map>

namespace canzona {

std::vector<int64_t> even_runs(int64_t elements, int64_t ranks) {
  std::vector<int64_t> runs;
  for (int64_t r = 0; r < ranks; ++r)
    runs.push_back(elements * (r + 1) / ranks - elements * r / ranks);
  return runs;
}

PairwiseBytes::PairwiseBytes(std::vector<int32_t> ranks,
                             std::vector<int32_t> nodes,
                             std::vector<int64_t> runs)
    : ranks_(std::move(ranks)), runs_(std::move(runs)) {
  std::map<int32_t, Node> sums;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    sums[nodes[i]].elements += runs_[i];
    ++sums[nodes[i]].ranks;
    total_ += runs_[i];
  }
  for (int32_t node : nodes) node_.push_back(sums.at(node));
}

void PairwiseBytes::add_reduce_scatter(const Fields& fields,
                                       int64_t bytes) const {
  const auto all = static_cast<int64_t>(ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    WireBytes& w = fields(ranks_[i]);
    w.sent_intra += (node_[i].elements - runs_[i]) * bytes;
    w.sent_inter += (total_ - node_[i].elements) * bytes;
    w.received_intra += runs_[i] * (node_[i].ranks - 1) * bytes;
    w.received_inter += runs_[i] * (all - node_[i].ranks) * bytes;
  }
}

void PairwiseBytes::add_all_gather(const Fields& fields, int64_t bytes) const {
  const auto all = static_cast<int64_t>(ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    WireBytes& w = fields(ranks_[i]);
    w.received_intra += (node_[i].elements - runs_[i]) * bytes;
    w.received_inter += (total_ - node_[i].elements) * bytes;
    w.sent_intra += runs_[i] * (node_[i].ranks - 1) * bytes;
    w.sent_inter += runs_[i] * (all - node_[i].ranks) * bytes;
  }
}

}  // namespace canzona
