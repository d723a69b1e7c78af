#include "canzona/plan/predict/predict_zero.h"

#include <algorithm>

#include "canzona/plan/parts.h"
#include "canzona/plan/predict/expert_wire.h"
#include "canzona/plan/predict/peers.h"
#include "canzona/plan/predict/predict_parts.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/runs.h"
#include "canzona/plan/schedule/sum_order.h"

namespace canzona {
namespace {

int64_t largest_message(const PlanPart& plan, int32_t stage, Resting what) {
  int64_t most = 0;
  for (const Bucket& bucket : plan.buckets) {
    if (plan.buffers[static_cast<size_t>(bucket.buffer)].stage != stage)
      continue;
    if (!is_direct(plan, bucket))
      most = std::max(most, message_elements(plan, bucket, what));
  }
  return most;
}

// The largest layer, or what else there is.
int64_t usual_slot(const std::vector<int64_t>& modules) {
  const int64_t layer =
      modules.size() < 3
          ? 0
          : *std::max_element(modules.begin() + 1, modules.end() - 1);
  return layer > 0 ? layer : std::ranges::max(modules);
}

const Buffer& buffer_of(const PlanPart& plan, const Bucket& bucket) {
  return plan.buffers[static_cast<size_t>(bucket.buffer)];
}

// The first of 0 … count − 1 that `holds`, as all behind it do; count if none.
template <class Holds>
int64_t first_index(int64_t count, Holds holds) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (holds(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// What homes and places have of a bucket, looked up once for all ranks.
class BucketRuns {
 public:
  BucketRuns(const PlanPart& plan, const Bucket& bucket)
      : plan_(plan),
        bucket_(bucket),
        matrices_(static_cast<size_t>(plan.grid.places)),
        others_(matrices_.size()),
        kept_(matrices_.size()) {}

  const std::vector<int64_t>& matrices(int32_t slice) {
    auto& runs = matrices_[static_cast<size_t>(slice)];
    if (runs.empty()) runs = matrix_runs(plan_, bucket_, slice);
    return runs;
  }
  const std::vector<int64_t>& others(int32_t slice) {
    auto& runs = others_[static_cast<size_t>(slice)];
    if (runs.empty()) runs = adamw_runs(plan_, bucket_, slice);
    return runs;
  }
  // Matrices and others of all that stand at one position of the groups of a
  // replica.
  const std::pair<int64_t, int64_t>& all(int32_t position) {
    const int32_t z2 = plan_.options.zero.sizes.z2;
    if (all_.empty()) all_.resize(static_cast<size_t>(z2), {-1, -1});
    auto& sums = all_[static_cast<size_t>(position)];
    if (sums.first >= 0) return sums;
    sums = {0, 0};
    for (int32_t place = position; place < plan_.grid.places; place += z2) {
      const int32_t slice = plan_.grid.slice_of(place);
      for (const int64_t run : matrices(slice)) sums.first += run;
      for (const int64_t run : others(slice)) sums.second += run;
    }
    return sums;
  }
  // All that a place keeps of gradients, as they travel: padded or not.
  const std::vector<int64_t>& kept(int32_t place) {
    auto& runs = kept_[static_cast<size_t>(place)];
    if (!runs.empty()) return runs;
    int64_t matrix = 0, adamw = 0;
    const Extent range =
        kept_slices(plan_.grid, place, plan_.options.zero.sizes.z2);
    for (auto s = static_cast<int32_t>(range.first); s < range.end(); ++s) {
      adamw += adamw_slice(plan_, bucket_, s);
      if (plan_.traffic == Traffic::kPadded)
        for (const int64_t run : matrices(s)) matrix += run;
      else
        matrix += matrix_slice(plan_, bucket_, s);
    }
    return runs = {matrix, adamw};
  }

 private:
  const PlanPart& plan_;
  const Bucket& bucket_;
  std::vector<std::vector<int64_t>> matrices_, others_, kept_;
  std::vector<std::pair<int64_t, int64_t>> all_;
};

class WireOfRank {
 public:
  WireOfRank(const PlanPart& plan, int32_t rank)
      : plan_(plan),
        zero_(plan.options.zero.sizes),
        at_once_(adds_replicas_at_once(plan)),
        rank_(rank),
        at_(coordinates_of(plan.mesh, rank)) {}

  void add_bucket(const Bucket& bucket, ModuleWire& out) const {
    const int64_t parameter = bytes_per_parameter(plan_);
    for (const Peers& level : levels(bucket, Resting::kParameters))
      out.gather += level.all_gather(parameter);
    for (const Peers& level : levels(bucket, Resting::kGradients))
      out.scatter += level.reduce_scatter(kBytesPerFp32);
    if (!at_once_) add_own_replica(bucket, out.reduce);
    if (plan_.traffic != Traffic::kAllReduce)
      out.publish += circle(bucket, zero_.z3).all_gather(parameter);
    BucketRuns runs(plan_, bucket);
    add_replicas(runs, out.reduce, out.replicas);
  }

  void add_replicas(BucketRuns& runs, WireBytes& reduce,
                    WireBytes& replicas) const {
    if (at_once_ && spreads()) return add_at_once(runs, reduce, replicas);
    const int32_t step = everywhere() || at_once_ ? zero_.z2 : zero_.z1;
    for (const int64_t elements : spreads() && !everywhere()
                                      ? own_runs(runs)
                                      : runs.kept(place(at_.home)))
      add_all_reduce(elements, step, plan_.mesh.homes(), replicas);
  }

 private:
  bool spreads() const { return is_scattered(plan_.traffic); }
  bool everywhere() const {
    return plan_.options.zero.replica_sum == ReplicaSum::kAllReduce;
  }

  void add_own_replica(const Bucket& bucket, WireBytes& reduce) const {
    if (!spreads()) {
      const int64_t all =
          kept_elements(plan_, bucket, place(at_.home), Resting::kGradients);
      add_all_reduce(all, zero_.z2, zero_.z1, reduce);
    } else if (!everywhere()) {
      reduce += circle(bucket, zero_.z2).reduce_scatter(kBytesPerFp32);
    }
  }

  // Matrices and other elements are summed one after the other; every rank's
  // run of them in even shares, one for each replica. Ranks of a node stand in
  // a row, and only they are looked at: the others have the rest.
  void add_at_once(BucketRuns& runs, WireBytes& sums, WireBytes& back) const {
    const int32_t replicas = plan_.num_replicas();
    const int32_t position = at_.home % zero_.z2;
    const int64_t count = plan_.mesh.homes() / zero_.z2;
    const auto home = [&](int64_t i) {
      return position + static_cast<int32_t>(i) * zero_.z2;
    };
    const auto node = [&](int64_t i) {
      return plan_.node_of(world_rank(home(i)));
    };
    const int32_t own_node = plan_.node_of(rank_);
    const int64_t begin =
        first_index(count, [&](int64_t i) { return node(i) >= own_node; });
    const int64_t end =
        first_index(count, [&](int64_t i) { return node(i) > own_node; });
    Peers matrices(plan_, rank_), others(plan_, rank_);
    auto [far_matrices, far_others] = runs.all(position);
    const auto add = [&](Peers& peers, int64_t& far, int32_t h, int64_t run) {
      const int64_t r = h / zero_.z1;
      const int64_t share = run * (r + 1) / replicas - run * r / replicas;
      peers.add(world_rank(h), share);
      far -= share;
    };
    for (int64_t i = begin; i < end; ++i) {
      const int32_t slice = plan_.grid.slice_of(place(home(i)));
      const auto group =
          static_cast<size_t>(home(i) % zero_.z1 / plan_.grid.places);
      add(matrices, far_matrices, home(i), runs.matrices(slice)[group]);
      add(others, far_others, home(i), runs.others(slice)[group]);
    }
    matrices.add_far(count - (end - begin), far_matrices);
    others.add_far(count - (end - begin), far_others);
    sums += matrices.reduce_scatter(kBytesPerFp32);
    sums += others.reduce_scatter(kBytesPerFp32);
    for (const int64_t elements : own_runs(runs)) {
      Peers same(plan_, rank_);
      add_shares(elements, at_.home % zero_.z1, zero_.z1, replicas, same);
      back += same.all_gather(kBytesPerFp32);
    }
  }
  int32_t world_rank(int32_t home) const {
    return plan_.mesh.rank(at_.stage, home, at_.t);
  }
  int32_t place(int32_t home) const { return home % plan_.grid.places; }

  // z consecutive homes with what they keep: those that stand where this one
  // stands on their nodes, then those of its node, once for every node's runs.
  std::vector<Peers> levels(const Bucket& bucket, Resting what) const {
    const RankGroup group =
        group_of(plan_, rank_,
                 what == Resting::kParameters ? GroupKind::kParameters
                                              : GroupKind::kGradients);
    const auto [inside, across] = levels_of(plan_, group);
    const int32_t number = group.number_of(rank_);
    const int32_t first = at_.home - number;
    std::vector<Peers> levels(static_cast<size_t>(across) + 1,
                              Peers(plan_, rank_));
    for (int32_t i = 0; i < group.count; ++i) {
      const int64_t kept = kept_elements(plan_, bucket, place(first + i), what);
      if (i % inside == number % inside) levels[0].add(group.rank(i), kept);
      const int32_t beside = number - number % inside + i % inside;
      levels[static_cast<size_t>(i / inside) + 1].add(group.rank(beside), kept);
    }
    return levels;
  }

  // Those at the same place of z homes, among those that share states.
  Peers circle(const Bucket& bucket, int32_t z) const {
    Peers peers(plan_, rank_);
    const int32_t first = at_.home / zero_.z1 * zero_.z1;
    const int32_t places = plan_.grid.places;
    for (int32_t place = at_.home % z; place < places; place += z) {
      const int32_t slice = plan_.grid.slice_of(place);
      const std::vector<int64_t> matrices = matrix_runs(plan_, bucket, slice);
      const std::vector<int64_t> others = adamw_runs(plan_, bucket, slice);
      for (int32_t group = 0; group < zero_.z1 / places; ++group)
        peers.add(world_rank(first + group * places + place),
                  matrices[static_cast<size_t>(group)] +
                      others[static_cast<size_t>(group)]);
    }
    return peers;
  }

  std::vector<int64_t> own_runs(BucketRuns& runs) const {
    const int32_t slice = plan_.grid.slice_of(place(at_.home));
    const auto group =
        static_cast<size_t>(at_.home % zero_.z1 / plan_.grid.places);
    return {runs.matrices(slice)[group], runs.others(slice)[group]};
  }

  // Even shares of a run for `count` data-parallel ranks: `first` and every
  // `step`th after it. Ranks of a node stand in a row: their sums are enough.
  void add_shares(int64_t elements, int32_t first, int32_t step, int64_t count,
                  Peers& peers) const {
    const auto rank = [&](int64_t i) {
      return world_rank(first + static_cast<int32_t>(i) * step);
    };
    const auto until = [&](int64_t i) { return elements * i / count; };
    const int32_t node = plan_.node_of(rank_);
    const int64_t begin = first_index(
        count, [&](int64_t i) { return plan_.node_of(rank(i)) >= node; });
    const int64_t end = first_index(
        count, [&](int64_t i) { return plan_.node_of(rank(i)) > node; });
    int64_t near = end - begin;
    int64_t shares = until(end) - until(begin);
    const int64_t self = (at_.home - first) / step;
    if (at_.home >= first && self < count && rank(self) == rank_) {
      const int64_t own = until(self + 1) - until(self);
      peers.add(rank_, own);
      near -= 1;
      shares -= own;
    }
    peers.add_near(near, shares);
    peers.add_far(count - (end - begin), elements - until(end) + until(begin));
  }

  // Over every `step`th of `homes` data-parallel ranks, this one among them.
  void add_all_reduce(int64_t elements, int32_t step, int32_t homes,
                      WireBytes& out) const {
    Peers peers(plan_, rank_);
    add_shares(elements, at_.home / homes * homes + at_.home % step, step,
               homes / step, peers);
    out += peers.reduce_scatter(kBytesPerFp32);
    out += peers.all_gather(kBytesPerFp32);
  }

  const PlanPart& plan_;
  ZeroSizes zero_;
  bool at_once_;
  int32_t rank_;
  Coordinates at_;
};

}  // namespace

ModuleWire& ModuleWire::operator+=(const ModuleWire& other) {
  gather += other.gather;
  scatter += other.scatter;
  reduce += other.reduce;
  replicas += other.replicas;
  publish += other.publish;
  return *this;
}

int32_t slots_at_once(const SettledRequest& plan) {
  return is_tied(plan.model) && plan.mesh.pp == 1 ? 2 : 1;
}

std::vector<int64_t> module_elements(const PlanPart& plan, int32_t stage) {
  std::vector<int64_t> sums(static_cast<size_t>(num_modules(plan.model)), 0);
  for (const Tensor& tensor : plan.model.tensors)
    if (stage_of(plan.grid, plan.model, tensor) == stage)
      sums[static_cast<size_t>(module_of(plan.model, tensor))] +=
          shard_elements(plan.grid, tensor);
  return sums;
}

bool is_direct(const PlanPart& plan, const Bucket& bucket) {
  const ZeroSizes& zero = plan.options.zero.sizes;
  return bucket.tensors.size() == 1 && zero.z2 == zero.z3 && zero.z2 > 1 &&
         plan.traffic != Traffic::kPadded;
}

PoolSizes pool_sizes(const PlanPart& plan, int32_t stage) {
  PoolSizes pools;
  if (plan.grid.places == 1) return pools;
  const ZeroOptions& zero = plan.options.zero;
  const std::vector<int64_t> modules = module_elements(plan, stage);
  pools.slot = usual_slot(modules);
  const int64_t most = std::ranges::max(modules);
  if (most > pools.slot) pools.large_slot = most;
  const bool pair = slots_at_once(plan) == 2;
  const auto large = static_cast<int32_t>(modules.front() > pools.slot) +
                     static_cast<int32_t>(modules.back() > pools.slot);
  const int32_t at_once = pair ? std::max(2 - large, 1) : 1;
  const int32_t large_at_once = pair ? std::max(large, 1) : 1;
  if (zero.sizes.z3 > 1) {
    pools.gather_slots = at_once + zero.prefetch;
    pools.large_gather_slots = large_at_once + std::min(zero.prefetch, 1);
  }
  if (zero.sizes.z2 > 1) {
    pools.scatter_slots = at_once + std::min(zero.prefetch, kMostScatterAhead);
    pools.large_scatter_slots = large_at_once;
  }
  if (pools.large_slot == 0)
    pools.large_gather_slots = pools.large_scatter_slots = 0;
  pools.parameter_staging = largest_message(plan, stage, Resting::kParameters);
  pools.gradient_staging = largest_message(plan, stage, Resting::kGradients);
  return pools;
}

int32_t first_module(const PlanPart& plan, const Bucket& bucket) {
  int32_t first = num_modules(plan.model);
  for (int32_t t : bucket.tensors)
    first = std::min(
        first,
        module_of(plan.model, plan.model.tensors[static_cast<size_t>(t)]));
  return first;
}

std::vector<ModuleWire> module_wire(const PlanPart& plan, int32_t world_rank) {
  std::vector<ModuleWire> out(static_cast<size_t>(num_modules(plan.model)));
  const int32_t stage = coordinates_of(plan.mesh, world_rank).stage;
  const WireOfRank wire(plan, world_rank);
  for (const Bucket& bucket : plan.buckets) {
    const Buffer& buffer = buffer_of(plan, bucket);
    if (buffer.stage != stage || bucket.tensors.empty()) continue;
    ModuleWire& module = out[static_cast<size_t>(first_module(plan, bucket))];
    if (buffer.ep >= 0) module += expert_wire(plan, bucket, world_rank);
    if (buffer.ep < 0) wire.add_bucket(bucket, module);
  }
  return out;
}

std::vector<ModuleWire> module_wire(const Plan& plan, int32_t world_rank) {
  std::vector<ModuleWire> out(static_cast<size_t>(num_modules(plan.model)));
  for (const RankInPart& at : parts_of_rank(plan, world_rank)) {
    const std::vector<ModuleWire> own =
        module_wire(plan.parts[static_cast<size_t>(at.part)], at.rank);
    for (size_t m = 0; m < out.size(); ++m) out[m] += own[m];
  }
  return out;
}

void add_pools(const PlanPart& plan, std::vector<RankCost>& ranks) {
  if (plan.grid.places == 1) return;
  for (int32_t stage = 0; stage < plan.grid.pp; ++stage) {
    const PoolSizes pools = pool_sizes(plan, stage);
    const Bytes bytes(pools.gather_bytes(bytes_per_parameter(plan)) +
                      pools.scatter_bytes());
    const auto per_stage = static_cast<size_t>(plan.grid.ranks_per_stage());
    for (size_t r = 0; r < per_stage; ++r)
      ranks[static_cast<size_t>(stage) * per_stage + r].memory.pools = bytes;
  }
}

void add_replica_sums(const PlanPart& plan, std::vector<RankCost>& world) {
  const bool alone = plan.num_replicas() == 1 &&
                     plan.options.zero.replica_sum == ReplicaSum::kScatter;
  if (alone || plan.mesh.ep > 1) return;
  const int32_t per_stage = plan.mesh.ranks_per_stage();
  for (const Bucket& bucket : plan.buckets) {
    BucketRuns runs(plan, bucket);
    const int32_t first = buffer_of(plan, bucket).stage * per_stage;
    for (int32_t rank = first; rank < first + per_stage; ++rank) {
      auto& wire = world[static_cast<size_t>(rank)].wire;
      WireOfRank(plan, rank)
          .add_replicas(runs,
                        wire[static_cast<size_t>(Collective::kReduceScatter)],
                        wire[static_cast<size_t>(Collective::kAllReduce)]);
    }
  }
}

}  // namespace canzona
