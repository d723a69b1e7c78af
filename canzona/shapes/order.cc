#include "canzona/shapes/order.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "canzona/base/text.h"

namespace canzona {
namespace {

// Group and layer in one number.
int64_t place_of(const Tensor& tensor) {
  constexpr int64_t kEmbeddings = -1;
  if (tensor.layer >= 0) return tensor.layer;
  if (tensor.role == Role::kEmbedding) return kEmbeddings;
  return tensor.role == Role::kHead ? kMaxLayers + 1 : kMaxLayers;
}

// How many bytes two texts have in common at their beginning.
size_t common_prefix(std::string_view a, std::string_view b) {
  constexpr size_t kStep = sizeof(uint64_t);
  const size_t size = std::min(a.size(), b.size());
  size_t i = 0;
  while (i + kStep <= size && std::memcmp(&a[i], &b[i], kStep) == 0) i += kStep;
  while (i < size && a[i] == b[i]) ++i;
  return i;
}

// natural_less without walking through what both names have in common, which
// is most of the time of sorting a large model.
bool name_less(std::string_view a, std::string_view b) {
  size_t begin = common_prefix(a, b);
  while (begin > 0 && a[begin - 1] >= '0' && a[begin - 1] <= '9') --begin;
  return natural_less(a.substr(begin), b.substr(begin));
}

// Puts tensors[order[i]] at place i. In place, because a second list of large
// models would be most of the memory.
void permute(std::vector<Tensor>& tensors, std::vector<uint32_t> order) {
  for (uint32_t start = 0; start < order.size(); ++start) {
    if (order[start] == start) continue;
    Tensor first = std::move(tensors[start]);
    uint32_t place = start;
    while (order[place] != start) {
      const uint32_t from = std::exchange(order[place], place);
      tensors[place] = std::move(tensors[from]);
      place = from;
    }
    order[place] = place;
    tensors[place] = std::move(first);
  }
}

}  // namespace

void sort_tensors(std::vector<Tensor>& tensors) {
  std::vector<int64_t> places(tensors.size());
  std::transform(tensors.begin(), tensors.end(), places.begin(), place_of);
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (places[a] != places[b]) return places[a] < places[b];
    return name_less(tensors[a].name, tensors[b].name);
  });
  permute(tensors, std::move(order));
}

}  // namespace canzona
