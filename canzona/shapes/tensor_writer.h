// Appends the tensors of a described model, under a prefix that is entered and
// left like a folder.
//
//   TensorWriter out(model);
//   out.enter_layer("model.layers.", 3);
//   const TensorWriter::Folder folder(out, "mlp.");
//   out.matrix("up_proj.weight", 3072, 1024, Cut::kRows);
//
// UsageError names a tensor that is too large. The model must outlive it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/shapes/tensor.h"

namespace canzona {

class TensorWriter {
 public:
  explicit TensorWriter(Model& model) : model_(model) {}

  // Names to come begin with `prefix`, and lie outside the layers.
  void enter(std::string_view prefix);
  // … begin with `prefix`, the layer's number and a dot.
  void enter_layer(std::string_view prefix, int64_t layer);
  void set_expert(int64_t expert) { expert_ = static_cast<int32_t>(expert); }

  Tensor& add(std::string_view suffix, std::initializer_list<int64_t> shape,
              Role role, Cut cut, std::vector<Part> parts = {});
  void matrix(std::string_view suffix, int64_t rows, int64_t cols, Cut cut,
              std::vector<Part> parts = {});
  void norm(std::string_view suffix, int64_t size, Cut cut = Cut::kNone);
  void bias(std::string_view suffix, int64_t size, Cut cut,
            std::vector<Part> parts = {});

  // Appends to the prefix as long as it lives.
  class Folder {
   public:
    Folder(TensorWriter& out, std::string_view name);
    Folder(TensorWriter& out, int64_t number);
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { out_.prefix_.resize(length_); }

   private:
    TensorWriter& out_;
    size_t length_;
  };

 private:
  void check_size(const Tensor& tensor) const;

  Model& model_;
  std::string prefix_;
  int32_t layer_ = -1;
  int32_t expert_ = -1;
};

}  // namespace canzona
