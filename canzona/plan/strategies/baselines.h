// The strategies that balanced is compared with, each as it is published or
// shipped elsewhere.
#pragma once

#include "canzona/plan/layout/problem.h"

namespace canzona {

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

}  // namespace canzona
