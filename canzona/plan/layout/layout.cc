#include "canzona/plan/layout/layout.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <vector>

#include "canzona/plan/schedule/modules.h"

namespace canzona::plan {
namespace {

int64_t longest_first_makespan(std::span<const int64_t> shards,
                               int64_t num_homes) {
  std::vector<int64_t> sorted(shards.begin(), shards.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> loads;
  int64_t most = 0;
  for (int64_t shard : sorted) {
    int64_t load = 0;
    if (static_cast<int64_t>(loads.size()) >= num_homes) {
      load = loads.top();
      loads.pop();
    }
    loads.push(load + shard);
    most = std::max(most, load + shard);
  }
  return most;
}

}  // namespace

double share_limit(int64_t bucket_elements, int64_t num_homes, double alpha) {
  if (alpha >= 1) return std::numeric_limits<double>::infinity();
  return static_cast<double>(bucket_elements) / static_cast<double>(num_homes) /
         (1 - alpha);
}

int64_t bucket_cap(std::span<const int64_t> shards, int64_t num_homes,
                   double alpha) {
  const int64_t sum = std::accumulate(shards.begin(), shards.end(), int64_t{0});
  if (alpha >= 1) return sum;
  int64_t largest = 0;
  for (int64_t shard : shards) largest = std::max(largest, shard);
  // The slack keeps rounding from rejecting an exact share; near alpha 1
  // everything is allowed.
  const double limit = share_limit(sum, num_homes, alpha) * (1 + 1e-12);
  if (limit >= static_cast<double>(sum)) return sum;
  return std::max(largest, static_cast<int64_t>(limit));
}

int64_t reachable_bucket_cap(std::span<const int64_t> shards, int64_t num_homes,
                             double alpha) {
  return std::max(bucket_cap(shards, num_homes, alpha),
                  longest_first_makespan(shards, num_homes));
}

namespace {

// Collects the buckets of one buffer.
class BucketList {
 public:
  BucketList(int32_t buffer, int64_t limit) : buffer_(buffer), limit_(limit) {}

  void add_matrix_tensor(int32_t tensor, int64_t elements) {
    OpenBucket& bucket = open();
    bucket.matrix_tensors.push_back(tensor);
    bucket.adamw_tensors.insert(bucket.adamw_tensors.end(), waiting_.begin(),
                                waiting_.end());
    waiting_.clear();
    bucket.elements += elements;
    closed_ = bucket.elements >= limit_;
  }

  // Keeps an AdamW tensor for the next matrix tensor if no bucket is open, so
  // that AdamW tensors alone never form a bucket.
  void add_adamw_tensor(int32_t tensor) {
    if (closed_) {
      waiting_.push_back(tensor);
    } else {
      buckets_.back().adamw_tensors.push_back(tensor);
    }
  }

  void add_closing_adamw_tensor(int32_t tensor, int64_t elements) {
    open().adamw_tensors.push_back(tensor);
    adamw_elements_ += elements;
    closed_ = adamw_elements_ >= limit_;
    if (closed_) adamw_elements_ = 0;
  }

  std::vector<OpenBucket> take(bool join_small_tail) {
    if (!waiting_.empty()) {
      OpenBucket& last = buckets_.empty() ? open() : buckets_.back();
      last.adamw_tensors.insert(last.adamw_tensors.end(), waiting_.begin(),
                                waiting_.end());
    }
    if (join_small_tail && buckets_.size() > 1 &&
        buckets_.back().elements < limit_ - buckets_.back().elements &&
        !buckets_.back().matrix_tensors.empty()) {
      join_tail();
    }
    return std::move(buckets_);
  }

 private:
  OpenBucket& open() {
    if (closed_) {
      buckets_.push_back({buffer_, {}, {}, 0});
      closed_ = false;
    }
    return buckets_.back();
  }

  void join_tail() {
    OpenBucket tail = std::move(buckets_.back());
    buckets_.pop_back();
    OpenBucket& last = buckets_.back();
    last.elements += tail.elements;
    last.matrix_tensors.insert(last.matrix_tensors.end(),
                               tail.matrix_tensors.begin(),
                               tail.matrix_tensors.end());
    last.adamw_tensors.insert(last.adamw_tensors.end(),
                              tail.adamw_tensors.begin(),
                              tail.adamw_tensors.end());
  }

  int32_t buffer_;
  int64_t limit_;
  bool closed_ = true;
  int64_t adamw_elements_ = 0;  // of the open bucket, if they close it
  std::vector<OpenBucket> buckets_;
  std::vector<int32_t> waiting_;
};

}  // namespace

std::vector<Buffer> make_buffers(const Mesh& mesh, const Model& model,
                                 std::vector<int32_t>& buffer_of) {
  std::vector<Buffer> buffers;
  const int32_t per_stage = mesh.ep > 1 ? 1 + mesh.ep : 1;
  for (int32_t stage = 0; stage < mesh.pp; ++stage) {
    buffers.push_back({stage, -1, mesh.homes()});
    for (int32_t e = 0; mesh.ep > 1 && e < mesh.ep; ++e) {
      buffers.push_back({stage, e, mesh.expert_homes()});
    }
  }
  buffer_of.clear();
  for (const Tensor& tensor : model.tensors) {
    buffer_of.push_back(stage_of(mesh, model, tensor) * per_stage + 1 +
                        ep_of(mesh, model, tensor));
  }
  return buffers;
}

std::vector<OpenBucket> make_buckets(const Model& model,
                                     const std::vector<Buffer>& buffers,
                                     const std::vector<int32_t>& buffer_of,
                                     const std::vector<int64_t>& shard_elements,
                                     int64_t bucket_elements,
                                     bool join_small_tail) {
  std::vector<BucketList> lists;
  for (size_t b = 0; b < buffers.size(); ++b) {
    lists.emplace_back(static_cast<int32_t>(b), bucket_elements);
  }
  // Without any matrix-rule tensor (an element-wise rule) all tensors count.
  const bool element_wise =
      std::none_of(model.tensors.begin(), model.tensors.end(),
                   [](const Tensor& t) { return t.matrix_rule; });
  for (size_t i = model.tensors.size(); i-- > 0;) {
    BucketList& list = lists[static_cast<size_t>(buffer_of[i])];
    const auto tensor = static_cast<int32_t>(i);
    if (model.tensors[i].matrix_rule) {
      list.add_matrix_tensor(tensor, shard_elements[i]);
    } else if (element_wise) {
      list.add_closing_adamw_tensor(tensor, shard_elements[i]);
    } else {
      list.add_adamw_tensor(tensor);
    }
  }
  std::vector<OpenBucket> all;
  for (BucketList& list : lists) {
    for (OpenBucket& bucket : list.take(join_small_tail)) {
      all.push_back(std::move(bucket));
    }
  }
  return all;
}

namespace {

// The buckets that a part has for some bucket_elements, before anything is
// assigned.
struct PartBuckets {
  explicit PartBuckets(const PlanPart& part)
      : model(part.model),
        buffers(make_buffers(part.grid, part.model, buffer_of)) {
    for (const Tensor& tensor : part.model.tensors)
      shards.push_back(shard_elements(part.grid, tensor));
  }

  // Returns how many times its even share a home must at least keep of some
  // bucket.
  double unevenness(int64_t bucket_elements, bool join_small_tail) const {
    double worst = 1;
    for (const OpenBucket& bucket :
         make_buckets(model, buffers, buffer_of, shards, bucket_elements,
                      join_small_tail)) {
      std::vector<int64_t> own;
      for (const int32_t t : bucket.matrix_tensors)
        own.push_back(shards[static_cast<size_t>(t)]);
      const int64_t homes =
          buffers[static_cast<size_t>(bucket.buffer)].num_homes;
      const double even = share_limit(bucket.elements, homes, 0);
      if (even > 0)
        worst = std::max(
            worst,
            static_cast<double>(reachable_bucket_cap(own, homes, 0)) / even);
    }
    return worst;
  }

  const Model& model;
  std::vector<int32_t> buffer_of = {};  // before `buffers`, which sets it
  std::vector<Buffer> buffers;
  std::vector<int64_t> shards = {};
};

}  // namespace

int64_t even_bucket_elements(const Plan& plan, bool join_small_tail) {
  constexpr double kTooUneven = 12, kEvenEnough = 2;
  std::vector<PartBuckets> parts;
  int64_t all = 0;
  for (const PlanPart& part : plan.parts) {
    if (part.grid.places > 1) continue;
    const PartBuckets& own = parts.emplace_back(part);
    all = std::reduce(own.shards.begin(), own.shards.end(), all);
  }
  int64_t best = kUsualBucketElements;
  double least = std::numeric_limits<double>::infinity();
  double enough = kTooUneven;
  for (int64_t elements = best; least > enough; elements *= 2) {
    double worst = 1;
    for (const PartBuckets& part : parts)
      worst = std::max(worst, part.unevenness(elements, join_small_tail));
    if (worst < least) best = elements;
    least = std::min(worst, least);
    if (elements > all) break;  // every buffer has a single bucket
    if (worst > kTooUneven) enough = kEvenEnough;
  }
  return best;
}

std::vector<OpenBucket> make_module_buckets(
    const Model& model, const std::vector<int32_t>& buffer_of,
    const std::vector<int64_t>& shard_elements, MessageUnit unit) {
  std::map<int32_t, std::vector<OpenBucket>> lists;  // by buffer
  std::map<int32_t, int32_t> open;                   // module, by buffer
  for (size_t i = model.tensors.size(); i-- > 0;) {
    const Tensor& tensor = model.tensors[i];
    const int32_t module = module_of(model, tensor);
    std::vector<OpenBucket>& list = lists[buffer_of[i]];
    const bool fits = !list.empty() && unit == MessageUnit::kModule &&
                      open[buffer_of[i]] == module;
    if (!fits) list.push_back({buffer_of[i], {}, {}, 0});
    open[buffer_of[i]] = module;
    OpenBucket& bucket = list.back();
    const auto number = static_cast<int32_t>(i);
    if (tensor.matrix_rule) {
      bucket.matrix_tensors.push_back(number);
      bucket.elements += shard_elements[i];
    } else {
      bucket.adamw_tensors.push_back(number);
    }
  }
  std::vector<OpenBucket> all;
  for (auto& [buffer, list] : lists)
    for (OpenBucket& bucket : list) all.push_back(std::move(bucket));
  return all;
}

namespace {

int64_t adamw_elements(const Problem& p, const Bucket& bucket) {
  int64_t sum = 0;
  for (size_t i = static_cast<size_t>(bucket.num_matrix_tensors);
       i < bucket.tensors.size(); ++i) {
    const auto t = static_cast<size_t>(bucket.tensors[i]);
    if (!p.model.tensors[t].frozen) sum += p.shard_elements[t];
  }
  return sum;
}

// Returns the bytes that the matrices of each home (of all stages) take on its
// fullest rank.
std::vector<int64_t> matrix_bytes(const Problem& p, const Assignment& a) {
  const auto per_stage = static_cast<size_t>(p.grid.homes());
  const size_t homes = per_stage * static_cast<size_t>(p.grid.pp);
  const auto tp = static_cast<size_t>(p.grid.tp);
  std::vector<int64_t> home(homes, 0), owner(homes * tp, 0);
  for (const OpenBucket& bucket : p.buckets) {
    const int32_t stage = p.buffers[static_cast<size_t>(bucket.buffer)].stage;
    const size_t first = static_cast<size_t>(stage) * per_stage;
    for (int32_t t : bucket.matrix_tensors) {
      const auto i = static_cast<size_t>(t);
      const size_t h = first + static_cast<size_t>(stage_home(p, t, a.home[i]));
      home[h] += p.home_bytes[i];
      for (int32_t m = p.first_matrix[i]; m < p.first_matrix[i + 1]; ++m) {
        owner[h * tp + static_cast<size_t>(a.owner[static_cast<size_t>(m)])] +=
            p.owner_bytes[static_cast<size_t>(m)];
      }
    }
  }
  for (size_t h = 0; h < homes; ++h) {
    const auto first = owner.begin() + static_cast<int64_t>(h * tp);
    home[h] += *std::max_element(first, first + static_cast<int64_t>(tp));
  }
  return home;
}

// Returns elements for each home such that bytes[h] + per_element · out[h] is
// level.
std::vector<int64_t> water_fill(const std::vector<int64_t>& bytes,
                                int64_t elements, int64_t per_element) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes[a] < bytes[b]; });
  const Int128 water = static_cast<Int128>(elements) * per_element;
  Int128 below = 0;  // bytes of the homes that get elements
  size_t wet = 0;
  for (; wet < order.size(); ++wet) {
    const Int128 needed =
        static_cast<Int128>(bytes[order[wet]]) * static_cast<int64_t>(wet) -
        below;
    if (needed > water) break;
    below += bytes[order[wet]];
  }
  std::vector<int64_t> out(bytes.size(), 0);
  const Int128 level = (below + water) / static_cast<int64_t>(wet);
  int64_t left = elements;
  for (size_t i = 0; i < wet; ++i) {
    const auto room = static_cast<int64_t>(level - bytes[order[i]]);
    out[order[i]] = std::min(std::max<int64_t>(room / per_element, 0), left);
    left -= out[order[i]];
  }
  for (size_t i = 0; left > 0; i = (i + 1) % wet, --left) ++out[order[i]];
  return out;
}

// Divides every bucket's elements among homes in proportion to their quota, and
// keeps the running totals within one element of it.
class ProportionalCuts {
 public:
  explicit ProportionalCuts(std::vector<int64_t> quota)
      : quota_(std::move(quota)), given_(quota_.size(), 0) {
    total_ = std::accumulate(quota_.begin(), quota_.end(), int64_t{0});
  }

  std::vector<int64_t> cut(int64_t elements) {
    seen_ += elements;
    std::vector<int64_t> cuts{0};
    Int128 carried = 0;
    int64_t end = 0;
    for (size_t h = 0; h < quota_.size(); ++h) {
      // Rounding the running sum over homes makes the shares add up exactly.
      carried += static_cast<Int128>(quota_[h]) * seen_;
      const int64_t upto =
          total_ == 0 ? 0 : static_cast<int64_t>(carried / total_);
      const int64_t share = upto - end;
      end = upto;
      cuts.push_back(cuts.back() + std::max<int64_t>(share - given_[h], 0));
      given_[h] += std::max<int64_t>(share - given_[h], 0);
    }
    settle(cuts, elements);
    return cuts;
  }

 private:
  // Rounding may leave one element too many or too few; it is settled with the
  // last homes that can take or give it.
  void settle(std::vector<int64_t>& cuts, int64_t elements) {
    for (size_t h = quota_.size(); h-- > 0 && cuts.back() != elements;) {
      const int64_t piece = cuts[h + 1] - cuts[h];
      const int64_t change = std::max(elements - cuts.back(), -piece);
      for (size_t i = h + 1; i < cuts.size(); ++i) cuts[i] += change;
      given_[h] += change;
    }
  }

  std::vector<int64_t> quota_;
  std::vector<int64_t> given_;
  int64_t total_ = 0;
  int64_t seen_ = 0;
};

}  // namespace

void cut_adamw_evenly(const Problem& p, std::vector<Bucket>& buckets) {
  for (Bucket& bucket : buckets) {
    const int64_t homes =
        p.buffers[static_cast<size_t>(bucket.buffer)].num_homes;
    const int64_t elements = adamw_elements(p, bucket);
    bucket.adamw_cuts.clear();
    for (int64_t h = 0; h <= homes; ++h) {
      bucket.adamw_cuts.push_back(
          static_cast<int64_t>(static_cast<Int128>(elements) * h / homes));
    }
  }
}

void cut_adamw_level(const Problem& p, const Assignment& a,
                     std::vector<Bucket>& buckets) {
  const std::vector<int64_t> bytes = matrix_bytes(p, a);
  for (size_t f = 0; f < p.buffers.size(); ++f) {
    const Buffer& buffer = p.buffers[f];
    std::vector<int64_t> own;
    for (int32_t h = 0; h < buffer.num_homes; ++h) {
      const int32_t home =
          buffer.ep < 0 ? h : p.grid.home_of_expert(h, buffer.ep);
      const int32_t in_all = buffer.stage * p.grid.homes() + home;
      own.push_back(bytes[static_cast<size_t>(in_all)]);
    }
    int64_t elements = 0;
    for (const Bucket& bucket : buckets) {
      if (static_cast<size_t>(bucket.buffer) == f) {
        elements += adamw_elements(p, bucket);
      }
    }
    ProportionalCuts cuts(
        water_fill(own, elements, adamw_bytes_per_element(p.options)));
    for (Bucket& bucket : buckets) {
      if (static_cast<size_t>(bucket.buffer) != f) continue;
      bucket.adamw_cuts = cuts.cut(adamw_elements(p, bucket));
    }
  }
}

namespace {

std::vector<int64_t> cuts_by_home(const Problem& p, const Assignment& a,
                                  const std::vector<int32_t>& tensors,
                                  int32_t num_homes) {
  std::vector<int64_t> cuts(static_cast<size_t>(num_homes) + 1, 0);
  for (int32_t t : tensors) {
    cuts[static_cast<size_t>(a.home[static_cast<size_t>(t)]) + 1] +=
        p.shard_elements[static_cast<size_t>(t)];
  }
  for (size_t h = 1; h < cuts.size(); ++h) cuts[h] += cuts[h - 1];
  return cuts;
}

}  // namespace

std::vector<Bucket> lay_out(const Problem& p, const LayoutStyle& style,
                            const Assignment& a) {
  std::vector<Bucket> out;
  for (const OpenBucket& open : p.buckets) {
    Bucket bucket;
    bucket.buffer = open.buffer;
    bucket.tensors = open.matrix_tensors;
    bucket.num_matrix_tensors = static_cast<int32_t>(bucket.tensors.size());
    if (style.free_order) {
      std::stable_sort(bucket.tensors.begin(), bucket.tensors.end(),
                       [&](int32_t x, int32_t y) {
                         return a.home[static_cast<size_t>(x)] <
                                a.home[static_cast<size_t>(y)];
                       });
    }
    if (is_scattered(style.traffic)) {
      bucket.cuts =
          cuts_by_home(p, a, bucket.tensors,
                       p.buffers[static_cast<size_t>(open.buffer)].num_homes);
    }
    bucket.tensors.insert(bucket.tensors.end(), open.adamw_tensors.begin(),
                          open.adamw_tensors.end());
    out.push_back(std::move(bucket));
  }
  if (style.traffic == Traffic::kAllReduce) return out;
  if (style.level_adamw) {
    cut_adamw_level(p, a, out);
  } else {
    cut_adamw_evenly(p, out);
  }
  return out;
}

}  // namespace canzona::plan
