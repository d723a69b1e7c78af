#include "canzona/checkpoint/hf_weights.h"

#include <iterator>

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// "….qkv_proj.weight" and section "q" → "….q_proj.weight".
std::string section_name(const Tensor& tensor, const Section& section) {
  for (const std::string_view fused : {"qkv_proj", "gate_up_proj"}) {
    const size_t at = tensor.name.rfind(fused);
    if (at == std::string::npos) continue;
    std::string name = tensor.name;
    return name.replace(at, fused.size(), section.name + "_proj");
  }
  CANZONA_CHECK(false, "no name for section ", section.name, " of ",
                tensor.name);
  return {};
}

HfTensor hf_tensor(const Tensor& tensor, std::string name,
                   const RowRuns& rows) {
  HfTensor out{std::move(name), tensor.shape, rows};
  if (!out.shape.empty()) out.shape[0] = rows.rows();
  return out;
}

std::vector<TensorEntry> entries_of(const Model& model, StoredType type) {
  std::vector<TensorEntry> entries;
  for (const Tensor& tensor : model.tensors)
    for (HfTensor& out : hf_tensors(tensor))
      entries.push_back({std::move(out.name), type, std::move(out.shape)});
  return entries;
}

}  // namespace

std::vector<HfTensor> hf_tensors(const Tensor& tensor) {
  if (tensor.sections.size() < 2)
    return {
        hf_tensor(tensor, tensor.name, {0, tensor.rows(), tensor.rows(), 1})};
  std::vector<HfTensor> out;
  for (const Section& section : tensor.sections)
    out.push_back(
        hf_tensor(tensor, section_name(tensor, section), section.rows));
  return out;
}

WeightFile::WeightFile(const std::string& path, const Model& model,
                       StoredType type,
                       const std::map<std::string, std::string>& metadata)
    : model_(model), file_(path, entries_of(model, type), metadata) {}

void WeightFile::add(int32_t tensor, std::span<const float> whole) {
  CANZONA_CHECK(tensor == next_, "tensor ", tensor, " was added, ", next_,
                " is next");
  CANZONA_CHECK(next_ < std::ssize(model_.tensors), "no tensor ", tensor);
  const Tensor& source = model_.tensors[static_cast<size_t>(next_++)];
  CANZONA_CHECK_EQ(whole.size(), source.elements(), "elements of ",
                   source.name);
  const auto cols = static_cast<size_t>(source.cols());
  for (const HfTensor& out : hf_tensors(source))
    for (int64_t i = 0; i < out.rows.count; ++i)
      file_.add(whole.subspan(
          static_cast<size_t>(out.rows.row(i * out.rows.run)) * cols,
          static_cast<size_t>(out.rows.run) * cols));
}

void WeightFile::finish() { file_.finish(); }

}  // namespace canzona
