#include "canzona/plan/storage/stored_pieces.h"

#include <algorithm>
#include <map>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::plan {
namespace {

constexpr size_t kMostComparedBoxes = size_t{1} << 31;

std::string name_ranks(const std::vector<int32_t>& ranks) {
  constexpr size_t kShown = 8;
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    words.push_back(cat(ranks[i]));
  if (ranks.size() > kShown) words.push_back("…");
  return cat(ranks.size() == 1 ? "rank " : "ranks ", join(words, ", "));
}

bool boxes_overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.first.size(); ++d) {
    if (a.first[d] >= b.first[d] + b.count[d]) return false;
    if (b.first[d] >= a.first[d] + a.count[d]) return false;
  }
  return true;
}

// Merges the boxes of one tensor and checks them against each other.
class PieceChecker {
 public:
  explicit PieceChecker(const CutTensor& tensor) : tensor_(tensor) {}

  StoredPieces run() {
    std::map<Box, std::vector<int32_t>> ranks_of;
    for (size_t r = 0; r < tensor_.stored.size(); ++r) {
      for (const Box& box : tensor_.stored[r]) {
        check_inside(box, r);
        auto& ranks = ranks_of[box];
        const auto rank = static_cast<int32_t>(r);
        if (!ranks.empty() && ranks.back() == rank)
          fail(cat("rank ", r, " stores box ", to_string(box), " twice"));
        ranks.push_back(rank);
      }
    }
    for (auto& [box, ranks] : ranks_of)
      pieces_.push_back({box, std::move(ranks)});
    check_disjoint();
    check_cover();
    return std::move(pieces_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(cat("tensor ", quoted(tensor_.name), ": ", what));
  }

  void check_inside(const Box& box, size_t rank) const {
    const auto& shape = tensor_.shape;
    const bool dims =
        box.first.size() == shape.size() && box.count.size() == shape.size();
    if (!dims)
      fail(cat("rank ", rank, ": a box with ", box.first.size(),
               " beginnings and ", box.count.size(),
               " counts does not have the dimensions of the shape ",
               list_text(shape)));
    bool inside = true;
    for (size_t d = 0; inside && d < shape.size(); ++d) {
      inside = box.first[d] >= 0 && box.count[d] >= 1 &&
               box.first[d] <= shape[d] - box.count[d];
    }
    if (inside) return;
    fail(cat("rank ", rank, ": box ", to_string(box),
             " lies outside the shape ", list_text(shape)));
  }

  // Returns the dimension in which boxes have the most distinct beginnings.
  size_t sweep_dim() const {
    size_t best = 0, most = 0;
    for (size_t d = 0; d < tensor_.shape.size(); ++d) {
      std::set<int64_t> firsts;
      for (const StoredPiece& piece : pieces_)
        firsts.insert(piece.box.first[d]);
      if (firsts.size() > most) {
        most = firsts.size();
        best = d;
      }
    }
    return best;
  }

  // Sweeps over one dimension, so that only boxes that share a coordinate in it
  // are compared.
  void check_disjoint() const {
    if (pieces_.size() < 2) return;
    const size_t d = sweep_dim();
    std::vector<const StoredPiece*> order, open;
    for (const StoredPiece& piece : pieces_) order.push_back(&piece);
    std::stable_sort(order.begin(), order.end(), [&](auto* a, auto* b) {
      return a->box.first[d] < b->box.first[d];
    });
    size_t comparisons = 0;
    for (const StoredPiece* piece : order) {
      comparisons += open.size();
      if (comparisons > kMostComparedBoxes)
        fail(cat("its ", pieces_.size(),
                 " boxes are too irregular to be checked"));
      std::erase_if(open, [&](const StoredPiece* other) {
        return other->box.first[d] + other->box.count[d] <= piece->box.first[d];
      });
      for (const StoredPiece* other : open)
        if (boxes_overlap(piece->box, other->box))
          refuse_overlap(*other, *piece);
      open.push_back(piece);
    }
  }

  [[noreturn]] void refuse_overlap(const StoredPiece& a,
                                   const StoredPiece& b) const {
    fail(cat("box ", to_string(a.box), " of ", name_ranks(a.ranks), " and box ",
             to_string(b.box), " of ", name_ranks(b.ranks),
             " overlap; expected equal boxes (replicas) or disjoint ones"));
  }

  void check_cover() const {
    int64_t stored = 0;
    for (const StoredPiece& piece : pieces_) stored += piece.box.elements();
    const int64_t all = sides_from(tensor_.shape, 0);
    if (stored == all) return;
    std::vector<const StoredPiece*> every;
    for (const StoredPiece& piece : pieces_) every.push_back(&piece);
    const std::vector<int64_t> hole = first_hole(every, 0);
    std::string after;
    for (const StoredPiece& piece : pieces_)
      if (piece.box.first <= hole)
        after = cat("; the box before it is ", to_string(piece.box), " of ",
                    name_ranks(piece.ranks));
    fail(cat("no rank stores element ", list_text(hole),
             ": the boxes of all ranks have ", stored, " of ", all, " elements",
             after));
  }

  // Returns the product of the sides from dimension `d` on.
  static int64_t sides_from(const std::vector<int64_t>& sides, size_t d) {
    int64_t product = 1;
    for (; d < sides.size(); ++d) product *= sides[d];
    return product;
  }

  // Returns the coordinates, from dimension `d` on, of the first element in
  // row-major order that is in none of `boxes`. All boxes contain the preceding
  // coordinates.
  std::vector<int64_t> first_hole(const std::vector<const StoredPiece*>& boxes,
                                  size_t d) const {
    if (d == tensor_.shape.size()) return {};
    std::set<int64_t> cuts{0};
    for (const StoredPiece* piece : boxes)
      cuts.insert(piece->box.first[d] + piece->box.count[d]);
    for (const int64_t at : cuts) {
      std::vector<const StoredPiece*> here;
      int64_t covered = 0;
      for (const StoredPiece* piece : boxes) {
        const Box& box = piece->box;
        if (at < box.first[d] || at >= box.first[d] + box.count[d]) continue;
        here.push_back(piece);
        covered += sides_from(box.count, d + 1);
      }
      if (covered == sides_from(tensor_.shape, d + 1)) continue;
      std::vector<int64_t> hole = first_hole(here, d + 1);
      hole.insert(hole.begin(), at);
      return hole;
    }
    return {};
  }

  const CutTensor& tensor_;
  StoredPieces pieces_;
};

}  // namespace

StoredPieces stored_pieces(const CutTensor& tensor) {
  return PieceChecker(tensor).run();
}

std::vector<std::shared_ptr<const StoredPieces>> stored_pieces(
    const StorageRequest& request) {
  std::map<std::vector<int64_t>, std::vector<size_t>> known;  // by shape
  std::vector<std::shared_ptr<const StoredPieces>> out;
  for (const CutTensor& tensor : request.tensors) {
    auto& alike = known[tensor.shape];
    const auto same =
        std::find_if(alike.begin(), alike.end(), [&](size_t other) {
          return request.tensors[other].stored == tensor.stored;
        });
    if (same != alike.end()) {
      out.push_back(out[*same]);
      continue;
    }
    alike.push_back(out.size());
    out.push_back(std::make_shared<StoredPieces>(stored_pieces(tensor)));
  }
  return out;
}

std::vector<std::vector<int32_t>> replica_sets(const CutTensor& tensor,
                                               const StoredPieces& pieces) {
  std::vector<std::vector<int32_t>> sets;
  std::map<int32_t, const StoredPiece*> piece_of;  // by rank
  const auto fail = [&](const StoredPiece& a, const StoredPiece& b,
                        const char* expected) {
    throw UsageError(cat("tensor ", quoted(tensor.name), ": ",
                         name_ranks(a.ranks), " store box ", to_string(a.box),
                         " and ", name_ranks(b.ranks), " store box ",
                         to_string(b.box), "; expected ", expected));
  };
  for (const StoredPiece& piece : pieces) {
    const StoredPiece& first = pieces.front();
    if (piece.ranks.size() != first.ranks.size())
      fail(first, piece, "the same number of replicas of every box");
    for (const int32_t rank : piece.ranks) {
      const auto [it, fresh] = piece_of.emplace(rank, &piece);
      if (!fresh && it->second->ranks != piece.ranks)
        fail(*it->second, piece,
             "ranks that are replicas of each other in all their boxes");
    }
    sets.push_back(piece.ranks);
  }
  std::sort(sets.begin(), sets.end());
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  return sets;
}

namespace {

constexpr size_t kMaxHolders = size_t{1} << 25;
constexpr size_t kMaxComparisons = size_t{1} << 31;  // of matrices and pieces

[[noreturn]] void refuse_pieces(size_t most) {
  throw UsageError(
      cat("more than ", most, " pieces of matrices on all ranks together"));
}

}  // namespace

HolderLists::HolderLists(
    const StoragePlan& plan,
    const std::vector<std::shared_ptr<const StoredPieces>>& pieces) {
  size_t comparisons = 0;
  for (const OwnedMatrix& m : plan.matrices) {
    const CutTensor& tensor = plan.tensors[index(m.tensor)];
    comparisons += pieces[index(m.tensor)]->size();
    if (comparisons > kMaxComparisons) refuse_pieces(kMaxComparisons);
    for (const StoredPiece& piece : *pieces[index(m.tensor)]) {
      const int64_t elements = common_elements(tensor, m, piece.box);
      if (elements == 0) continue;
      for (const int32_t rank : piece.ranks)
        holders_.push_back({rank, elements});
    }
    close();
  }
  for (const SharedElements& e : plan.elements) {
    for (const StoredPiece& piece : *pieces[index(e.tensor)])
      for (const int32_t rank : piece.ranks)
        holders_.push_back({rank, piece.box.elements()});
    close();
  }
}

// Closes an item: the holders added since the last call belong to it.
void HolderLists::close() {
  const auto first = holders_.begin() + static_cast<int64_t>(begin_.back());
  std::sort(first, holders_.end(),
            [](const Holder& a, const Holder& b) { return a.rank < b.rank; });
  auto last = first;
  for (auto it = first; it != holders_.end(); ++it) {
    if (it != first && it->rank == last->rank) {
      last->elements += it->elements;
    } else if (it != first) {
      *++last = *it;
    }
  }
  if (first != holders_.end()) holders_.erase(last + 1, holders_.end());
  if (holders_.size() > kMaxHolders) refuse_pieces(kMaxHolders);
  begin_.push_back(holders_.size());
}

namespace {

using RankSet = std::vector<int32_t>;

// A class that may still grow.
struct GrowingClass {
  std::vector<const RankSet*> set_of;  // by rank; null: no set
  std::vector<int32_t> tensors;
};

enum class Meeting { kApart, kTogether, kConflict };

// Compares sets with those of a class.
Meeting meet(const GrowingClass& c, const std::vector<const RankSet*>& sets) {
  bool shares = false;
  for (const RankSet* set : sets) {
    const RankSet* known = c.set_of[index(set->front())];
    if (known == set) {
      shares = true;
      continue;
    }
    for (const int32_t rank : *set)
      if (c.set_of[index(rank)]) return Meeting::kConflict;
  }
  return shares ? Meeting::kTogether : Meeting::kApart;
}

std::vector<const RankSet*> sets_of(const GrowingClass& c) {
  std::vector<const RankSet*> sets;
  for (size_t r = 0; r < c.set_of.size(); ++r)
    if (c.set_of[r] && index(c.set_of[r]->front()) == r)
      sets.push_back(c.set_of[r]);
  return sets;
}

void join_sets(GrowingClass& c, const std::vector<const RankSet*>& sets) {
  for (const RankSet* set : sets)
    for (const int32_t rank : *set) c.set_of[index(rank)] = set;
}

// Adds a tensor to the first class that accepts it, and merges every later
// class that the tensor connects with it.
void add_tensor(int32_t tensor, const std::vector<const RankSet*>& sets,
                int32_t world, std::vector<GrowingClass>& classes) {
  GrowingClass whole{std::vector<const RankSet*>(index(world)), {tensor}};
  join_sets(whole, sets);
  std::vector<GrowingClass> others;
  for (GrowingClass& c : classes) {
    // A class that is disjoint from the tensor is disjoint from, or in conflict
    // with, the classes that the tensor joins.
    if (meet(c, sets) != Meeting::kTogether ||
        meet(whole, sets_of(c)) != Meeting::kTogether) {
      others.push_back(std::move(c));
      continue;
    }
    join_sets(whole, sets_of(c));
    whole.tensors.insert(whole.tensors.end(), c.tensors.begin(),
                         c.tensors.end());
  }
  others.push_back(std::move(whole));
  classes = std::move(others);
}

ReplicaClass finished(GrowingClass&& c) {
  ReplicaClass out;
  std::sort(c.tensors.begin(), c.tensors.end());
  out.tensors = std::move(c.tensors);
  for (const RankSet* set : sets_of(c)) out.replicas.push_back(*set);
  out.lines.resize(out.replicas.front().size());
  for (const RankSet& set : out.replicas)
    for (size_t i = 0; i < set.size(); ++i) out.lines[i].push_back(set[i]);
  for (auto& line : out.lines) std::sort(line.begin(), line.end());
  return out;
}

}  // namespace

ReplicaClasses make_replica_classes(
    const std::vector<std::vector<std::vector<int32_t>>>& sets, int32_t world) {
  std::map<RankSet, bool> known;  // each set once, at a stable address
  std::map<std::vector<const RankSet*>, int32_t> first_alike;
  std::vector<GrowingClass> growing;
  std::vector<int32_t> like(sets.size(), -1);
  for (size_t t = 0; t < sets.size(); ++t) {
    if (sets[t].empty()) continue;
    std::vector<const RankSet*> own;
    for (const RankSet& set : sets[t])
      own.push_back(&known.emplace(set, true).first->first);
    const auto [it, fresh] = first_alike.emplace(own, static_cast<int32_t>(t));
    like[t] = it->second;
    if (fresh) add_tensor(it->second, own, world, growing);
  }
  ReplicaClasses out;
  for (GrowingClass& c : growing) out.classes.push_back(finished(std::move(c)));
  std::sort(out.classes.begin(), out.classes.end(),
            [](const ReplicaClass& a, const ReplicaClass& b) {
              return a.tensors.front() < b.tensors.front();
            });
  out.class_of.assign(sets.size(), -1);
  for (size_t c = 0; c < out.classes.size(); ++c)
    for (const int32_t t : out.classes[c].tensors)
      out.class_of[index(t)] = static_cast<int32_t>(c);
  for (auto& c : out.classes) c.tensors.clear();
  for (size_t t = 0; t < sets.size(); ++t) {
    if (like[t] < 0) continue;
    out.class_of[t] = out.class_of[index(like[t])];
    out.classes[index(out.class_of[t])].tensors.push_back(
        static_cast<int32_t>(t));
  }
  return out;
}

}  // namespace canzona::plan
