// The kinds of `canzona bench`, and helpers that two of them share.
#pragma once

#include <string>

#include "cli/verbs.h"

namespace canzona::cli {

// Parse `--compute`: whether forward and backward are products, which a CPU
// does not support (UsageError), or how long they idle.
bool is_of_products(const std::string& compute, const std::string& device);
double parse_compute_seconds(const std::string& compute);

Verb add_bench_step(CLI::App& bench);
Verb add_bench_zero(CLI::App& bench);

}  // namespace canzona::cli
