#include "canzona/plan/search/owners.h"

#include <map>

#include "canzona/plan/search/joint.h"

namespace canzona {

void deal_owners(const Problem& p, std::span<const int32_t> matrices,
                 Assignment& a) {
  std::map<std::vector<int64_t>, std::vector<int32_t>> alike;
  for (int32_t m : matrices) {
    std::vector<int64_t> key = p.load_of(m);
    key.push_back(p.owner_bytes[static_cast<size_t>(m)]);
    alike[key].push_back(m);
  }
  std::vector<ItemClass> classes;
  std::vector<std::vector<int32_t>> members;
  for (auto& [key, list] : alike) {
    ItemClass c;
    c.load.assign(key.begin(), key.end() - 1);
    c.count = static_cast<int64_t>(list.size());
    c.owner_bytes = key.back();
    classes.push_back(std::move(c));
    members.push_back(std::move(list));
  }
  const std::vector<int32_t> blocks(static_cast<size_t>(p.grid.tp), 0);
  const Bundles bundles = search_bundles(classes, p.steps(), blocks, 1, {});
  for (size_t t = 0; t < bundles.num_ranks(); ++t) {
    for (const ClassCount& c : bundles.bundle(t)) {
      auto& list = members[static_cast<size_t>(c.item_class)];
      for (int32_t i = 0; i < c.count; ++i) {
        a.owner[static_cast<size_t>(list.back())] = static_cast<int32_t>(t);
        list.pop_back();
      }
    }
  }
}

}  // namespace canzona
