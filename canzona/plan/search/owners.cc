#include "canzona/plan/search/owners.h"

#include <map>

#include "canzona/plan/search/joint.h"

namespace canzona {

AlikeItems::AlikeItems(const std::vector<ItemClass>& kinds) {
  std::map<std::vector<int64_t>, std::vector<size_t>> alike;
  for (size_t i = 0; i < kinds.size(); ++i) {
    std::vector<int64_t> key = kinds[i].load;
    key.push_back(kinds[i].owner_bytes);
    key.push_back(kinds[i].block);
    alike[key].push_back(i);
  }
  for (auto& [key, list] : alike) {
    classes_.push_back(kinds[list.front()]);
    classes_.back().count = std::ssize(list);
    members_.push_back(std::move(list));
  }
}

std::vector<int32_t> AlikeItems::ranks(const Bundles& bundles) const {
  std::vector<std::vector<size_t>> left = members_;
  size_t num_items = 0;
  for (const auto& list : left) num_items += list.size();
  std::vector<int32_t> out(num_items);
  for (size_t r = 0; r < bundles.num_ranks(); ++r) {
    for (const ClassCount& c : bundles.bundle(r)) {
      auto& list = left[static_cast<size_t>(c.item_class)];
      for (int32_t i = 0; i < c.count; ++i) {
        out[list.back()] = static_cast<int32_t>(r);
        list.pop_back();
      }
    }
  }
  return out;
}

void deal_owners(const Problem& p, std::span<const int32_t> matrices,
                 Assignment& a) {
  std::vector<ItemClass> kinds;
  for (int32_t m : matrices) {
    ItemClass& kind = kinds.emplace_back();
    kind.load = p.load_of(m);
    kind.owner_bytes = p.owner_bytes[static_cast<size_t>(m)];
  }
  const AlikeItems alike(kinds);
  const std::vector<int32_t> blocks(static_cast<size_t>(p.grid.tp), 0);
  const std::vector<int32_t> ranks =
      alike.ranks(search_bundles(alike.classes(), p.steps(), blocks, 1, {}));
  for (size_t i = 0; i < matrices.size(); ++i)
    a.owner[static_cast<size_t>(matrices[i])] = ranks[i];
}

}  // namespace canzona
