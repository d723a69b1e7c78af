// Parts of fused tensors, and of projections whose rows are heads.
//
//   qkv_parts(64, 8, 128)      // q, k, v interleaved by 8 query groups
//   head_part("k", 1024, 8)    // 8 heads of 128 rows
//   gate_up_parts(25600)       // rows [0, 25600) gate, then up
//
// The arguments are trusted: callers have checked that they are positive, that
// heads divide and that nothing overflows.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "canzona/shapes/tensor.h"

namespace canzona {

// One part of a group of rows.
struct GroupPart {
  std::string_view name;
  int64_t rows = 0;   // in every group
  int64_t heads = 1;  // of the whole part
};

// `groups` groups of rows, in each of them the parts one after the other.
std::vector<Part> group_parts(const std::vector<GroupPart>& parts,
                              int64_t groups);

// By query group: [q … q k v] [q … q k v] …
std::vector<Part> qkv_parts(int64_t query_heads, int64_t kv_heads,
                            int64_t head_dim);
// All of q, all of k, all of v.
std::vector<Part> qkv_block_parts(int64_t query_heads, int64_t kv_heads,
                                  int64_t head_dim);
std::vector<Part> head_part(std::string_view name, int64_t rows, int64_t heads);
std::vector<Part> gate_up_parts(int64_t ffn);

// Whether the parts are those of gate_up_parts; otherwise they are of q, k, v.
bool is_gate_up(const std::vector<Part>& parts);

}  // namespace canzona
