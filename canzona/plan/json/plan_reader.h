// The pieces of plan_from_json(). A file is untrusted: every number is checked
// against its range, every index against what it points into, and every size
// that a small file could inflate is bounded, so that the result can be
// validated and predicted without a crash and within seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/plan.h"

namespace canzona::plan {

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

// Returns read(); names the file in errors that do not.
template <class Read>
auto naming_file(const std::string& where, const Read& read) {
  try {
    return read();
  } catch (const UsageError& error) {
    if (std::string_view(error.what()).starts_with(where)) throw;
    throw UsageError(cat(where, ": ", error.what()));
  }
}

// Points to the sections of a plan file. Versions 1 and 2 had all members in
// the root, and formats of their own for our own layouts and given storage.
struct PlanSections {
  const Json* request = nullptr;
  const Json* storage = nullptr;
  const Json* decisions = nullptr;
  bool are_former = false;
};
// Throws UsageError unless the file has a plan whose storage `maker` has made,
// in a known version; `former` is its format in versions 1 and 2, `what` the
// words for it.
PlanSections plan_sections(const Json& root, const char* maker,
                           const char* former, const char* what,
                           const std::string& where);

// Reads options, groups, mesh and traffic.
void read_plan_request(const PlanSections& sections, const PlanValues& values,
                       SettledRequest& request);

// Reads the member "model". Checks that its tensors fit the mesh and that the
// parts of a tensor tile its rows.
Model read_plan_model(const Json& model, const Mesh& mesh,
                      const PlanValues& values);

// Reads buffers, buckets, homes, owners and rounds into a part without
// decisions. In former versions owners are planes and not ranks.
void read_plan_decisions(const Json& object, bool is_former,
                         const PlanValues& values, PlanPart& part);
void read_plan_summary(const Json& summary, const PlanValues& values,
                       const PlanOptions& options, PlanSummary& out);

// These fields are the same in plans of our own layouts and of given storage.

// The most ticks of one matrix.
inline constexpr int64_t kMaxTicks = int64_t{1} << 61;

// Reads the member "cost". Rows begin with the number of a group if there are
// `groups` of them.
CostsByShape read_costs(const Json& cost, const PlanValues& values,
                        std::optional<int64_t> groups, CostBasis& basis);
// Throws UsageError if there is none.
const MatrixCost& cost_of(const CostsByShape& costs, int32_t group,
                          MatrixShape shape, const PlanValues& values);
// Reads the members of "predicted" that write_loads() writes.
void read_loads(const Json& summary, const PlanValues& values,
                LoadSummary& out);

// Returns the digest of a plan of a former version: that of the text, less
// white space and the digest itself.
std::string digest_of_former(std::string_view text, const std::string& digest);

// Calls read(root), whose errors about words, tensors and rules do not name the
// file, and compares the result with the digest in the file. `to_json` writes
// such a plan. A plan of a former version gets the digest that it has now.
template <class P, class Read, class ToJson>
PlanOfFile<P> read_checked(std::string_view text, const JsonLimits& limits,
                           const Read& read, const ToJson& to_json) {
  const Json root = parse_json(text, limits);
  return naming_file(limits.what, [&] {
    PlanOfFile<P> out{read(root)};
    if (root["version"] != kPlanVersion) {
      std::string& digest = out.plan.digest;
      out.digest_matches = digest_of_former(text, digest) == digest;
      if (out.digest_matches) digest = digest_of(out.plan);
      return out;
    }
    out.digest_matches = digest_of(out.plan) == out.plan.digest;
    if (out.digest_matches)
      require_canonical(root, text, to_json(out.plan), limits);
    return out;
  });
}

// Returns the number of matrices that split_into_matrices() would make.
int64_t count_matrices(const Model& model, const Splits& splits);

// Throws UsageError for a plan whose predictions would not fit 64-bit counts,
// or would take too much time and memory.
void check_plan_size(const Plan& plan, const PlanValues& values);

}  // namespace canzona::plan
