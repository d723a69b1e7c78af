// `canzona bench step`, a kind of `canzona bench`.
#pragma once

#include "cli/verbs.h"

namespace canzona::cli {

Verb add_bench_step(CLI::App& bench);

}  // namespace canzona::cli
