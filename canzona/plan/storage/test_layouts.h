// Tests share these layouts: who stores what, as torch's DTensors and DDP do
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan {

using Stored = std::vector<std::vector<Box>>;

// Chunk `i` of `n` of a box in one dimension, as torch.chunk cuts: uneven, the
// last ones perhaps empty.
inline Box chunk_of(Box box, size_t dim, int64_t i, int64_t n) {
  const int64_t size = (box.count[dim] + n - 1) / n;
  const int64_t begin = std::min(i * size, box.count[dim]);
  const int64_t end = std::min(begin + size, box.count[dim]);
  box.first[dim] += begin;
  box.count[dim] = end - begin;
  return box;
}

inline Box whole_box(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

// A cut of one dimension over one axis of a mesh of ranks; dim -1 replicates.
struct AxisCut {
  int32_t ranks = 1;
  int32_t dim = -1;
};

// The mesh counts its last axis fastest; axes cut one after the other.
inline Stored stored_by(const std::vector<int64_t>& shape,
                        const std::vector<AxisCut>& axes) {
  int32_t world = 1;
  for (const AxisCut& axis : axes) world *= axis.ranks;
  Stored out;
  for (int32_t rank = 0; rank < world; ++rank) {
    Box box = whole_box(shape);
    int32_t rest = rank, ranks = world;
    for (const AxisCut& axis : axes) {
      ranks /= axis.ranks;
      if (axis.dim >= 0)
        box = chunk_of(box, static_cast<size_t>(axis.dim), rest / ranks,
                       axis.ranks);
      rest %= ranks;
    }
    out.emplace_back();
    if (box.elements() > 0) out.back().push_back(box);
  }
  return out;
}

inline CutTensor storage_tensor(const std::string& name,
                                const std::vector<int64_t>& shape,
                                Stored stored, int32_t group = 0) {
  CutTensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.group = group;
  tensor.stored = std::move(stored);
  return tensor;
}

// Group 0 is the rule's, group 1 AdamW's.
inline StorageRequest storage_request(int32_t world,
                                      std::vector<CutTensor> tensors,
                                      const std::string& rule = "muon") {
  StorageRequest request;
  request.world = world;
  request.groups = {{rule, {}}, {"adamw", {}}};
  request.tensors = std::move(tensors);
  return request;
}

// The ways to lay tensors out over a world; each cuts matrices of two
// dimensions and stacks of three.
inline std::vector<std::vector<AxisCut>> all_layouts(int32_t world,
                                                     int32_t dims) {
  const int32_t rows = dims - 2, cols = dims - 1;
  std::vector<std::vector<AxisCut>> out{
      {{world, -1}}, {{world, 0}}, {{world, rows}}, {{world, cols}}};
  for (int32_t a = 2; a < world; ++a) {
    if (world % a != 0) continue;
    const int32_t b = world / a;
    out.push_back({{a, -1}, {b, 0}});       // HSDP
    out.push_back({{a, 0}, {b, -1}});       // replicas side by side
    out.push_back({{a, rows}, {b, rows}});  // both on one dimension
    out.push_back({{a, 0}, {b, cols}});
    out.push_back({{a, rows}, {b, cols}});
  }
  return out;
}

// Tensors of random shapes, each laid out in one of all ways or, with `layout`,
// in that one.
inline StorageRequest random_storage(Random& random, int32_t world,
                                     int32_t num_tensors) {
  const std::vector<int64_t> sides{1, 2, 3, 5, 7, 8, 13};
  const std::vector<std::string> rules{"muon", "soap", "shampoo"};
  StorageRequest request = storage_request(world, {}, random.pick(rules));
  request.options.share_states = random.coin();
  request.options.capacity_bytes = random.pick<int64_t>({1, 300, 1 << 20});
  request.options.wire = random.pick<DType>({DType::kFp32, DType::kBf16});
  request.options.ranks_per_node = random.small(1, 4);
  const bool one_way = random.coin();
  const uint64_t way = random.next();
  for (int32_t t = 0; t < num_tensors; ++t) {
    std::vector<int64_t> shape{random.pick(sides), random.pick(sides)};
    if (random.between(0, 3) == 0) shape.insert(shape.begin(), 4);
    const auto layouts = all_layouts(world, static_cast<int32_t>(shape.size()));
    const auto& layout =
        layouts[(one_way ? way : random.next()) % layouts.size()];
    CutTensor tensor =
        storage_tensor(cat("t", t), shape, stored_by(shape, layout),
                       random.between(0, 3) == 0 ? 1 : 0);
    const int64_t rows = shape[shape.size() - 2];
    if (tensor.group == 0 && rows > 2 && random.coin())
      tensor.splits = {1, rows - 1};
    request.tensors.push_back(std::move(tensor));
  }
  return request;
}

// A model by name with all its tensors laid out in one way: matrices by the
// rule, all else by AdamW.
inline StorageRequest storage_model(const std::string& name,
                                    const std::vector<AxisCut>& layout,
                                    const std::string& rule = "muon",
                                    const RuleOptions& options = {}) {
  int32_t world = 1;
  for (const AxisCut& axis : layout) world *= axis.ranks;
  StorageRequest request = storage_request(world, {}, rule);
  request.groups[0].options = options;
  Model model = read_model(name, {});
  route(model, {});
  for (const Tensor& tensor : model.tensors)
    request.tensors.push_back(storage_tensor(tensor.name, tensor.shape,
                                             stored_by(tensor.shape, layout),
                                             tensor.matrix_rule ? 0 : 1));
  return request;
}

}  // namespace canzona::plan
