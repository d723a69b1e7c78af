#include "canzona/sim/mesh_search.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <queue>
#include <tuple>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/sim/mesh_bounds.h"
#include "canzona/sim/mesh_layout.h"

namespace canzona {
namespace {

// Layouts of a kind that are planned at once, whatever the threads.
constexpr int kAtOnce = 8;
// A kind that cannot be the best any more has so many layouts planned.
constexpr int64_t kPlansOfLosingKind = 8;

// One mesh with everything that is searched on it.
struct MeshRoom {
  MeshBounds bounds;
  std::vector<MeshChoice> settings = {};  // micro-batches and recomputation
  std::vector<MeshPace> paces = {};       // of each
  std::vector<ZeroSizes> dense = {}, experts = {};
};

// Layouts that are not decided: one, or all that differ in the sizes of dense
// tensors.
struct OpenLayouts {
  double bound = 0;
  int64_t number = 0;  // breaks ties
  int32_t room = 0;
  int32_t setting = 0;
  int32_t experts = 0;
  int32_t dense = -1;  // -1: all
  Reach reach = Reach::kDirect;
  bool is_tight = false;  // the bound counts slots
  friend bool operator<(const OpenLayouts& a, const OpenLayouts& b) {
    return std::tie(b.bound, b.number) < std::tie(a.bound, a.number);
  }
};
using LayoutQueue = std::priority_queue<OpenLayouts>;

std::vector<MeshChoice> settings_of(const MeshQuestion& question,
                                    const Mesh& mesh) {
  const MeshLimits& limits = question.limits;
  std::vector<bool> recompute{false, true};
  if (limits.no_recompute) recompute = {false};
  if (limits.recompute) recompute = {*limits.recompute};
  std::vector<MeshChoice> out;
  for (const BatchSplit& split :
       batch_splits(question.global_batch, question.work.compute.length,
                    mesh.homes(), limits))
    for (const bool again : recompute)
      out.push_back({.mesh = mesh,
                     .tokens = split.tokens,
                     .num_micro_batches = split.num_micro_batches,
                     .recompute = again});
  return out;
}

void check_question(const MeshQuestion& question) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw UsageError(cat("mesh auto: ", what));
  };
  require(question.model != nullptr && question.rule != nullptr,
          "a model and a rule are needed");
  require(question.ranks >= 1 && question.ranks <= kMaxWorld,
          cat("expected 1 to ", kMaxWorld, " ranks, got ", question.ranks));
  require(question.global_batch >= 1, "a global batch is needed");
  require(question.work.compute.length >= 1, "a length is needed");
  require(question.global_batch >= question.work.compute.length ||
              question.limits.tokens.has_value(),
          cat("a global batch of ", question.global_batch,
              " tokens is shorter than a sequence of ",
              question.work.compute.length));
}

// The rooms of all meshes of the space.
class SearchSpace {
 public:
  explicit SearchSpace(const MeshQuestion& question)
      : question_(question), facts_(question) {
    const MeshSpace space =
        meshes_in_space(*question.model, question.ranks,
                        question.options.ranks_per_node, question.limits);
    refused_ = space.refused;
    std::vector<std::unique_ptr<MeshRoom>> rooms(space.meshes.size());
    question.each(rooms.size(),
                  [&](size_t i) { rooms[i] = room_of(space.meshes[i]); });
    for (auto& room : rooms)
      if (room != nullptr) rooms_.push_back(std::move(room));
    if (!rooms_.empty()) return;
    throw UsageError(cat(
        "mesh auto: no layout of ", question.ranks, " ranks is possible; ",
        space.meshes.empty() ? space.refusal
                             : "every mesh has more data-parallel ranks than "
                               "the batch has sequences, or the fixed sizes "
                               "of ZeRO divide none"));
  }

  const std::vector<std::unique_ptr<MeshRoom>>& rooms() const { return rooms_; }
  int64_t refused() const { return refused_; }

  MeshChoice choice_of(const OpenLayouts& open) const {
    const MeshRoom& room = *rooms_[index(open.room)];
    MeshChoice choice = room.settings[index(open.setting)];
    choice.dense = room.dense[index(open.dense)];
    choice.experts = room.experts[index(open.experts)];
    choice.reach = open.reach;
    return choice;
  }

  // The ways in which sizes reach other nodes that differ.
  std::vector<Reach> reaches(const MeshRoom& room, const ZeroSizes& dense,
                             const ZeroSizes& experts) const {
    const bool apart = room.bounds.is_apart(dense, experts);
    const bool two =
        room.bounds.has_two_levels(dense, false, apart) ||
        (experts.z1 > 0 && room.bounds.has_two_levels(experts, true, apart));
    if (question_.limits.reach) {
      if (*question_.limits.reach == Reach::kDirect || two)
        return {*question_.limits.reach};
      return {Reach::kDirect};
    }
    if (!two) return {Reach::kDirect};
    return {Reach::kDirect, Reach::kPerNode};
  }

 private:
  std::unique_ptr<MeshRoom> room_of(const Mesh& mesh) const {
    const MeshLimits& limits = question_.limits;
    auto room = std::make_unique<MeshRoom>(
        MeshRoom{MeshBounds(question_, facts_, mesh)});
    room->settings = settings_of(question_, mesh);
    room->dense = sizes_in_space(mesh.homes(), limits, limits.zero);
    room->experts = {ZeroSizes{}};
    if (has_experts(*question_.model))
      room->experts =
          sizes_in_space(mesh.expert_homes(), limits, limits.zero_experts);
    if (room->settings.empty() || room->dense.empty() || room->experts.empty())
      return nullptr;
    room->paces = room->bounds.paces(room->settings);
    return room;
  }

  const MeshQuestion& question_;
  TensorFacts facts_;
  std::vector<std::unique_ptr<MeshRoom>> rooms_;
  int64_t refused_ = 0;
};

// The layout with the smallest bound on memory.
struct LeastMemory {
  MeshChoice choice;
  int64_t bytes = INT64_MAX;
};

LeastMemory least_of(const SearchSpace& space) {
  LeastMemory least;
  for (const auto& room : space.rooms()) {
    const auto setting = std::ranges::min_element(
        room->paces, {}, [](const MeshPace& pace) { return pace.activations; });
    for (const ZeroSizes& experts : room->experts)
      for (const ZeroSizes& dense : room->dense) {
        const int64_t bytes =
            room->bounds.memory(dense, experts) + setting->activations;
        if (bytes >= least.bytes) continue;
        least = {
            room->settings[static_cast<size_t>(setting - room->paces.begin())],
            bytes};
        least.choice.dense = dense;
        least.choice.experts = experts;
      }
  }
  return least;
}

// Returns the first change after which the bound on memory fits: those that
// cost little time come first.
std::string cure_of(const MeshQuestion& question) {
  std::vector<std::pair<std::string, MeshQuestion>> changes;
  const auto add = [&](const std::string& what, auto change) {
    MeshQuestion changed = question;
    change(changed.limits);
    if (changed.limits != question.limits) changes.emplace_back(what, changed);
  };
  const int64_t length = question.work.compute.length;
  add(cat("micro-batches of ", counted_text(length, "token")),
      [&](MeshLimits& limits) {
        if (limits.tokens) limits.tokens = std::min(*limits.tokens, length);
      });
  add("other sizes of ZeRO", [](MeshLimits& limits) {
    limits.no_zero = limits.no_hierarchical = false;
    limits.zero = limits.zero_experts = "";
  });
  add("recomputing activations", [](MeshLimits& limits) {
    limits.recompute = std::nullopt;
    limits.no_recompute = false;
  });
  add("other meshes", [](MeshLimits& limits) {
    limits.dp = limits.tp = limits.pp = limits.ep = std::nullopt;
    limits.no_tp = limits.no_pp = limits.no_ep = false;
  });
  for (int32_t times = 2; times <= 16; times *= 2) {
    MeshQuestion more = question;
    if (question.ranks > kMaxWorld / times) break;
    more.ranks *= times;
    changes.emplace_back(counted_text(more.ranks, "rank"), more);
  }
  for (const auto& [what, changed] : changes) {
    try {
      if (least_of(SearchSpace(changed)).bytes <=
          question.options.memory_cap_bytes)
        return what;
    } catch (const UsageError&) {
      // Nothing is possible after this change.
    }
  }
  return "";
}

// The layouts of one kind.
struct KindSearch {
  LayoutQueue open;
  std::optional<WeighedMesh> best;
  int64_t planned = 0;

  double best_seconds() const { return best ? best->seconds() : INFINITY; }
  bool is_decided() const {
    return open.empty() || open.top().bound >= best_seconds();
  }
};

class MeshSearch {
 public:
  explicit MeshSearch(const MeshQuestion& question)
      : question_(question), space_(question) {
    answer_.not_searched = not_in_mesh_space();
    answer_.counts.refused = space_.refused();
    most_planned_ = question.most_planned > 0 ? question.most_planned
                                              : usual_limit(question);
  }

  MeshAnswer run() {
    open_all();
    while (answer_.counts.planned < most_planned_) {
      const std::vector<OpenLayouts> batch = next_batch();
      if (batch.empty()) break;
      weigh(batch);
      if (question_.progress)
        question_.progress(
            {answer_.counts.planned, best_seconds(), least_bound()});
    }
    finish();
    return std::move(answer_);
  }

 private:
  // Plans of models with many tensors, and on many ranks, take longer.
  static int64_t usual_limit(const MeshQuestion& question) {
    constexpr int64_t kFewestPlans = 32;
    constexpr int64_t kMostPlans = 400;
    constexpr int64_t kTensors = 1'200'000;
    return std::clamp(kTensors / std::ssize(question.model->tensors),
                      kFewestPlans, kMostPlans);
  }

  KindSearch& kind(LayoutKind kind) {
    return kinds_[static_cast<size_t>(kind)];
  }

  // Fills the queues: with single layouts or, if there are experts, with all
  // that have the same sizes of experts.
  void open_all() {
    struct Opened {
      std::vector<std::pair<LayoutKind, OpenLayouts>> layouts;
      int64_t in_space = 0, over_cap = 0;
    };
    const auto& rooms = space_.rooms();
    std::vector<Opened> opened(rooms.size());
    question_.each(rooms.size(), [&](size_t r) {
      const auto room = static_cast<int32_t>(r);
      Opened& own = opened[r];
      for (int32_t x = 0; x < std::ssize(rooms[r]->experts); ++x)
        open_sizes(room, x, own.layouts, own.in_space, own.over_cap);
    });
    for (Opened& own : opened) {
      answer_.counts.in_space += own.in_space;
      answer_.counts.over_cap += own.over_cap;
      for (auto& [of_kind, open] : own.layouts) push(of_kind, open);
      own.layouts = {};
    }
  }
  void push(LayoutKind of_kind, OpenLayouts open) {
    open.number = next_number_++;
    kind(of_kind).open.push(open);
  }

  template <class Opened>
  void open_sizes(int32_t r, int32_t x, Opened& out, int64_t& in_space,
                  int64_t& over_cap) const {
    const MeshRoom& room = *space_.rooms()[index(r)];
    const ZeroSizes& experts = room.experts[index(x)];
    const int64_t settings = std::ssize(room.settings);
    int64_t layouts = 0;
    int64_t least = INT64_MAX;
    std::array<bool, kNumLayoutKinds> kinds{};
    bool two = false;
    for (const ZeroSizes& dense : room.dense) {
      const size_t reaches = space_.reaches(room, dense, experts).size();
      layouts += static_cast<int64_t>(reaches);
      two |= reaches > 1 || question_.limits.reach == Reach::kPerNode;
      least = std::min(least, room.bounds.memory(dense, experts));
      kinds[static_cast<size_t>(kind_of(
          {.mesh = room.bounds.mesh(), .dense = dense, .experts = experts}))] =
          true;
    }
    in_space += layouts * settings;
    std::vector<Reach> reaches{Reach::kDirect};
    if (two) reaches.push_back(Reach::kPerNode);
    for (int32_t s = 0; s < settings; ++s) {
      if (is_over_cap(least + room.paces[index(s)].activations)) {
        over_cap += layouts;
        continue;
      }
      for (const Reach reach : reaches) {
        OpenLayouts open{.room = r, .setting = s, .experts = x, .reach = reach};
        open.bound = bound_of_all(room, open);
        for (size_t k = 0; k < kinds.size(); ++k)
          if (kinds[k]) out.emplace_back(static_cast<LayoutKind>(k), open);
      }
    }
  }

  bool is_over_cap(int64_t bytes) const {
    const int64_t cap = question_.options.memory_cap_bytes;
    return cap > 0 && bytes > cap;
  }

  // Without the communication of dense tensors. Experts are assumed to be
  // planned apart, which counts least.
  double bound_of_all(const MeshRoom& room, const OpenLayouts& open) const {
    const MeshBounds& bounds = room.bounds;
    const ZeroSizes& experts = room.experts[index(open.experts)];
    const ZeroSizes widest{bounds.mesh().homes(), 1, 1};
    const double step = bounds.step_seconds(widest, experts);
    const MeshPace& pace = room.paces[index(open.setting)];
    if (experts.z1 == 0) return bounds.seconds(pace, nullptr, nullptr, step);
    const std::vector<StageOps> ops =
        bounds.ops(experts, true, true, open.reach);
    return bounds.seconds(pace, nullptr, &ops, step);
  }

  // Replaces layouts that differ in the sizes of dense tensors by single ones.
  void expand(LayoutKind of_kind, const OpenLayouts& all) {
    const MeshRoom& room = *space_.rooms()[index(all.room)];
    const MeshBounds& bounds = room.bounds;
    const MeshPace& pace = room.paces[index(all.setting)];
    const ZeroSizes& experts = room.experts[index(all.experts)];
    const double best = kind(of_kind).best_seconds();
    std::array<std::vector<StageOps>, 2> of_experts;
    for (const bool apart : {false, true})
      if (experts.z1 > 0)
        of_experts[apart ? 1 : 0] = bounds.ops(experts, true, apart, all.reach);
    for (int32_t d = 0; d < std::ssize(room.dense); ++d) {
      const ZeroSizes& dense = room.dense[index(d)];
      OpenLayouts one = all;
      one.dense = d;
      const MeshChoice choice = space_.choice_of(one);
      if (kind_of(choice) != of_kind) continue;
      const std::vector<Reach> reaches = space_.reaches(room, dense, experts);
      if (std::ranges::find(reaches, all.reach) == reaches.end()) continue;
      if (is_over_cap(bounds.memory(dense, experts) + pace.activations)) {
        ++answer_.counts.over_cap;
        continue;
      }
      const bool apart = bounds.is_apart(dense, experts);
      const std::vector<StageOps> ops =
          bounds.ops(dense, false, apart, all.reach);
      one.bound = bounds.seconds(
          pace, &ops, experts.z1 > 0 ? &of_experts[apart ? 1 : 0] : nullptr,
          bounds.step_seconds(dense, experts));
      if (one.bound < best) push(of_kind, one);
    }
  }

  OpenLayouts tightened(OpenLayouts one) const {
    const MeshRoom& room = *space_.rooms()[index(one.room)];
    const MeshBounds& bounds = room.bounds;
    const MeshPace& pace = room.paces[index(one.setting)];
    const MeshChoice choice = space_.choice_of(one);
    const bool apart = bounds.is_apart(choice.dense, choice.experts);
    const PoolSlots slots =
        bounds.slots(choice.dense, choice.experts, pace.activations);
    const auto dense = bounds.ops(choice.dense, false, apart, one.reach);
    std::vector<StageOps> experts;
    if (choice.experts.z1 > 0)
      experts = bounds.ops(choice.experts, true, apart, one.reach);
    const double seconds = bounds.seconds(
        pace, &dense, experts.empty() ? nullptr : &experts,
        bounds.step_seconds(choice.dense, choice.experts), &slots);
    one.bound = std::max(one.bound, seconds);
    one.is_tight = true;
    return one;
  }

  double best_seconds() const {
    double best = INFINITY;
    for (const KindSearch& one : kinds_)
      best = std::min(best, one.best_seconds());
    return best;
  }
  // Of the layouts that are left.
  double least_bound() const {
    double least = INFINITY;
    for (const KindSearch& one : kinds_)
      if (!one.is_decided()) least = std::min(least, one.open.top().bound);
    return least;
  }

  // Takes single layouts of every kind that is not decided, those with the
  // least bounds; more of kinds that may have the best of all.
  std::vector<OpenLayouts> next_batch() {
    std::vector<OpenLayouts> batch;
    const double best = best_seconds();
    for (size_t k = 0; k < kinds_.size(); ++k) {
      KindSearch& own = kinds_[k];
      const bool leads = !own.open.empty() && own.open.top().bound < best;
      const int64_t most =
          !leads     ? std::min<int64_t>(1, kPlansOfLosingKind - own.planned)
          : own.best ? kAtOnce
                     : 1;
      for (int64_t i = 0; i < most && !own.is_decided();) {
        const OpenLayouts next = own.open.top();
        own.open.pop();
        if (next.dense < 0) {
          expand(static_cast<LayoutKind>(k), next);
        } else if (!next.is_tight) {
          own.open.push(tightened(next));
        } else {
          batch.push_back(next);
          ++i;
        }
      }
    }
    return batch;
  }

  using LayoutKey = std::tuple<int32_t, int32_t, int32_t, Reach>;
  static LayoutKey key_of(const OpenLayouts& open) {
    return {open.room, open.dense, open.experts, open.reach};
  }

  void plan(const std::vector<OpenLayouts>& batch) {
    std::vector<const OpenLayouts*> fresh;
    for (const OpenLayouts& open : batch)
      if (layouts_.try_emplace(key_of(open)).second) fresh.push_back(&open);
    question_.each(fresh.size(), [&](size_t i) {
      try {
        layouts_.at(key_of(*fresh[i])) = std::make_unique<LayoutPlan>(
            question_, space_.choice_of(*fresh[i]), 0,
            space_.rooms()[index(fresh[i]->room)]
                ->paces[index(fresh[i]->setting)]
                .activations);
      } catch (const UsageError&) {
        // The groups of this layout do not allow its collectives.
      }
    });
    answer_.counts.planned += std::ssize(fresh);
  }

  void weigh(const std::vector<OpenLayouts>& batch) {
    plan(batch);
    std::vector<std::optional<WeighedMesh>> weighed(batch.size());
    question_.each(batch.size(), [&](size_t i) {
      const OpenLayouts& open = batch[i];
      const auto& layout = layouts_.at(key_of(open));
      if (layout == nullptr) return;
      const MeshPace& pace =
          space_.rooms()[index(open.room)]->paces[index(open.setting)];
      weighed[i] = weigh_layout(*layout, question_, space_.choice_of(open),
                                pace.batch, pace.activations);
      weighed[i]->bound_seconds = open.bound;
    });
    for (const std::optional<WeighedMesh>& one : weighed)
      if (one) keep(*one);
  }

  void keep(const WeighedMesh& one) {
    KindSearch& own = kind(kind_of(one.choice));
    ++own.planned;
    ++(one.seconds() > 0 ? answer_.counts.simulated : answer_.counts.over_cap);
    if (!one.fits) {
      if (!nearest_ || one.memory_bytes() < nearest_->memory_bytes())
        nearest_ = one;
    } else if (one.seconds() < own.best_seconds()) {
      own.best = one;
    }
  }

  void finish() {
    MeshCounts& counts = answer_.counts;
    const double best = best_seconds();
    double bound = best;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      KindSearch& own = kinds_[k];
      bound = std::min(bound, own.is_decided() ? best : own.open.top().bound);
      if (!own.best) continue;
      describe(question_, *own.best);
      answer_.kinds.push_back({.kind = static_cast<LayoutKind>(k),
                               .weighed = *own.best,
                               .proven = own.is_decided()});
    }
    std::ranges::stable_sort(answer_.kinds, {}, [](const RankedMesh& row) {
      return row.weighed.seconds();
    });
    answer_.proven = bound >= best;
    if (answer_.is_found()) answer_.gap = 1 - bound / best;
    counts.too_slow = counts.in_space - counts.over_cap - counts.simulated;
    give_reasons(answer_);
    if (!answer_.is_found()) find_nearest();
  }

  void find_nearest() {
    const int64_t cap = question_.options.memory_cap_bytes;
    const LeastMemory least = least_of(space_);
    NearestMesh& nearest = answer_.nearest.emplace();
    nearest =
        nearest_ ? NearestMesh{nearest_->choice, nearest_->memory_bytes() - cap}
                 : NearestMesh{least.choice, least.bytes - cap};
    nearest.cure = cure_of(question_);
  }

  const MeshQuestion& question_;
  SearchSpace space_;
  int64_t most_planned_ = 0;
  std::array<KindSearch, kNumLayoutKinds> kinds_;
  int64_t next_number_ = 0;
  std::map<LayoutKey, std::unique_ptr<LayoutPlan>> layouts_;
  std::optional<WeighedMesh> nearest_;  // that does not fit
  MeshAnswer answer_;
};

}  // namespace

MeshAnswer search_meshes(const MeshQuestion& question) {
  check_question(question);
  return MeshSearch(question).run();
}

}  // namespace canzona
