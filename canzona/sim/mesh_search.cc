#include "canzona/sim/mesh_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/sim/mesh_layout.h"
#include "canzona/sim/mesh_rooms.h"

namespace canzona::sim {
namespace {

// Layouts of a kind that are planned at once, whatever the threads.
constexpr int kAtOnce = 8;
// A kind that cannot be the best any more has so many layouts planned.
constexpr int64_t kPlansOfLosingKind = 8;
// Sets of layouts are not divided any more after so many tight bounds.
constexpr int64_t kMostBounds = 60'000;

// Bounds between two steps are taken in the order of their depth, so that a
// layout is planned before all that are about as good were looked at.
constexpr double kSteps = 1024;
double step_below(double bound) {
  int exponent = 0;
  const double mantissa = std::frexp(bound, &exponent);
  return std::ldexp(std::floor(mantissa * kSteps) / kSteps, exponent);
}

// Layouts in the order in which they are looked at.
class LayoutHeap {
 public:
  const std::vector<OpenLayouts>& all() const { return layouts_; }
  bool empty() const { return layouts_.empty(); }
  const OpenLayouts& first() const { return layouts_.front(); }
  void push(const OpenLayouts& open) {
    layouts_.push_back(open);
    std::ranges::push_heap(layouts_, is_later);
  }
  OpenLayouts pop() {
    std::ranges::pop_heap(layouts_, is_later);
    const OpenLayouts first = layouts_.back();
    layouts_.pop_back();
    return first;
  }

 private:
  static bool is_later(const OpenLayouts& a, const OpenLayouts& b) {
    const auto key = [](const OpenLayouts& one) {
      return std::tuple(step_below(one.bound), one.dense < 0, one.experts < 0,
                        one.work, one.bound, one.number);
    };
    return key(a) > key(b);
  }

  std::vector<OpenLayouts> layouts_;
};

// The layouts of one kind. Doubtful ones come after all others.
class KindSearch {
 public:
  void push(OpenLayouts open) {
    open.number = next_number_++;
    (open.is_doubtful ? doubtful_ : open_).push(open);
  }
  // Requires that it is not decided.
  OpenLayouts pop() { return (open_.empty() ? doubtful_ : open_).pop(); }
  // Gives up on these.
  void set_aside(const OpenLayouts& open) { aside_.push_back(open); }
  // Layouts of about the same time as the best are looked at, too.
  void break_ties() { equal_ = 1 + kEqualTimes; }

  // Layouts whose bounds are not below this are not looked at.
  double limit() const { return best_seconds() * equal_; }
  double best_seconds() const { return best ? best->seconds() : INFINITY; }
  // True if nothing is left that may be better.
  bool is_decided() {
    for (LayoutHeap* heap : {&open_, &doubtful_})
      while (!heap->empty() && heap->first().bound >= limit()) heap->pop();
    return open_.empty() && doubtful_.empty();
  }
  bool is_doubtful() const { return open_.empty(); }
  // No layout that is left is faster.
  double least_bound() const {
    double least = INFINITY;
    for (const auto* layouts : {&open_.all(), &doubtful_.all(), &aside_})
      for (const OpenLayouts& one : *layouts)
        least = std::min(least, one.bound);
    return least;
  }
  // The same within a step, of those that are not set aside.
  double next_bound() const {
    double least = INFINITY;
    for (const LayoutHeap* heap : {&open_, &doubtful_})
      if (!heap->empty())
        least = std::min(least, step_below(heap->first().bound));
    return least;
  }
  // Counts the layouts that may take less time than this.
  int64_t left(const MeshRooms& rooms, LayoutKind kind, double seconds) const {
    int64_t sum = 0;
    for (const auto* layouts : {&open_.all(), &doubtful_.all(), &aside_})
      for (const OpenLayouts& one : *layouts)
        if (one.bound < seconds) sum += rooms.count(one, kind);
    return sum;
  }

  // Layouts of equal time: fewer bytes over slow links, then less memory, then
  // smaller sizes.
  void keep(const WeighedMesh& one) {
    const auto tie = [](const WeighedMesh& w) {
      const auto& [z1, z2, z3] = w.choice.dense;
      const ZeroSizes& x = w.choice.experts;
      return std::tuple(w.slow_bytes, w.memory_bytes(), z1, z2, z3, x.z1, x.z2,
                        x.z3);
    };
    const double seconds = one.seconds();
    const bool is_equal =
        seconds <= limit() && best_seconds() <= seconds * equal_;
    if (is_equal ? tie(one) < tie(*best) : seconds < best_seconds()) best = one;
  }

  std::optional<WeighedMesh> best;
  int64_t planned = 0;

 private:
  double equal_ = 1;
  LayoutHeap open_, doubtful_;
  std::vector<OpenLayouts> aside_;
  int64_t next_number_ = 0;
};

class MeshSearch {
 public:
  explicit MeshSearch(const MeshQuestion& question)
      : question_(question), rooms_(question) {
    answer_.not_searched = not_in_mesh_space();
    answer_.counts.refused = rooms_.refused();
    most_planned_ =
        question.most_planned > 0 ? question.most_planned : INT64_MAX;
    if (question.most_planned == 0) work_left_ = usual_work(question.ranks);
    if (question.limits.mesh)
      for (KindSearch& kind : kinds_) kind.break_ties();
  }

  MeshAnswer run() {
    open_all();
    while (go_on()) {
    }
    finish();
    return std::move(answer_);
  }

  // The mesh of a layout that fits, if a few plans have one.
  std::optional<Mesh> find_any() {
    constexpr int64_t kMostPlans = 24;
    most_planned_ = std::min(most_planned_, kMostPlans);
    open_all();
    while (best_seconds() == INFINITY && go_on()) {
    }
    for (const KindSearch& kind : kinds_)
      if (kind.best) return kind.best->choice.mesh;
    return std::nullopt;
  }

 private:
  // False if nothing is left, or no plan is.
  bool go_on() {
    if (answer_.counts.planned >= most_planned_) return false;
    const std::vector<OpenLayouts> batch = next_batch();
    if (batch.empty()) return false;
    weigh(batch);
    tell();
    return true;
  }

  // This work takes seconds on few ranks, and two minutes of two cores on most.
  static double usual_work(int32_t ranks) {
    constexpr double kOfFewRanks = 1e8, kFewRanks = 64, kGrowth = 0.4;
    return kOfFewRanks * std::pow(std::max(1.0, ranks / kFewRanks), kGrowth);
  }

  void tell() const {
    if (question_.progress)
      question_.progress(
          {answer_.counts.planned, best_seconds(), next_bound()});
  }

  void open_all() {
    for (int32_t r = 0; r < std::ssize(rooms_); ++r)
      for (int32_t s = 0; s < std::ssize(rooms_[r].settings); ++s) {
        OpenLayouts open{.room = r, .setting = s, .is_tight = true};
        open.bound = rooms_.loose_bound(open);
        for (size_t k = 0; k < kinds_.size(); ++k) {
          const int64_t layouts = rooms_[r].layouts[k];
          answer_.counts.in_space += layouts;
          if (layouts == 0) continue;
          if (rooms_.is_over_cap(open))
            answer_.counts.over_cap += layouts;
          else
            kinds_[k].push(open);
        }
      }
  }

  double best_seconds() const {
    double best = INFINITY;
    for (const KindSearch& one : kinds_)
      best = std::min(best, one.best_seconds());
    return best;
  }
  double next_bound() const {
    double least = best_seconds();
    for (const KindSearch& one : kinds_)
      least = std::min(least, one.next_bound());
    return least;
  }

  void tighten(std::vector<OpenLayouts>& layouts) {
    question_.each(layouts.size(), [&](size_t i) {
      if (layouts[i].is_tight) return;
      layouts[i].bound =
          std::max(layouts[i].bound, rooms_.tight_bound(layouts[i]));
      layouts[i].is_tight = true;
    });
    bounds_ += std::ssize(layouts);
    constexpr int64_t kTold = 4096;
    if (bounds_ / kTold != (bounds_ - std::ssize(layouts)) / kTold) tell();
  }

  // Plans need more than the bound, those of a search about equally much.
  bool is_doubtful(const OpenLayouts& open) const {
    const int64_t cap = question_.options.memory_cap_bytes;
    return cap > 0 && rooms_.memory(open) + least_excess_.value_or(0) > cap;
  }

  std::vector<OpenLayouts> parts_of(size_t k, const OpenLayouts& open) {
    std::vector<OpenLayouts> parts =
        rooms_.expand(open, static_cast<LayoutKind>(k), kinds_[k].limit(),
                      answer_.counts.over_cap);
    for (OpenLayouts& part : parts) {
      part.is_doubtful = is_doubtful(part);
      if (part.is_single()) part.work = rooms_.work_of(part);
    }
    return parts;
  }

  // Goes down to a single layout by the best part of each set, so that there
  // is one to compare with.
  std::optional<OpenLayouts> descend(size_t k) {
    OpenLayouts open = kinds_[k].pop();
    while (!open.is_single()) {
      std::vector<OpenLayouts> parts = parts_of(k, open);
      if (parts.empty()) return std::nullopt;
      tighten(parts);
      const auto best =
          std::ranges::min_element(parts, {}, [&](const OpenLayouts& part) {
            return std::tuple(part.is_doubtful,
                              part.is_doubtful ? rooms_.memory(part) : 0,
                              step_below(part.bound), part.work, part.bound);
          });
      open = *best;
      parts.erase(best);
      for (const OpenLayouts& part : parts) kinds_[k].push(part);
    }
    return open;
  }

  // Takes the work of a plan from what is left; false if that is not enough.
  bool pays(const OpenLayouts& open) {
    if (layouts_.contains(key_of(open))) return true;
    if (open.work > work_left_) return false;
    work_left_ -= open.work;
    return true;
  }

  // Returns the next layout to plan; those that are popped on the way are
  // divided or bounded tightly.
  std::optional<OpenLayouts> next_single(size_t k) {
    KindSearch& own = kinds_[k];
    while (!own.is_decided()) {
      if (!own.best && bounds_ < kMostBounds) {
        if (const auto found = descend(k)) {
          if (pays(*found)) return found;
          own.set_aside(*found);
        }
        continue;
      }
      std::vector<OpenLayouts> next{own.pop()};
      if (!next.front().is_doubtful && is_doubtful(next.front())) {
        next.front().is_doubtful = true;
        own.push(next.front());
      } else if (!next.front().is_tight) {
        tighten(next);
        own.push(next.front());
      } else if (next.front().is_single()) {
        if (pays(next.front())) return next.front();
        own.set_aside(next.front());
      } else if (bounds_ >= kMostBounds) {
        own.set_aside(next.front());
      } else {
        for (const OpenLayouts& part : parts_of(k, next.front()))
          own.push(part);
      }
    }
    return std::nullopt;
  }

  // Takes layouts of every kind that is not decided, more of kinds that may
  // have the best of all.
  std::vector<OpenLayouts> next_batch() {
    std::vector<OpenLayouts> batch;
    const double best =
        best_seconds() * (question_.limits.mesh ? 1 + kEqualTimes : 1);
    for (size_t k = 0; k < kinds_.size(); ++k) {
      KindSearch& own = kinds_[k];
      const bool leads = own.next_bound() < best;
      const int64_t plans = own.best || own.is_doubtful()
                                ? kPlansOfLosingKind / 2
                                : kPlansOfLosingKind;
      const int64_t most = !leads ? std::min<int64_t>(1, plans - own.planned)
                           : own.best ? kAtOnce
                                      : 1;
      for (int64_t i = 0; i < most; ++i)
        if (const auto next = next_single(k))
          batch.push_back(*next);
        else
          break;
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
    std::vector<std::string> refusals(fresh.size());
    question_.each(fresh.size(), [&](size_t i) {
      try {
        layouts_.at(key_of(*fresh[i])) = std::make_unique<LayoutPlan>(
            question_, rooms_.choice_of(*fresh[i]), 0,
            fresh[i]->is_doubtful
                ? std::optional(rooms_.pace(*fresh[i]).activations)
                : std::nullopt);
      } catch (const UsageError& error) {
        refusals[i] =
            error.what();  // its groups or its strategy do not allow it
      }
    });
    for (const std::string& refusal : refusals)
      if (!refusal.empty()) answer_.refusal = refusal;
    answer_.counts.planned += std::ssize(fresh);
  }

  void weigh(const std::vector<OpenLayouts>& batch) {
    plan(batch);
    std::vector<std::optional<WeighedMesh>> weighed(batch.size());
    question_.each(batch.size(), [&](size_t i) {
      const OpenLayouts& open = batch[i];
      const auto& layout = layouts_.at(key_of(open));
      if (layout == nullptr) return;
      const MeshPace& pace = rooms_.pace(open);
      weighed[i] = weigh_layout(*layout, question_, rooms_.choice_of(open),
                                pace.batch, pace.activations);
      weighed[i]->bound_seconds = open.bound;
    });
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!weighed[i]) continue;
      keep(*weighed[i]);
      const int64_t excess =
          weighed[i]->memory_bytes() - rooms_.memory(batch[i]);
      least_excess_ = std::min(least_excess_.value_or(excess), excess);
    }
  }

  void keep(const WeighedMesh& one) {
    KindSearch& own = kinds_[static_cast<size_t>(
        kind_of(one.choice, !question_.limits.mesh))];
    ++own.planned;
    const bool was_simulated = one.seconds() > 0 || one.fits;
    ++(was_simulated ? answer_.counts.simulated : answer_.counts.over_cap);
    if (one.fits)
      own.keep(one);
    else if (!nearest_ || one.memory_bytes() < nearest_->memory_bytes())
      nearest_ = one;
  }

  void finish() {
    MeshCounts& counts = answer_.counts;
    const double best = best_seconds();
    double bound = best;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      KindSearch& own = kinds_[k];
      const double least = own.least_bound();
      bound = std::min(bound, least);
      counts.left += own.left(rooms_, static_cast<LayoutKind>(k), best);
      if (!own.best) continue;
      describe(question_, *own.best);
      answer_.kinds.push_back({.kind = static_cast<LayoutKind>(k),
                               .weighed = *own.best,
                               .proven = least >= own.best_seconds()});
    }
    std::ranges::stable_sort(answer_.kinds, {}, [](const RankedMesh& row) {
      return row.weighed.seconds();
    });
    answer_.proven = bound >= best;
    if (answer_.is_found()) answer_.gap = 1 - bound / best;
    counts.too_slow =
        counts.in_space - counts.over_cap - counts.simulated - counts.left;
    give_reasons(answer_, question_.options.memory_cap_bytes);
    if (!answer_.is_found() && (nearest_ || counts.over_cap > 0))
      answer_.nearest = nearest_mesh(question_, rooms_, nearest_);
  }

  const MeshQuestion& question_;
  MeshRooms rooms_;
  int64_t most_planned_ = 0;
  double work_left_ = INFINITY;
  int64_t bounds_ = 0;  // tight ones
  std::array<KindSearch, kNumLayoutKinds> kinds_;
  std::map<LayoutKey, std::unique_ptr<LayoutPlan>> layouts_;
  std::optional<WeighedMesh> nearest_;   // that does not fit
  std::optional<int64_t> least_excess_;  // of memory over its bound
  MeshAnswer answer_;
};

}  // namespace

void one_by_one(size_t count, const std::function<void(size_t)>& work) {
  for (size_t i = 0; i < count; ++i) work(i);
}

std::optional<Mesh> find_mesh_that_fits(const MeshQuestion& question) {
  try {
    check_question(question);
    return MeshSearch(question).find_any();
  } catch (const UsageError&) {
    return std::nullopt;  // no layout is possible
  }
}

MeshAnswer search_meshes(const MeshQuestion& question) {
  check_question(question);
  return MeshSearch(question).run();
}

}  // namespace canzona::sim
