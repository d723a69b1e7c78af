// Any bytes are a cost table or a UsageError, and what a table says of any
// matrix is a time.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/plan/cost/cost_table.h"

namespace {

using canzona::CostTable;
using canzona::MatrixShape;

void require_time(std::optional<double> seconds) {
  if (seconds && !(std::isfinite(*seconds) && *seconds >= 0)) std::abort();
}

void ask(const CostTable& table) {
  for (const canzona::RuleEntry& rule : canzona::rule_table()) {
    const auto facts = rule.make({});
    for (MatrixShape shape :
         {MatrixShape{0, 5}, MatrixShape{1, 1}, MatrixShape{64, 64},
          MatrixShape{768, 2048}, MatrixShape{25600, 5120}}) {
      require_time(table.seconds(*facts, shape, false));
      require_time(table.seconds(*facts, shape, true));
    }
  }
  require_time(table.mean_seconds_per_flop(false));
  require_time(table.mean_seconds_per_flop(true));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    ask(CostTable::parse(text, "fuzz"));
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
