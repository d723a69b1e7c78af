#include "canzona/report/storage_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {
namespace {

constexpr size_t kStorageLabel = 10;

double elements_of_model(const StoragePlan& plan) {
  double sum = 0;
  for (const CutTensor& tensor : plan.tensors)
    sum += static_cast<double>(whole_elements(tensor));
  return sum;
}

int64_t tensors_of_group(const StoragePlan& plan, size_t group) {
  return std::ranges::count_if(plan.tensors, [&](const CutTensor& t) {
    return index(t.group) == group;
  });
}

// "4 ranks, 8 per node, 1 node".
std::string ranks_line(const StoragePlan& plan) {
  return fmt::format("{}, {} per node", counted(plan.world, "rank"),
                     plan.options.ranks_per_node);
}

Value groups_value(const StoragePlan& plan) {
  std::vector<Value> groups;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    Members options;
    for (const auto& [name, value] : plan.groups[g].options)
      options.push_back({name, value});
    groups.push_back(Members{{"rule", plan.groups[g].rule},
                             {"tensors", tensors_of_group(plan, g)},
                             {"options", options}});
  }
  return groups;
}

// "auto, of them 3 of 2 ranks, 5 of 8 ranks".
std::string storage_teams_text(const StoragePlan& plan) {
  if (plan.options.teams == kTeamsOff) return "off";
  std::map<size_t, int64_t> sizes;
  for (const OwnedMatrix& m : plan.matrices)
    if (!m.team.empty()) ++sizes[distinct(m.team).size()];
  std::vector<std::string> words = {teams_text(plan.options.teams)};
  for (const auto& [size, count] : sizes)
    words.push_back(cat(counted(count, "matrix"), " on ", size, " ranks"));
  if (sizes.empty()) words.push_back("no matrix is shared");
  return join(words, ", ");
}

void add_request(const StoragePlan& plan, Document& out) {
  const double elements = elements_of_model(plan);
  const std::string_view wire = to_string(plan.options.wire);
  out.heading("Plan of given storage");
  const auto line = [&](const char* key, const char* name,
                        const std::string& text) {
    out.labelled({key, name, text, text}, kStorageLabel);
  };
  line("", "tensors",
       cat(human_count(elements), " parameters, ",
           counted(std::ssize(plan.tensors), "tensor"), ", ",
           counted(std::ssize(plan.matrices), "matrix")));
  line("", "ranks", ranks_line(plan));
  line("rules_text", "rules", storage_rules_text(plan));
  line("", "wire",
       cat(wire, ", capacity ", human_bytes(plan.options.capacity_bytes),
           plan.options.strict_capacity ? ", strict" : "",
           plan.options.share_states ? ", states of replicas are shared" : ""));
  line("teams", "teams", storage_teams_text(plan));
  line("cost_text", "cost", cost_source_text(plan.cost_basis));
  line("digest", "digest", plan.digest);
  out.set("world", plan.world).set("parameters", elements);
  out.set("ranks_per_node", plan.options.ranks_per_node);
  out.set("tensors", plan.tensors.size()).set("groups", groups_value(plan));
  out.set("wire", wire).set("share_states", plan.options.share_states);
  out.set("capacity_bytes", plan.options.capacity_bytes);
  out.set("cost_source", plan.cost_basis.source);
  out.set("seconds_per_tick", plan.cost_basis.seconds_per_tick);
}

double slowest_step(const StorageFigures& figures) {
  return spread_over(
             figures.ranks,
             [](const RankCost& rank) { return rank.step_seconds_mean; })
      .max;
}

void add_balance(const StoragePlan& plan, const StorageFigures& figures,
                 Document& out) {
  const LoadSummary& s = plan.summary;
  const auto period = static_cast<double>(figures.period);
  out.title("Balance");
  if (plan.matrices.empty()) {
    out.line("nothing needs a whole matrix: no owners, no exchange");
  } else {
    out.line(cat("makespan ", as_ratio(figures.makespan_over_bound).text,
                 plan.options.teams == kTeamsOff
                     ? " × bound, "
                     : " × bound of plans without teams, ",
                 ratio_text(figures.makespan_over_mean), " × mean · ",
                 counted(s.idle_ranks, "rank"), " idle"));
    out.line(cat("makespan ",
                 cost_text(plan.cost_basis,
                           static_cast<double>(s.makespan.value()) / period),
                 " per step, predicted"));
    out.line(cat("step ", human_seconds(slowest_step(figures)),
                 " on the slowest rank, with what it exchanges, predicted"));
    out.title("Load of each rank")
        .text(load_picture({figures.loads, s.mean}, Ink(true)));
  }
  Document balance;
  balance.set("makespan_ticks", s.makespan.value());
  balance.set("bound_ticks", s.bound.value()).set("mean_ticks", s.mean);
  balance.set("period", figures.period);
  balance.set("makespan_over_bound", figures.makespan_over_bound);
  balance.set("makespan_over_mean", figures.makespan_over_mean);
  balance.set("idle_ranks", s.idle_ranks);
  balance.set("bytes_per_rank_max", s.bytes_per_rank_max.value());
  balance.set("step_seconds", slowest_step(figures));
  out.add("balance", balance);
}

void add_classes(const StoragePlan& plan, Document& out) {
  Listing rows;
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    const ReplicaClass& own = plan.classes[c];
    int64_t matrices = 0, stay = 0;
    for (const OwnedMatrix& m : plan.matrices) {
      if (index(plan.class_of[index(m.tensor)]) != c) continue;
      ++matrices;
      stay += m.round < 0;
    }
    const std::string over = few_ranks_text(own.lines.front());
    const int64_t more = std::ssize(own.lines) - 1;
    Row& row =
        rows.add({{"", "<class", c},
                  {"tensors", ">tensors", as_count(std::ssize(own.tensors))},
                  {"matrices", ">matrices", as_count(matrices)},
                  {"stay", ">stay", as_count(stay)},
                  {"rounds", ">rounds", as_count(own.num_rounds)},
                  {"", ">replicas", as_count(std::ssize(own.lines))},
                  {"exchanged_over", "<exchange over", over,
                   more == 0 ? over
                             : cat(over, " and ", counted(more, "line"),
                                   " more like it")}});
    row.set("lines", own.lines).set("replicas", own.replicas);
  }
  if (!plan.classes.empty()) out.title("Classes of replicas, and rounds");
  out.table("classes", rows);
}

void add_bytes(const StorageFigures& figures, Document& out) {
  std::vector<Value> ranks;
  for (size_t r = 0; r < figures.ranks.size(); ++r)
    ranks.push_back(
        Members{{"rank", r},
                {"load", figures.loads[r]},
                {"step_seconds", figures.ranks[r].step_seconds_mean},
                {"bytes", wire_value(figures.ranks[r])}});
  out.add(wire_view(figures.ranks)).set("ranks", ranks);
}

// An element-wise tensor; where replicas share its states, a line keeps them.
void add_elements_row(const StoragePlan& plan, int32_t t, Listing& rows) {
  const CutTensor& tensor = plan.tensors[index(t)];
  const auto shared =
      std::ranges::find(plan.elements, t, &SharedElements::tensor);
  const bool is_shared = shared != plan.elements.end();
  const int32_t round = is_shared ? shared->round : -1;
  Row& row = rows.add(
      {{"name", "~tensor", tensor.name},
       {"rule", "<rule", plan.groups[index(tensor.group)].rule},
       {"", "<owner",
        is_shared ? cat("line ", shared->line) : std::string("who stores it")},
       {"round", ">round", round, round < 0 ? "" : cat(round)},
       {"bytes", ">bytes",
        as_bytes(whole_elements(tensor) * size_of(tensor.dtype))},
       {"seconds", ">cost", 0.0, ""}});
  if (is_shared)
    row.set("line", shared->line).set("class", plan.class_of[index(t)]);
}

}  // namespace

void add_matrix_row(const StoragePlan& plan, const StorageFigures& figures,
                    size_t matrix, Listing& rows) {
  const OwnedMatrix& m = plan.matrices[matrix];
  const CutTensor& tensor = plan.tensors[index(m.tensor)];
  const double seconds = figures.work[matrix] /
                         static_cast<double>(figures.period) *
                         plan.cost_basis.seconds_per_tick;
  Row& row = rows.add(
      {{"name", "~tensor", matrix_name(tensor, m)},
       {"rule", "<rule", plan.groups[index(tensor.group)].rule},
       {"", "<owner", owners_text(m)},
       {"round", ">round", m.round, m.round < 0 ? "" : cat(m.round)},
       {"bytes", ">bytes", as_bytes(m.rows * m.cols * size_of(tensor.dtype))},
       {"seconds", ">cost", as_seconds(seconds)}});
  row.set("rows", m.rows).set("cols", m.cols).set("owner", m.owner);
  row.set("class", plan.class_of[index(m.tensor)]);
  if (!m.team.empty()) row.set("team", m.team);
  row.set("load", figures.work[matrix]);
}

Document storage_audit(const StoragePlan& plan) {
  const StorageFigures figures(plan);
  Listing rows;
  for (int32_t t = 0; t < std::ssize(plan.tensors); ++t) {
    const auto first = index(plan.first_matrix[index(t)]);
    const auto end = index(plan.first_matrix[index(t) + 1]);
    for (size_t m = first; m < end; ++m) add_matrix_row(plan, figures, m, rows);
    if (first == end) add_elements_row(plan, t, rows);
  }
  return Document().table("", rows, "no tensors", 0).set("", rows.value());
}

StorageFigures::StorageFigures(const StoragePlan& plan)
    : loads(index(plan.world), 0) {
  const StorageBasis basis(plan);
  period = basis.kinds().period();
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    work.push_back(static_cast<double>(basis.work_of(m)));
  const auto by_kind = storage_loads(plan, basis.kinds());
  const std::vector<int64_t>& steps = basis.kinds().steps();
  for (size_t r = 0; r < loads.size(); ++r)
    for (size_t k = 0; k < steps.size(); ++k)
      loads[r] += static_cast<double>(steps[k] * by_kind[r][k]);
  ranks = storage_wire(basis, plan);
  const std::vector<double> seconds = storage_step_seconds(plan);
  for (size_t r = 0; r < ranks.size(); ++r)
    ranks[r].step_seconds_mean = seconds[r];
  const auto makespan = static_cast<double>(plan.summary.makespan.value());
  const auto bound = static_cast<double>(plan.summary.bound.value());
  if (bound > 0) makespan_over_bound = makespan / bound;
  if (plan.summary.mean > 0) makespan_over_mean = makespan / plan.summary.mean;
}

std::string storage_rules_text(const StoragePlan& plan) {
  std::vector<std::string> words;
  for (size_t g = 0; g < plan.groups.size(); ++g)
    if (const int64_t tensors = tensors_of_group(plan, g); tensors > 0)
      words.push_back(
          cat(plan.groups[g].rule, " (", counted(tensors, "tensor"), ")"));
  return words.empty() ? "none" : join(words, ", ");
}

std::string few_ranks_text(const std::vector<int32_t>& ranks) {
  constexpr size_t kLong = 40;
  std::string text = ranks_text(ranks);
  if (text.size() <= kLong) return text;
  return fmt::format("{} ranks: {}, {} … {}", ranks.size(), ranks[0], ranks[1],
                     ranks.back());
}

Document storage_view(const StoragePlan& plan) {
  const StorageFigures figures(plan);
  const int32_t busiest = spread_of(figures.loads).largest;
  Document out;
  out.set("report", "storage");
  add_request(plan, out);
  add_balance(plan, figures, out);
  add_classes(plan, out);
  add_bytes(figures, out);
  add_storage_memory("Memory of the busiest rank",
                     storage_memory(plan, shown_schedule(plan, busiest)), out);
  Listing matrices, shared;
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    add_matrix_row(plan, figures, m, matrices);
  for (const SharedElements& e : plan.elements)
    add_elements_row(plan, e.tensor, shared);
  out.set("matrices", matrices.value()).set("shared_elements", shared.value());
  return out.set("order", order_value("A step", busiest, kStorageOrderColumns,
                                      storage_order(plan, busiest)));
}

std::string storage_html(const StoragePlan& plan) {
  return make_page(to_json(storage_view(plan), 0), {"storage.js"});
}

std::string owners_text(const OwnedMatrix& matrix) {
  if (matrix.team.empty()) return fmt::format("rank {}", matrix.owner);
  const std::vector<int32_t> ranks = distinct(matrix.team);
  if (ranks.size() < matrix.team.size())
    return cat("blocks of ", counted(std::ssize(ranks), "rank"));
  std::vector<std::string> words;
  for (const int32_t rank : ranks) words.push_back(cat(rank));
  return cat("ranks ", join(words, ", "));
}

RankMemory storage_memory(const StoragePlan& plan,
                          const RankSchedule& schedule) {
  RankMemory memory;
  for (int32_t t = 0; t < std::ssize(plan.tensors); ++t) {
    const int64_t elements = stored_elements(plan, t, schedule.rank);
    const DType dtype = plan.tensors[index(t)].dtype;
    memory.parameters += Bytes(elements * size_of(dtype));
    memory.gradients += Bytes(elements * size_of(dtype));
    memory.master +=
        Bytes(elements * master_bytes_per_element(dtype, plan.options.master));
  }
  for (const int64_t elements : schedule.memories)
    memory.states += Bytes(elements * kBytesPerFp32);
  memory.buffers = Bytes(schedule.slot_elements * size_of(plan.options.wire) +
                         schedule.room_bytes);
  return memory;
}

void add_storage_memory(const char* title, const RankMemory& memory,
                        Document& out) {
  Listing rows;
  const auto row = [&](const char* name, Bytes bytes) {
    rows.add({{"", "<kind", name}, {"", ">bytes", as_bytes(bytes.value())}});
  };
  for (const MemoryKind& kind : memory_kinds(false))
    row(kind.name, memory.*kind.field);
  row("total", memory.total());
  out.title(title).table("", rows).set("memory", memory_value(memory));
}

}  // namespace canzona::report
