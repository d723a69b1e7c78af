#include "canzona/shapes/tensor.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/shapes/names.h"

namespace canzona {
using namespace shapes;
namespace {

constexpr EnumNames<Role, 6> kRoles{{{Role::kMatrix, "matrix"},
                                     {Role::kEmbedding, "embedding"},
                                     {Role::kHead, "head"},
                                     {Role::kRouter, "router"},
                                     {Role::kNorm, "norm"},
                                     {Role::kBias, "bias"}}};

constexpr EnumNames<Cut, 3> kCuts{
    {{Cut::kNone, "none"}, {Cut::kRows, "rows"}, {Cut::kColumns, "columns"}}};

}  // namespace

std::string_view to_string(Role role) { return name_of(kRoles, role); }
std::string_view to_string(Cut cut) { return name_of(kCuts, cut); }
Role parse_role(std::string_view text) {
  return value_of(kRoles, text, "role");
}
Cut parse_cut(std::string_view text) { return value_of(kCuts, text, "tp cut"); }

std::vector<Section> group_sections(const std::vector<GroupSection>& sections,
                                    int64_t groups) {
  int64_t stride = 0;
  for (const GroupSection& section : sections) stride += section.rows;
  std::vector<Section> list;
  int64_t first = 0;
  for (const GroupSection& section : sections) {
    list.push_back({std::string(section.name),
                    {first, section.rows, stride, groups},
                    section.heads});
    first += section.rows;
  }
  return list;
}

std::vector<Section> qkv_sections(int64_t query_heads, int64_t kv_heads,
                                  int64_t head_dim) {
  return group_sections({{"q", query_heads / kv_heads * head_dim, query_heads},
                         {"k", head_dim, kv_heads},
                         {"v", head_dim, kv_heads}},
                        kv_heads);
}

std::vector<Section> qkv_block_sections(int64_t query_heads, int64_t kv_heads,
                                        int64_t head_dim) {
  return group_sections({{"q", query_heads * head_dim, query_heads},
                         {"k", kv_heads * head_dim, kv_heads},
                         {"v", kv_heads * head_dim, kv_heads}},
                        1);
}

std::vector<Section> head_section(std::string_view name, int64_t rows,
                                  int64_t heads) {
  return {{std::string(name), {0, rows, rows, 1}, heads}};
}

std::vector<Section> gate_up_sections(int64_t ffn) {
  return {{"gate", {0, ffn, ffn, 1}}, {"up", {ffn, ffn, ffn, 1}}};
}

std::vector<Section> output_section(int64_t rows, int64_t heads) {
  return head_section("out", rows, heads);
}

bool is_output(const std::vector<Section>& sections) {
  return !sections.empty() && sections.front().name == "out";
}

bool is_gate_up(const std::vector<Section>& sections) {
  return !sections.empty() && sections.front().name == "gate";
}

namespace {

struct SplitWord {
  const char* word;
  bool Splits::*flag;
};
constexpr SplitWord kWords[] = {{"qkv", &Splits::qkv},
                                {"head", &Splits::head},
                                {"output-head", &Splits::output_head},
                                {"gate-up", &Splits::gate_up},
                                {"expert", &Splits::expert}};

void set_split(Splits& splits, const std::string& text) {
  std::vector<std::string> known = {"none"};
  for (const SplitWord& candidate : kWords) {
    if (text == candidate.word) {
      splits.*candidate.flag = true;
      return;
    }
    known.emplace_back(candidate.word);
  }
  if (text == "none")
    throw UsageError("split 'none' cannot be combined with others");
  throw UsageError(cat("unknown split ", quoted(text),
                       did_you_mean(text, known), ", known are ",
                       join(known, ", ")));
}

[[noreturn]] void refuse(const Tensor& tensor, const char* split,
                         const char* reason) {
  throw UsageError(cat("split '", split, "' is not possible: tensor ",
                       quoted(tensor.name), ": ", reason));
}

bool is_c_attn(const std::string& name) {
  return name.ends_with("c_attn.weight");
}

bool has_heads(const std::string& name) {
  if (is_c_attn(name)) return true;
  switch (read_name(name).projection) {
    case Projection::kQ:
    case Projection::kK:
    case Projection::kV:
    case Projection::kQkv:
      return true;
    default:
      return false;
  }
}

// Refuses a tensor without sections whose name says that the split applies to
// it.
void check_wholeness(const Tensor& tensor, const Splits& splits) {
  constexpr const char* kNoHeads =
      "its heads are not known; put a config.json beside the safetensors file, "
      "for models whose row order is known";
  constexpr const char* kNoRows =
      "its q, k and v may be columns, as in GPT-2, but splits cut rows";
  const Projection projection = read_name(tensor.name).projection;
  if (is_c_attn(tensor.name) && (splits.head || splits.qkv)) {
    refuse(tensor, splits.head ? "head" : "qkv", kNoRows);
  }
  if (splits.head && has_heads(tensor.name)) refuse(tensor, "head", kNoHeads);
  if (splits.output_head && projection == Projection::kO) {
    refuse(tensor, "output-head", kNoHeads);
  }
  if (splits.qkv && projection == Projection::kQkv) {
    refuse(tensor, "qkv", kNoHeads);
  }
  if (projection == Projection::kGateUp && splits.gate_up) {
    refuse(tensor, "gate-up", "its rows are not two halves, gate and up");
  }
}

bool has_row_heads(const std::vector<Section>& sections) {
  return !sections.empty() && !is_gate_up(sections) && !is_output(sections);
}

// Latent attention, for one, has no q, k and v to split.
void check_heads(const Model& model) {
  const bool known = std::any_of(
      model.tensors.begin(), model.tensors.end(),
      [](const Tensor& tensor) { return has_row_heads(tensor.sections); });
  // Tensors that have heads, but unknown ones, are reported one by one below.
  const bool possible =
      std::any_of(model.tensors.begin(), model.tensors.end(),
                  [](const Tensor& tensor) { return has_heads(tensor.name); });
  if (known || possible) return;
  throw UsageError(cat("split 'head' is not possible: model ",
                       quoted(model.name), " has no q, k or v"));
}

class Splitter {
 public:
  Splitter(const Model& model, const Splits& splits)
      : model_(model),
        splits_(splits),
        asks_(splits.qkv || splits.head || splits.output_head ||
              splits.gate_up) {}

  std::vector<Matrix> run() {
    if (splits_.head) check_heads(model_);
    matrices_.reserve(model_.tensors.size());
    for (size_t i = 0; i < model_.tensors.size(); ++i) {
      if (model_.tensors[i].matrix_rule) add(static_cast<int32_t>(i));
    }
    return std::move(matrices_);
  }

 private:
  void add(int32_t index) {
    const Tensor& tensor = model_.tensors[index];
    if (tensor.sections.empty() && asks_) check_wholeness(tensor, splits_);
    if (!is_split(tensor)) {
      const bool by_columns = splits_.output_head && is_output(tensor.sections);
      matrices_.push_back({index, -1, 0, tensor.rows(), tensor.cols(),
                           by_columns ? tensor.sections[0].heads : 1});
      return;
    }
    for (size_t section = 0; section < tensor.sections.size(); ++section) {
      add_section(index, static_cast<int32_t>(section));
    }
  }

  bool is_split(const Tensor& tensor) const {
    if (tensor.sections.empty() || is_output(tensor.sections)) return false;
    if (is_gate_up(tensor.sections)) return splits_.gate_up;
    // A separate q, k or v is one section: the qkv split leaves it whole.
    return splits_.head || (splits_.qkv && tensor.sections.size() > 1);
  }

  void add_section(int32_t index, int32_t section_index) {
    const Tensor& tensor = model_.tensors[index];
    const Section& section = tensor.sections[section_index];
    const int64_t pieces = splits_.head ? section.heads : 1;
    const int64_t rows = section.rows.rows() / pieces;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      matrices_.push_back(
          {index, section_index, piece * rows, rows, tensor.cols()});
    }
  }

  const Model& model_;
  const Splits& splits_;
  const bool asks_;  // for a split that needs sections
  std::vector<Matrix> matrices_;
};

}  // namespace

Splits parse_splits(std::string_view text) {
  Splits splits;
  if (text == "none") return splits;
  for (const std::string& word : split_text(text, ',')) {
    set_split(splits, word);
  }
  return splits;
}

std::string to_string(const Splits& splits) {
  std::vector<std::string> words;
  for (const SplitWord& candidate : kWords) {
    if (splits.*candidate.flag) words.emplace_back(candidate.word);
  }
  return words.empty() ? "none" : join(words, ",");
}

std::vector<Matrix> split_into_matrices(const Model& model,
                                        const Splits& splits) {
  return Splitter(model, splits).run();
}

std::string matrix_name(const Model& model, const Matrix& matrix,
                        const Splits& splits) {
  const Tensor& tensor = model.tensors[matrix.tensor];
  if (matrix.section < 0) return tensor.name;
  const Section& section = tensor.sections[matrix.section];
  std::string name = tensor.name;
  name += ':';
  name += section.name;
  if (splits.head && !is_gate_up(tensor.sections)) {
    name += '.';
    name += std::to_string(matrix.first_row / matrix.rows);
  }
  return name;
}

}  // namespace canzona
