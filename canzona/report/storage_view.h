// Plans of given storage (plan/storage/).
//
//   std::cout << print_text(storage_view(plan), ink);
//   std::cout << to_json(explain_storage_rank(plan, 3));
//   write_file("plan.html", storage_html(plan));
//
// Text and JSON say the same; JSON leaves nothing out. Pure; any thread may
// call.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/storage/storage_basis.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/report/document.h"

namespace canzona::report {

// Figures that every view needs, computed once.
struct StorageFigures {
  explicit StorageFigures(const StoragePlan& plan);

  std::vector<double> loads;  // by rank: ticks over a period
  std::vector<double> work;   // by matrix: the same
  int64_t period = 1;
  // By rank: what it moves in a step, and its predicted seconds.
  std::vector<RankCost> ranks;

  double makespan_over_bound = 1;
  double makespan_over_mean = 1;
};

// The plan as a whole.
Document storage_view(const StoragePlan& plan);

// Describes what a rank owns and sends, and its step in order.
Document explain_storage_rank(const StoragePlan& plan, int32_t rank);

// Describes who stores, owns and exchanges a matrix. `name` names a matrix, or
// a tensor with all its matrices; if unknown, UsageError names the nearest.
Document explain_storage_matrix(const StoragePlan& plan,
                                const std::string& name);

// Adds a matrix to a table: its rule, who computes it and when, size and cost.
void add_matrix_row(const StoragePlan& plan, const StorageFigures& figures,
                    size_t matrix, Listing& rows);

// Lists every tensor: its rule, how it is split, which rank computes it, its
// size and its cost.
Document storage_audit(const StoragePlan& plan);

// Returns the page that draws storage_view (page.h).
std::string storage_html(const StoragePlan& plan);

// "muon (197 tensors), adamw (114 tensors)".
std::string storage_rules_text(const StoragePlan& plan);
// "ranks 0 to 3"; "64 ranks: 0, 8 … 504" where that would be long.
std::string few_ranks_text(const std::vector<int32_t>& ranks);
// The step of a rank, in order, as rows of a table.
inline constexpr std::array<const char*, 5> kStorageOrderColumns = {
    "in order", "with", "sent", "received", "tensors"};
struct StorageOrder {
  std::vector<std::array<std::string, kStorageOrderColumns.size()>> rows;
  size_t left_out = 0;  // rows of a long step that are not shown
};
StorageOrder storage_order(const StoragePlan& plan, int32_t rank);

RankMemory storage_memory(const StoragePlan& plan,
                          const RankSchedule& schedule);
// Adds it as a table, and to the JSON.
void add_storage_memory(const char* title, const RankMemory& memory,
                        Document& out);
// Shows one batch per shape: the views do not know the engine's batch width.
RankSchedule shown_schedule(const StoragePlan& plan, int32_t rank);

// "rank 3"; "ranks 3, 0, 1, 2"; "blocks of 4 ranks".
std::string owners_text(const OwnedMatrix& matrix);

}  // namespace canzona::report
