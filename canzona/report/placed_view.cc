#include "canzona/report/placed_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/plan/placed/placed_basis.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"

namespace canzona {
namespace {

constexpr size_t kPlacedLabel = 10;

double elements_of_model(const PlacedPlan& plan) {
  double sum = 0;
  for (const PlacedTensor& tensor : plan.tensors)
    sum += static_cast<double>(whole_elements(tensor));
  return sum;
}

// "4 ranks, 8 per node, 1 node".
std::string ranks_line(const PlacedPlan& plan) {
  return fmt::format("{}, {} per node", counted(plan.world, "rank"),
                     plan.options.ranks_per_node);
}

std::string placed_request_text(const PlacedPlan& plan, const Ink& ink) {
  std::string out = ink(Tone::kBold, "Plan of placed storage") + "\n";
  const auto line = [&](std::string_view name, std::string_view text) {
    out += labelled(ink, name, text, kPlacedLabel);
  };
  line("tensors", fmt::format("{} parameters, {}, {}",
                              human_count(elements_of_model(plan)),
                              counted(std::ssize(plan.tensors), "tensor"),
                              counted(std::ssize(plan.matrices), "matrix")));
  line("ranks", ranks_line(plan));
  line("rules", placed_rules_text(plan));
  line("wire",
       fmt::format(
           "{}, capacity {}{}{}", to_string(plan.options.wire),
           human_bytes(plan.options.capacity_bytes),
           plan.options.strict_capacity ? ", strict" : "",
           plan.options.share_states ? ", states of replicas are shared" : ""));
  line("teams", "none: with given storage, every matrix has one owner");
  line("cost", cost_source_text(plan.cost_basis));
  line("digest", plan.digest);
  return out;
}

std::string placed_balance_text(const PlacedPlan& plan,
                                const PlacedFigures& figures, const Ink& ink) {
  std::string out = title(ink, "Balance");
  if (plan.matrices.empty())
    return out + "  nothing needs a whole matrix: no owners, no exchange\n";
  const PlacedSummary& s = plan.summary;
  return out +
         fmt::format(
             "  makespan {} × bound, {} × mean · {} idle\n  makespan {} per "
             "step, predicted\n",
             ink(tone_of_ratio(figures.makespan_over_bound),
                 ratio_text(figures.makespan_over_bound)),
             ratio_text(figures.makespan_over_mean),
             counted(s.idle_ranks, "rank"),
             cost_text(plan.cost_basis,
                       static_cast<double>(s.makespan.value()) /
                           static_cast<double>(figures.period)));
}

std::string placed_loads_text(const PlacedPlan& plan,
                              const PlacedFigures& figures, const Ink& ink) {
  if (plan.matrices.empty()) return "";
  return title(ink, "Load of each rank") +
         load_picture({figures.loads, plan.summary.mean}, ink);
}

// Matrices, rounds and lines of each class.
struct ClassFigures {
  int64_t matrices = 0;
  int64_t local = 0;  // those of which no piece moves
  std::vector<int64_t> of_round;
};

std::vector<ClassFigures> class_figures(const PlacedPlan& plan) {
  std::vector<ClassFigures> out(plan.classes.size());
  for (size_t c = 0; c < out.size(); ++c)
    out[c].of_round.resize(index(plan.classes[c].num_rounds), 0);
  for (const PlacedMatrix& m : plan.matrices) {
    ClassFigures& own = out[index(plan.class_of[index(m.tensor)])];
    ++own.matrices;
    if (m.round < 0)
      ++own.local;
    else
      ++own.of_round[index(m.round)];
  }
  return out;
}

std::string placed_classes_text(const PlacedPlan& plan, const Ink& ink) {
  if (plan.classes.empty()) return "";
  Table table("<>>>>><");
  table.header({"class", "tensors", "matrices", "stay", "rounds", "replicas",
                "exchange over"});
  const auto figures = class_figures(plan);
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    const PlacedClass& own = plan.classes[c];
    table.row({fmt::format("{}", c), grouped(std::ssize(own.tensors)),
               grouped(figures[c].matrices), grouped(figures[c].local),
               grouped(own.num_rounds), grouped(std::ssize(own.lines)),
               fmt::format(
                   "{}{}", few_ranks_text(own.lines.front()),
                   own.lines.size() > 1
                       ? fmt::format(" and {} more like it",
                                     counted(std::ssize(own.lines) - 1, "line"))
                       : "")});
  }
  return title(ink, "Classes of replicas, and rounds") + table.text(ink);
}

std::string placed_bytes_text(const PlacedFigures& figures, const Ink& ink) {
  Table table("<>>>>");
  table.header({"collective", "sent, largest", "sent, mean", "inside nodes",
                "between nodes"});
  const auto row = [&](const char* name, auto part) {
    const auto spread = [&](auto figure) {
      std::vector<double> values;
      for (const PlacedBytes& bytes : figures.bytes)
        values.push_back(static_cast<double>(figure(part(bytes))));
      return spread_of(values);
    };
    const Spread sent = spread([](const WireBytes& w) { return w.sent(); });
    if (sent.max <= 0) return;
    table.row({name, bytes_text(sent.max), bytes_text(sent.mean),
               bytes_text(
                   spread([](const WireBytes& w) { return w.sent_intra; }).max),
               bytes_text(spread([](const WireBytes& w) {
                            return w.sent_inter;
                          }).max)});
  };
  row("gather to owners", [](const PlacedBytes& b) { return b.gather; });
  row("scatter of updates", [](const PlacedBytes& b) { return b.scatter; });
  row("broadcast to replicas",
      [](const PlacedBytes& b) { return b.broadcast; });
  row("all", [](const PlacedBytes& b) { return b.total(); });
  if (table.empty())
    return title(ink, "Bytes per rank and step") + "  none: nothing moves\n";
  return title(ink, "Bytes per rank and step") + table.text(ink);
}

void write_placed_request(JsonWriter& out, const PlacedPlan& plan) {
  out.field("world", plan.world);
  out.field("ranks_per_node", plan.options.ranks_per_node);
  out.field("tensors", plan.tensors.size());
  out.field("parameters", elements_of_model(plan));
  out.member("groups").begin_array();
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const auto tensors = std::count_if(
        plan.tensors.begin(), plan.tensors.end(),
        [&](const PlacedTensor& t) { return index(t.group) == g; });
    out.begin_object().field("rule", plan.groups[g].rule);
    out.field("tensors", tensors).member("options").begin_object();
    for (const auto& [name, value] : plan.groups[g].options)
      out.field(name, value);
    out.end_object().end_object();
  }
  out.end_array();
  out.field("wire", to_string(plan.options.wire));
  out.field("share_states", plan.options.share_states);
  out.field("capacity_bytes", plan.options.capacity_bytes);
  out.field("rules_text", placed_rules_text(plan));
  out.field("cost_source", plan.cost_basis.source);
  out.field("cost_text", cost_source_text(plan.cost_basis));
  out.field("seconds_per_tick", plan.cost_basis.seconds_per_tick);
  out.field("digest", plan.digest);
}

void write_placed_balance(JsonWriter& out, const PlacedPlan& plan,
                          const PlacedFigures& figures) {
  const PlacedSummary& s = plan.summary;
  out.member("balance").begin_object();
  out.field("makespan_ticks", s.makespan.value());
  out.field("bound_ticks", s.bound.value());
  out.field("mean_ticks", s.mean).field("period", figures.period);
  out.field("makespan_over_bound", figures.makespan_over_bound);
  out.field("makespan_over_mean", figures.makespan_over_mean);
  out.field("idle_ranks", s.idle_ranks);
  out.field("bytes_per_rank_max", s.bytes_per_rank_max.value());
  out.end_object();
}

void write_placed_classes(JsonWriter& out, const PlacedPlan& plan) {
  const auto figures = class_figures(plan);
  out.member("classes").begin_array();
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    const PlacedClass& own = plan.classes[c];
    out.begin_object().field("tensors", own.tensors.size());
    out.field("matrices", figures[c].matrices).field("stay", figures[c].local);
    out.field("rounds", own.num_rounds);
    out.member("matrices_of_round").values(figures[c].of_round);
    out.field("exchanged_over", few_ranks_text(own.lines.front()));
    out.member("lines").begin_array();
    for (const auto& line : own.lines) out.values(line);
    out.end_array();
    out.member("replicas").begin_array();
    for (const auto& set : own.replicas) out.values(set);
    out.end_array().end_object();
  }
  out.end_array();
}

void write_placed_items(JsonWriter& out, const PlacedPlan& plan,
                        const PlacedFigures& figures) {
  out.member("matrices").begin_array();
  for (size_t i = 0; i < plan.matrices.size(); ++i) {
    const PlacedMatrix& m = plan.matrices[i];
    const PlacedTensor& tensor = plan.tensors[index(m.tensor)];
    out.begin_object().field("name", placed_matrix_name(tensor, m));
    out.field("rows", m.rows).field("cols", m.cols);
    out.field("rule", plan.groups[index(tensor.group)].rule);
    out.field("class", plan.class_of[index(m.tensor)]);
    out.field("owner", m.owner).field("round", m.round);
    out.field("load", figures.work[i]).end_object();
  }
  out.end_array();
  out.member("shared_elements").begin_array();
  for (const PlacedElements& e : plan.elements)
    out.begin_object()
        .field("name", plan.tensors[index(e.tensor)].name)
        .field("class", plan.class_of[index(e.tensor)])
        .field("line", e.line)
        .field("round", e.round)
        .end_object();
  out.end_array();
}

// A matrix, or a tensor that is updated element by element.
struct PlacedAuditRow {
  std::string name;
  std::string rule;
  bool is_matrix = true;
  int32_t owner = -1;  // -1: every rank that stores it
  int32_t line = -1;   // for shared elements: the line that keeps the states
  int32_t round = -1;
  int64_t bytes = 0;   // of the whole parameter
  double seconds = 0;  // predicted mean over a period; 0: not counted
};

std::vector<PlacedAuditRow> placed_audit_rows(const PlacedPlan& plan) {
  const PlacedFigures figures(plan);
  std::map<int32_t, const PlacedElements*> shared;
  for (const PlacedElements& e : plan.elements) shared[e.tensor] = &e;
  std::vector<PlacedAuditRow> rows;
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const PlacedTensor& tensor = plan.tensors[t];
    PlacedAuditRow row;
    row.rule = plan.groups[index(tensor.group)].rule;
    const int64_t each = size_of(tensor.dtype);
    const auto first = index(plan.first_matrix[t]);
    const auto end = index(plan.first_matrix[t + 1]);
    for (size_t i = first; i < end; ++i) {
      const PlacedMatrix& m = plan.matrices[i];
      row.name = placed_matrix_name(tensor, m);
      row.owner = m.owner;
      row.round = m.round;
      row.bytes = m.rows * m.cols * each;
      row.seconds = figures.work[i] / static_cast<double>(figures.period) *
                    plan.cost_basis.seconds_per_tick;
      rows.push_back(row);
    }
    if (first < end) continue;
    row.name = tensor.name;
    row.is_matrix = false;
    row.bytes = whole_elements(tensor) * each;
    if (const auto found = shared.find(static_cast<int32_t>(t));
        found != shared.end()) {
      row.line = found->second->line;
      row.round = found->second->round;
    }
    rows.push_back(row);
  }
  return rows;
}

std::string audit_owner_text(const PlacedAuditRow& row) {
  if (row.is_matrix) return fmt::format("rank {}", row.owner);
  if (row.line >= 0) return fmt::format("line {}", row.line);
  return "who stores it";
}

}  // namespace

std::string placed_audit(const PlacedPlan& plan, const Ink& ink) {
  Table table("~<<>>>");
  table.header({"tensor", "rule", "owner", "round", "bytes", "cost"});
  for (const PlacedAuditRow& row : placed_audit_rows(plan))
    table.row({printable(row.name), row.rule, audit_owner_text(row),
               row.round < 0 ? "" : fmt::to_string(row.round),
               human_bytes(row.bytes),
               row.seconds > 0 ? human_seconds(row.seconds) : ""});
  return table.empty() ? "no tensors\n" : table.text(ink, 0);
}

std::string placed_audit_json(const PlacedPlan& plan) {
  JsonWriter out(2);
  out.begin_array();
  for (const PlacedAuditRow& row : placed_audit_rows(plan)) {
    out.begin_object().field("name", row.name).field("rule", row.rule);
    if (row.is_matrix) out.field("owner", row.owner);
    if (row.line >= 0) out.field("line", row.line);
    out.field("round", row.round).field("bytes", row.bytes);
    out.field("seconds", row.seconds).end_object();
  }
  out.end_array();
  return out.take() + "\n";
}

PlacedFigures::PlacedFigures(const PlacedPlan& plan)
    : loads(index(plan.world), 0) {
  const PlacedBasis basis(plan);
  period = basis.kinds().period();
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    work.push_back(static_cast<double>(basis.work_of(m)));
    loads[index(plan.matrices[m].owner)] += work.back();
  }
  bytes = placed_bytes(basis, plan);
  const auto makespan = static_cast<double>(plan.summary.makespan.value());
  const auto bound = static_cast<double>(plan.summary.bound.value());
  if (bound > 0) makespan_over_bound = makespan / bound;
  if (plan.summary.mean > 0) makespan_over_mean = makespan / plan.summary.mean;
}

std::string placed_rules_text(const PlacedPlan& plan) {
  std::vector<std::string> words;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const auto tensors = std::count_if(
        plan.tensors.begin(), plan.tensors.end(),
        [&](const PlacedTensor& t) { return index(t.group) == g; });
    if (tensors > 0)
      words.push_back(fmt::format("{} ({})", plan.groups[g].rule,
                                  counted(tensors, "tensor")));
  }
  return words.empty() ? "none" : join(words, ", ");
}

std::string few_ranks_text(const std::vector<int32_t>& ranks) {
  constexpr size_t kLong = 40;
  std::string text = ranks_text(ranks);
  if (text.size() <= kLong) return text;
  return fmt::format("{} ranks: {}, {} … {}", ranks.size(), ranks[0], ranks[1],
                     ranks.back());
}

std::string placed_text(const PlacedPlan& plan, const Ink& ink) {
  const PlacedFigures figures(plan);
  return placed_request_text(plan, ink) +
         placed_balance_text(plan, figures, ink) +
         placed_loads_text(plan, figures, ink) +
         placed_classes_text(plan, ink) + placed_bytes_text(figures, ink);
}

namespace {

std::string write_placed(JsonWriter out, const PlacedPlan& plan) {
  const PlacedFigures figures(plan);
  out.begin_object().field("report", "placed");
  write_placed_request(out, plan);
  write_placed_balance(out, plan, figures);
  write_placed_classes(out, plan);
  out.member("ranks").begin_array();
  for (size_t r = 0; r < figures.loads.size(); ++r) {
    out.begin_object().field("rank", r).field("load", figures.loads[r]);
    write_placed_bytes(out, figures.bytes[r]);
    out.end_object();
  }
  out.end_array();
  write_placed_items(out, plan, figures);
  const int32_t busiest = spread_of(figures.loads).largest;
  write_order_table(out.member("order"), "A step", busiest, kPlacedOrderColumns,
                    placed_order(plan, busiest));
  return out.end_object().take();
}

}  // namespace

std::string placed_json(const PlacedPlan& plan) {
  return write_placed(JsonWriter(2), plan) + "\n";
}

std::string placed_html(const PlacedPlan& plan) {
  return make_page(write_placed(JsonWriter(), plan), {"placed.js"});
}

void write_placed_bytes(JsonWriter& out, const PlacedBytes& bytes) {
  out.member("bytes").begin_object();
  const auto write = [&](const char* name, const WireBytes& wire) {
    out.member(name).begin_object();
    write_wire_members(out, wire);
    out.end_object();
  };
  write("gather", bytes.gather);
  write("scatter", bytes.scatter);
  write("broadcast", bytes.broadcast);
  out.end_object();
}

}  // namespace canzona
