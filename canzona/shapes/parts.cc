#include "canzona/shapes/parts.h"

namespace canzona {

std::vector<Part> qkv_parts(int64_t query_heads, int64_t kv_heads,
                            int64_t head_dim) {
  const int64_t q = query_heads / kv_heads * head_dim;
  const int64_t group = q + 2 * head_dim;
  return {{"q", {0, q, group, kv_heads}, query_heads},
          {"k", {q, head_dim, group, kv_heads}, kv_heads},
          {"v", {q + head_dim, head_dim, group, kv_heads}, kv_heads}};
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
