// Kinds of `canzona bench` with files of their own.
#pragma once

#include "cli/verbs.h"

namespace canzona::cli {

Verb add_bench_decoder(CLI::App& bench);
Verb add_bench_step(CLI::App& bench);

}  // namespace canzona::cli
