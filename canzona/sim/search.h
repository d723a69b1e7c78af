// The search behind `--zero auto`: every choice of sizes is evaluated, those
// over the memory cap are dropped, the fastest is taken, and each of the others
// gets a reason why not.
//
//   ZeroSearch search = rank_choices(
//       {{{8, 4, 4}, "balanced"}, …}, memory_cap_bytes,
//       [&](const ZeroChoice& choice) { return weigh(choice); });
//   if (search.is_found()) use(search.ranking.front().choice);
//
// Choices whose times are within 1e-9 of each other are ordered by fewer bytes
// over slow links, then less memory, then smaller sizes, then the order of the
// choices. The result is deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/zero.h"

namespace canzona {

struct ZeroChoice {
  ZeroSizes sizes;
  std::string strategy = {};
  ZeroSizes experts = {};  // z1 = 0: on the ranks of the dense tensors
  friend bool operator==(const ZeroChoice&, const ZeroChoice&) = default;
};

// The cost of a choice on the rank where it is highest.
struct ZeroWeight {
  std::string refusal = {};  // not empty: why it is impossible
  int64_t memory_bytes = 0;
  int64_t slow_bytes = 0;  // sent between nodes per iteration
  int64_t fast_bytes = 0;  // likewise inside nodes
  double seconds = 0;      // per iteration
  double step_seconds = 0;
  // Shown beside them: memory of the fullest rank by kind; sizes of experts as
  // planned.
  RankMemory memory = {};
  ZeroSizes experts = {};
  int32_t replicas = 1;
  bool z2_crosses_nodes = false;
  bool z3_crosses_nodes = false;
};

// Times that differ by less than this share count as equal.
inline constexpr double kEqualTimes = 1e-9;

enum class ZeroVerdict { kFits, kOverCap, kRefused };

struct RankedZero {
  ZeroChoice choice;
  ZeroWeight weight = {};
  ZeroVerdict verdict = ZeroVerdict::kFits;
  std::string reason = {};  // why it was taken, or not

  bool fits() const { return verdict == ZeroVerdict::kFits; }
  bool is_planned() const { return verdict != ZeroVerdict::kRefused; }
};

struct ZeroSearch {
  // Choices that fit, best first; then those that do not, closest to the cap
  // first; then those that cannot be planned.
  std::vector<RankedZero> ranking;
  int64_t memory_cap_bytes = 0;  // 0: none

  bool is_found() const { return !ranking.empty() && ranking.front().fits(); }
  // Describes the choice, or the closest one and what it lacks.
  std::string summary() const;
};

ZeroSearch rank_choices(
    const std::vector<ZeroChoice>& choices, int64_t memory_cap_bytes,
    const std::function<ZeroWeight(const ZeroChoice&)>& weigh);

}  // namespace canzona
