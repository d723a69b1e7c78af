// Names and shapes as listed in a file, and the model made from them.
//
//   TensorRecords records;
//   records.push_back({.name = "layers.0.mlp.up", .shape = {3072, 1024}});
//   const FileFacts facts{.name = "list.json"};
//   Model model = model_from_records(std::move(records), facts);
//
// Roles, cuts, layers and experts come from the names (names.h). The order of
// the tensors depends on names alone: embeddings, layers by number and by name
// within, tensors without a layer, the head.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/shapes/tensor.h"

namespace canzona::shapes {

struct TensorRecord {
  std::string name;
  std::vector<int64_t> shape;
  std::optional<Role> role = {};  // if the file says it
  std::optional<Cut> cut = {};
};

// A deque, because it grows without copying and shrinks as it is consumed.
using TensorRecords = std::deque<TensorRecord>;

// Throws UsageError unless the name can be printed and the shape has at most
// kMaxDims dimensions from 1 to kMaxDim with a product of less than 2^63.
// Messages name `file`.
void check_record(const TensorRecord& record, const std::string& file);

// "[3072, 1024]"
std::string shape_text(const std::vector<int64_t>& shape);

// The order of the rows of a fused qkv.
enum class QkvRows {
  kUnknown,
  kByGroup,  // [q … q k v] [q … q k v] …
  kBlocks,   // all of q, all of k, all of v
};

// What is known about a file's model besides its tensors.
struct FileFacts {
  std::string name = {};    // of the model
  int64_t query_heads = 0;  // 0: not known
  int64_t kv_heads = 0;
  QkvRows qkv_rows = QkvRows::kUnknown;
  int64_t experts_per_token = 0;  // 0: not known
};

// Records must have passed check_record. Packed experts [E, a, b] become E
// tensors with the expert's number in their name; other records of more than
// two dimensions are flattened to two.
Model model_from_records(TensorRecords records, const FileFacts& facts);

// Finds out what only two tensors together show: whether a first mlp matrix
// holds gate and up, and whether packed experts are transposed.
//
// A gated linear_fc1 has twice as many rows as linear_fc2 has columns; a plain
// one has equally many. Packed experts are [E, out, in] like every other
// matrix, or transposed, [E, in, out]: gate_up and down of one layer show
// which.

// Finds records by name. It refers to the records, which must not change.
class RecordIndex {
 public:
  // UsageError names a tensor that occurs twice, and `file`.
  RecordIndex(const TensorRecords& records, const std::string& file);

  const TensorRecord* find(const std::string& name) const;

 private:
  const TensorRecords& records_;
  std::vector<uint32_t> by_name_;
};

enum class Rows : uint8_t { kPlain, kGateUp, kTransposed };

// Returns what the rows of a record are, or those of one of its experts if it
// is packed.
Rows rows_of(const TensorRecord& record, const RecordIndex& index);

// True if a record is [E, a, b] under "experts".
bool is_expert_pack(const TensorRecord& record);

// A plain list of names and shapes:
//
//   [{"name": "layers.0.mlp.up", "shape": [3072, 1024], "tp": "rows"},
//    {"name": "layers.0.norm", "shape": [1024], "role": "norm"}]
//
// "tp" (rows, columns, none) and "role" (matrix, embedding, head, router, norm,
// bias) are optional; without them the name decides.

// Messages name `file`.
TensorRecords read_shapes(std::string_view json, const std::string& file);

}  // namespace canzona::shapes
