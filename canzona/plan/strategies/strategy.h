// Strategies and micro-group modes: how homes, owners and rounds are decided.
// Each is a function declared here or in micro_groups/ and one line in
// strategy.cc; no other code lists them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/plan/layout/layout.h"
#include "canzona/plan/layout/problem.h"

namespace canzona::plan {

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

// Our strategy: plans owners over dp × tp × ep together. Items that are alike
// form classes; search/ deals classes to ranks and ranks to homes; then the
// tensors of each class are chosen so that no home exceeds its share of bytes
// in any bucket.

// Allows a home 1.3 times the even share of a bucket.
inline constexpr double kDefaultAlpha = 3.0 / 13.0;
void assign_balanced(const Problem& p, Assignment& a);

// The strategies that balanced is compared with, each as it is published or
// shipped elsewhere.

// Gives a tensor to the rank whose even slice of the bucket holds its first
// element.
void assign_start_offset(const Problem& p, Assignment& a);

// The alpha-balanced partition: keeps the order of tensors and moves the cut
// points of each bucket to tensor borders so that less loaded ranks get more.
// Buckets are taken largest first. Shares blend even parts (alpha 0) with what
// each rank lacks (alpha 1).
void assign_contiguous(const Problem& p, Assignment& a);

// Deals whole tensors to dp ranks by one global LPT, regardless of where they
// lie: gradients are all-reduced, every tp rank of the owner's home repeats the
// update, and weights are broadcast inside the step.
void assign_layerwise(const Problem& p, Assignment& a);

// Today's Megatron-Core: inside each bucket, the most expensive tensor goes
// first, to the rank with the least compute so far; no rank exceeds (1 + 30 %)
// of the even share if that can be avoided. Tensors are reordered, and every
// shard is padded to the largest.
void assign_megatron(const Problem& p, Assignment& a);

// The simplest baseline: gradients are all-reduced over dp and all-gathered
// over tp; every rank repeats every update and keeps all states.
void assign_replicated(const Problem& p, Assignment& a);

}  // namespace canzona::plan
