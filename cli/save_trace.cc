#include "cli/save_trace.h"

namespace canzona::cli {

void save_trace(const Output& out, const std::string& path,
                const Trace& trace) {
  out.save(path, trace.json(), "trace");
  const std::string losses = trace.losses();
  if (!losses.empty()) out.note("warning: " + losses);
}

}  // namespace canzona::cli
