// The pieces of plan_from_json(). A file is untrusted: every number is checked
// against its range, every index against what it points into, and every size
// that a small file could inflate is bounded, so that the result can be
// validated and predicted without a crash and within seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan.h"

namespace canzona {

// Limits of times, in seconds, and of rates, in bytes per second: those of the
// command line, and what can follow from them.
inline constexpr double kMostSecondsPerTick = 1;
inline constexpr double kMostLatency = 1e9;
inline constexpr double kMostPredictedSeconds = 1e24;
inline constexpr double kLeastRate = 1;
inline constexpr double kMostRate = kMostBandwidth;

// Checked values of one file. The UsageError names the file and the value.
class PlanValues {
 public:
  explicit PlanValues(std::string where) : where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  [[noreturn]] void fail(const std::string& what) const;

  int64_t integer(const Json& value, int64_t low, int64_t high,
                  const char* what) const;
  int32_t index(const Json& value, int64_t low, int64_t high,
                const char* what) const;
  // Return a member of `object`, which must be within these limits.
  double positive(const Json& object, const char* key, double most) const;
  double number(const Json& object, const char* key, double least,
                double most) const;
  std::string text(const Json& value, const char* what) const;
  bool truth(const Json& value, const char* what) const;
  const Json& array(const Json& value, const char* what) const;
  const Json& row(const Json& value, size_t size, const char* what) const;
  std::vector<int64_t> integers(const Json& value, int64_t low, int64_t high,
                                const char* what) const;
  std::vector<int32_t> indices(const Json& value, int64_t low, int64_t high,
                               const char* what) const;
  Links links(const Json& value) const;

 private:
  std::string where_;
};

// Reads the members "mesh", "rule", "options" and "traffic".
void read_plan_request(const Json& root, const PlanValues& values,
                       SettledRequest& request);

// Reads the member "model". Checks that its tensors fit the mesh and that the
// parts of a tensor tile its rows.
Model read_plan_model(const Json& model, const Mesh& mesh,
                      const PlanValues& values);

// Reads the members "predicted", "buffers", "buckets", "home", "owners" and
// "micro_group" into a part without decisions.
void read_plan_decisions(const Json& object, const PlanValues& values,
                         PlanPart& part);
void read_plan_summary(const Json& summary, const PlanValues& values,
                       const PlanOptions& options, PlanSummary& out);

// Returns the number of matrices that split_into_matrices() would make.
int64_t count_matrices(const Model& model, const Splits& splits);

// Throws UsageError for a plan whose predictions would not fit 64-bit counts,
// or would take too much time and memory.
void check_plan_size(const Plan& plan, const PlanValues& values);

}  // namespace canzona
