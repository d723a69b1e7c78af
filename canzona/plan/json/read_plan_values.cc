#include <algorithm>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/read_plan_parts.h"

namespace canzona {

void PlanValues::fail(const std::string& what) const {
  throw UsageError(cat(where_, ": ", what));
}

int64_t PlanValues::integer(const Json& value, int64_t low, int64_t high,
                            const char* what) const {
  if (!value.is_number_integer()) fail(cat(what, ": expected an integer"));
  // Above 2^63 a number is unsigned and would wrap round.
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  const bool huge =
      value.is_number_unsigned() && value.get<uint64_t>() > kLargest;
  const int64_t v = huge ? INT64_MAX : value.get<int64_t>();
  if (huge || v < low || v > high) {
    fail(cat(what, ": ", value.dump(), " is not in ", low, "..", high));
  }
  return v;
}

int32_t PlanValues::index(const Json& value, int64_t low, int64_t high,
                          const char* what) const {
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(
      integer(value, low, std::min(high, kLargest), what));
}

double PlanValues::positive(const Json& object, const char* key) const {
  const double number = get_number(object, key, where_);
  if (!(number > 0)) fail(cat(key, ": expected more than 0"));
  return number;
}

std::string PlanValues::text(const Json& value, const char* what) const {
  if (!value.is_string()) fail(cat(what, ": expected a text"));
  return value.get<std::string>();
}

bool PlanValues::truth(const Json& value, const char* what) const {
  if (!value.is_boolean()) fail(cat(what, ": expected true or false"));
  return value.get<bool>();
}

const Json& PlanValues::array(const Json& value, const char* what) const {
  if (!value.is_array()) fail(cat(what, ": expected an array"));
  return value;
}

const Json& PlanValues::row(const Json& value, size_t size,
                            const char* what) const {
  if (!value.is_array() || value.size() != size) {
    fail(cat(what, ": expected an array of ", size, " values"));
  }
  return value;
}

std::vector<int64_t> PlanValues::integers(const Json& value, int64_t low,
                                          int64_t high,
                                          const char* what) const {
  std::vector<int64_t> out;
  out.reserve(array(value, what).size());
  for (const Json& v : value) out.push_back(integer(v, low, high, what));
  return out;
}

std::vector<int32_t> PlanValues::indices(const Json& value, int64_t low,
                                         int64_t high, const char* what) const {
  std::vector<int32_t> out;
  out.reserve(array(value, what).size());
  for (const Json& v : value) out.push_back(index(v, low, high, what));
  return out;
}

}  // namespace canzona
