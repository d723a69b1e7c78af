#include "canzona/plan/search/tensor_swaps.h"

#include <algorithm>

#include "canzona/base/index.h"

namespace canzona {
namespace {

class TensorSwaps {
 public:
  TensorSwaps(DealtStage& stage, int64_t budget)
      : stage_(stage),
        budget_(budget),
        loads_(stage.blocks.size(), 0),
        held_(stage.caps.size(),
              std::vector<int64_t>(index(1 + std::ranges::max(stage.homes)))) {
    for (const DealtTensor& t : stage.tensors) {
      loads_[t.rank] += t.load;
      held_[t.bucket][home(t.rank)] += t.elements;
    }
  }

  void run() {
    while (budget_ > 0 && improve_once()) {
    }
  }

 private:
  struct Change {
    size_t x = 0;
    size_t y = SIZE_MAX;  // SIZE_MAX: a move
    size_t to = 0;
    int64_t larger = 0;  // the larger of the two loads afterwards
  };

  size_t home(size_t rank) const { return index(stage_.homes[rank]); }

  bool may_own(const DealtTensor& t, size_t rank) const {
    return t.block < 0 || t.block == stage_.blocks[rank];
  }

  // Room for `in` at home h once `out` has left it.
  bool has_room(size_t h, const DealtTensor& in, const DealtTensor* out) const {
    int64_t held = held_[in.bucket][h] + in.elements;
    if (out && out->bucket == in.bucket) held -= out->elements;
    return held <= stage_.caps[in.bucket];
  }

  bool improve_once() {
    const auto from = static_cast<size_t>(
        std::max_element(loads_.begin(), loads_.end()) - loads_.begin());
    Change best;
    best.larger = loads_[from];
    for (size_t x = 0; x < stage_.tensors.size(); ++x) {
      if (stage_.tensors[x].rank != from) continue;
      try_moves(x, best);
      try_swaps(x, best);
    }
    if (best.larger == loads_[from]) return false;
    apply(best);
    return true;
  }

  void try_moves(size_t x, Change& best) {
    const DealtTensor& t = stage_.tensors[x];
    for (size_t to = 0; to < loads_.size(); ++to) {
      --budget_;
      const int64_t larger =
          std::max(loads_[t.rank] - t.load, loads_[to] + t.load);
      if (to == t.rank || larger >= best.larger || !may_own(t, to)) continue;
      if (home(to) != home(t.rank) && !has_room(home(to), t, nullptr)) continue;
      best = {x, SIZE_MAX, to, larger};
    }
  }

  void try_swaps(size_t x, Change& best) {
    const DealtTensor& t = stage_.tensors[x];
    for (size_t y = 0; y < stage_.tensors.size(); ++y) {
      --budget_;
      const DealtTensor& u = stage_.tensors[y];
      const int64_t delta = t.load - u.load;
      const int64_t larger =
          std::max(loads_[t.rank] - delta, loads_[u.rank] + delta);
      if (delta <= 0 || u.rank == t.rank || larger >= best.larger) continue;
      if (!may_own(t, u.rank) || !may_own(u, t.rank)) continue;
      if (home(t.rank) != home(u.rank) &&
          (!has_room(home(u.rank), t, &u) || !has_room(home(t.rank), u, &t))) {
        continue;
      }
      best = {x, y, u.rank, larger};
    }
  }

  void apply(const Change& change) {
    const size_t from = stage_.tensors[change.x].rank;
    place(change.x, change.to);
    if (change.y != SIZE_MAX) place(change.y, from);
  }

  void place(size_t i, size_t to) {
    DealtTensor& t = stage_.tensors[i];
    loads_[t.rank] -= t.load;
    held_[t.bucket][home(t.rank)] -= t.elements;
    t.rank = to;
    loads_[to] += t.load;
    held_[t.bucket][home(to)] += t.elements;
  }

  DealtStage& stage_;
  int64_t budget_;
  std::vector<int64_t> loads_;              // per rank
  std::vector<std::vector<int64_t>> held_;  // per bucket and home
};

}  // namespace

void swap_tensors(DealtStage& stage, int64_t budget) {
  TensorSwaps(stage, budget).run();
}

}  // namespace canzona
