#include "canzona/checkpoint/hf_weights.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "canzona/base/check.h"
#include "canzona/base/files.h"
#include "canzona/base/index.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/checkpoint/hf_folder.h"

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

std::string hf_file_name(size_t number, size_t count) {
  if (count == 1) return kHfWeights;
  const auto digits = [](size_t n) {
    constexpr size_t kDigits = 5;
    const std::string text = cat(n);
    return std::string(kDigits - std::min(kDigits, text.size()), '0') + text;
  };
  return cat("model-", digits(number), "-of-", digits(count), ".safetensors");
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

std::vector<HfFile> hf_files(const Model& model, const WeightFormat& format) {
  std::vector<HfFile> files(1);
  for (const Tensor& tensor : model.tensors) {
    for (HfTensor& out : hf_tensors(tensor)) {
      const int64_t bytes = checked_mul(
          elements_of(out.shape), size_of(format.type), "bytes of a tensor");
      const bool full = format.max_file_bytes > 0 &&
                        bytes > format.max_file_bytes - files.back().data_bytes;
      if (full && !files.back().tensors.empty()) files.emplace_back();
      files.back().data_bytes =
          checked_add(files.back().data_bytes, bytes, "bytes of a file");
      files.back().tensors.push_back(
          {std::move(out.name), format.type, std::move(out.shape)});
    }
  }
  for (size_t i = 0; i < files.size(); ++i)
    files[i].name = hf_file_name(i + 1, files.size());
  return files;
}

WeightFiles::WeightFiles(const std::string& folder, const Model& model,
                         const WeightFormat& format)
    : folder_(folder), model_(model), files_(hf_files(model, format)) {
  begin_file();
}

void WeightFiles::begin_file() {
  const HfFile& file = files_[file_];
  written_ = 0;
  writer_ = std::make_unique<SafetensorsWriter>(
      cat(folder_, "/", file.name), file.tensors,
      std::map<std::string, std::string>{{"format", "pt"}});
}

void WeightFiles::add(int32_t tensor, std::span<const float> whole) {
  CANZONA_CHECK(tensor == next_, "tensor ", tensor, " was added, ", next_,
                " is next");
  CANZONA_CHECK(next_ < std::ssize(model_.tensors), "no tensor ", tensor);
  const Tensor& source = model_.tensors[index(next_)];
  CANZONA_CHECK_EQ(whole.size(), source.elements(), "elements of ",
                   source.name);
  ++next_;
  const int64_t cols = source.cols();
  for (const HfTensor& out : hf_tensors(source)) {
    if (written_ == files_[file_].tensors.size()) {
      files_[file_].sha256 = writer_->finish();
      ++file_;
      begin_file();
    }
    for (int64_t i = 0; i < out.rows.count; ++i)
      writer_->add(whole.subspan(index(out.rows.row(i * out.rows.run) * cols),
                                 index(out.rows.run * cols)));
    ++written_;
  }
}

std::string WeightFiles::index_json() const {
  std::map<std::string_view, std::string_view> file_of;
  int64_t bytes = 0;
  for (const HfFile& file : files_) {
    bytes += file.data_bytes;
    for (const TensorEntry& tensor : file.tensors)
      file_of.emplace(tensor.name, file.name);
  }
  JsonWriter out(2);
  out.begin_object().member("metadata").begin_object();
  out.field("total_size", bytes).end_object();
  out.member("weight_map").begin_object();
  for (const auto& [tensor, file] : file_of)
    out.field(std::string(tensor), std::string(file));
  return out.end_object().end_object().take() + "\n";
}

void WeightFiles::finish() {
  files_[file_].sha256 = writer_->finish();
  CANZONA_CHECK(
      next_ == std::ssize(model_.tensors) && file_ + 1 == files_.size(), next_,
      " of ", model_.tensors.size(), " tensors were added");
  if (files_.size() > 1) write_file(cat(folder_, "/", kHfIndex), index_json());
}

}  // namespace canzona
