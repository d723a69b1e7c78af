#include "canzona/report/models_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/terminal.h"

namespace canzona {
namespace {

// A file may name tensors that have nothing in common.
constexpr size_t kMaxLines = 60;

bool is_number(std::string_view part) {
  return !part.empty() &&
         part.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string key_of(const Tensor& tensor, std::string_view pattern) {
  std::string key(pattern);
  for (const int64_t size : tensor.shape) key += '|' + std::to_string(size);
  key += '|';
  for (const int kind : {static_cast<int>(tensor.role),
                         static_cast<int>(tensor.cut), +tensor.matrix_rule})
    key += static_cast<char>('0' + kind);
  return key;
}

TensorGroup start_group(const Tensor& tensor, std::string pattern) {
  return {.pattern = std::move(pattern),
          .shape = tensor.shape,
          .role = tensor.role,
          .cut = tensor.cut,
          .matrix_rule = tensor.matrix_rule};
}

std::vector<int64_t> count_matrices(const Model& model,
                                    std::span<const Matrix> matrices) {
  std::vector<int64_t> counts(model.tensors.size(), 0);
  for (const Matrix& matrix : matrices)
    ++counts[static_cast<size_t>(matrix.tensor)];
  return counts;
}

std::string matrices_text(const TensorGroup& group) {
  if (!group.matrix_rule) return "";
  return grouped(group.num_matrices);
}

std::string rule_of(const TensorGroup& group, std::string_view rule) {
  return group.matrix_rule ? std::string(rule) : "adamw";
}

// "muon 448 matrices, 31.2B elements (95.3 %)".
std::string totals_text(const std::vector<TensorGroup>& groups,
                        std::string_view rule) {
  double all = 0, by_rule = 0;
  int64_t num_matrices = 0, num_adamw = 0;
  for (const TensorGroup& group : groups) {
    all += group.elements;
    num_matrices += group.num_matrices;
    if (group.matrix_rule)
      by_rule += group.elements;
    else
      num_adamw += group.num_tensors;
  }
  if (rule == "adamw")
    return fmt::format("  adamw: {} tensors, {} elements\n", grouped(num_adamw),
                       human_count(all));
  const double percent = all > 0 ? 100 * by_rule / all : 0;
  return fmt::format(
      "  {}: {} matrices, {} elements ({:.1f} %) · adamw: {} tensors, "
      "{} elements\n",
      rule, grouped(num_matrices), human_count(by_rule), percent,
      grouped(num_adamw), human_count(all - by_rule));
}

}  // namespace

std::string name_pattern(std::string_view name) {
  std::string out;
  while (true) {
    const size_t end = std::min(name.size(), name.find_first_of("./:"));
    const std::string_view part = name.substr(0, end);
    out.append(is_number(part) ? "*" : part);
    if (end == name.size()) return out;
    out.push_back(name[end]);
    name.remove_prefix(end + 1);
  }
}

std::vector<TensorGroup> group_tensors(const Model& model,
                                       std::span<const Matrix> matrices) {
  const std::vector<int64_t> counts = count_matrices(model, matrices);
  std::vector<TensorGroup> groups;
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const Tensor& tensor = model.tensors[i];
    std::string pattern = name_pattern(tensor.name);
    const auto [at, is_new] =
        places.try_emplace(key_of(tensor, pattern), groups.size());
    if (is_new) groups.push_back(start_group(tensor, std::move(pattern)));
    TensorGroup& group = groups[at->second];
    group.num_tensors += 1;
    group.num_matrices += counts[i];
    group.elements += static_cast<double>(tensor.elements());
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const TensorGroup& g) { return g.matrix_rule; });
  return groups;
}

std::string routing_text(const std::vector<TensorGroup>& groups,
                         std::string_view rule, const Ink& ink) {
  Table table("<~>>><>");
  table.header(
      {"rule", "tensors", "count", "matrices", "shape", "tp cut", "elements"});
  for (size_t i = 0; i < std::min(groups.size(), kMaxLines); ++i) {
    const TensorGroup& group = groups[i];
    table.row({rule_of(group, rule), printable(group.pattern),
               grouped(group.num_tensors), matrices_text(group),
               dims_text(group.shape), std::string(to_string(group.cut)),
               human_count(group.elements)});
  }
  std::string out = table.text(ink);
  if (groups.size() > kMaxLines) {
    out += ink(Tone::kDim, fmt::format("  … and {} more patterns\n",
                                       groups.size() - kMaxLines));
  }
  return out + totals_text(groups, rule);
}

void write_routing(JsonWriter& out, const std::vector<TensorGroup>& groups,
                   std::string_view rule) {
  out.begin_array();
  for (const TensorGroup& group : groups) {
    out.begin_object().field("pattern", group.pattern);
    out.field("rule", rule_of(group, rule));
    out.member("shape").values(group.shape);
    out.field("role", to_string(group.role)).field("tp", to_string(group.cut));
    out.field("num_tensors", group.num_tensors);
    out.field("num_matrices", group.num_matrices);
    out.field("elements", group.elements).end_object();
  }
  out.end_array();
}

namespace {

// The matrix rule is not known here.
constexpr const char* kRule = "matrix";

std::string structure_text(const Model& model) {
  std::string out = fmt::format(
      "{}, {} layers", model.fused ? "fused" : "separate", model.num_layers);
  if (model.query_heads > 0)
    out += fmt::format(", {} query heads, {} kv heads", model.query_heads,
                       model.kv_heads);
  if (model.num_experts > 0)
    out += fmt::format(", {} experts", model.num_experts);
  return out;
}

void line_members(JsonWriter& out, const ModelLine& line) {
  out.field("name", line.name).field("description", line.description);
  out.field("elements", line.elements).field("num_tensors", line.num_tensors);
  out.field("num_matrices", line.num_matrices);
}

}  // namespace

ModelLine summarize(const Model& model, const std::string& description) {
  ModelLine line{.name = model.name, .description = description};
  line.num_tensors = std::ssize(model.tensors);
  for (const Tensor& tensor : model.tensors) {
    line.elements += static_cast<double>(tensor.elements());
    line.num_matrices += tensor.matrix_rule ? 1 : 0;
  }
  return line;
}

std::string presets_text(const std::vector<ModelLine>& lines,
                         const std::vector<std::string>& families,
                         const Ink& ink) {
  Table table("<>>>~");
  table.header({"model", "parameters", "tensors", "matrices", ""});
  for (const ModelLine& line : lines)
    table.row({line.name, human_count(line.elements), grouped(line.num_tensors),
               grouped(line.num_matrices), line.description});
  return table.text(ink, 0) + "\n" +
         wrap(cat("An HF config.json may be of the families ",
                  join(families, ", "), "."),
              kPageWidth, 0) +
         "\n";
}

std::string presets_json(const std::vector<ModelLine>& lines,
                         const std::vector<std::string>& families) {
  JsonWriter out(2);
  out.begin_object().member("models").begin_array();
  for (const ModelLine& line : lines) {
    out.begin_object();
    line_members(out, line);
    out.end_object();
  }
  out.end_array().member("families").values(families);
  out.end_object();
  return out.take() + "\n";
}

std::string model_text(const Model& model, const Splits& splits,
                       const Ink& ink) {
  const std::vector<Matrix> matrices = split_into_matrices(model, splits);
  const ModelLine line = summarize(model, "");
  return ink(Tone::kBold, printable(model.name)) +
         fmt::format(": {} parameters, split {}\n  {}\n",
                     human_count(line.elements), to_string(splits),
                     structure_text(model)) +
         routing_text(group_tensors(model, matrices), kRule, ink);
}

std::string model_json(const Model& model, const Splits& splits) {
  const std::vector<Matrix> matrices = split_into_matrices(model, splits);
  const ModelLine line = summarize(model, "");
  JsonWriter out(2);
  out.begin_object().field("name", model.name).field("fused", model.fused);
  out.field("num_layers", model.num_layers);
  out.field("num_experts", model.num_experts);
  out.field("query_heads", model.query_heads).field("kv_heads", model.kv_heads);
  out.field("elements", line.elements).field("num_tensors", line.num_tensors);
  out.field("num_matrices", matrices.size()).field("split", to_string(splits));
  out.member("tensors");
  write_routing(out, group_tensors(model, matrices), kRule);
  out.end_object();
  return out.take() + "\n";
}

}  // namespace canzona
