// A checkpoint stores logical tensors as boxes.
//
// A logical tensor is a name, a type and a global shape. A box is a block of
// it: in every dimension, `count` elements from `first` on. The saved boxes of
// a tensor cover each of its elements exactly once; the tensor does not depend
// on which rank saved which box.
//
//   LogicalTensor w{"model/w", DType::kFp32, {4, 6}};
//   check_tiling(w, {{{0, 0}, {2, 6}}, {{2, 0}, {2, 6}}}, "a manifest");
//
// The bytes of a box are its elements, row-major, little endian. These are
// plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/box.h"
#include "canzona/base/dtype.h"

namespace canzona {

// As safetensors names them: F32, BF16, F16, F64, I64, I32, U64, U32, U8.
std::string_view name_in_file(DType type);
// Returns nothing for an unknown name.
std::optional<DType> dtype_in_file(std::string_view name);

struct LogicalTensor {
  std::string name;
  DType type = DType::kFp32;
  std::vector<int64_t> shape;  // empty: a scalar
  friend bool operator==(const LogicalTensor&, const LogicalTensor&) = default;
};

// Returns the product, checked for overflow.
int64_t elements_of(std::span<const int64_t> counts);
int64_t bytes_of(const LogicalTensor& tensor, const Box& box);

// Throws UsageError unless the name is 1 to 256 bytes of printable UTF-8
// without '#', the shape has at most 8 dimensions from 0 to 2^40, and the
// tensor less than 2^63 bytes. Messages name `where`.
void check_tensor(const LogicalTensor& tensor, const std::string& where);
// Throws UsageError unless the box has the tensor's number of dimensions, is
// not empty and lies inside the tensor.
void check_box(const LogicalTensor& tensor, const Box& box,
               const std::string& where);
// Throws UsageError unless the boxes, each of which must pass check_box(),
// cover every element exactly once; it names an element that is missing, or two
// boxes that overlap. A tensor without elements has no boxes. Allows at most
// 2^20 corners: the number of boxes times two for each dimension that is cut.
void check_tiling(const LogicalTensor& tensor, const std::vector<Box>& boxes,
                  const std::string& where);

// The intersection of two boxes, as runs of bytes that are contiguous in both.
// Runs are numbered in the order of either box, which is the same.
class SharedRuns {
 public:
  // Requires boxes that intersect.
  SharedRuns(const Box& source, const Box& target, int64_t element_bytes);

  int64_t count() const { return count_; }
  int64_t bytes() const { return bytes_; }  // of each
  // Byte offsets inside the boxes; 0 ≤ run < count().
  int64_t in_source(int64_t run) const { return offset(run, source_); }
  int64_t in_target(int64_t run) const { return offset(run, target_); }
  // The first run that ends after byte `at` of the source; count() if none
  // does.
  int64_t first_behind(int64_t at) const;

 private:
  struct Side {
    int64_t base = 0;
    std::vector<int64_t> strides;  // in bytes, of the outer dimensions
  };
  static Side side_of(const Box& box, const Box& shared, size_t outer,
                      int64_t element_bytes);
  int64_t offset(int64_t run, const Side& side) const;

  std::vector<int64_t> outer_;  // counts of the outer dimensions
  Side source_;
  Side target_;
  int64_t count_ = 1;
  int64_t bytes_ = 0;
};

}  // namespace canzona
