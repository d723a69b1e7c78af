#include "canzona/base/device_kind.h"

#include <algorithm>
#include <array>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr std::array kKinds = {DeviceKind{.name = "cpu"},
                               DeviceKind{.name = "cuda",
                                          .has_own_memory = true,
                                          .multiplies_cheaply = true,
                                          .has_fp16 = true,
                                          .divides_before_rounding = true,
                                          .computes_batches = true,
                                          .num_engines = 2}};

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

const DeviceKind* find_device_kind(std::string_view name) {
  const auto found = std::ranges::find(kKinds, name, &DeviceKind::name);
  return found == kKinds.end() ? nullptr : &*found;
}

const DeviceKind& device_kind(std::string_view name) {
  if (const DeviceKind* kind = find_device_kind(name)) return *kind;
  const std::vector<std::string> names = device_names();
  throw UsageError(cat("device ", quoted(name), ": expected ",
                       join(names, " or "), did_you_mean(name, names)));
}

}  // namespace canzona
