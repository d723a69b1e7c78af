// The trace of a run, on its way to a file.
#pragma once

#include <string>

#include "canzona/trace/trace.h"
#include "cli/output.h"

namespace canzona::cli {

// Writes it as Output::save does, and remarks which tracks lack events.
void save_trace(const Output& out, const std::string& path, const Trace& trace);

}  // namespace canzona::cli
