// What `canzona bench zero` is asked.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "canzona/plan/zero.h"
#include "canzona/train/config.h"

namespace canzona::cli {

struct ZeroArguments {
  std::string preset = "tiny";
  std::string mesh;
  std::string rule = "muon";
  std::string strategy;
  std::vector<std::string> set;
  std::vector<std::string> rule_options;
  std::vector<std::string> zero;
  std::string zero_experts;
  std::vector<std::string> overlap;
  std::string message = "module";
  std::string prefetch = "auto";
  std::string replica_sum = "scatter";
  std::string collectives = "direct";
  std::string link;
  std::string comm_ratio;
  std::string tokens;
  std::string limit;
  std::string deadline;
  std::string trace;
  int ranks_per_node = 0;
  int micro_batches = 1;
  int steps = 3;
  int warmup = 1;
  int repeats = 5;
  bool json = false;
};

// `arguments` outlives the app.
void add_zero_arguments(CLI::App& app, ZeroArguments& arguments);

// UsageError names the option.
void check_arguments(const ZeroArguments& arguments);
std::vector<ZeroSizes> zero_sizes(const ZeroArguments& arguments,
                                  int32_t homes);
std::vector<Overlap> zero_overlaps(const ZeroArguments& arguments);

// A batch of --micro-batches on every data-parallel rank, of --tokens each if
// that is given, else of the preset's batch.micro.
TrainConfig zero_config(const ZeroArguments& arguments);

}  // namespace canzona::cli
