// A table of measured costs, which replaces flop counts in planning. Schema and
// example: docs/cost_table.md.
//
//   CostTable table = CostTable::parse(read_file(path, …), path);
//   auto seconds = table.seconds(*rule, {5120, 25600}, /*refresh=*/false);
//   if (!seconds) …   // nothing measured for this rule and algorithm
//
// Only + - * / on doubles are used, so the same table gives the same costs on
// every machine. Immutable; may be read from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/units.h"
#include "canzona/rules/facts.h"

namespace canzona {

// Seconds of one matrix as a function of its shape and flops.
class CostCurve {
 public:
  struct Sample {
    MatrixShape shape;
    Flops flops;         // more than zero
    double seconds = 0;  // of one matrix
  };

  CostCurve() = default;
  // Samples come in any order; no shape occurs twice.
  explicit CostCurve(std::vector<Sample> samples);

  bool empty() const { return samples_.empty(); }
  const std::vector<Sample>& samples() const { return samples_; }

  // A measured shape, or its transpose, costs what was measured. Any other
  // shape runs at a rate (seconds per flop) interpolated linearly in flops
  // between the neighbouring samples; beyond the first and last sample their
  // rates hold. Requires a non-empty curve.
  double seconds(MatrixShape shape, Flops flops) const;

 private:
  struct Point {
    Flops flops;
    double rate;  // seconds per flop
  };

  const Sample* find(MatrixShape shape) const;
  double rate(Flops flops) const;

  std::vector<Sample> samples_;  // by shape
  std::vector<Point> points_;    // by flops, each once
};

// Measurements of one rule and one of its algorithms.
struct CostMeasurement {
  std::string rule;
  std::string algorithm;
  bool needs_whole_matrix = true;
  int64_t optional_bytes = 0;  // per element, of its options
  CostCurve every_step;
  CostCurve refresh;
};

class CostTable {
 public:
  // The UsageError names `where`, the place and what was expected.
  static CostTable parse(std::string_view json, const std::string& where);

  const std::string& device() const { return device_; }
  const std::string& kind() const { return kind_; }  // "cpu" or "cuda"
  const std::string& precision() const { return precision_; }
  const std::string& date() const { return date_; }  // "2025-03-31"
  // The rate of memory-bound kernels; nullopt if not measured.
  std::optional<double> element_wise_bytes_per_second() const {
    return element_wise_bytes_per_second_;
  }
  // Sorted by rule and algorithm.
  const std::vector<CostMeasurement>& measurements() const {
    return measurements_;
  }

  // Returns the cost of a step, or of a refresh on top of it, for one matrix;
  // nullopt if nothing was measured for the algorithm that the rule runs on
  // this shape. Passes of options that were not measured are added at the rate
  // of memory-bound kernels. Far beyond the measured sizes the result may not
  // fit an integer: check before converting.
  std::optional<double> seconds(const RuleFacts& rule, MatrixShape shape,
                                bool refresh) const;

  // Returns total seconds over total flops of all measurements that need whole
  // matrices, for rules and algorithms that were not measured; nullopt if there
  // are none.
  std::optional<double> mean_seconds_per_flop(bool refresh) const;

 private:
  std::string device_;
  std::string kind_;
  std::string precision_;
  std::string date_;
  std::optional<double> element_wise_bytes_per_second_;
  std::vector<CostMeasurement> measurements_;
};

}  // namespace canzona
