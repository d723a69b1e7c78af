// What only two tensors together tell: whether a first mlp matrix holds gate
// and up, and which way round packed experts lie.
//
// A gated linear_fc1 has twice as many rows as linear_fc2 has columns; a plain
// one has as many. Packed experts are [E, out, in] like every other matrix, or
// transposed, [E, in, out]: gate_up and down of one layer show which.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/shapes/records.h"

namespace canzona {

// Finds records by name. Refers to the records; they must not change.
class RecordIndex {
 public:
  // UsageError names a tensor that comes twice; `file` is where.
  RecordIndex(const TensorRecords& records, const std::string& file);

  const TensorRecord* find(const std::string& name) const;

 private:
  const TensorRecords& records_;
  std::vector<uint32_t> by_name_;
};

enum class Rows : uint8_t { kPlain, kGateUp, kTransposed };

// What the rows of a record (of one of its experts, if packed) are.
Rows rows_of(const TensorRecord& record, const RecordIndex& index);

// Whether a record is [E, a, b] under "experts".
bool is_expert_pack(const TensorRecord& record);

}  // namespace canzona
