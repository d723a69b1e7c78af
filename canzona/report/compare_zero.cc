#include "canzona/report/compare_zero.h"

#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/json_parts.h"
#include "canzona/report/numbers.h"
#include "canzona/report/terminal_bars.h"
#include "canzona/report/terminal_table.h"
#include "canzona/report/zero_view.h"

namespace canzona {
namespace {

constexpr size_t kBarWidth = 24;

std::string title(const Ink& ink, std::string_view text) {
  return "\n" + ink(Tone::kBold, text) + "\n";
}

std::string sizes_cell(const ZeroSizes& z) {
  return fmt::format("{},{},{}", z.z1, z.z2, z.z3);
}

std::string heading(const ZeroComparison& all, const Ink& ink) {
  std::string out =
      ink(Tone::kBold, "Hierarchical ZeRO") +
      fmt::format(
          " for {}, {} ({}) on {}: {} ranks, {} a node, {} parameters\n",
          printable(all.model), all.rule, all.strategy, to_string(all.mesh),
          grouped(all.mesh.world()), all.ranks_per_node, all.parameters);
  const auto line = [&](const char* name, const std::string& text) {
    out += "  " + ink(Tone::kDim, name) + " " + wrap(text, kPageWidth - 14, 4) +
           "\n";
  };
  line("iteration:", all.work);
  line("times:", all.rates);
  if (all.memory_cap_bytes > 0)
    line("memory cap:", human_bytes(all.memory_cap_bytes) + " a rank");
  return out;
}

std::string ranking_table(const ZeroComparison& all, const Ink& ink) {
  Table table("<>>>>~");
  table.header({"z1,z2,z3", "memory", "inside nodes", "between nodes",
                "iteration", "why"});
  bool first = true;
  for (const ComparedZero& row : all.rows) {
    if (!row.planned) {
      table.row(
          {sizes_cell(row.sizes), "-", "-", "-", "-", printable(row.reason)});
      continue;
    }
    const Tone tone = !row.fits ? Tone::kPoor
                      : first   ? Tone::kGood
                                : Tone::kPlain;
    table.row({ink(tone, sizes_cell(row.sizes)), human_bytes(all.total(row)),
               human_bytes(row.fast_bytes), human_bytes(row.slow_bytes),
               human_seconds(row.seconds), printable(row.reason)});
    first = false;
  }
  return title(ink,
               "Ranking: memory of the fullest rank, bytes that a rank sends "
               "in an iteration, predicted time") +
         table.text(ink);
}

std::vector<std::string> kind_names(const ZeroComparison& all) {
  std::vector<std::string> names;
  for (const ComparedZero& row : all.rows)
    for (const ZeroMemory& kind : memory_of(all, row))
      if (kind.bytes > 0 && std::ranges::find(names, kind.name) == names.end())
        names.push_back(kind.name);
  return names;
}

std::string memory_table(const ZeroComparison& all, const Ink& ink) {
  const std::vector<std::string> kinds = kind_names(all);
  int64_t most = all.memory_cap_bytes;
  for (const ComparedZero& row : all.rows)
    if (most == 0 || all.memory_cap_bytes == 0)
      most = std::max(most, all.total(row));
  Table table("<" + std::string(kinds.size() + 1, '>') + "<");
  std::vector<std::string> head = {"z1,z2,z3"};
  head.insert(head.end(), kinds.begin(), kinds.end());
  head.insert(head.end(),
              {"all", all.memory_cap_bytes > 0 ? "of the cap" : ""});
  table.header(head);
  for (const ComparedZero& row : all.rows) {
    if (!row.planned) continue;
    std::vector<std::string> cells = {sizes_cell(row.sizes)};
    for (const ZeroMemory& kind : memory_of(all, row))
      if (std::ranges::find(kinds, kind.name) != kinds.end())
        cells.push_back(human_bytes(kind.bytes));
    const auto total = static_cast<double>(all.total(row));
    cells.push_back(human_bytes(all.total(row)));
    cells.push_back(ink(row.fits ? Tone::kGood : Tone::kPoor,
                        bar(total, static_cast<double>(most),
                            kinds.size() > 5 ? kBarWidth / 2 : kBarWidth)));
    table.row(cells);
  }
  return title(ink, "Memory of the fullest rank") + table.text(ink);
}

std::string notes(const ZeroComparison& all) {
  const auto count = [&](auto holds) {
    return std::ranges::count_if(all.rows, holds);
  };
  std::string out;
  const auto crossing = count([](const ComparedZero& row) {
    return row.z2_crosses_nodes || row.z3_crosses_nodes;
  });
  if (crossing > 0)
    out += fmt::format(
        "  {} of {} have groups of gradients or parameters "
        "that cross nodes\n",
        crossing, all.rows.size());
  if (count([](const ComparedZero& row) { return row.replicas > 1; }) > 0)
    out += fmt::format(
        "  with z1 below {} states are kept and the step is computed {}/z1 "
        "times\n",
        all.mesh.homes(), all.mesh.homes());
  return out;
}

std::string verdict_line(const ZeroComparison& all, const Ink& ink) {
  return "\n  " +
         ink(all.has_fit() ? Tone::kGood : Tone::kPoor,
             wrap(all.verdict, kPageWidth - 2, 2)) +
         "\n";
}

void write_row(JsonWriter& out, const ZeroComparison& all,
               const ComparedZero& row) {
  out.begin_object().member("zero");
  write_sizes(out, row.sizes);
  out.field("fits", row.fits).field("reason", row.reason);
  if (!row.planned) {
    out.end_object();
    return;
  }
  out.field("memory_bytes", all.total(row)).member("memory").begin_object();
  for (const ZeroMemory& kind : memory_of(all, row))
    out.field(kind.name, kind.bytes);
  out.end_object();
  out.field("fast_bytes", row.fast_bytes).field("slow_bytes", row.slow_bytes);
  out.field("predicted_iteration_seconds", row.seconds);
  out.field("predicted_step_seconds", row.step_seconds);
  out.field("replicas", row.replicas);
  out.field("z2_crosses_nodes", row.z2_crosses_nodes);
  out.field("z3_crosses_nodes", row.z3_crosses_nodes).end_object();
}

}  // namespace

std::vector<ZeroMemory> memory_of(const ZeroComparison& all,
                                  const ComparedZero& row) {
  std::vector<ZeroMemory> kinds;
  for (const MemoryKind& kind : memory_kinds(true))
    kinds.push_back({kind.name, (row.memory.*kind.field).value()});
  kinds.push_back({"activations", all.beside_bytes});
  return kinds;
}

std::string zero_ranking_text(const ZeroComparison& all, const Ink& ink) {
  return heading(all, ink) + ranking_table(all, ink) + verdict_line(all, ink);
}

std::string zero_comparison_text(const ZeroComparison& all, const Ink& ink) {
  return heading(all, ink) + ranking_table(all, ink) + memory_table(all, ink) +
         notes(all) + verdict_line(all, ink);
}

void write_zero_comparison(JsonWriter& out, const ZeroComparison& all) {
  out.begin_object().field("model", all.model).member("mesh");
  write_mesh(out, all.mesh);
  out.field("world", all.mesh.world()).field("rule", all.rule);
  out.field("strategy", all.strategy).field("parameters", all.parameters);
  out.field("ranks_per_node", all.ranks_per_node);
  out.field("memory_cap_bytes", all.memory_cap_bytes);
  out.field("work", all.work).field("rates", all.rates);
  out.field("verdict", all.verdict).member("choice");
  if (all.has_fit())
    write_sizes(out, all.rows.front().sizes);
  else
    out.null();
  out.member("sizes").begin_array();
  for (const ComparedZero& row : all.rows) write_row(out, all, row);
  out.end_array().end_object();
}

std::string zero_comparison_json(const ZeroComparison& all) {
  JsonWriter out(2);
  write_zero_comparison(out, all);
  return out.take() + "\n";
}

}  // namespace canzona
