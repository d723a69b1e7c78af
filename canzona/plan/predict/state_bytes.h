// Bytes that a rule keeps for one matrix, by where they live.
#pragma once

#include <cstdint>
#include <map>

#include "canzona/rules/facts.h"

namespace canzona {

struct StateBytes {
  int64_t with_shard = 0;  // of the whole matrix; split over tp if it is cut
  int64_t with_owner = 0;
};

// Asks the rule once per shape. The rule must outlive the table.
class StateBytesTable {
 public:
  explicit StateBytesTable(const RuleFacts& rule) : rule_(rule) {}

  const StateBytes& of(MatrixShape shape);

 private:
  const RuleFacts& rule_;
  std::map<MatrixShape, StateBytes> known_;
};

}  // namespace canzona
