// Explains a rank and a matrix of a plan of given storage.
#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/placed/placed_basis.h"
#include "canzona/plan/placed/placed_schedule.h"
#include "canzona/report/placed_view.h"
#include "canzona/report/shown_plan.h"

namespace canzona {
namespace {

constexpr size_t kMostOwned = 24;
constexpr size_t kMostActions = 60;
constexpr size_t kMostHolders = 16;

std::string placed_name(const PlacedPlan& plan, size_t matrix) {
  const PlacedMatrix& m = plan.matrices[matrix];
  return placed_matrix_name(plan.tensors[index(m.tensor)], m);
}

// Returns the matrices of a rank, the most expensive first.
std::vector<size_t> placed_owned(const PlacedPlan& plan,
                                 const PlacedFigures& figures, int32_t rank) {
  std::vector<size_t> owned;
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    if (plan.matrices[m].owner == rank) owned.push_back(m);
  std::stable_sort(owned.begin(), owned.end(), [&](size_t a, size_t b) {
    return figures.work[a] > figures.work[b];
  });
  return owned;
}

std::string round_text(int32_t round) {
  return round < 0 ? "stays" : fmt::to_string(round);
}

std::string owned_table(const PlacedPlan& plan, const PlacedFigures& figures,
                        const std::vector<size_t>& owned, const Ink& ink) {
  Table table("~>>>>");
  table.header({"matrix", "shape", "class", "round", "cost"});
  const size_t shown = std::min(owned.size(), kMostOwned);
  for (size_t i = 0; i < shown; ++i) {
    const PlacedMatrix& m = plan.matrices[owned[i]];
    table.row(
        {printable(placed_name(plan, owned[i])), dims_text({m.rows, m.cols}),
         fmt::to_string(plan.class_of[index(m.tensor)]), round_text(m.round),
         cost_text(plan.cost_basis, figures.work[owned[i]] /
                                        static_cast<double>(figures.period))});
  }
  std::string out = title(
      ink, fmt::format("Computes {}", counted(std::ssize(owned), "matrix")));
  if (!owned.empty()) out += table.text(ink);
  return out + left_out_text(owned.size() - shown, ink);
}

// Returns the number of elements that a rank stores of all tensors.
int64_t stored_on(const PlacedPlan& plan, int32_t rank) {
  int64_t sum = 0;
  for (const PlacedTensor& tensor : plan.tensors)
    for (const Box& box : tensor.stored[index(rank)]) sum += box.elements();
  return sum;
}

std::string rank_heading(const PlacedPlan& plan, const PlacedFigures& figures,
                         int32_t rank, const Ink& ink) {
  const double load = figures.loads[index(rank)];
  const double mean = plan.summary.mean;
  return ink(Tone::kBold, fmt::format("Rank {}", rank)) +
         fmt::format(
             " of {}, node {}\n  stores      {} of {}\n  load        "
             "{} × mean, {} predicted per step\n",
             plan.world, rank / plan.options.ranks_per_node,
             human_count(static_cast<double>(stored_on(plan, rank))) +
                 " elements",
             counted(std::ssize(plan.tensors), "tensor"),
             ratio_text(mean > 0 ? load / mean : 0),
             cost_text(plan.cost_basis,
                       load / static_cast<double>(figures.period)));
}

std::string rank_bytes_text(const PlacedBytes& bytes, const Ink& ink) {
  Table table("<>>>>");
  table.header({"collective", "sent in node", "sent outside",
                "received in node", "received outside"});
  const auto row = [&](const char* name, const WireBytes& w) {
    if (w.sent() == 0 && w.received() == 0) return;
    table.row({name, human_bytes(w.sent_intra), human_bytes(w.sent_inter),
               human_bytes(w.received_intra), human_bytes(w.received_inter)});
  };
  row("gather to owners", bytes.gather);
  row("scatter of updates", bytes.scatter);
  row("broadcast to replicas", bytes.broadcast);
  row("all", bytes.total());
  return title(ink, "Bytes per step") +
         (table.empty() ? "  none\n" : table.text(ink));
}

// An action as the views show it, with what it moves or waits for.
struct ShownAction {
  std::string what;
  std::string with;
  int64_t sent = 0;
  int64_t received = 0;
  bool moves = false;
};

int64_t sum_of(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  return sum;
}

ShownAction shown_action(const PlacedPlan& plan, const PlacedSchedule& schedule,
                         const PlacedAction& action) {
  ShownAction out;
  out.what = action.label;
  if (action.kind == PlacedAction::Kind::kWait)
    out.what = cat("wait for ", schedule.actions[index(action.item)].label);
  if (action.group < 0) return out;
  const auto& group = schedule.groups[index(action.group)];
  const int64_t wire = size_of(plan.options.wire);
  out.moves = true;
  if (action.kind == PlacedAction::Kind::kAllToAll) {
    out.with = few_ranks_text(group);
    out.sent = sum_of(action.send) * wire;
    out.received = sum_of(action.receive) * wire;
    return out;
  }
  const int64_t bytes = action.count * wire;
  const bool root = action.root == schedule.rank;
  out.with = root ? "to " + few_ranks_text(group)
                  : fmt::format("from rank {}", action.root);
  (root ? out.sent : out.received) =
      root ? bytes * (std::ssize(group) - 1) : bytes;
  return out;
}

// Shows one batch per shape: the views do not know the engine's batch width.
PlacedSchedule shown_schedule(const PlacedPlan& plan, int32_t rank) {
  constexpr int64_t kAnyWidth = int64_t{1} << 30;
  return make_placed_schedule(plan, rank, kAnyWidth);
}

std::string actions_text(const PlacedPlan& plan, int32_t rank, const Ink& ink) {
  const PlacedOrder order = placed_order(plan, rank);
  Table table("~<>>>");
  table.header({kPlacedOrderColumns.begin(), kPlacedOrderColumns.end()});
  for (const auto& row : order.rows) table.row({row.begin(), row.end()});
  std::string out = title(ink, "A step");
  out += table.empty() ? "  nothing\n" : table.text(ink);
  return out + left_out_text(order.left_out, ink);
}

void write_actions(JsonWriter& out, const PlacedPlan& plan, int32_t rank) {
  const PlacedSchedule schedule = shown_schedule(plan, rank);
  out.member("groups").begin_array();
  for (const auto& group : schedule.groups) out.values(group);
  out.end_array();
  out.field("slot_bytes", schedule.slot_elements * size_of(plan.options.wire));
  out.member("step").begin_array();
  for (const PlacedAction& action : schedule.actions) {
    const ShownAction line = shown_action(plan, schedule, action);
    out.begin_object().field("operation", to_string(action.kind));
    out.field("label", line.what);
    if (action.kind == PlacedAction::Kind::kWait) out.field("for", action.item);
    if (line.moves) {
      out.field("group", action.group);
      if (action.root >= 0) out.field("root", action.root);
      out.field("sent", line.sent).field("received", line.received);
    }
    out.member("tensors").begin_array();
    for (const int32_t t : action.tensors)
      out.value(plan.tensors[index(t)].name);
    out.end_array().end_object();
  }
  out.end_array();
}

// Returns the matrices that a name stands for.
std::vector<size_t> placed_matrices_named(const PlacedPlan& plan,
                                          const std::string& name) {
  std::vector<size_t> found;
  std::vector<std::string> known;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const std::string& tensor =
        plan.tensors[index(plan.matrices[m].tensor)].name;
    if (tensor == name || placed_name(plan, m) == name) found.push_back(m);
    if (known.empty() || known.back() != tensor) known.push_back(tensor);
  }
  if (!found.empty()) return found;
  for (const PlacedTensor& tensor : plan.tensors)
    if (tensor.name == name)
      throw UsageError(
          cat("matrix ", quoted(name), ": rule ",
              plan.groups[index(tensor.group)].rule,
              " updates it element by element where it is stored"));
  throw UsageError(cat("matrix ", quoted(name), ": no such matrix",
                       did_you_mean(name, known)));
}

std::string holders_text(const PlacedBasis& basis, size_t matrix,
                         const Ink& ink) {
  Table table(">>");
  table.header({"rank", "elements of it"});
  const auto holders = basis.holders()[matrix];
  const size_t shown = std::min(holders.size(), kMostHolders);
  for (size_t i = 0; i < shown; ++i)
    table.row({fmt::to_string(holders[i].rank), grouped(holders[i].elements)});
  std::string out = table.text(ink);
  return out + left_out_text(holders.size() - shown, ink);
}

std::string matrix_text(const PlacedPlan& plan, const PlacedFigures& figures,
                        const PlacedBasis& basis, size_t matrix,
                        const Ink& ink) {
  const PlacedMatrix& m = plan.matrices[matrix];
  const int32_t c = plan.class_of[index(m.tensor)];
  const double mean = plan.summary.mean;
  std::string out = ink(Tone::kBold, printable(placed_name(plan, matrix))) +
                    fmt::format(", {}\n", dims_text({m.rows, m.cols}));
  out += fmt::format(
      "  owner       rank {}, one of {} that store a piece\n  load        {} × "
      "mean on that rank, {} of it from this matrix\n",
      m.owner, basis.holders()[matrix].size(),
      ratio_text(mean > 0 ? figures.loads[index(m.owner)] / mean : 0),
      ratio_text(mean > 0 ? figures.work[matrix] / mean : 0));
  if (m.round < 0)
    return out + "  exchange    none: its owner stores all of it\n";
  out += fmt::format(
      "  exchange    round {} of class {}, over {}\n", m.round, c,
      few_ranks_text(
          plan.classes[index(c)].lines[index(basis.line_of(matrix))]));
  return out + holders_text(basis, matrix, ink);
}

}  // namespace

PlacedOrder placed_order(const PlacedPlan& plan, int32_t rank) {
  const PlacedSchedule schedule = shown_schedule(plan, rank);
  PlacedOrder out;
  for (const PlacedAction& action : schedule.actions) {
    if (out.rows.size() == kMostActions) {
      ++out.left_out;
      continue;
    }
    const ShownAction line = shown_action(plan, schedule, action);
    out.rows.push_back(
        {line.what, line.with, line.moves ? human_bytes(line.sent) : "",
         line.moves ? human_bytes(line.received) : "",
         action.tensors.empty() ? "" : grouped(std::ssize(action.tensors))});
  }
  return out;
}

std::string explain_placed_rank(const PlacedPlan& plan, int32_t rank,
                                const Ink& ink) {
  const PlacedFigures figures(plan);
  return rank_heading(plan, figures, rank, ink) +
         owned_table(plan, figures, placed_owned(plan, figures, rank), ink) +
         rank_bytes_text(figures.bytes[index(rank)], ink) +
         actions_text(plan, rank, ink);
}

std::string explain_placed_rank_json(const PlacedPlan& plan, int32_t rank) {
  const PlacedFigures figures(plan);
  JsonWriter out(2);
  out.begin_object().field("rank", rank);
  out.field("node", rank / plan.options.ranks_per_node);
  out.field("stored_elements", stored_on(plan, rank));
  out.field("load", figures.loads[index(rank)]);
  out.field("mean_load", plan.summary.mean).field("period", figures.period);
  out.member("matrices").begin_array();
  for (const size_t i : placed_owned(plan, figures, rank)) {
    const PlacedMatrix& m = plan.matrices[i];
    out.begin_object().field("name", placed_name(plan, i));
    out.field("rows", m.rows).field("cols", m.cols);
    out.field("class", plan.class_of[index(m.tensor)]);
    out.field("round", m.round).field("load", figures.work[i]).end_object();
  }
  out.end_array();
  write_placed_bytes(out, figures.bytes[index(rank)]);
  write_actions(out, plan, rank);
  out.end_object();
  return out.take() + "\n";
}

std::string explain_placed_matrix(const PlacedPlan& plan,
                                  const std::string& name, const Ink& ink) {
  const PlacedFigures figures(plan);
  const PlacedBasis basis(plan);
  std::string out;
  for (const size_t m : placed_matrices_named(plan, name))
    out +=
        cat(out.empty() ? "" : "\n", matrix_text(plan, figures, basis, m, ink));
  return out;
}

std::string explain_placed_matrix_json(const PlacedPlan& plan,
                                       const std::string& name) {
  const PlacedFigures figures(plan);
  const PlacedBasis basis(plan);
  JsonWriter out(2);
  out.begin_array();
  for (const size_t i : placed_matrices_named(plan, name)) {
    const PlacedMatrix& m = plan.matrices[i];
    out.begin_object().field("name", placed_name(plan, i));
    out.field("rows", m.rows).field("cols", m.cols);
    out.field("owner", m.owner).field("round", m.round);
    out.field("class", plan.class_of[index(m.tensor)]);
    out.field("load", figures.work[i]);
    out.field("owner_load", figures.loads[index(m.owner)]);
    out.field("mean_load", plan.summary.mean);
    out.member("stored").begin_array();
    for (const Holder& holder : basis.holders()[i])
      out.begin_object()
          .field("rank", holder.rank)
          .field("elements", holder.elements)
          .end_object();
    out.end_array().end_object();
  }
  out.end_array();
  return out.take() + "\n";
}

}  // namespace canzona
