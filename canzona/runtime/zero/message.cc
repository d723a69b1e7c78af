#include "canzona/runtime/zero/message.h"

#include "canzona/base/check.h"
#include "canzona/base/index.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/names.h"

namespace canzona {

ModuleTable::ModuleTable(Rank& rank)
    : of_tensor(rank.plan.model.tensors.size(), -1),
      offset(of_tensor.size(), 0),
      tensors(index(num_modules(rank.plan.model))),
      frozen(tensors.size()),
      buckets(tensors.size()) {
  for (int64_t elements : module_elements(rank.plan, rank.place.stage))
    large.push_back(elements > rank.store.pools().slot ? 1 : 0);
  for (int32_t m = 0; m < std::ssize(tensors); ++m)
    labels.push_back(rank.label(module_name(rank.plan.model, m)));
  const FlatLayout& layout = rank.layout.parameters;
  std::vector<int64_t> used(tensors.size(), 0);
  for (size_t t = 0; t < of_tensor.size(); ++t) {
    if (layout.tensors[t].bucket < 0) continue;
    const auto number = static_cast<int32_t>(t);
    const int32_t m = module_of(rank.plan.model, rank.tensor(number));
    of_tensor[t] = m;
    offset[t] = used[index(m)];
    used[index(m)] += layout.tensors[t].count;
    (rank.tensor(number).frozen ? frozen : tensors)[index(m)].push_back(number);
  }
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    const Bucket& bucket = rank.plan.buckets[index(layout.buckets[b].bucket)];
    if (bucket.tensors.empty()) continue;
    const int32_t m = of_tensor[index(bucket.tensors.front())];
    buckets[index(m)].push_back(static_cast<int32_t>(b));
  }
}

GroupLayouts::GroupLayouts(const Rank& rank, Resting what) {
  const ZeroSizes& zero = rank.plan.options.zero.sizes;
  const int32_t z = what == Resting::kParameters ? zero.z3 : zero.z2;
  const int32_t tp = rank.plan.grid.tp_ranks();
  const int32_t place = rank.place.t / tp;
  own = index(place % z);
  for (int32_t p = 0; p < z; ++p) {
    Coordinates peer = rank.place;
    peer.t = (place / z * z + p) * tp + rank.place.t % tp;
    layouts.push_back(lay_out_slices(rank.plan, peer, what));
  }
}

Message::Message(const Rank& rank, const ModuleTable& table, size_t bucket,
                 const GroupLayouts& group) {
  for (size_t p = 0; p < group.layouts.size(); ++p) {
    const FlatLayout& layout = group.layouts[p];
    const Extent all = layout.buckets[bucket].all;
    if (p == group.own) own_first_ = num_elements_;
    for (int32_t t :
         rank.plan.buckets[index(layout.buckets[bucket].bucket)].tensors)
      for (const ExtentCopy& piece : layout.pieces[index(t)])
        copies_.push_back({num_elements_ + piece.to - all.first,
                           table.offset[index(t)] + piece.from, piece.count});
    counts_.push_back(all.count);
    num_elements_ += all.count;
  }
  direct_ = is_direct(
      rank.plan,
      rank.plan.buckets[index(group.layouts[0].buckets[bucket].bucket)]);
  if (!direct_) return;
  for (const ExtentCopy& c : copies_)
    CANZONA_CHECK_EQ(c.to - in_slot(), c.from,
                     "a message that lies otherwise in its slot");
}

void Message::to_slot(const WireOps& ops, std::byte* slot,
                      const std::byte* message, int64_t element_bytes) const {
  for (const ExtentCopy& c : copies_)
    ops.copy(slot + c.to * element_bytes, message + c.from * element_bytes,
             c.count * element_bytes);
}

void Message::from_slot(const WireOps& ops, std::byte* message,
                        const std::byte* slot, int64_t element_bytes) const {
  for (const ExtentCopy& c : copies_)
    ops.copy(message + c.from * element_bytes, slot + c.to * element_bytes,
             c.count * element_bytes);
}

}  // namespace canzona
