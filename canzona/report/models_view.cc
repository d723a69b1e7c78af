#include "canzona/report/models_view.h"

#include <fmt/format.h>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/routing_view.h"
#include "canzona/report/terminal_table.h"

namespace canzona {
namespace {

// Which matrix rule it will be is not known here.
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
  out.end_array().member("families").begin_array();
  for (const std::string& family : families) out.value(family);
  out.end_array().end_object();
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
