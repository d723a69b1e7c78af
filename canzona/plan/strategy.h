// Strategies and micro-group modes: how homes, owners and rounds are decided.
// Each is a function in strategies/ or micro_groups/ and one line in
// strategy_table.cc; nothing else lists them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "canzona/plan/problem.h"

namespace canzona {

inline constexpr int32_t kEveryTpRank = -1;

// The decisions of strategies and modes.
struct Assignment {
  std::vector<int32_t> home;         // per tensor, in its buffer; or kEveryHome
  std::vector<int32_t> owner;        // per matrix: t, or kEveryTpRank
  std::vector<int32_t> micro_group;  // per matrix
  // The ranks that share a matrix, for matrices of teams, head first. `owner`
  // is the head.
  std::map<int32_t, std::vector<int32_t>> teams = {};
};

struct Strategy {
  const char* name;
  const char* summary;
  const char* micro_groups;  // default mode; "" where tp ranks repeat updates
  Weight weight;             // default
  double alpha;              // default
  Traffic traffic;
  bool free_order;  // tensors may be re-ordered inside a bucket
  bool join_small_tail;
  bool level_adamw;     // AdamW cuts level memory; otherwise even shares
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

// Homes are numbered per buffer; returns the number among all homes of the
// stage.
int32_t stage_home(const Problem& p, int32_t tensor, int32_t home);

// Returns the matrices of every home of every stage, at [stage · homes + home],
// in plan order.
std::vector<std::vector<int32_t>> matrices_by_home(const Problem& p,
                                                   const Assignment& a);

// Returns the fp32 bytes of the TP shard of one matrix, as --capacity counts
// them.
int64_t exchange_bytes(const Problem& p, int32_t matrix);

// Returns a matrix's weight over a period.
int64_t period_weight_of(const Problem& p, int32_t matrix);

}  // namespace canzona
