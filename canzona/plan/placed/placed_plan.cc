#include "canzona/plan/placed/placed_plan.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

int64_t Box::elements() const {
  int64_t product = 1;
  for (const int64_t side : count) product *= side;
  return product;
}

std::string list_text(const std::vector<int64_t>& numbers) {
  std::vector<std::string> words;
  words.reserve(numbers.size());
  for (const int64_t number : numbers) words.push_back(cat(number));
  return cat("[", join(words, ", "), "]");
}

std::string to_string(const Box& box) {
  return cat(list_text(box.first), " + ", list_text(box.count));
}

int64_t bytes_per_element(WireDtype wire) {
  return wire == WireDtype::kFp32 ? 4 : 2;
}

std::vector<std::unique_ptr<RuleFacts>> group_facts(
    const std::vector<PlacedGroup>& groups) {
  std::vector<std::unique_ptr<RuleFacts>> facts;
  for (size_t g = 0; g < groups.size(); ++g) {
    try {
      facts.push_back(make_rule_facts(groups[g].rule, groups[g].options));
    } catch (const UsageError& error) {
      throw UsageError(cat("group ", g, ": ", error.what()));
    }
  }
  return facts;
}

int64_t whole_elements(const PlacedTensor& tensor) {
  return Box{{}, tensor.shape}.elements();
}

int64_t stack_of(const PlacedTensor& tensor) {
  int64_t product = 1;
  for (size_t d = 0; d + 2 < tensor.shape.size(); ++d)
    product *= tensor.shape[d];
  return product;
}

std::string placed_matrix_name(const PlacedTensor& tensor,
                               const PlacedMatrix& matrix) {
  std::string name = tensor.name;
  if (stack_of(tensor) > 1) name += cat("[", matrix.number, "]");
  if (tensor.splits.size() < 2) return name;
  int64_t row = 0;
  size_t split = 0;
  while (row < matrix.first_row) row += tensor.splits[split++];
  return cat(name, ":", split);
}

int64_t common_elements(const PlacedTensor& tensor, const PlacedMatrix& matrix,
                        const Box& box) {
  const size_t dims = tensor.shape.size();
  int64_t rest = matrix.number;
  for (size_t d = dims - 2; d-- > 0;) {
    const int64_t at = rest % tensor.shape[d];
    rest /= tensor.shape[d];
    if (at < box.first[d] || at >= box.first[d] + box.count[d]) return 0;
  }
  const int64_t first = std::max(box.first[dims - 2], matrix.first_row);
  const int64_t end = std::min(box.first[dims - 2] + box.count[dims - 2],
                               matrix.first_row + matrix.rows);
  return std::max<int64_t>(end - first, 0) * box.count[dims - 1];
}

}  // namespace canzona
