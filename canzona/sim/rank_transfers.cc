#include "canzona/sim/rank_transfers.h"

#include <algorithm>

#include "canzona/plan/parts.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/module_bytes.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/pools.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/runs.h"

namespace canzona {
namespace {

// A simulated sum is not cut finer than this: nobody would see it.
constexpr int64_t kMostParts = 16;

struct PeerCount {
  int64_t intra = 0;
  int64_t inter = 0;
  int64_t all() const { return intra + inter; }
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

WireBytes share_of(const WireBytes& bytes, double share) {
  const auto part = [&](int64_t b) {
    return static_cast<int64_t>(share * static_cast<double>(b));
  };
  return {.sent_intra = part(bytes.sent_intra),
          .sent_inter = part(bytes.sent_inter),
          .received_intra = part(bytes.received_intra),
          .received_inter = part(bytes.received_inter)};
}

WireBytes inside_of(const WireBytes& bytes) {
  return {.sent_intra = bytes.sent_intra,
          .received_intra = bytes.received_intra};
}
WireBytes across_of(const WireBytes& bytes) {
  return {.sent_inter = bytes.sent_inter,
          .received_inter = bytes.received_inter};
}

class RankTransfers {
 public:
  RankTransfers(const PlanPart& part, const Workload& workload, int32_t rank,
                RunOf run)
      : part_(part),
        zero_(part.options.zero.sizes),
        workload_(workload),
        rank_(rank),
        run_(run),
        at_(coordinates_of(part.mesh, rank)),
        in_step_(sums_of(part, {.stage = at_.stage}, rank)) {
    const BucketCollectives last =
        publishes_of(part, {.stage = at_.stage}, rank);
    in_step_.insert(in_step_.end(), last.begin(), last.end());
  }

  std::vector<ModuleWork> all() {
    count_modules();
    std::vector<PurposeBytes> wire = module_bytes(part_, rank_);
    if (run_ == RunOf::kLongest && part_.mesh.ep == 1) raise_to_longest(wire);
    std::vector<ModuleWork> out(wire.size());
    for (size_t m = 0; m < wire.size(); ++m) {
      if (elements_[m] == 0) continue;
      set_gather(wire[m], m, out[m]);
      set_scatter(wire[m], m, out[m]);
      set_reduce(wire[m], m, out[m]);
      set_publish(wire[m], m, out[m]);
    }
    return out;
  }

 private:
  // Elements of this rank's shards, and messages into which they are packed.
  void count_modules() {
    const auto modules = static_cast<size_t>(num_modules(part_.model));
    elements_.assign(modules, 0);
    messages_.assign(modules, 0);
    for (const Bucket& bucket : part_.buckets) {
      if (!is_here(bucket)) continue;
      ++messages_[static_cast<size_t>(first_module(part_, bucket))];
      for (int32_t t : bucket.tensors)
        elements_[module_of_tensor(t)] += shard_elements(
            part_.mesh, part_.model.tensors[static_cast<size_t>(t)]);
    }
  }
  size_t module_of_tensor(int32_t tensor) const {
    return static_cast<size_t>(module_of(
        part_.model, part_.model.tensors[static_cast<size_t>(tensor)]));
  }

  // Longest run of any home; slices differ by at most a row. In two levels
  // those of homes that stand at one place of their nodes go together inside.
  struct Longest {
    int64_t run = 0;
    int64_t place = 0;
  };
  Longest longest_of(const Bucket& bucket, int32_t places) const {
    Longest longest;
    for (int32_t slice : {0, part_.grid.places - 1}) {
      const std::vector<int64_t> matrices = matrix_runs(part_, bucket, slice);
      const std::vector<int64_t> others = adamw_runs(part_, bucket, slice);
      std::vector<int64_t> at_place(static_cast<size_t>(places), 0);
      for (size_t h = 0; h < matrices.size(); ++h) {
        const int64_t run = matrices[h] + others[h];
        longest.run = std::max(longest.run, run);
        at_place[h % at_place.size()] += run;
      }
      longest.place = std::max(longest.place, std::ranges::max(at_place));
    }
    return longest;
  }

  void raise_to_longest(std::vector<PurposeBytes>& wire) const {
    const Levels in_step = levels(GroupKind::kSums);
    const bool two = in_step.across > 1;
    std::vector<Longest> longest(wire.size());
    for (const Bucket& bucket : part_.buckets) {
      if (!is_here(bucket)) continue;
      const Longest own = longest_of(bucket, in_step.inside);
      Longest& sum = longest[static_cast<size_t>(first_module(part_, bucket))];
      sum.run += own.run;
      sum.place += two ? own.place : own.run;
    }
    const auto raise = [](int64_t& bytes, int64_t run, int64_t peers) {
      if (bytes > 0) bytes = std::max(bytes, run * peers);
    };
    const PeerCount from = peers(Purpose::kSum), to = peers(Purpose::kPublish);
    const BucketCollective* sum = first_for(Purpose::kSum);
    const bool cut =
        sum != nullptr && sum->pieces == BucketCollective::Pieces::kRunShares;
    const int64_t shares = cut ? part_.num_replicas() : 1;
    const int64_t parameter = bytes_per_parameter(part_.options.parameters);
    const bool spreads = is_scattered(part_.traffic);
    for (size_t m = 0; spreads && m < wire.size(); ++m) {
      const auto [run, place] = longest[m];
      const auto gradients = [&](int64_t elements) {
        return divide_up(elements, shares) * kBytesPerFp32;
      };
      WireBytes& sums = of(wire[m], Purpose::kSum);
      WireBytes& published = of(wire[m], Purpose::kPublish);
      raise(sums.received_intra, gradients(place), from.intra);
      raise(sums.received_inter, gradients(run), from.inter);
      raise(published.sent_intra, place * parameter, to.intra);
      raise(published.sent_inter, run * parameter, to.inter);
    }
  }

  bool is_here(const Bucket& bucket) const {
    const Buffer& buffer = part_.buffers[static_cast<size_t>(bucket.buffer)];
    return at_.holds(buffer) && !bucket.tensors.empty();
  }

  PeerCount peers(GroupKind kind) const {
    const RankGroup group = group_of(part_, rank_, kind);
    PeerCount out;
    for (int32_t i = 0; i < group.count; ++i) {
      const int32_t peer = group.rank(i);
      if (peer == rank_) continue;
      ++(part_.node_of(peer) == part_.node_of(rank_) ? out.intra : out.inter);
    }
    return out;
  }
  // The first of a bucket's collectives for this purpose; none: nobody else.
  const BucketCollective* first_for(Purpose purpose) const {
    for (const BucketCollective& c : in_step_)
      if (c.purpose == purpose) return &c;
    return nullptr;
  }
  PeerCount peers(Purpose purpose) const {
    const BucketCollective* c = first_for(purpose);
    if (c == nullptr) return {};
    if (c->level == BucketCollective::Level::kBoth) return peers(c->group);
    const auto [inside, across] = levels(c->group);
    return {.intra = inside - 1, .inter = across - 1};
  }

  int64_t segments(int64_t received, const PeerCount& from) const {
    if (from.all() == 0) return 0;
    return divide_up(divide_up(received, from.all()), workload_.segment_bytes);
  }

  Levels levels(GroupKind kind) const { return levels_of(part_, rank_, kind); }

  void set_gather(const PurposeBytes& wire, size_t m, ModuleWork& out) const {
    if (zero_.z3 == 1) return;
    const auto [inside, across] = levels(GroupKind::kParameters);
    const PeerCount to = peers(GroupKind::kParameters);
    out.gather.bytes = of(wire, Purpose::kGatherModule);
    out.gather.messages_intra = to.intra * messages_[m];
    out.gather.messages_inter = to.inter * messages_[m];
    const int64_t unpacked =
        elements_[m] * bytes_per_parameter(part_.options.parameters);
    out.gather.packed_bytes = unpacked / zero_.z3;
    if (across == 1) {
      out.gather.copied_bytes = unpacked;
      return;
    }
    out.gather_inside.bytes = inside_of(of(wire, Purpose::kGatherModule));
    out.gather_inside.messages_intra = (inside - 1) * across * messages_[m];
    out.gather_inside.copied_bytes = unpacked;
    out.gather = {.bytes = across_of(of(wire, Purpose::kGatherModule)),
                  .messages_inter = (across - 1) * messages_[m],
                  .packed_bytes = unpacked / zero_.z3};
  }

  // Inside a node every piece of the others on other nodes is a sum by itself.
  void set_scatter(const PurposeBytes& wire, size_t m, ModuleWork& out) const {
    if (zero_.z2 == 1) return;
    const auto [inside, across] = levels(GroupKind::kGradients);
    if (across == 1) {
      out.scatter = sum(of(wire, Purpose::kScatterModule),
                        peers(GroupKind::kGradients), m);
    } else {
      out.scatter = sum(inside_of(of(wire, Purpose::kScatterModule)),
                        {.intra = inside - 1}, m, across);
      out.scatter_across = sum(across_of(of(wire, Purpose::kScatterModule)),
                               {.inter = across - 1}, m);
    }
    const int64_t bytes = elements_[m] * kBytesPerFp32;
    out.scatter.packed_bytes = bytes;
    // Added to what there is.
    (across == 1 ? out.scatter : out.scatter_across).copied_bytes +=
        bytes / zero_.z2;
  }

  void set_reduce(const PurposeBytes& wire, size_t m, ModuleWork& out) const {
    const BucketCollective* first = first_for(Purpose::kSum);
    if (first == nullptr || first->level == BucketCollective::Level::kBoth) {
      out.reduce = reduce(wire, m);
      return;
    }
    const PeerCount with = peers(Purpose::kSum);
    const bool runs = is_scattered(part_.traffic);
    out.reduce = sum(inside_of(of(wire, Purpose::kSum)), {.intra = with.intra},
                     m, runs ? with.inter + 1 : 1);
    out.reduce_across =
        sum(across_of(of(wire, Purpose::kSum)), {.inter = with.inter}, m);
  }

  // An all-reduce is a reduce-scatter and an all-gather of the same bytes.
  // Where replicas are added at once, only the gather is left of it.
  Transfer reduce(const PurposeBytes& wire, size_t m) const {
    const PeerCount back = peers(Purpose::kSumReplicas);
    const BucketCollective* again = first_for(Purpose::kSumReplicas);
    Transfer out = sum(of(wire, Purpose::kSum), peers(Purpose::kSum), m);
    if (again != nullptr && again->kind == EntryKind::kAllReduce) {
      const Transfer added =
          sum(share_of(of(wire, Purpose::kSumReplicas), 0.5), back, m);
      out.messages_intra += added.messages_intra;
      out.messages_inter += added.messages_inter;
      out.copied_bytes += added.copied_bytes;
      out.parts = std::max(out.parts, added.parts);
    }
    const bool repeats = of(wire, Purpose::kSumReplicas).sent() +
                             of(wire, Purpose::kSumReplicas).received() >
                         0;
    out.bytes = out.bytes + of(wire, Purpose::kSumReplicas);
    out.messages_intra += repeats ? back.intra : 0;
    out.messages_inter += repeats ? back.inter : 0;
    if (!out.empty() && is_staged())
      out.packed_bytes = elements_[m] / zero_.z2 * kBytesPerFp32;
    return out;
  }

  // Broadcasts belong to the step.
  void set_publish(const PurposeBytes& wire, size_t m, ModuleWork& out) const {
    if (part_.traffic == Traffic::kBroadcast) return;
    const BucketCollective* first = first_for(Purpose::kPublish);
    if (first == nullptr || first->level == BucketCollective::Level::kBoth) {
      out.publish = publish(wire, m);
      return;
    }
    const PeerCount to = peers(Purpose::kPublish);
    out.publish = {.bytes = across_of(of(wire, Purpose::kPublish)),
                   .messages_inter = to.inter * messages_[m]};
    out.publish_inside = {
        .bytes = inside_of(of(wire, Purpose::kPublish)),
        .messages_intra = to.intra * (to.inter + 1) * messages_[m]};
  }

  Transfer publish(const PurposeBytes& wire, size_t m) const {
    const PeerCount to = peers(Purpose::kPublish);
    Transfer out{.bytes = of(wire, Purpose::kPublish)};
    out.messages_intra = to.intra * messages_[m];
    out.messages_inter = to.inter * messages_[m];
    if (!out.empty() && is_staged()) {
      const int64_t bytes =
          elements_[m] * bytes_per_parameter(part_.options.parameters);
      out.packed_bytes = bytes / zero_.z1;
      out.copied_bytes = bytes / zero_.z3;
    }
    return out;
  }

  // Slices of a module are put together for the wire.
  bool is_staged() const { return part_.grid.places > 1; }

  // Every segment of every run is a message to each peer; what arrives is
  // added.
  Transfer sum(const WireBytes& bytes, const PeerCount& with, size_t m,
               int64_t runs = 1) const {
    Transfer out{.bytes = bytes};
    const int64_t count =
        std::max(runs * messages_[m], segments(bytes.received(), with));
    out.messages_intra = with.intra * count;
    out.messages_inter = with.inter * count;
    out.copied_bytes = bytes.received();
    out.parts = std::clamp<int64_t>(count, 1, kMostParts);
    return out;
  }

  const PlanPart& part_;
  ZeroSizes zero_;
  const Workload& workload_;
  int32_t rank_;
  RunOf run_;
  Coordinates at_;
  BucketCollectives in_step_;                 // of dense tensors
  std::vector<int64_t> elements_, messages_;  // by module
};

}  // namespace

std::vector<ModuleWork> rank_transfers(const Plan& plan,
                                       const Workload& workload,
                                       int32_t world_rank, RunOf run) {
  std::vector<ModuleWork> sum(static_cast<size_t>(num_modules(plan.model)));
  for (const RankInPart& at : parts_of_rank(plan, world_rank)) {
    const PlanPart& part = plan.parts[static_cast<size_t>(at.part)];
    const std::vector<ModuleWork> own =
        RankTransfers(part, workload, at.rank, run).all();
    for (size_t m = 0; m < sum.size(); ++m) {
      sum[m].gather = both(sum[m].gather, own[m].gather);
      sum[m].gather_inside = both(sum[m].gather_inside, own[m].gather_inside);
      sum[m].scatter = both(sum[m].scatter, own[m].scatter);
      sum[m].scatter_across =
          both(sum[m].scatter_across, own[m].scatter_across);
      sum[m].reduce = both(sum[m].reduce, own[m].reduce);
      sum[m].publish = both(sum[m].publish, own[m].publish);
      sum[m].reduce_across = both(sum[m].reduce_across, own[m].reduce_across);
      sum[m].publish_inside =
          both(sum[m].publish_inside, own[m].publish_inside);
    }
  }
  return sum;
}

}  // namespace canzona
