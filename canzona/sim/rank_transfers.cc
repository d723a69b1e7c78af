#include "canzona/sim/plan_iteration.h"

#include <algorithm>
#include <map>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/rank_layout.h"

namespace canzona::sim {
namespace {

// A simulated sum has no more segments than this; more would make no visible
// difference.
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

class PartTransfers {
 public:
  PartTransfers(const PlanPart& part, const Workload& workload, int32_t rank)
      : part_(part),
        zero_(part.options.zero.sizes),
        workload_(workload),
        rank_(rank),
        at_(coordinates_of(part.mesh, rank)) {
    const Buffer dense{.stage = at_.stage};
    for (const BucketCollectives& list :
         {gathers_of(part, rank), scatters_of(part, rank),
          sums_of(part, dense, rank), publishes_of(part, dense, rank)})
      collectives_.insert(collectives_.end(), list.begin(), list.end());
  }

  RankTransfers all() {
    count_modules();
    std::vector<PurposeBytes> wire = module_bytes(part_, rank_);
    RankTransfers out{operations(wire), {}};
    if (part_.mesh.ep == 1) raise_to_longest(wire);
    out.longest = operations(wire);
    return out;
  }

 private:
  std::vector<ModuleWork> operations(const std::vector<PurposeBytes>& wire) {
    std::vector<ModuleWork> out(wire.size());
    for (size_t m = 0; m < wire.size(); ++m) {
      if (elements_[m] == 0) continue;
      out[m].gather = on_links(gather(wire[m], m), {Purpose::kGatherModule});
      out[m].scatter = on_links(scatter(wire[m], m), {Purpose::kScatterModule});
      out[m].reduce =
          on_links(reduce(wire[m], m), {Purpose::kSum, Purpose::kSumReplicas});
      out[m].publish = on_links(publish(wire[m], m), {Purpose::kPublish});
    }
    return out;
  }

  // Counts the elements of this rank's shards, and the messages into which they
  // are packed.
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

  // The longest run of any home; slices differ by at most a row. With two
  // levels, homes at the same position on their nodes go together inside.
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
      bytes = std::max(bytes, run * peers);
    };
    const PeerCount from = peers(Purpose::kSum), to = peers(Purpose::kPublish);
    const BucketCollective* sum = first_for(Purpose::kSum);
    const bool cut =
        sum != nullptr && sum->pieces == BucketCollective::Pieces::kRunShares;
    const int64_t shares = cut ? part_.num_replicas() : 1;
    const PeerCount replicas = peers(Purpose::kSumReplicas);
    const BucketCollective* again = first_for(Purpose::kSumReplicas);
    // An all-reduce of shares of a run sends each share twice.
    const bool of_runs = again != nullptr &&
                         again->pieces == BucketCollective::Pieces::kOwnShares;
    const int64_t passes = !of_runs                               ? 0
                           : again->kind == EntryKind::kAllReduce ? 2
                                                                  : 1;
    const int64_t parameter = size_of(part_.options.parameters);
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
      WireBytes& twice = of(wire[m], Purpose::kSumReplicas);
      const int64_t share = passes * divide_up(run, part_.num_replicas());
      for (const auto side :
           {&WireBytes::sent_intra, &WireBytes::received_intra})
        raise(twice.*side, share * kBytesPerFp32, replicas.intra);
      for (const auto side :
           {&WireBytes::sent_inter, &WireBytes::received_inter})
        raise(twice.*side, share * kBytesPerFp32, replicas.inter);
      raise(published.sent_intra, place * parameter, to.intra);
      raise(published.sent_inter, run * parameter, to.inter);
    }
  }

  bool is_here(const Bucket& bucket) const {
    const Buffer& buffer = part_.buffers[static_cast<size_t>(bucket.buffer)];
    return at_.holds(buffer) && !bucket.tensors.empty();
  }

  // The links of a group beyond the nearest nodes, and how it is spread over
  // nodes.
  struct GroupLinks {
    FarLinks far = {};
    int64_t ranks = 1;   // in the group
    int64_t inside = 1;  // of these, on this node
  };
  const GroupLinks& links_of_group(GroupKind kind) {
    const auto [found, is_new] = group_links_.try_emplace(kind);
    if (!is_new) return found->second;
    GroupLinks& links = found->second;
    const RankGroup group = group_of(part_, rank_, kind);
    links.ranks = group.count;
    links.inside = 1 + peers(kind).intra;
    if (workload_.levels.size() <= 2) return links;
    const int32_t here = part_.rank_in_whole(rank_);
    PeersByLevel by_level(workload_.levels.size(), 0);
    for (int32_t i = 0; i < group.count; ++i)
      ++by_level[level_of(workload_.levels, here,
                          part_.rank_in_whole(group.rank(i)))];
    links.far = far_links(workload_.levels, by_level);
    return links;
  }

  // The same operation on links of more than two levels, or as a ring.
  Legs on_links(Legs legs, std::initializer_list<Purpose> purposes) {
    for (const Purpose purpose : purposes) {
      const BucketCollective* c = first_for(purpose);
      if (c == nullptr) continue;
      const GroupLinks& links = links_of_group(c->group);
      for (Transfer* leg : {&legs.first, &legs.second}) {
        leg->far_scale = std::max(leg->far_scale, links.far.scale);
        leg->added_latency_seconds = std::max(leg->added_latency_seconds,
                                              links.far.added_latency_seconds);
      }
      if (workload_.rings && !has_legs(*c) && purpose == *purposes.begin())
        legs.first = as_ring(legs.first, links, is_gathered(purpose));
    }
    return legs;
  }

  static bool is_gathered(Purpose purpose) {
    return purpose == Purpose::kGatherModule || purpose == Purpose::kPublish;
  }

  // Every piece travels from rank to rank, hop by hop, so every rank forwards
  // all but its own, however long runs are. There are as many rings as a node
  // has ranks of the group, each with a share of the bytes, so that every rank
  // carries some of the bytes between nodes.
  Transfer as_ring(Transfer t, const GroupLinks& links, bool gathered) const {
    const int64_t hops = links.ranks - 1;
    if (hops < 1 || t.empty()) return t;
    const bool spans = links.inside < links.ranks;
    const int64_t passed = gathered ? t.bytes.received() : t.bytes.sent();
    const bool inside = !spans || links.inside > 1;
    const int64_t near = inside ? passed : 0;
    const int64_t far = spans ? passed / links.inside : 0;
    t.bytes = {.sent_intra = near,
               .sent_inter = far,
               .received_intra = near,
               .received_inter = far};
    t.messages_intra = inside ? hops : 0;
    t.messages_inter = spans ? hops : 0;
    t.parts = std::min(t.parts, hops);
    const double hop =
        part_.options.links.latency(!spans) + t.added_latency_seconds;
    t.added_latency_seconds +=
        hop * (static_cast<double>(hops) / static_cast<double>(t.parts) - 1);
    return t;
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
  // Returns the first of a bucket's collectives for this purpose; null if there
  // are no other ranks.
  const BucketCollective* first_for(Purpose purpose) const {
    for (const BucketCollective& c : collectives_)
      if (c.purpose == purpose) return &c;
    return nullptr;
  }
  PeerCount peers(Purpose purpose) const {
    const BucketCollective* c = first_for(purpose);
    if (c == nullptr) return {};
    if (!has_legs(*c)) return peers(c->group);
    const auto [inside, across] = levels(c->group);
    return {.intra = inside - 1, .inter = across - 1};
  }
  static bool has_legs(const BucketCollective& c) {
    return c.level != BucketCollective::Level::kBoth;
  }

  int64_t segments(int64_t received, const PeerCount& from) const {
    if (from.all() == 0) return 0;
    return divide_up(divide_up(received, from.all()), workload_.segment_bytes);
  }

  Levels levels(GroupKind kind) const { return levels_of(part_, rank_, kind); }

  // Gathered pieces cross nodes first; inside a node every piece is a separate
  // message.
  Legs gathered(const BucketCollective& c, const WireBytes& bytes,
                size_t m) const {
    const auto [intra, inter] = peers(c.purpose);
    const int64_t count = messages_[m];
    if (!has_legs(c))
      return {.first = {.bytes = bytes,
                        .messages_intra = intra * count,
                        .messages_inter = inter * count}};
    return {
        .first = {.bytes = across_of(bytes), .messages_inter = inter * count},
        .second = {.bytes = inside_of(bytes),
                   .messages_intra = intra * (inter + 1) * count}};
  }

  // Sums begin inside; with runs, every piece for homes on other nodes is a
  // separate sum.
  Legs summed(const BucketCollective& c, const WireBytes& bytes,
              size_t m) const {
    const auto [intra, inter] = peers(c.purpose);
    if (!has_legs(c)) return {.first = sum(bytes, {intra, inter}, m)};
    const bool pieces = c.pieces != BucketCollective::Pieces::kShares;
    return {.first = sum(inside_of(bytes), {.intra = intra}, m,
                         pieces ? inter + 1 : 1),
            .second = sum(across_of(bytes), {.inter = inter}, m)};
  }

  Legs gather(const PurposeBytes& wire, size_t m) const {
    const BucketCollective* c = first_for(Purpose::kGatherModule);
    if (c == nullptr) return {};
    Legs legs = gathered(*c, of(wire, c->purpose), m);
    const int64_t unpacked = elements_[m] * element_bytes(part_, *c);
    legs.first.packed_bytes = unpacked / zero_.z3;
    (has_legs(*c) ? legs.second : legs.first).copied_bytes = unpacked;
    return legs;
  }

  Legs scatter(const PurposeBytes& wire, size_t m) const {
    const BucketCollective* c = first_for(Purpose::kScatterModule);
    if (c == nullptr) return {};
    Legs legs = summed(*c, of(wire, c->purpose), m);
    const int64_t bytes = elements_[m] * element_bytes(part_, *c);
    legs.first.packed_bytes = bytes;
    // The sums are added to what is there.
    (has_legs(*c) ? legs.second : legs.first).copied_bytes += bytes / zero_.z2;
    return legs;
  }

  // An all-reduce is a reduce-scatter and an all-gather of the same bytes. If
  // replicas are summed at once, only the gather is left.
  Legs reduce(const PurposeBytes& wire, size_t m) const {
    const BucketCollective* c = first_for(Purpose::kSum);
    if (c != nullptr && has_legs(*c))
      return summed(*c, of(wire, c->purpose), m);
    const WireBytes& replicas = of(wire, Purpose::kSumReplicas);
    const PeerCount back = peers(Purpose::kSumReplicas);
    const BucketCollective* again = first_for(Purpose::kSumReplicas);
    Transfer out = sum(of(wire, Purpose::kSum), peers(Purpose::kSum), m);
    if (again != nullptr && again->kind == EntryKind::kAllReduce) {
      const Transfer added = sum(share_of(replicas, 0.5), back, m);
      out.messages_intra += added.messages_intra;
      out.messages_inter += added.messages_inter;
      out.copied_bytes += added.copied_bytes;
      out.parts = std::max(out.parts, added.parts);
    }
    const bool repeats = replicas.sent() + replicas.received() > 0;
    out.bytes += replicas;
    out.messages_intra += repeats ? back.intra : 0;
    out.messages_inter += repeats ? back.inter : 0;
    if (!out.empty() && is_staged())
      out.packed_bytes = elements_[m] / zero_.z2 * kBytesPerFp32;
    return {.first = out};
  }

  // Broadcasts count for the step.
  Legs publish(const PurposeBytes& wire, size_t m) const {
    const BucketCollective* c = first_for(Purpose::kPublish);
    if (c == nullptr || part_.traffic == Traffic::kBroadcast) return {};
    Legs legs = gathered(*c, of(wire, c->purpose), m);
    if (!legs.empty() && is_staged()) {
      const int64_t bytes = elements_[m] * element_bytes(part_, *c);
      legs.first.packed_bytes = bytes / zero_.z1;
      legs.first.copied_bytes = bytes / zero_.z3;
    }
    return legs;
  }

  // True if slices of a module are assembled for the wire.
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
  Coordinates at_;
  BucketCollectives collectives_;  // of a bucket of dense tensors, in order
  std::vector<int64_t> elements_, messages_;  // by module
  std::map<GroupKind, GroupLinks> group_links_;
};

}  // namespace

RankTransfers rank_transfers(const Plan& plan, const Workload& workload,
                             int32_t world_rank) {
  const std::vector<ModuleWork> none(
      static_cast<size_t>(num_modules(plan.model)));
  RankTransfers sum{none, none};
  for (const RankInPart& at : parts_of_rank(plan, world_rank)) {
    const PlanPart& part = plan.parts[static_cast<size_t>(at.part)];
    const RankTransfers more = PartTransfers(part, workload, at.rank).all();
    for (size_t m = 0; m < none.size(); ++m)
      for (const auto operation : kModuleOperations) {
        sum.own[m].*operation =
            both(sum.own[m].*operation, more.own[m].*operation);
        sum.longest[m].*operation =
            both(sum.longest[m].*operation, more.longest[m].*operation);
      }
  }
  return sum;
}

}  // namespace canzona::sim
