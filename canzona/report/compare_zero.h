// Sizes of hierarchical ZeRO side by side: memory against the cap, bytes by
// link class, predicted iteration, and why one is taken and the others not.
//
//   ZeroComparison all{.model = "qwen3-8b", .mesh = mesh, .rows = …};
//   std::string text = zero_comparison_text(all, ink);
//   std::string json = zero_comparison_json(all);
//   std::string page = zero_comparison_html(all);
//
// Rows come in the order of the choice, the best first. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict.h"
#include "canzona/report/terminal_style.h"
#include "canzona/sim/memory_terms.h"

namespace canzona {

struct ComparedZero {
  ZeroSizes sizes;
  ZeroSizes experts = {};     // of their own; z1 = 0: cut with the dense ones
  std::string strategy = {};  // where several were tried
  bool planned = false;       // false: it cannot be, and `reason` says why
  bool fits = false;          // under the cap
  RankMemory memory = {};     // of the fullest rank
  // The most that any rank sends in an iteration, by link class.
  int64_t fast_bytes = 0;
  int64_t slow_bytes = 0;
  double seconds = 0;       // of an iteration, predicted
  double step_seconds = 0;  // of the optimizer's part of it
  int32_t replicas = 1;
  bool z2_crosses_nodes = false;
  bool z3_crosses_nodes = false;
  std::string reason = {};
};

struct ZeroComparison {
  std::string model;
  Mesh mesh;
  std::string rule;
  std::string strategy;
  std::string parameters;  // "bf16"
  std::string work;   // what an iteration is: "4 micro-batches of 4096 tokens"
  std::string rates;  // where its times come from
  int32_t ranks_per_node = 1;
  int64_t memory_cap_bytes = 0;           // 0: none
  int64_t beside_bytes = 0;               // that a rank needs beside its plan
  std::optional<MemoryTerms> terms = {};  // where memory was counted in such
  std::string verdict;                    // the choice, or the nearest
  std::vector<ComparedZero> rows;

  int64_t total(const ComparedZero& row) const {
    return row.memory.total().value() + beside_bytes;
  }
  // Whether any choice cuts experts by themselves.
  bool has_experts() const;
  bool has_fit() const { return !rows.empty() && rows.front().fits; }
};

std::string zero_comparison_text(const ZeroComparison& all, const Ink& ink);
// Its first table and the verdict alone.
std::string zero_ranking_text(const ZeroComparison& all, const Ink& ink);
void write_zero_comparison(JsonWriter& out, const ZeroComparison& all);
// One object; its members are described in docs/compare.md.
std::string zero_comparison_json(const ZeroComparison& all);
std::string zero_comparison_html(const ZeroComparison& all);

// A kind of memory of a row with its bytes, those that any row has.
struct ZeroMemory {
  std::string name;
  int64_t bytes = 0;
};
std::vector<ZeroMemory> memory_of(const ZeroComparison& all,
                                  const ComparedZero& row);

}  // namespace canzona
