// Explains a rank and a matrix of a plan of given storage.
#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/storage/storage_basis.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/report/storage_view.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {
namespace {

constexpr size_t kMostOwned = 24;
constexpr size_t kMostActions = 60;
constexpr size_t kMostHolders = 16;

std::string storage_name(const StoragePlan& plan, size_t matrix) {
  const OwnedMatrix& m = plan.matrices[matrix];
  return matrix_name(plan.tensors[index(m.tensor)], m);
}

// Returns the matrices of a rank, the most expensive first.
std::vector<size_t> storage_owned(const StoragePlan& plan,
                                  const StorageFigures& figures, int32_t rank) {
  std::vector<size_t> owned;
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    if (std::ranges::count(plan.matrices[m].owners(), rank) > 0)
      owned.push_back(m);
  std::stable_sort(owned.begin(), owned.end(), [&](size_t a, size_t b) {
    return figures.work[a] > figures.work[b];
  });
  return owned;
}

// Returns the number of elements that a rank stores of all tensors.
int64_t stored_on(const StoragePlan& plan, int32_t rank) {
  int64_t sum = 0;
  for (const CutTensor& tensor : plan.tensors)
    for (const Box& box : tensor.stored[index(rank)]) sum += box.elements();
  return sum;
}

void add_heading(const StoragePlan& plan, const StorageFigures& figures,
                 int32_t rank, Document& out) {
  const double load = figures.loads[index(rank)];
  const double mean = plan.summary.mean;
  const int64_t stored = stored_on(plan, rank);
  const int32_t node = rank / plan.options.ranks_per_node;
  out.heading(cat("Rank ", rank), cat(" of ", plan.world, ", node ", node));
  out.text(cat(
      "  stores      ", human_count(static_cast<double>(stored)),
      " elements of ", counted(std::ssize(plan.tensors), "tensor"),
      "\n  load        ", ratio_text(mean > 0 ? load / mean : 0), " × mean, ",
      cost_text(plan.cost_basis, load / static_cast<double>(figures.period)),
      " predicted per step\n  step        ",
      human_seconds(figures.ranks[index(rank)].step_seconds_mean),
      " with what it exchanges, predicted\n"));
  out.set("rank", rank).set("node", node).set("stored_elements", stored);
  out.set("load", load).set("mean_load", mean).set("period", figures.period);
  out.set("step_seconds", figures.ranks[index(rank)].step_seconds_mean);
}

void add_bytes(const RankCost& rank, Document& out) {
  Listing rows;
  add_rank_wire(rank, rows);
  out.title("Bytes per step").table("", rows, "none");
  out.set("bytes", wire_value(rank));
}

// Returns with whom an entry moves data.
std::string moved_with(const RankSchedule& schedule,
                       const ScheduleEntry& entry) {
  if (entry.ranks_of < 0) return "";
  const auto& group = schedule.groups[index(entry.ranks_of)];
  if (entry.root < 0) return few_ranks_text(group);
  return entry.root == schedule.rank ? "to " + few_ranks_text(group)
                                     : fmt::format("from rank {}", entry.root);
}

void add_actions(const StoragePlan& plan, int32_t rank, Document& out) {
  out.title("A step");
  add_order_table("~<>>>", kStorageOrderColumns, storage_order(plan, rank),
                  out);
  const RankSchedule schedule = shown_schedule(plan, rank);
  out.set("groups", schedule.groups);
  out.set("slot_bytes", schedule.slot_elements * size_of(plan.options.wire));
  out.set("room_bytes", schedule.room_bytes);
  Listing step;
  for (const ScheduleEntry& action : schedule.actions) {
    Row& row = step.add().set("operation", kind_text(action));
    row.set("label", action.label);
    if (action.kind == EntryKind::kWait) row.set("for", action.after[0]);
    if (action.ranks_of >= 0) {
      row.set("group", action.ranks_of).set("sent", action.bytes.sent());
      row.set("received", action.bytes.received());
      if (action.root >= 0) row.set("root", action.root);
    }
    std::vector<std::string> tensors;
    for (const int32_t t : action.tensors)
      tensors.push_back(plan.tensors[index(t)].name);
    row.set("tensors", tensors);
  }
  out.table("step", step);
}

// Returns the matrices that a name stands for.
std::vector<size_t> storage_matrices_named(const StoragePlan& plan,
                                           const std::string& name) {
  std::vector<size_t> found;
  std::vector<std::string> known;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const std::string& tensor =
        plan.tensors[index(plan.matrices[m].tensor)].name;
    if (tensor == name || storage_name(plan, m) == name) found.push_back(m);
    if (known.empty() || known.back() != tensor) known.push_back(tensor);
  }
  if (!found.empty()) return found;
  for (const CutTensor& tensor : plan.tensors)
    if (tensor.name == name)
      throw UsageError(
          cat("matrix ", quoted(name), ": rule ",
              plan.groups[index(tensor.group)].rule,
              " updates it element by element where it is stored"));
  throw UsageError(cat("matrix ", quoted(name), ": no such matrix",
                       did_you_mean(name, known)));
}

Document matrix_view(const StoragePlan& plan, const StorageFigures& figures,
                     const StorageBasis& basis, size_t matrix) {
  const OwnedMatrix& m = plan.matrices[matrix];
  const int32_t c = plan.class_of[index(m.tensor)];
  const double mean = plan.summary.mean;
  const double load = figures.loads[index(m.owner)];
  const std::string name = storage_name(plan, matrix);
  Document out;
  out.heading(printable(name), ", " + dims_text({m.rows, m.cols}));
  out.text(cat("  owner       ", owners_text(m), ", of ",
               basis.holders()[matrix].size(), " that store a piece\n",
               "  load        ", ratio_text(mean > 0 ? load / mean : 0),
               " × mean on that rank, ",
               ratio_text(mean > 0 ? figures.work[matrix] / mean : 0),
               " of it from this matrix\n"));
  Listing holders(kMostHolders);
  for (const Holder& holder : basis.holders()[matrix])
    holders.add({{"rank", ">rank", holder.rank},
                 {"elements", ">elements of it", as_count(holder.elements)}});
  if (m.round < 0) {
    out.text("  exchange    none: its owner stores all of it\n");
    out.set("stored", holders.value());
  } else {
    out.text(
        cat("  exchange    round ", m.round, " of class ", c, ", over ",
            few_ranks_text(
                plan.classes[index(c)].lines[index(basis.line_of(matrix))]),
            "\n"));
    out.table("stored", holders);
  }
  out.set("name", name).set("rows", m.rows).set("cols", m.cols);
  out.set("owner", m.owner).set("round", m.round).set("class", c);
  if (!m.team.empty()) out.set("team", m.team);
  out.set("load", figures.work[matrix]);
  return out.set("owner_load", load).set("mean_load", mean);
}

}  // namespace

RankSchedule shown_schedule(const StoragePlan& plan, int32_t rank) {
  return make_storage_schedule(plan, rank, int64_t{1} << 30);
}

StorageOrder storage_order(const StoragePlan& plan, int32_t rank) {
  const RankSchedule schedule = shown_schedule(plan, rank);
  StorageOrder out;
  for (const ScheduleEntry& action : schedule.actions) {
    if (out.rows.size() == kMostActions) {
      ++out.left_out;
      continue;
    }
    const bool moves = action.ranks_of >= 0;
    out.rows.push_back(
        {action.label, moved_with(schedule, action),
         moves ? human_bytes(action.bytes.sent()) : "",
         moves ? human_bytes(action.bytes.received()) : "",
         action.tensors.empty() ? "" : grouped(std::ssize(action.tensors))});
  }
  return out;
}

Document explain_storage_rank(const StoragePlan& plan, int32_t rank) {
  const StorageFigures figures(plan);
  Document out;
  add_heading(plan, figures, rank, out);
  const std::vector<size_t> owned = storage_owned(plan, figures, rank);
  Listing matrices(kMostOwned);
  for (const size_t m : owned) add_matrix_row(plan, figures, m, matrices);
  out.title(cat("Computes ", counted(std::ssize(owned), "matrix")));
  out.table("matrices", matrices);
  add_bytes(figures.ranks[index(rank)], out);
  add_storage_memory("Memory", storage_memory(plan, shown_schedule(plan, rank)),
                     out);
  add_actions(plan, rank, out);
  return out;
}

Document explain_storage_matrix(const StoragePlan& plan,
                                const std::string& name) {
  const StorageFigures figures(plan);
  const StorageBasis basis(plan);
  Document out;
  std::vector<Value> matrices;
  for (const size_t m : storage_matrices_named(plan, name)) {
    const Document one = matrix_view(plan, figures, basis, m);
    out.text(matrices.empty() ? "" : "\n").add_text(one);
    matrices.push_back(one.value());
  }
  return out.set("", matrices);
}

}  // namespace canzona::report
