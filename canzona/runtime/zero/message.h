// How a bucket's tensors travel between ranks that keep slices of them
// (plan/zero.h): a message has a part for every rank, as it lies at rest; a
// slot has whole tensors, as the model uses them.
//
//   ModuleTable table(rank);
//   Message message(rank, table, bucket, GroupLayouts(rank,
//   Resting::kParameters)); message.to_slot(ops, staging, slot,
//   bytes_per_element);
//
// Made from the plan alone. Any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "canzona/runtime/rank.h"

namespace canzona {

// The modules of a rank's stage: their buckets, and where their tensors lie in
// a slot.
struct ModuleTable {
  explicit ModuleTable(Rank& rank);

  int32_t module(int32_t tensor) const {
    return of_tensor[static_cast<size_t>(tensor)];
  }
  std::string_view label(int32_t module) const {
    return labels[static_cast<size_t>(module)];
  }
  bool is_large(int32_t module) const {
    return large[static_cast<size_t>(module)] != 0;
  }

  std::vector<int32_t> of_tensor;             // module; -1: not on this rank
  std::vector<int64_t> offset;                // in a slot, by tensor
  std::vector<std::vector<int32_t>> tensors;  // by module, but frozen ones
  std::vector<std::vector<int32_t>> frozen;   // by module
  std::vector<std::vector<int32_t>> buckets;  // of the rank, by module
  std::vector<uint8_t> large;  // whether it needs a large slot, by module
  std::vector<std::string_view> labels;  // by module
};

// What z consecutive homes keep at rest, by their number in the group.
struct GroupLayouts {
  GroupLayouts(const Rank& rank, Resting what);

  std::vector<FlatLayout> layouts;
  size_t own = 0;
};

class Message {
 public:
  // `bucket`: number in the rank's layout.
  Message(const Rank& rank, const ModuleTable& table, size_t bucket,
          const GroupLayouts& group);

  // Whether it lies in a slot as it travels, from its tensor's place on.
  bool direct() const { return direct_; }
  int64_t in_slot() const { return copies_.empty() ? 0 : copies_[0].to; }
  int64_t num_elements() const { return num_elements_; }
  const std::vector<int64_t>& counts() const { return counts_; }  // by rank
  int64_t own_first() const { return own_first_; }

  void to_slot(const WireOps& ops, std::byte* slot, const std::byte* message,
               int64_t element_bytes) const;
  void from_slot(const WireOps& ops, std::byte* message, const std::byte* slot,
                 int64_t element_bytes) const;

 private:
  std::vector<int64_t> counts_;
  std::vector<ExtentCopy> copies_;  // from the message to a slot
  int64_t num_elements_ = 0;
  int64_t own_first_ = 0;
  bool direct_ = false;
};

}  // namespace canzona
