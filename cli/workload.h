// What plans are weighed by, as the options say: sizes of ZeRO, the work of an
// iteration and the memory beside a plan.
#pragma once

#include <string>
#include <vector>

#include "canzona/sim/memory_terms.h"
#include "canzona/sim/workload.h"
#include "cli/plan_arguments.h"

namespace canzona::cli {

// "all", or sizes joined by ';' (names by ',' too). UsageError for sizes that
// do not divide.
std::vector<ZeroSizes> read_sizes(const std::string& text, int32_t homes,
                                  const char* option = "--zero");

// What an iteration is, as the options say; nominal where they do not.
Workload read_workload(const PlanArguments& arguments, const Model& model);

// What is counted against the cap of the options.
MemoryTerms read_memory_terms(const PlanArguments& arguments,
                              const Model& model, const Mesh& mesh,
                              const PlanOptions& options);

}  // namespace canzona::cli
