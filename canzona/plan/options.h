// The options of a planning request. In a finished plan every default is filled
// in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "canzona/base/dtype.h"
#include "canzona/plan/zero.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

// The quantity to balance: elements of TP shards, flops of whole matrices, or
// time (from a cost table, else the formula's flops).
enum class Weight { kNumel, kFlops, kCost };
std::string_view to_string(Weight weight);
Weight parse_weight(std::string_view text);

// Parameters, gradients and messages are bf16 or fp32. Throws UsageError, which
// names `what`, for any other word.
DType parse_dtype(std::string_view text, std::string_view what);
void check_dtype(DType dtype, std::string_view what);  // the same of a value
// The form in which the fp32 masters of bf16 parameters are kept: as they are,
// or as the 16 bits that restore them from the parameters
// (base/master_bits.h). The weights have the same bits.
enum class MasterForm { kFp32, kRemainder };
std::string_view to_string(MasterForm form);  // "fp32", "remainder"
MasterForm parse_master_form(std::string_view text);
// Bytes kept beside the parameters to have them in fp32; 0 if they are fp32
// themselves.
int64_t master_bytes_per_element(DType dtype, MasterForm form);

// The links of a cluster, inside a node and between nodes, per rank and
// direction. A message occupies a port at either end for an overhead plus the
// time of its bytes. It arrives one latency later, during which the port is
// free.
struct Links {
  double intra_bytes_per_second = 400e9;
  double inter_bytes_per_second = 50e9;
  double latency_seconds = 10e-6;
  bool nominal = true;  // false: given by the user
  // Latency of messages inside a node; if unset, latency_seconds.
  std::optional<double> intra_latency_seconds = {};

  // The fraction of a latency for which every message occupies a port.
  static constexpr double kOverheadOfLatency = 0.1;

  // `near` selects the links inside a node.
  double bytes_per_second(bool near) const {
    return near ? intra_bytes_per_second : inter_bytes_per_second;
  }
  double latency(bool near) const {
    return near ? intra_latency_seconds.value_or(latency_seconds)
                : latency_seconds;
  }
  double overhead(bool near) const {
    return kOverheadOfLatency * latency(near);
  }
  // Returns how long this many messages occupy a port.
  double port_seconds(bool near, int64_t bytes, int64_t messages = 1) const {
    return static_cast<double>(messages) * overhead(near) +
           static_cast<double>(bytes) / bytes_per_second(near);
  }
  friend bool operator==(const Links&, const Links&) = default;
};
// Parses "intra=400GB/s,inter=50GB/s,latency=10us,intra_latency=2us"; parts
// that are not named keep the value of `usual`.
Links parse_links(std::string_view text, const Links& usual = {});

// The size of the largest team of ranks of a home that share a matrix: 2, 4, 8,
// kTeamsOff for no teams, or kTeamsAuto for the largest that home and rule
// allow (possibly none).
inline constexpr int32_t kTeamsOff = 1;
inline constexpr int32_t kTeamsAuto = 0;
inline constexpr int32_t kLargestTeam = 8;
std::string teams_text(int32_t teams);  // "auto", "off", "4"
int32_t parse_teams(std::string_view text);
// Throws UsageError for a number that parse_teams() does not return.
void check_teams(int32_t teams);
// Throws UsageError if the splits ask for what the rule does not do.
void check_splits(const Splits& splits, std::string_view rule);
// The sizes a team may have.
constexpr bool is_team_size(int64_t size) {
  return size == 2 || size == 4 || size == 8;
}

// Elements at which a bucket closes: the usual number, or, where that makes
// uneven buckets, the smallest multiple by a power of two that avoids them
// (layout/layout.h). A finished plan has the number.
inline constexpr int64_t kAutoBucketElements = -1;
inline constexpr int64_t kUsualBucketElements = 400'000'000;

struct PlanOptions {
  std::string strategy = "balanced";
  std::string micro_groups;  // "": the strategy's own default
  Splits splits;
  int64_t bucket_elements = kAutoBucketElements;
  std::optional<double> alpha;   // [0, 1]; default: the strategy's
  std::optional<Weight> weight;  // default: the strategy's
  int64_t capacity_bytes = int64_t{1600} << 20;  // 0: no grouping
  int64_t memory_cap_bytes = 0;                  // 0: no cap
  Links links;
  int32_t ranks_per_node = 8;
  DType parameters = DType::kBf16;
  MasterForm master = MasterForm::kFp32;
  ZeroOptions zero = {};
  int32_t teams = kTeamsOff;
  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

inline int64_t master_bytes_per_element(const PlanOptions& options) {
  return master_bytes_per_element(options.parameters, options.master);
}

// Returns the largest team that an option allows in a home; 1 means no teams.
int32_t largest_team(int32_t teams, int32_t ranks_of_home);
inline int32_t largest_team(const PlanOptions& options, int32_t ranks_of_home) {
  return largest_team(options.teams, ranks_of_home);
}

// Throws UsageError for values outside their range.
void check_options(const PlanOptions& options);

}  // namespace canzona
