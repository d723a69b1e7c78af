// Tensors as a model has them, and the matrices an optimizer sees in them.
//
// A tensor is a named parameter. A matrix is one 2-D block that a matrix rule
// updates as a whole: a tensor, or a piece of one after a split. A fused tensor
// lists its sections (q, k, v; gate, up) as runs of rows; tensor parallelism
// cuts every section separately, so that each tp rank gets whole query groups
// and equal shares of gate and up.
//
// Example: fused qkv with 8 kv groups of 8 query heads of 128 rows is
//   q: first 0,    run 1024, stride 1280, count 8
//   k: first 1024, run 128,  stride 1280, count 8
//   v: first 1152, run 128,  stride 1280, count 8
//
// These are plain values without ownership.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace canzona {

// Upper limits for files and configurations; exceeding one is a UsageError
// before anything is allocated.
inline constexpr int64_t kMaxDim = int64_t{1} << 40;
inline constexpr int kMaxDims = 8;
inline constexpr int64_t kMaxLayers = 10'000;
inline constexpr int64_t kMaxExperts = 100'000;
inline constexpr int64_t kMaxTensors = 2'000'000;
inline constexpr int64_t kMaxNameLength = 256;

enum class Role : uint8_t { kMatrix, kEmbedding, kHead, kRouter, kNorm, kBias };
enum class Cut : uint8_t { kNone, kRows, kColumns };

// `count` runs of `run` rows, the first at row `first`, `stride` rows apart.
struct RowRuns {
  int64_t first = 0;
  int64_t run = 0;
  int64_t stride = 0;
  int64_t count = 1;

  int64_t rows() const { return run * count; }
  // Returns the tensor's row for row `i` of these runs.
  int64_t row(int64_t i) const { return first + (i / run) * stride + i % run; }
  friend bool operator==(const RowRuns&, const RowRuns&) = default;
};

struct Section {
  std::string name;  // "q", "k", "v", "gate", "up", "out"
  RowRuns rows;
  // Equal pieces made by the `head` split; of "out", the heads of its columns.
  int64_t heads = 1;
  friend bool operator==(const Section&, const Section&) = default;
};

struct Tensor {
  std::string name = {};
  std::vector<int64_t> shape = {};  // as in the model: one or two dimensions
  Role role = Role::kMatrix;
  Cut cut = Cut::kNone;
  int32_t layer = -1;        // -1: outside the layers
  int32_t expert = -1;       // -1: dense
  bool matrix_rule = false;  // true: the matrix rule; false: AdamW
  bool frozen = false;       // never updated: no gradient and no states
  // The file has more dimensions: `shape` is the first one and the product of
  // the rest. Routed to AdamW unless an override says otherwise.
  bool flattened = false;
  std::vector<Section> sections = {};  // empty: one section, all rows

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t cols() const { return shape.size() < 2 ? 1 : shape[1]; }
  int64_t elements() const { return rows() * cols(); }
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct Model {
  std::string name;
  std::vector<Tensor> tensors;  // model order: embedding, layers, head
  int32_t num_layers = 0;
  int32_t num_experts = 0;
  int64_t query_heads = 0;  // 0: not known
  int64_t kv_heads = 0;
  bool fused = false;
  // Experts per token; 0: not known. Plans do not depend on it and plan.json
  // does not store it, so comparisons ignore it.
  int64_t experts_per_token = 0;

  friend bool operator==(const Model& a, const Model& b) {
    const auto compared = [](const Model& m) {
      return std::tie(m.name, m.tensors, m.num_layers, m.num_experts,
                      m.query_heads, m.kv_heads, m.fused);
    };
    return compared(a) == compared(b);
  }
};

// A matrix is rows [first_row, first_row + rows) of section `section` of a
// tensor (section -1: all rows of the tensor, in its own order). With several
// column heads its columns are that many equal blocks, each updated as a matrix
// of its own; all of them move together and have one owner.
struct Matrix {
  int32_t tensor = 0;
  int32_t section = -1;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t column_heads = 1;
  friend bool operator==(const Matrix&, const Matrix&) = default;
};

struct Splits {
  bool qkv = false;
  bool head = false;
  bool output_head = false;
  bool gate_up = false;
  bool expert = false;  // no effect: experts are separate tensors
  friend bool operator==(const Splits&, const Splits&) = default;
};

// "none", "qkv", "head,gate-up", …; UsageError names the unknown word.
Splits parse_splits(std::string_view text);
std::string to_string(const Splits& splits);

std::string_view to_string(Role role);
std::string_view to_string(Cut cut);
Role parse_role(std::string_view text);
Cut parse_cut(std::string_view text);

// Returns the matrices of all matrix-rule tensors, in tensor order. UsageError
// names a tensor that a split applies to but whose sections are not known.
std::vector<Matrix> split_into_matrices(const Model& model,
                                        const Splits& splits);

// "layers.0.qkv", "layers.0.qkv:q", "layers.0.qkv:q.3".
std::string matrix_name(const Model& model, const Matrix& matrix,
                        const Splits& splits);

// Makes the sections of fused tensors, and of projections whose rows are heads.
//
//   qkv_sections(64, 8, 128)      // q, k, v interleaved by 8 query groups
//   head_section("k", 1024, 8)    // 8 heads of 128 rows
//   gate_up_sections(25600)       // rows [0, 25600) gate, then up
//
// The arguments are trusted: callers have checked that they are positive, that
// heads divide and that nothing overflows.

// One section of a group of rows.
struct GroupSection {
  std::string_view name;
  int64_t rows = 0;   // in every group
  int64_t heads = 1;  // in the whole section
};

// Makes `groups` groups of rows, each with the sections one after the other.
std::vector<Section> group_sections(const std::vector<GroupSection>& sections,
                                    int64_t groups);

// By query group: [q … q k v] [q … q k v] …
std::vector<Section> qkv_sections(int64_t query_heads, int64_t kv_heads,
                                  int64_t head_dim);
// All of q, all of k, all of v.
std::vector<Section> qkv_block_sections(int64_t query_heads, int64_t kv_heads,
                                        int64_t head_dim);
std::vector<Section> head_section(std::string_view name, int64_t rows,
                                  int64_t heads);
std::vector<Section> gate_up_sections(int64_t ffn);
// All rows of an output projection, whose columns are `heads` heads.
std::vector<Section> output_section(int64_t rows, int64_t heads);

bool is_output(const std::vector<Section>& sections);
// True if the sections are those of gate_up_sections; if they are no output
// projection's either, they are those of q, k, v.
bool is_gate_up(const std::vector<Section>& sections);

}  // namespace canzona
