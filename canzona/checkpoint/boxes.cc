#include "canzona/checkpoint/boxes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/shapes/records.h"

namespace canzona {
using namespace checkpoint;
namespace {

constexpr EnumNames<DType, 9> kNamesInFiles{{{DType::kFp64, "F64"},
                                             {DType::kFp32, "F32"},
                                             {DType::kFp16, "F16"},
                                             {DType::kBf16, "BF16"},
                                             {DType::kI64, "I64"},
                                             {DType::kI32, "I32"},
                                             {DType::kU64, "U64"},
                                             {DType::kU32, "U32"},
                                             {DType::kU8, "U8"}}};

[[noreturn]] void refuse_tensor(const LogicalTensor& tensor,
                                const std::string& where,
                                const std::string& problem) {
  throw UsageError(cat(printable(where), ": tensor ", quoted(tensor.name), " ",
                       shape_text(tensor.shape), ": ", problem));
}

void check_tensor_name(const LogicalTensor& tensor, const std::string& where) {
  const std::string& name = tensor.name;
  const char* problem = nullptr;
  if (name.empty())
    problem = "its name is empty";
  else if (name.size() > size_t{kMaxNameLength})
    problem = "its name is longer than 256 bytes";
  else if (printable(name, name.size()) != name)
    problem = "its name has characters that cannot be printed";
  else if (name.find('#') != std::string::npos || name == "__metadata__")
    problem = "its name is reserved (no '#', not '__metadata__')";
  if (problem != nullptr) refuse_tensor(tensor, where, problem);
}

// The corners of boxes with their signs, i.e. the mixed difference of a box's
// indicator function. A function of finite support is determined by its mixed
// difference, so boxes tile a region exactly if the corners of all boxes cancel
// except for those of the region.
class Corners {
 public:
  explicit Corners(size_t dims) : dims_(dims) {}

  void add(const std::vector<int64_t>& low, const std::vector<int64_t>& high,
           int sign) {
    for (size_t upper = 0; upper < size_t{1} << dims_; ++upper) {
      int corner_sign = sign;
      for (size_t d = 0; d < dims_; ++d) {
        const bool is_upper = (upper >> d & 1) != 0;
        points_.push_back(is_upper ? high[d] : low[d]);
        if (is_upper) corner_sign = -corner_sign;
      }
      signs_.push_back(static_cast<int8_t>(corner_sign));
    }
  }

  // Returns the lexicographically first point that is left, and by how much the
  // element there is covered too often (or, if negative, too rarely): every
  // corner that affects this element comes before it, and all of those cancel.
  std::optional<std::pair<std::vector<int64_t>, int64_t>> first_left() const {
    std::vector<uint32_t> order(signs_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const auto x = point(a);
      const auto y = point(b);
      return std::lexicographical_compare(x.begin(), x.end(), y.begin(),
                                          y.end());
    });
    for (size_t i = 0; i < order.size();) {
      const auto here = point(order[i]);
      int64_t sum = 0;
      for (; i < order.size() && std::ranges::equal(point(order[i]), here); ++i)
        sum += signs_[order[i]];
      if (sum != 0) return {{{here.begin(), here.end()}, sum}};
    }
    return std::nullopt;
  }

 private:
  std::span<const int64_t> point(uint32_t i) const {
    return std::span(points_).subspan(i * dims_, dims_);
  }

  size_t dims_;
  std::vector<int64_t> points_;
  std::vector<int8_t> signs_;
};

// Dimensions that some box does not span.
std::vector<size_t> cut_dims(const LogicalTensor& tensor,
                             const std::vector<Box>& boxes) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    if (std::ranges::any_of(boxes, [&](const Box& box) {
          return box.count[d] != tensor.shape[d];
        }))
      dims.push_back(d);
  return dims;
}

std::string place_text(const std::vector<int64_t>& place) {
  return place.empty() ? "its element" : cat("element ", shape_text(place));
}

[[noreturn]] void refuse_place(const LogicalTensor& tensor,
                               const std::vector<Box>& boxes,
                               const std::vector<int64_t>& place, int64_t over,
                               const std::string& where) {
  if (over < 0)
    refuse_tensor(tensor, where,
                  cat(place_text(place), " is not in any of the ", boxes.size(),
                      " boxes: a hole"));
  std::string holders;
  for (const Box& box : boxes) {
    bool holds = true;
    for (size_t d = 0; d < place.size(); ++d)
      holds = holds && place[d] >= box.first[d] &&
              place[d] < box.first[d] + box.count[d];
    if (!holds) continue;
    holders += (holders.empty() ? "" : " and ") + to_string(box);
    if (holders.size() > 200) break;
  }
  refuse_tensor(tensor, where,
                cat(place_text(place), " is in ", over + 1,
                    " boxes, which overlap: ", holders));
}

}  // namespace

std::string_view name_in_file(DType type) {
  return name_of(kNamesInFiles, type);
}

std::optional<DType> dtype_in_file(std::string_view name) {
  for (const auto& [type, known] : kNamesInFiles)
    if (known == name) return type;
  return std::nullopt;
}

int64_t elements_of(std::span<const int64_t> counts) {
  // A zero makes the product zero, whatever the others are.
  if (std::ranges::find(counts, 0) != counts.end()) return 0;
  int64_t product = 1;
  for (const int64_t count : counts)
    product = checked_mul(product, count, "elements of a tensor");
  return product;
}

int64_t bytes_of(const LogicalTensor& tensor, const Box& box) {
  return checked_mul(elements_of(box.count), size_of(tensor.type),
                     "bytes of a tensor");
}

void check_tensor(const LogicalTensor& tensor, const std::string& where) {
  check_tensor_name(tensor, where);
  if (tensor.shape.size() > size_t{kMaxDims})
    refuse_tensor(tensor, where, cat("more than ", kMaxDims, " dimensions"));
  for (const int64_t dim : tensor.shape)
    if (dim < 0 || dim > kMaxDim)
      refuse_tensor(tensor, where,
                    cat("dimension ", dim, " is not from 0 to ", kMaxDim));
  if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) return;
  int64_t bytes = size_of(tensor.type);
  for (const int64_t dim : tensor.shape)
    if (__builtin_mul_overflow(bytes, dim, &bytes))
      refuse_tensor(tensor, where, "2^63 bytes or more");
}

void check_box(const LogicalTensor& tensor, const Box& box,
               const std::string& where) {
  const size_t dims = tensor.shape.size();
  if (box.first.size() != dims || box.count.size() != dims)
    refuse_tensor(tensor, where,
                  cat("a box has ", box.first.size(), " and ", box.count.size(),
                      " numbers, expected ", dims));
  for (size_t d = 0; d < dims; ++d) {
    const int64_t first = box.first[d];
    const int64_t count = box.count[d];
    if (first < 0 || count < 1 || count > tensor.shape[d] ||
        first > tensor.shape[d] - count)
      refuse_tensor(tensor, where,
                    cat("a box of ", count, " from ", first, " in dimension ",
                        d, " is empty or exceeds the shape"));
  }
}

void check_tiling(const LogicalTensor& tensor, const std::vector<Box>& boxes,
                  const std::string& where) {
  constexpr size_t kMaxCorners = size_t{1} << 20;
  if (elements_of(tensor.shape) == 0) {
    if (boxes.empty()) return;
    refuse_tensor(tensor, where, "it has no elements, but boxes");
  }
  const std::vector<size_t> dims = cut_dims(tensor, boxes);
  if (boxes.size() == 1 && dims.empty()) return;
  if (boxes.size() > kMaxCorners >> dims.size())
    refuse_tensor(tensor, where,
                  cat(boxes.size(), " boxes exceed the limit of ",
                      kMaxCorners >> dims.size()));
  Corners corners(dims.size());
  std::vector<int64_t> low(dims.size());
  std::vector<int64_t> high(dims.size());
  for (const Box& box : boxes) {
    for (size_t i = 0; i < dims.size(); ++i) {
      low[i] = box.first[dims[i]];
      high[i] = low[i] + box.count[dims[i]];
    }
    corners.add(low, high, 1);
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    low[i] = 0;
    high[i] = tensor.shape[dims[i]];
  }
  corners.add(low, high, -1);
  const auto left = corners.first_left();
  if (!left) return;
  std::vector<int64_t> place(tensor.shape.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) place[dims[i]] = left->first[i];
  refuse_place(tensor, boxes, place, left->second, where);
}

SharedRuns::SharedRuns(const Box& source, const Box& target,
                       int64_t element_bytes) {
  const std::optional<Box> shared = intersection(source, target);
  CANZONA_CHECK(shared.has_value(), to_string(source), " and ",
                to_string(target), " share nothing");
  // A run consists of the inner dimensions that both boxes span, and the next
  // outer one.
  size_t outer = shared->count.size();
  bytes_ = element_bytes;
  while (outer > 0) {
    --outer;
    bytes_ *= shared->count[outer];
    if (shared->count[outer] != source.count[outer] ||
        shared->count[outer] != target.count[outer])
      break;
  }
  outer_.assign(shared->count.begin(),
                shared->count.begin() + static_cast<std::ptrdiff_t>(outer));
  count_ = elements_of(outer_);
  source_ = side_of(source, *shared, outer, element_bytes);
  target_ = side_of(target, *shared, outer, element_bytes);
}

SharedRuns::Side SharedRuns::side_of(const Box& box, const Box& shared,
                                     size_t outer, int64_t element_bytes) {
  Side side{0, std::vector<int64_t>(outer)};
  int64_t stride = element_bytes;
  for (size_t d = box.count.size(); d-- > 0; stride *= box.count[d]) {
    side.base += (shared.first[d] - box.first[d]) * stride;
    if (d < outer) side.strides[d] = stride;
  }
  return side;
}

int64_t SharedRuns::offset(int64_t run, const Side& side) const {
  int64_t at = side.base;
  for (size_t d = outer_.size(); d-- > 0; run /= outer_[d])
    at += run % outer_[d] * side.strides[d];
  return at;
}

int64_t SharedRuns::first_behind(int64_t at) const {
  int64_t low = 0;
  int64_t high = count_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (in_source(middle) + bytes_ > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace canzona
