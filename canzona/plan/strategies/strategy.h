// Strategies and micro-group modes: how homes, owners and rounds are decided.
// Each is a function in this folder or in micro_groups/ and one line in
// strategy.cc; no other code lists them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/plan/layout/layout.h"

namespace canzona {

struct Strategy {
  const char* name;
  const char* summary;
  const char* why;           // a matrix has its home, for `explain`; "": none
  const char* micro_groups;  // default mode; "" where tp ranks repeat updates
  Weight weight;             // default
  double alpha;              // default
  LayoutStyle layout;
  bool chooses_owners;  // sets Assignment::owner itself
  void (*assign)(const Problem&, Assignment&);
};

// Assigns owners (unless `owners_known`) and rounds to all matrices of one
// home, which come in plan order.
struct MicroGroupMode {
  const char* name;
  const char* summary;
  void (*assign)(const Problem&, std::span<const int32_t> matrices,
                 bool owners_known, Assignment&);
};

const std::vector<Strategy>& strategy_table();
const std::vector<MicroGroupMode>& micro_group_table();

// The UsageError lists the known names and the nearest one.
const Strategy& find_strategy(const std::string& name);
const MicroGroupMode& find_micro_group_mode(const std::string& name);

}  // namespace canzona
