// Runs independent pieces of work on all cores, and shows how many are done.
//
//   EachOf each = on_all_cores("weighing sizes of ZeRO", out);
//   rank_sizes(request, work, choices, &terms, each);
//
// Results do not depend on the number of cores.
#pragma once

#include <string>

#include "canzona/sim/mesh_search.h"
#include "cli/output.h"

namespace canzona::cli {

// `out` must outlive the result. Nothing is shown if `what` is empty. The first
// exception of a piece is thrown when all threads have ended; no further pieces
// are begun then.
EachOf on_all_cores(const std::string& what, const Output& out);

}  // namespace canzona::cli
