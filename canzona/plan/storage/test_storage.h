// Layouts as trainers make them, and plans for them with owners and rounds by
// lot: any that ranks can carry out, not good ones.
//
//   StorageRequest request = storage_request("muon", {{"w", {64, 32}}},
//                                          {{kReplicated, 2}, {0, 2}});
//   StoragePlan plan = plan_by_lot(request, 1);
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/storage_sharing.h"

namespace canzona::plan {

// An axis of a mesh of ranks, the last one fastest: replicas, or a dimension
// that it cuts into chunks of equal size, of which the last are smaller or
// empty. A dimension may be cut by several axes; negative ones count from the
// end.
inline constexpr int kReplicated = 1000;
struct MeshAxis {
  int dim = 0;
  int32_t size = 1;
};
using MeshAxes = std::vector<MeshAxis>;

inline int32_t world_of(const MeshAxes& axes) {
  int32_t world = 1;
  for (const MeshAxis& axis : axes) world *= axis.size;
  return world;
}

inline std::vector<std::vector<Box>> boxes_on(const MeshAxes& axes,
                                              const std::vector<int64_t>& shape,
                                              int32_t world) {
  std::vector<std::vector<Box>> stored(static_cast<size_t>(world));
  const int32_t used = world_of(axes);
  for (int32_t rank = 0; rank < used; ++rank) {
    Box box{std::vector<int64_t>(shape.size(), 0), shape};
    int32_t rest = rank, below = used;
    for (const MeshAxis& axis : axes) {
      below /= axis.size;
      const int64_t at = rest / below;
      rest %= below;
      if (axis.dim == kReplicated) continue;
      const int dims = static_cast<int>(shape.size());
      const int dim = axis.dim < 0 ? axis.dim + dims : axis.dim;
      const auto d = static_cast<size_t>(std::clamp(dim, 0, dims - 1));
      const int64_t chunk = (box.count[d] + axis.size - 1) / axis.size;
      const int64_t first = std::min(at * chunk, box.count[d]);
      box.first[d] += first;
      box.count[d] = std::min(chunk, box.count[d] - first);
    }
    if (box.elements() > 0) stored[static_cast<size_t>(rank)].push_back(box);
  }
  return stored;
}

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> splits = {};
};

// Tensors of one or more dimensions below two are AdamW's. `world`: more ranks
// than the axes have store nothing.
inline StorageRequest storage_request(const std::string& rule,
                                      const std::vector<NamedShape>& tensors,
                                      const MeshAxes& axes, int32_t world = 0) {
  StorageRequest request;
  request.world = std::max(world, world_of(axes));
  const auto options = [](const std::string& name) {
    return make_rule_facts(name, with_device(name, {}, "cpu"))->options();
  };
  request.groups = {{rule, options(rule)}, {"adamw", options("adamw")}};
  for (const NamedShape& t : tensors)
    request.tensors.push_back(
        {.name = t.name,
         .shape = t.shape,
         .group = t.shape.size() < 2 ? 1 : 0,
         .splits = t.splits,
         .stored = boxes_on(axes, t.shape, request.world)});
  return request;
}

// Sets of ranks that store the same box.
inline std::vector<std::vector<int32_t>> sets_by_box(const CutTensor& t) {
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>,
           std::vector<int32_t>>
      sets;
  for (size_t r = 0; r < t.stored.size(); ++r)
    for (const Box& box : t.stored[r])
      sets[{box.first, box.count}].push_back(static_cast<int32_t>(r));
  std::vector<std::vector<int32_t>> out;
  for (const auto& [box, ranks] : sets) out.push_back(ranks);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

class PlannerByLot {
 public:
  PlannerByLot(const StorageRequest& request, uint64_t seed) : seed_(seed) {
    static_cast<StorageRequest&>(plan_) = request;
  }

  StoragePlan make() {
    const size_t num = plan_.tensors.size();
    plan_.class_of.assign(num, -1);
    for (size_t t = 0; t < num; ++t) add_tensor(t);
    plan_.first_matrix.push_back(static_cast<int32_t>(plan_.matrices.size()));
    for (ReplicaClass& c : plan_.classes) {
      std::sort(c.replicas.begin(), c.replicas.end());
      c.lines.resize(c.replicas[0].size());
      for (const auto& set : c.replicas)
        for (size_t i = 0; i < set.size(); ++i) c.lines[i].push_back(set[i]);
      for (auto& line : c.lines) std::sort(line.begin(), line.end());
    }
    return plan_;
  }

 private:
  int64_t lot(int64_t below) {
    return static_cast<int64_t>(bits_at(seed_, next_++) %
                                static_cast<uint64_t>(below));
  }

  void add_tensor(size_t t) {
    plan_.first_matrix.push_back(static_cast<int32_t>(plan_.matrices.size()));
    const CutTensor& tensor = plan_.tensors[t];
    const RuleGroup& group = plan_.groups[static_cast<size_t>(tensor.group)];
    const auto facts = make_rule_facts(group.rule, group.options);
    const auto sets = sets_by_box(tensor);
    if (sets.empty()) return;
    const bool replicated = sets[0].size() > 1;
    if (facts->needs_whole_matrix()) {
      join_class(t, sets);
      add_matrices(t, *facts, replicated);
    } else if (plan_.options.share_states && replicated) {
      join_class(t, sets);
      plan_.elements.push_back({static_cast<int32_t>(t),
                                static_cast<int32_t>(lot(std::ssize(sets[0]))),
                                next_round(t)});
    }
  }

  void join_class(size_t t, const std::vector<std::vector<int32_t>>& sets) {
    size_t c = 0;
    while (c < plan_.classes.size() && !fits(plan_.classes[c], sets)) ++c;
    if (c == plan_.classes.size()) plan_.classes.emplace_back();
    auto& all = plan_.classes[c].replicas;
    for (const auto& set : sets)
      if (std::find(all.begin(), all.end(), set) == all.end())
        all.push_back(set);
    plan_.classes[c].tensors.push_back(static_cast<int32_t>(t));
    plan_.class_of[t] = static_cast<int32_t>(c);
  }
  static bool fits(const ReplicaClass& c,
                   const std::vector<std::vector<int32_t>>& sets) {
    for (const auto& a : c.replicas)
      for (const auto& b : sets) {
        if (a.size() != b.size()) return false;
        std::vector<int32_t> both;
        std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                              std::back_inserter(both));
        if (!both.empty() && a != b) return false;
      }
    return true;
  }
  int32_t next_round(size_t t) {
    ReplicaClass& c = plan_.classes[static_cast<size_t>(plan_.class_of[t])];
    if (c.num_rounds == 0 || lot(3) == 0) ++c.num_rounds;
    return c.num_rounds - 1;
  }

  void add_matrices(size_t t, const RuleFacts& facts, bool replicated) {
    const CutTensor tensor = plan_.tensors[t];
    const size_t dims = tensor.shape.size();
    int64_t stack = 1;
    for (size_t d = 0; d + 2 < dims; ++d) stack *= tensor.shape[d];
    std::vector<int64_t> splits = tensor.splits;
    if (splits.empty()) splits = {tensor.shape[dims - 2]};
    for (int64_t n = 0; n < stack; ++n) {
      int64_t row = 0;
      for (const int64_t rows : splits) {
        OwnedMatrix m;
        m.tensor = static_cast<int32_t>(t);
        m.number = n;
        m.first_row = row;
        m.rows = rows;
        m.cols = tensor.shape[dims - 1];
        m.phase = static_cast<int32_t>(lot(facts.phases()));
        row += rows;
        std::vector<std::pair<int32_t, int64_t>> keepers;
        for (int32_t r = 0; r < plan_.world; ++r) {
          int64_t there = 0;
          for (const Box& box : tensor.stored[static_cast<size_t>(r)])
            there += common_elements(tensor, m, box);
          if (there > 0) keepers.emplace_back(r, there);
        }
        if (keepers.empty()) continue;
        const auto [owner, there] =
            keepers[static_cast<size_t>(lot(std::ssize(keepers)))];
        m.owner = owner;
        m.round = !replicated && there == m.rows * m.cols ? -1 : next_round(t);
        plan_.matrices.push_back(m);
      }
    }
  }

  StoragePlan plan_;
  uint64_t seed_;
  uint64_t next_ = 0;
};

// Has ranks share matrices that move: as many as may, of any that store a piece
// in the owner's line, blocks with any owners among these.
inline void share_by_lot(StoragePlan& plan, uint64_t seed) {
  uint64_t next = 1000;
  const auto lot = [&](int64_t below) {
    return static_cast<int64_t>(bits_at(seed, next++) %
                                static_cast<uint64_t>(below));
  };
  StorageShares shares(plan);
  for (size_t i = 0; i < plan.matrices.size(); ++i) {
    OwnedMatrix& m = plan.matrices[i];
    if (m.round < 0) continue;
    const auto t = static_cast<size_t>(m.tensor);
    const auto& lines =
        plan.classes[static_cast<size_t>(plan.class_of[t])].lines;
    std::vector<int32_t> others;
    for (const auto& line : lines)
      for (const int32_t rank : line)
        if (rank != m.owner && std::ranges::binary_search(line, m.owner))
          for (const Box& box :
               plan.tensors[t].stored[static_cast<size_t>(rank)])
            if (common_elements(plan.tensors[t], m, box) > 0 &&
                (others.empty() || others.back() != rank))
              others.push_back(rank);
    if (others.empty()) continue;
    const MatrixBlocks& blocks = shares.blocks(i);
    if (blocks.fall_apart()) {
      others.push_back(m.owner);
      m.team = {m.owner};
      while (std::ssize(m.team) < blocks.count())
        m.team.push_back(others[static_cast<size_t>(lot(std::ssize(others)))]);
      continue;
    }
    int64_t size = lot(2) == 0 ? 2 : 4;
    while (size > std::min<int64_t>(shares.strips(i).most_ranks(),
                                    std::ssize(others) + 1))
      size /= 2;
    if (size < 2) continue;
    m.team = {m.owner};
    while (std::ssize(m.team) < size) {
      const auto at = others.begin() + lot(std::ssize(others));
      m.team.push_back(*at);
      others.erase(at);
    }
  }
}

inline StoragePlan plan_by_lot(const StorageRequest& request, uint64_t seed) {
  StoragePlan plan = PlannerByLot(request, seed).make();
  if (request.options.teams != kTeamsOff) share_by_lot(plan, seed);
  return plan;
}

}  // namespace canzona::plan
