#include "canzona/shapes/records.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/shapes/names.h"
#include "canzona/shapes/read_model.h"

namespace canzona::shapes {
namespace {

// Returns `name` with the last `word` replaced; empty if there is none.
std::string replaced(const std::string& name, std::string_view word,
                     std::string_view by) {
  const size_t place = name.rfind(word);
  if (place == std::string::npos) return {};
  return std::string(name).replace(place, word.size(), by);
}

// Maps the first mlp matrix's name to the second's.
std::string down_name(const std::string& name, Projection projection) {
  std::string second = projection == Projection::kFc1
                           ? replaced(name, "fc1", "fc2")
                           : replaced(name, "gate_up", "down");
  if (second.rfind("bias") == std::string::npos) return second;
  return replaced(second, "bias", "weight");
}

std::string first_name(const std::string& name) {
  const std::string fc1 = replaced(name, "fc2", "fc1");
  return fc1.empty() ? replaced(name, "down", "gate_up") : fc1;
}

// True if [E, a, b] and [E, c, d] are the first and second matrix of transposed
// experts: (in, 2 x out) and (out, in).
bool lie_transposed(const TensorRecord& first, const TensorRecord& second) {
  return first.shape[2] == 2 * second.shape[1] &&
         first.shape[1] == second.shape[2];
}

bool is_transposed_pack(const TensorRecord& record, Projection projection,
                        const RecordIndex& index) {
  const bool is_down = projection == Projection::kDown;
  const TensorRecord* other = index.find(
      is_down ? first_name(record.name) : down_name(record.name, projection));
  if (other == nullptr || !is_expert_pack(*other)) return false;
  return is_down ? lie_transposed(*other, record)
                 : lie_transposed(record, *other);
}

}  // namespace

RecordIndex::RecordIndex(const TensorRecords& records, const std::string& file)
    : records_(records), by_name_(records.size()) {
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) {
    return records[a].name < records[b].name;
  });
  const auto twice = std::adjacent_find(
      by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) {
        return records[a].name == records[b].name;
      });
  if (twice != by_name_.end()) {
    throw UsageError(cat(printable(file), ": tensor ",
                         quoted(records[*twice].name), " comes twice"));
  }
}

const TensorRecord* RecordIndex::find(const std::string& name) const {
  const auto place = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](uint32_t i, const std::string& n) {
                                        return records_[i].name < n;
                                      });
  if (place == by_name_.end() || records_[*place].name != name) return nullptr;
  return &records_[*place];
}

bool is_expert_pack(const TensorRecord& record) {
  return record.shape.size() == 3 &&
         expert_number_place(record.name) != std::string::npos;
}

Rows rows_of(const TensorRecord& record, const RecordIndex& index) {
  const Projection projection = read_name(record.name).projection;
  const bool is_pack = is_expert_pack(record);
  if (record.shape.size() > 2 && !is_pack) return Rows::kPlain;
  const bool is_first =
      projection == Projection::kGateUp || projection == Projection::kFc1;
  if (is_pack && (is_first || projection == Projection::kDown) &&
      is_transposed_pack(record, projection, index)) {
    return Rows::kTransposed;
  }
  if (!is_first || record.shape.empty()) return Rows::kPlain;
  const int64_t rows = record.shape[is_pack ? 1 : 0];
  if (projection == Projection::kGateUp) {
    return rows % 2 == 0 ? Rows::kGateUp : Rows::kPlain;
  }
  const TensorRecord* down =
      index.find(down_name(record.name, Projection::kFc1));
  const bool gated = down != nullptr && down->shape.size() >= 2 &&
                     rows == 2 * down->shape.back();
  return gated ? Rows::kGateUp : Rows::kPlain;
}

namespace {

bool has_control_characters(std::string_view name) {
  return std::any_of(name.begin(), name.end(),
                     [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

void check_name(const std::string& name, const std::string& file) {
  const char* problem = name.empty()                           ? "is empty"
                        : name.size() > size_t{kMaxNameLength} ? "is too long"
                        : has_control_characters(name)
                            ? "has control characters"
                            : nullptr;
  if (problem == nullptr) return;
  throw UsageError(cat(printable(file), ": the name ", quoted(name),
                       " of a tensor ", problem));
}

[[noreturn]] void refuse(const TensorRecord& record, const std::string& file,
                         const std::string& problem) {
  throw UsageError(cat(printable(file), ": tensor ", quoted(record.name), " ",
                       shape_text(record.shape), ": ", problem));
}

// Checks for roles and cuts that a one-dimensional tensor cannot have.
void check_role_and_cut(const TensorRecord& record, const std::string& file) {
  if (record.shape.size() >= 2) return;
  if (record.cut == Cut::kColumns) {
    refuse(record, file, "it has no columns to cut");
  }
  if (record.role && record.role != Role::kNorm && record.role != Role::kBias) {
    refuse(record, file,
           cat("role '", to_string(*record.role), "' needs two dimensions"));
  }
}

// Returns nothing if the heads, or their order in the rows, are not known.
std::vector<Section> sections_of_qkv(int64_t rows, QkvRows order,
                                     const FileFacts& facts) {
  const int64_t heads = facts.query_heads;
  const int64_t kv_heads = facts.kv_heads;
  if (order == QkvRows::kUnknown || heads == 0 || kv_heads == 0) return {};
  const int64_t all_heads = heads + 2 * kv_heads;
  if (heads % kv_heads != 0 || rows % all_heads != 0) return {};
  return order == QkvRows::kByGroup
             ? qkv_sections(heads, kv_heads, rows / all_heads)
             : qkv_block_sections(heads, kv_heads, rows / all_heads);
}

std::vector<Section> sections_of_heads(const char* section, int64_t rows,
                                       int64_t heads) {
  if (heads == 0 || rows % heads != 0) return {};
  return head_section(section, rows, heads);
}

// The file's number of heads says nothing about towers and linear attention.
std::vector<Section> sections_of_output(const Tensor& tensor,
                                        std::string_view name, int64_t heads) {
  const bool elsewhere = name.find("vis") != std::string_view::npos ||
                         name.find("att") == std::string_view::npos ||
                         name.find("linear_attn.") != std::string_view::npos;
  if (elsewhere || tensor.shape.size() < 2 || heads == 0 ||
      tensor.cols() % heads != 0)
    return {};
  return output_section(tensor.rows(), heads);
}

std::vector<Section> sections_of(const Tensor& tensor,
                                 std::string_view full_name,
                                 const NameFacts& name, Rows kind,
                                 const FileFacts& facts) {
  const int64_t rows = tensor.rows();
  if (kind == Rows::kGateUp) return gate_up_sections(rows / 2);
  switch (name.projection) {
    case Projection::kQ:
      return sections_of_heads("q", rows, facts.query_heads);
    case Projection::kK:
      return sections_of_heads("k", rows, facts.kv_heads);
    case Projection::kV:
      return sections_of_heads("v", rows, facts.kv_heads);
    case Projection::kQkv:
      return sections_of_qkv(
          rows, name.megatron_qkv ? QkvRows::kByGroup : facts.qkv_rows, facts);
    case Projection::kO:
      return sections_of_output(tensor, full_name, facts.query_heads);
    default:
      return {};
  }
}

// Turns records into tensors.
class Converter {
 public:
  Converter(const FileFacts& facts, int64_t num_tensors) : facts_(facts) {
    model_.name = facts.name;
    model_.query_heads = facts.query_heads;
    model_.kv_heads = facts.kv_heads;
    model_.tensors.reserve(num_tensors);
  }

  void add(TensorRecord record, Rows rows) {
    if (is_expert_pack(record)) return add_pack(record, rows);
    const size_t num_dims = record.shape.size();
    Tensor tensor;
    if (num_dims == 0) record.shape = {1};
    if (num_dims > 2) flatten(record, tensor);
    tensor.shape = std::move(record.shape);
    fill(tensor, record, num_dims, rows);
    tensor.name = std::move(record.name);
    keep(std::move(tensor));
  }

  Model take() {
    model_.experts_per_token =
        std::min<int64_t>(facts_.experts_per_token, model_.num_experts);
    return std::move(model_);
  }

 private:
  void add_pack(const TensorRecord& record, Rows rows) {
    const size_t place = expert_number_place(record.name);
    Tensor tensor;
    tensor.shape = {record.shape[1], record.shape[2]};
    fill(tensor, record, 2, rows);
    if (rows == Rows::kTransposed && !record.cut) tensor.cut = Cut::kNone;
    for (int64_t expert = 0; expert < record.shape[0]; ++expert) {
      tensor.name = record.name;
      tensor.name.insert(place, std::to_string(expert));
      tensor.name.insert(place, 1, '.');
      tensor.expert = static_cast<int32_t>(expert);
      keep(tensor);
    }
  }

  void flatten(TensorRecord& record, Tensor& tensor) const {
    int64_t rest = 1;
    for (size_t i = 1; i < record.shape.size(); ++i) rest *= record.shape[i];
    if (rest > kMaxDim) {
      refuse(record, facts_.name,
             cat("as a matrix it would have more than ", kMaxDim, " columns"));
    }
    record.shape = {record.shape[0], rest};
    tensor.flattened = true;
  }

  // Sets everything but name, shape and the number of a packed expert.
  void fill(Tensor& tensor, const TensorRecord& record, size_t num_dims,
            Rows rows) {
    const NameFacts name = read_name(record.name);
    tensor.role = record.role.value_or(role_of(name, num_dims));
    tensor.cut = record.cut.value_or(cut_of(name, tensor.role, num_dims));
    tensor.layer = name.layer;
    tensor.expert = name.expert;
    tensor.matrix_rule = tensor.role == Role::kMatrix && !tensor.flattened;
    const bool may_have_sections =
        !tensor.flattened && (tensor.role == Role::kMatrix ||
                              (tensor.role == Role::kBias && num_dims == 1));
    if (may_have_sections)
      tensor.sections = sections_of(tensor, record.name, name, rows, facts_);
    model_.fused |= tensor.sections.size() > 1 ||
                    name.projection == Projection::kQkv ||
                    name.projection == Projection::kGateUp;
  }

  void keep(Tensor tensor) {
    model_.num_layers = std::max(model_.num_layers, tensor.layer + 1);
    model_.num_experts = std::max(model_.num_experts, tensor.expert + 1);
    model_.tensors.push_back(std::move(tensor));
  }

  const FileFacts& facts_;
  Model model_;
};

// Returns the number of tensors made from the records.
int64_t count_tensors(const TensorRecords& records, const std::string& file) {
  int64_t count = 0;
  for (const TensorRecord& record : records) {
    const bool is_pack = is_expert_pack(record);
    if (is_pack && record.shape[0] > kMaxExperts) {
      refuse(record, file, cat("more than ", kMaxExperts, " experts"));
    }
    count += is_pack ? record.shape[0] : 1;
    if (count > kMaxTensors) {
      throw UsageError(
          cat(printable(file), ": more than ", kMaxTensors, " tensors"));
    }
  }
  return count;
}

// Experts that are both packed and separate would have the same name.
void refuse_equal_names(const Model& model) {
  std::vector<std::string_view> names;
  names.reserve(model.tensors.size());
  for (const Tensor& tensor : model.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return;
  throw UsageError(cat(printable(model.name), ": tensor ", quoted(*twice),
                       " occurs both packed and on its own"));
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> dims;
  dims.reserve(shape.size());
  for (const int64_t dim : shape) dims.push_back(std::to_string(dim));
  return cat("[", join(dims, ", "), "]");
}

void check_record(const TensorRecord& record, const std::string& file) {
  check_name(record.name, file);
  if (record.shape.size() > size_t{kMaxDims}) {
    refuse(record, file, cat("more than ", kMaxDims, " dimensions"));
  }
  int64_t elements = 1;
  for (const int64_t dim : record.shape) {
    if (dim < 1 || dim > kMaxDim) {
      refuse(record, file, cat("sizes must be from 1 to ", kMaxDim));
    }
    if (elements > std::numeric_limits<int64_t>::max() / dim) {
      refuse(record, file, "2^63 or more elements");
    }
    elements *= dim;
  }
  check_role_and_cut(record, file);
}

Model model_from_records(TensorRecords records, const FileFacts& facts) {
  if (records.empty()) {
    throw UsageError(cat(printable(facts.name), ": no tensors"));
  }
  const bool has_packs =
      std::any_of(records.begin(), records.end(), is_expert_pack);
  const int64_t num_tensors = count_tensors(records, facts.name);
  std::vector<Rows> rows;
  rows.reserve(records.size());
  {
    const RecordIndex index(records, facts.name);
    for (const TensorRecord& record : records) {
      rows.push_back(rows_of(record, index));
    }
  }
  Converter converter(facts, num_tensors);
  for (const Rows row : rows) {
    converter.add(std::move(records.front()), row);
    records.pop_front();
  }
  Model model = converter.take();
  if (has_packs) refuse_equal_names(model);
  sort_tensors(model.tensors);
  return model;
}

namespace {

constexpr int64_t kMaxShapesBytes = 256 << 20;
constexpr int64_t kMaxShapesValues = 16 * kMaxTensors;
constexpr int64_t kMaxShapeValues = 1000;

// [{"name": "x", "shape": [2, 3], "tp": "rows"}, …], one entry after another.
class ShapesReader {
 public:
  explicit ShapesReader(const std::string& file) : file_(file) {}

  TensorRecords read(std::string_view json) {
    const auto take = [this](std::string&& /*key*/, Json&& entry) {
      add(entry);
    };
    const Json root = parse_json(json,
                                 {.what = printable(file_),
                                  .max_bytes = kMaxShapesBytes,
                                  .max_values = kMaxShapesValues,
                                  .max_held = kMaxShapeValues},
                                 {{{}, take}});
    if (!root.is_array())
      throw UsageError(cat(printable(file_), ": expected a list of shapes"));
    return std::move(records_);
  }

 private:
  void add(const Json& entry) {
    if (std::ssize(records_) == kMaxTensors)
      throw UsageError(
          cat(printable(file_), ": more than ", kMaxTensors, " tensors"));
    const std::string where = where_of(entry);
    require_known_keys(entry, {"name", "shape", "tp", "role"}, where);
    TensorRecord record{.name = get_string(entry, "name", where),
                        .shape = get_integers(entry, "shape", kMaxDims, where)};
    if (entry.contains("tp")) record.cut = word(entry, "tp", where, parse_cut);
    if (entry.contains("role"))
      record.role = word(entry, "role", where, parse_role);
    check_record(record, file_);
    records_.push_back(std::move(record));
  }

  std::string where_of(const Json& entry) const {
    const bool is_named = entry.is_object() && entry.contains("name") &&
                          entry.at("name").is_string();
    return cat(printable(file_), ": entry ", records_.size() + 1,
               is_named
                   ? cat(" (", quoted(entry.at("name").get<std::string>()), ")")
                   : "");
  }

  template <class Value>
  static Value word(const Json& entry, const char* key,
                    const std::string& where,
                    Value (*parse)(std::string_view)) {
    const std::string text = get_string(entry, key, where);
    try {
      return parse(text);
    } catch (const UsageError& error) {
      throw UsageError(cat(where, ": ", error.what()));
    }
  }

  const std::string& file_;
  TensorRecords records_;
};

}  // namespace

TensorRecords read_shapes(std::string_view json, const std::string& file) {
  return ShapesReader(file).read(json);
}

}  // namespace canzona::shapes

namespace canzona {
using namespace shapes;

Model model_from_shapes(std::string_view json, const std::string& name) {
  return model_from_records(read_shapes(json, name), {.name = name});
}

}  // namespace canzona
