#include "canzona/plan/strategies/megatron.h"

#include <algorithm>

#include "canzona/plan/layout/budget.h"

namespace canzona {
namespace {

// max·min² of the whole matrices: what Megatron-Core ranks them by.
double megatron_cost(const Problem& p, int32_t tensor) {
  const auto t = static_cast<size_t>(tensor);
  double sum = 0;
  for (int32_t m = p.first_matrix[t]; m < p.first_matrix[t + 1]; ++m) {
    const Matrix& matrix = p.matrices[static_cast<size_t>(m)];
    const auto low = static_cast<double>(std::min(matrix.rows, matrix.cols));
    const auto high = static_cast<double>(std::max(matrix.rows, matrix.cols));
    sum += high * low * low;
  }
  return sum;
}

struct Ranked {
  int32_t tensor;
  double cost;
};

std::vector<Ranked> dearest_first(const Problem& p, const OpenBucket& bucket) {
  std::vector<Ranked> order;
  for (int32_t t : bucket.matrix_tensors) {
    order.push_back({t, megatron_cost(p, t)});
  }
  std::stable_sort(
      order.begin(), order.end(),
      [](const Ranked& a, const Ranked& b) { return a.cost > b.cost; });
  return order;
}

// The least loaded home with room; without room anywhere, the emptiest.
size_t choose(const std::vector<double>& load, const std::vector<int64_t>& held,
              int64_t elements, int64_t limit) {
  size_t best = load.size();
  for (size_t h = 0; h < load.size(); ++h) {
    if (held[h] + elements > limit) continue;
    if (best == load.size() || load[h] < load[best]) best = h;
  }
  if (best < load.size()) return best;
  return static_cast<size_t>(std::min_element(held.begin(), held.end()) -
                             held.begin());
}

}  // namespace

void assign_megatron(const Problem& p, Assignment& a) {
  std::vector<std::vector<double>> loads;
  for (const Buffer& buffer : p.buffers) {
    loads.emplace_back(static_cast<size_t>(buffer.num_homes), 0.0);
  }
  for (const OpenBucket& bucket : p.buckets) {
    std::vector<double>& load = loads[static_cast<size_t>(bucket.buffer)];
    std::vector<int64_t> held(load.size(), 0);
    std::vector<int64_t> shards;
    for (int32_t t : bucket.matrix_tensors) {
      shards.push_back(p.shard_elements[static_cast<size_t>(t)]);
    }
    const int64_t limit =
        bucket_cap(shards, static_cast<int64_t>(load.size()), *p.options.alpha);
    for (const Ranked& r : dearest_first(p, bucket)) {
      const auto t = static_cast<size_t>(r.tensor);
      const size_t h = choose(load, held, p.shard_elements[t], limit);
      load[h] += r.cost;
      held[h] += p.shard_elements[t];
      a.home[t] = static_cast<int32_t>(h);
    }
  }
}

}  // namespace canzona
