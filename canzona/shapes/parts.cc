#include "canzona/shapes/parts.h"

namespace canzona {

std::vector<Part> group_parts(const std::vector<GroupPart>& parts,
                              int64_t groups) {
  int64_t stride = 0;
  for (const GroupPart& part : parts) stride += part.rows;
  std::vector<Part> list;
  int64_t first = 0;
  for (const GroupPart& part : parts) {
    list.push_back({std::string(part.name),
                    {first, part.rows, stride, groups},
                    part.heads});
    first += part.rows;
  }
  return list;
}

std::vector<Part> qkv_parts(int64_t query_heads, int64_t kv_heads,
                            int64_t head_dim) {
  return group_parts({{"q", query_heads / kv_heads * head_dim, query_heads},
                      {"k", head_dim, kv_heads},
                      {"v", head_dim, kv_heads}},
                     kv_heads);
}

std::vector<Part> qkv_block_parts(int64_t query_heads, int64_t kv_heads,
                                  int64_t head_dim) {
  return group_parts({{"q", query_heads * head_dim, query_heads},
                      {"k", kv_heads * head_dim, kv_heads},
                      {"v", kv_heads * head_dim, kv_heads}},
                     1);
}

std::vector<Part> head_part(std::string_view name, int64_t rows,
                            int64_t heads) {
  return {{std::string(name), {0, rows, rows, 1}, heads}};
}

std::vector<Part> gate_up_parts(int64_t ffn) {
  return {{"gate", {0, ffn, ffn, 1}}, {"up", {ffn, ffn, ffn, 1}}};
}

bool is_gate_up(const std::vector<Part>& parts) {
  return !parts.empty() && parts.front().name == "gate";
}

}  // namespace canzona
