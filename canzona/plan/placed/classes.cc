#include "canzona/plan/placed/classes.h"

#include <algorithm>
#include <map>

#include "canzona/base/index.h"

namespace canzona {
namespace {

using RankSet = std::vector<int32_t>;

// A class that may still grow.
struct GrowingClass {
  std::vector<const RankSet*> set_of;  // by rank; null: no set
  std::vector<int32_t> tensors;
};

enum class Meeting { kApart, kTogether, kConflict };

// How sets meet those of a class.
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

// Adds a tensor to the first class that takes it, and to that class every
// later one that it joins to the first.
void add_tensor(int32_t tensor, const std::vector<const RankSet*>& sets,
                int32_t world, std::vector<GrowingClass>& classes) {
  GrowingClass whole{std::vector<const RankSet*>(index(world)), {tensor}};
  join_sets(whole, sets);
  std::vector<GrowingClass> others;
  for (GrowingClass& c : classes) {
    // A class that is apart from the tensor is apart from, or in conflict with,
    // the classes that it joins.
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

PlacedClass finished(GrowingClass&& c) {
  PlacedClass out;
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

PlacedClasses make_placed_classes(
    const std::vector<std::vector<std::vector<int32_t>>>& sets, int32_t world) {
  std::map<RankSet, bool> known;  // each set once, at a place of its own
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
  PlacedClasses out;
  for (GrowingClass& c : growing) out.classes.push_back(finished(std::move(c)));
  std::sort(out.classes.begin(), out.classes.end(),
            [](const PlacedClass& a, const PlacedClass& b) {
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

}  // namespace canzona
