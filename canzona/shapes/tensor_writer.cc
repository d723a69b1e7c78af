#include "canzona/shapes/tensor_writer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"

namespace canzona {
namespace {

void append_number(std::string& text, int64_t number) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  text.append(digits, end);
}

}  // namespace

void TensorWriter::enter(std::string_view prefix) {
  prefix_ = prefix;
  layer_ = -1;
}

void TensorWriter::enter_layer(std::string_view prefix, int64_t layer) {
  prefix_ = prefix;
  append_number(prefix_, layer);
  prefix_ += '.';
  layer_ = static_cast<int32_t>(layer);
}

Tensor& TensorWriter::add(std::string_view suffix,
                          std::initializer_list<int64_t> shape, Role role,
                          Cut cut, std::vector<Part> parts) {
  Tensor& tensor = model_.tensors.emplace_back();
  tensor.name.reserve(prefix_.size() + suffix.size());
  tensor.name.append(prefix_).append(suffix);
  tensor.shape = shape;
  tensor.role = role;
  tensor.cut = cut;
  tensor.layer = layer_;
  tensor.expert = expert_;
  tensor.matrix_rule = role == Role::kMatrix;
  tensor.parts = std::move(parts);
  check_size(tensor);
  return tensor;
}

void TensorWriter::matrix(std::string_view suffix, int64_t rows, int64_t cols,
                          Cut cut, std::vector<Part> parts) {
  add(suffix, {rows, cols}, Role::kMatrix, cut, std::move(parts));
}

void TensorWriter::norm(std::string_view suffix, int64_t size, Cut cut) {
  add(suffix, {size}, Role::kNorm, cut);
}

void TensorWriter::bias(std::string_view suffix, int64_t size, Cut cut,
                        std::vector<Part> parts) {
  add(suffix, {size}, Role::kBias, cut, std::move(parts));
}

TensorWriter::Folder::Folder(TensorWriter& out, std::string_view name)
    : out_(out), length_(out.prefix_.size()) {
  out.prefix_ += name;
}

TensorWriter::Folder::Folder(TensorWriter& out, int64_t number)
    : out_(out), length_(out.prefix_.size()) {
  append_number(out.prefix_, number);
}

void TensorWriter::check_size(const Tensor& tensor) const {
  if (std::max(tensor.rows(), tensor.cols()) > kMaxDim) {
    throw UsageError(cat("model ", quoted(model_.name), ": tensor ",
                         quoted(tensor.name), " would be ", tensor.rows(),
                         " x ", tensor.cols(), ", a side is at most 2^40"));
  }
  checked_mul(tensor.rows(), tensor.cols(), tensor.name.c_str());
}

}  // namespace canzona
