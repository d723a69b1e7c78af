#include "canzona/comm/traffic.h"

#include <iomanip>
#include <sstream>

namespace canzona {

std::string traffic_table(const TrafficLog& traffic, std::string_view group) {
  std::ostringstream out;
  for (int i = 0; i < kNumOperations; ++i) {
    const auto operation = static_cast<Operation>(i);
    const TrafficLog::Row& row = traffic.of(operation);
    if (row.calls == 0) continue;
    out << std::left << std::setw(12) << group << ' ' << std::setw(16)
        << to_string(operation) << std::right << ' ' << std::setw(10)
        << row.calls << ' ' << std::setw(16) << row.sent << ' ' << std::setw(16)
        << row.sent_slow << '\n';
  }
  return out.str();
}

}  // namespace canzona
