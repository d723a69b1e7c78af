#include "canzona/plan/storage/torch_request.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/storage/storage_json.h"

namespace canzona::plan {
namespace {

constexpr std::string_view kHsdp = "hsdp:";

const std::vector<std::string>& layout_words() {
  static const std::vector<std::string> words = {"ddp", "fsdp2", "hsdp:8"};
  return words;
}

// Cuts a dimension of a box as torch.chunk does.
void take_chunk(Box& box, size_t dim, int64_t chunks, int64_t number) {
  const int64_t size = box.count[dim];
  const int64_t each = (size + chunks - 1) / chunks;
  const int64_t begin = std::min(size, number * each);
  box.first[dim] += begin;
  box.count[dim] = std::min(size, begin + each) - begin;
}

void check_axes(const TorchPlacement& placement) {
  const Mesh& mesh = placement.mesh;
  const std::string layout = to_string(placement.layout);
  const auto refuse = [&](const char* axis, int32_t size, const char* what) {
    if (size > 1)
      throw UsageError(
          cat("mesh: ", axis, "=", size, ": layout ", layout, " ", what));
  };
  refuse("cp", mesh.cp,
         "shards over dp alone; count context-parallel ranks in dp");
  refuse("pp", mesh.pp,
         "has one stage: stages share no tensor, so plan each by itself "
         "(--layers)");
  refuse("ep", mesh.ep,
         "shards experts like other tensors; expert parallelism is not "
         "planned here yet, so leave ep out");
  const int32_t shards = placement.layout.shards_of(mesh.dp);
  if (mesh.dp % shards != 0)
    throw UsageError(cat("layout ", layout, ": groups of ", shards,
                         " ranks do not divide dp=", mesh.dp));
}

// "experts.gate_up_proj" of "experts.7.gate_up_proj"; nothing for a tensor that
// belongs to a module of its own expert ("experts.7.up_proj.weight").
std::optional<std::string> name_in_stack(const Tensor& tensor) {
  if (tensor.expert < 0) return std::nullopt;
  const std::string& name = tensor.name;
  const size_t last = name.rfind('.');
  const std::string number = cat(".", tensor.expert, ".");
  if (last == std::string::npos || last + 1 < number.size())
    return std::nullopt;
  const size_t at = last + 1 - number.size();
  if (name.compare(at, number.size(), number) != 0) return std::nullopt;
  return name.substr(0, at) + name.substr(last);
}

// A parameter as PyTorch has it.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int32_t tp_dim = -1;
  int32_t tensor = 0;  // the first, of a stack
};

class RequestMaker {
 public:
  RequestMaker(const Model& model, const TorchPlacement& placement)
      : model_(model), placement_(placement) {}

  StorageRequest run() {
    check_axes(placement_);
    check_mesh(placement_.mesh, model_);
    collect();
    check_size();
    find_splits();
    StorageRequest out;
    out.world = placement_.mesh.world();
    out.options = placement_.options;
    const bool one_rule = placement_.matrices.rule == placement_.elements.rule;
    const auto is_matrix = [&](const Parameter& p) {
      return one_rule || tensor_of(p).matrix_rule;
    };
    for (const int64_t heads : all_column_heads_) {
      RuleGroup group = placement_.matrices;
      if (heads > 1) group.options["column_heads"] = cat(heads);
      add_group(group, out, [&](const Parameter& p) {
        return is_matrix(p) && column_heads_[index(p.tensor)] == heads;
      });
    }
    add_group(placement_.elements, out,
              [&](const Parameter& p) { return !is_matrix(p); });
    return out;
  }

 private:
  const Tensor& tensor_of(const Parameter& p) const {
    return model_.tensors[index(p.tensor)];
  }

  void collect() {
    std::map<std::string, size_t> stacks;
    for (size_t t = 0; t < model_.tensors.size(); ++t) {
      const Tensor& tensor = model_.tensors[t];
      if (tensor.frozen) continue;
      const std::optional<std::string> stack = name_in_stack(tensor);
      const std::string& name = stack ? *stack : tensor.name;
      if (stack) {
        const auto [at, fresh] = stacks.emplace(name, parameters_.size());
        if (!fresh) {
          join_stack(parameters_[at->second], tensor);
          continue;
        }
      }
      Parameter p{name, tensor.shape, -1, static_cast<int32_t>(t)};
      if (tensor.cut == Cut::kRows) p.tp_dim = 0;
      if (tensor.cut == Cut::kColumns) p.tp_dim = 1;
      if (stack) {
        p.shape.insert(p.shape.begin(), 1);
        if (p.tp_dim >= 0) ++p.tp_dim;
      }
      parameters_.push_back(std::move(p));
    }
  }

  void join_stack(Parameter& stack, const Tensor& tensor) const {
    const Tensor& first = tensor_of(stack);
    if (tensor.shape != first.shape)
      throw UsageError(
          cat("tensor ", quoted(stack.name), ": ", quoted(first.name), " is ",
              list_text(first.shape), ", but ", quoted(tensor.name), " is ",
              list_text(tensor.shape), "; a stack has experts of one shape"));
    if (tensor.matrix_rule != first.matrix_rule)
      throw UsageError(cat("tensor ", quoted(stack.name), ": ",
                           quoted(tensor.name), " and ", quoted(first.name),
                           " are one parameter in PyTorch, so one rule must "
                           "update both"));
    ++stack.shape.front();
  }

  // The request lists boxes by tensor and rank, so that it can be written and
  // read back only up to a size.
  void check_size() const {
    const int64_t lists = std::ssize(parameters_) * placement_.mesh.world();
    if (lists > kMaxStorageBoxes)
      throw UsageError(cat("layout ", to_string(placement_.layout), ": ",
                           parameters_.size(), " tensors on ",
                           placement_.mesh.world(), " ranks are ", lists,
                           " boxes, expected at most ", kMaxStorageBoxes,
                           "; use fewer ranks or --layers"));
  }

  // Sets the rows of every matrix of tensors that are split, and the heads of
  // columns.
  void find_splits() {
    splits_.resize(model_.tensors.size());
    column_heads_.resize(model_.tensors.size(), 1);
    if (placement_.splits == Splits{}) return;
    check_splits(placement_.splits, placement_.matrices.rule);
    std::vector<std::map<int64_t, int64_t>> rows_from(model_.tensors.size());
    for (const Matrix& m : split_into_matrices(model_, placement_.splits)) {
      column_heads_[index(m.tensor)] = m.column_heads;
      all_column_heads_.insert(m.column_heads);
      if (m.section < 0) continue;
      const Tensor& tensor = model_.tensors[index(m.tensor)];
      const RowRuns& runs = tensor.sections[index(m.section)].rows;
      const int64_t first = runs.row(m.first_row);
      if (runs.row(m.first_row + m.rows - 1) - first + 1 != m.rows)
        throw UsageError(cat(
            "split ", to_string(placement_.splits), ": rows of ",
            tensor.sections[index(m.section)].name, " in ", quoted(tensor.name),
            " are interleaved with others; canzona.Muon(splits=) takes "
            "consecutive rows: split by head, or not at all"));
      rows_from[index(m.tensor)][first] = m.rows;
    }
    for (size_t t = 0; t < splits_.size(); ++t)
      if (rows_from[t].size() > 1)
        for (const auto& [first, rows] : rows_from[t])
          splits_[t].push_back(rows);
  }

  // Adds a group with the tensors that `fits` accepts, unless there are none.
  template <class Fits>
  void add_group(const RuleGroup& group, StorageRequest& out,
                 const Fits& fits) {
    const auto number = static_cast<int32_t>(out.groups.size());
    for (const Parameter& p : parameters_) {
      if (!fits(p)) continue;
      CutTensor& tensor = out.tensors.emplace_back();
      tensor.name = p.name;
      tensor.shape = p.shape;
      tensor.dtype = placement_.dtype;
      tensor.group = number;
      tensor.splits = splits_[index(p.tensor)];
      tensor.stored = boxes_of(p);
    }
    if (!out.tensors.empty() && out.tensors.back().group == number)
      out.groups.push_back(group);
  }

  const std::vector<std::vector<Box>>& boxes_of(const Parameter& p) {
    const auto [at, fresh] = known_.try_emplace({p.shape, p.tp_dim});
    if (fresh)
      at->second =
          torch_boxes(p.shape, p.tp_dim, placement_.layout, placement_.mesh);
    return at->second;
  }

  const Model& model_;
  const TorchPlacement& placement_;
  std::vector<Parameter> parameters_;
  // By tensor of the model.
  std::vector<std::vector<int64_t>> splits_;
  std::vector<int64_t> column_heads_;
  std::set<int64_t> all_column_heads_ = {1};
  std::map<std::pair<std::vector<int64_t>, int32_t>,
           std::vector<std::vector<Box>>>
      known_;
};

}  // namespace

int32_t TorchLayout::shards_of(int32_t dp) const {
  switch (kind) {
    case Kind::kDdp:
      return 1;
    case Kind::kFsdp2:
      return dp;
    case Kind::kHsdp:
      break;
  }
  return shards;
}

TorchLayout parse_torch_layout(std::string_view text) {
  if (text == "ddp") return {TorchLayout::Kind::kDdp};
  if (text == "fsdp2") return {TorchLayout::Kind::kFsdp2};
  if (text.starts_with(kHsdp))
    return {TorchLayout::Kind::kHsdp,
            static_cast<int32_t>(parse_integer(text.substr(kHsdp.size()), 1,
                                               kMaxWorld, "layout hsdp"))};
  const std::string message =
      cat("layout ", quoted(text),
          ": expected ddp, fsdp2 or hsdp:N, where N ranks share a copy");
  const bool lacks_number = text == "hsdp";
  throw UsageError(lacks_number ? message
                                : message + did_you_mean(text, layout_words()));
}

std::string to_string(const TorchLayout& layout) {
  if (layout.kind == TorchLayout::Kind::kHsdp) return cat(kHsdp, layout.shards);
  return layout.kind == TorchLayout::Kind::kDdp ? "ddp" : "fsdp2";
}

std::vector<std::vector<Box>> torch_boxes(const std::vector<int64_t>& shape,
                                          int32_t tp_dim,
                                          const TorchLayout& layout,
                                          const Mesh& mesh) {
  const int32_t shards = layout.shards_of(mesh.dp);
  std::vector<std::vector<Box>> stored(index(mesh.dp * mesh.tp));
  for (int32_t d = 0; d < mesh.dp; ++d)
    for (int32_t t = 0; t < mesh.tp; ++t) {
      Box box = whole_box(shape);
      if (tp_dim >= 0) take_chunk(box, index(tp_dim), mesh.tp, t);
      if (!shape.empty()) take_chunk(box, 0, shards, d % shards);
      if (box.elements() > 0)
        stored[index(d * mesh.tp + t)].push_back(std::move(box));
    }
  return stored;
}

StorageRequest torch_request(const Model& model,
                             const TorchPlacement& placement) {
  return RequestMaker(model, placement).run();
}

}  // namespace canzona::plan
