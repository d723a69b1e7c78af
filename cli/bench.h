// The kinds of `canzona bench`, and helpers that two of them share.
#pragma once

#include <string>
#include <vector>

#include "canzona/rules/facts.h"
#include "cli/verbs.h"

namespace canzona::cli {

struct BenchArguments {
  std::string what;
  std::string device = "cpu";
  std::string shape;
  int64_t batch = 1;
  std::string algorithm = "all";
  std::string precision;  // empty: not given
  int threads = 1;
  int rounds = 10;
  std::string model;
  std::string rule = "muon";
  int layers = 0;   // 0: all
  int engines = 0;  // 0: the device's default
  bool no_graph = false;
  bool rounded = false;
  std::vector<std::string> options;
  bool json = false;
};

// UsageError names the option.
RuleOptions parse_bench_options(const std::vector<std::string>& given);

// Parse `--compute`: whether forward and backward are products, which a CPU
// does not support (UsageError), or how long they idle.
bool is_of_products(const std::string& compute, const std::string& device);
double parse_compute_seconds(const std::string& compute);

Outcome bench_rule(const BenchArguments& arguments, const Output& out);

Verb add_bench_collectives(CLI::App& bench);
Verb add_bench_step(CLI::App& bench);
Verb add_bench_zero(CLI::App& bench);

}  // namespace canzona::cli
