// Sizes of hierarchical ZeRO side by side.
#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/plan/zero.h"
#include "canzona/report/compare_view.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/terminal.h"
#include "canzona/report/zero_view.h"
#include "canzona/sim/zero_search.h"

namespace canzona {
namespace {

constexpr size_t kZeroBarWidth = 24;

std::string sizes_cell(const ZeroSizes& z) {
  return fmt::format("{},{},{}", z.z1, z.z2, z.z3);
}

// The first cells of a row: the sizes, and those of experts if any row has
// them.
std::vector<std::string> choice_cells(const ZeroComparison& all,
                                      const RankedZero& row) {
  const std::string first =
      sizes_cell(row.choice.sizes) +
      (!all.several_strategies ? "" : " " + printable(row.choice.strategy));
  if (!all.has_experts()) return {first};
  return {first,
          row.weight.experts.z1 > 0 ? sizes_cell(row.weight.experts) : "-"};
}

std::vector<std::string> choice_head(const ZeroComparison& all) {
  if (!all.has_experts()) return {"z1,z2,z3"};
  return {"z1,z2,z3", "experts"};
}

// "1.21M", or "-" where compute is not counted.
std::string rate_cell(const ZeroComparison& all, const RankedZero& row) {
  const double rate = all.tokens_per_second(row);
  return rate > 0 ? human_count(rate) : "-";
}

void append(std::vector<std::string>& cells,
            const std::vector<std::string>& more) {
  cells.insert(cells.end(), more.begin(), more.end());
}

std::string heading(const ZeroComparison& all, const Ink& ink) {
  std::string out =
      ink(Tone::kBold, "Hierarchical ZeRO") +
      fmt::format(" for {}, {} ({}) on {}: {}, {} per node, {} parameters\n",
                  printable(all.model), all.rule, all.strategy,
                  to_string(all.mesh), counted(all.mesh.world(), "rank"),
                  all.options.ranks_per_node,
                  to_string(all.options.parameters));
  const auto line = [&](const char* name, const std::string& text) {
    out += "  " + ink(Tone::kDim, name) + " " + wrap(text, kPageWidth - 14, 4) +
           "\n";
  };
  line("iteration:", work_text(all));
  line("times:", rates_text(all));
  if (all.options.memory_cap_bytes > 0)
    line("memory cap:",
         human_bytes(all.options.memory_cap_bytes) + " per rank");
  if (all.terms) {
    line("activations:", describe_activations(*all.terms, all.mesh));
    line("gradients:",
         std::string(to_string(all.terms->gradients)) + " at rest");
  }
  return out;
}

// The cells of a row behind its choice. Of a choice that was not planned at
// most a bound of its memory is known.
std::vector<std::string> figures_of(const ZeroComparison& all,
                                    const RankedZero& row) {
  const std::string why = printable(brief_reason(row, all.search));
  const std::string words = in_words(row.choice.sizes);
  if (!row.is_planned())
    return {row.weight.is_dropped ? "≥ " + human_bytes(all.total(row)) : "-",
            "-",
            "-",
            "-",
            "-",
            why,
            words};
  const ZeroWeight& weight = row.weight;
  return {human_bytes(all.total(row)),
          human_bytes(weight.fast_bytes),
          human_bytes(weight.slow_bytes),
          human_seconds(weight.seconds),
          rate_cell(all, row),
          why,
          words};
}

std::string ranking_table(const ZeroComparison& all, const Ink& ink) {
  std::vector<std::string> head = choice_head(all);
  Table table(std::string(head.size(), '<') + ">>>>>~?");
  append(head, {"memory", "in nodes", "between", "iteration", "tokens/s", "why",
                "data-parallel ranks"});
  table.header(head);
  bool first = true;
  for (const RankedZero& row : all.search.ranking) {
    std::vector<std::string> cells = choice_cells(all, row);
    if (row.is_planned()) {
      const Tone tone = !row.fits() ? Tone::kPoor
                        : first     ? Tone::kGood
                                    : Tone::kPlain;
      cells[0] = ink(tone, cells[0]);
      first = false;
    }
    append(cells, figures_of(all, row));
    table.row(cells);
  }
  return title(ink,
               "Ranking: memory of the fullest rank, bytes sent inside nodes "
               "and between them, predicted time") +
         "  z1, z2, z3: data-parallel ranks that share states, gradients, "
         "parameters\n" +
         table.text(ink);
}

// Returns the kinds of memory that any choice uses.
std::vector<std::string> kind_names(const ZeroComparison& all) {
  std::vector<std::string> names;
  for (const ZeroMemory& kind : memory_of(all, {})) {
    const bool used =
        std::ranges::any_of(all.search.ranking, [&](const RankedZero& row) {
          return std::ranges::any_of(
              memory_of(all, row), [&](const ZeroMemory& own) {
                return own.name == kind.name && own.bytes > 0;
              });
        });
    if (used) names.push_back(kind.name);
  }
  return names;
}

// Returns a bar, or a number where the sizes of experts leave no room for one.
std::string share_text(const ZeroComparison& all, const RankedZero& row,
                       int64_t most, size_t kinds) {
  const auto total = static_cast<double>(all.total(row));
  const auto whole = static_cast<double>(std::max<int64_t>(most, 1));
  if (all.has_experts()) return fmt::format("{:.0f} %", 100 * total / whole);
  return bar(total, whole, kinds > 5 ? kZeroBarWidth / 2 : kZeroBarWidth);
}

std::string memory_table(const ZeroComparison& all, const Ink& ink) {
  const std::vector<std::string> kinds = kind_names(all);
  int64_t most = all.options.memory_cap_bytes;
  for (const RankedZero& row : all.search.ranking)
    if (most == 0 || all.options.memory_cap_bytes == 0)
      most = std::max(most, all.total(row));
  Table table("<" + std::string(kinds.size() + 1, '>') + "<");
  std::vector<std::string> head = {all.has_experts() ? "dense/experts"
                                                     : "z1,z2,z3"};
  append(head, kinds);
  append(head, {"all", all.options.memory_cap_bytes == 0 ? ""
                       : all.has_experts()               ? "of cap"
                                                         : "of the cap"});
  table.header(head);
  for (const RankedZero& row : all.search.ranking) {
    if (!row.is_planned()) continue;
    std::vector<std::string> cells = {join(choice_cells(all, row), "/")};
    for (const ZeroMemory& kind : memory_of(all, row))
      if (std::ranges::find(kinds, kind.name) != kinds.end())
        cells.push_back(human_bytes(kind.bytes));
    cells.push_back(human_bytes(all.total(row)));
    cells.push_back(ink(row.fits() ? Tone::kGood : Tone::kPoor,
                        share_text(all, row, most, kinds.size())));
    table.row(cells);
  }
  return title(ink, "Memory of the fullest rank") + table.text(ink);
}

std::string notes(const ZeroComparison& all) {
  const auto count = [&](auto holds) {
    return std::ranges::count_if(all.search.ranking, holds);
  };
  std::string out;
  const auto crossing = count([](const RankedZero& row) {
    return row.weight.z2_crosses_nodes || row.weight.z3_crosses_nodes;
  });
  if (crossing > 0)
    out += fmt::format(
        "  {} of {} have groups of gradients or parameters "
        "that cross nodes\n",
        crossing, all.search.ranking.size());
  if (count([](const RankedZero& row) { return row.weight.replicas > 1; }) > 0)
    out += fmt::format(
        "  with z1 below {}, states are stored and the step is computed {}/z1 "
        "times\n",
        all.mesh.homes(), all.mesh.homes());
  const int32_t homes = all.mesh.expert_homes();
  if (count([&](const RankedZero& row) {
        return row.weight.experts.z1 > 0 && row.weight.experts.z1 < homes;
      }) > 0)
    out += fmt::format(
        "  with z1 of experts below {}, theirs are stored and computed {}/z1 "
        "times\n",
        homes, homes);
  return out;
}

std::string verdict_line(const ZeroComparison& all, const Ink& ink) {
  return "\n  " +
         ink(all.search.is_found() ? Tone::kGood : Tone::kPoor,
             wrap(all.search.summary(), kPageWidth - 2, 2)) +
         "\n";
}

void write_row(JsonWriter& out, const ZeroComparison& all,
               const RankedZero& row) {
  out.begin_object().field("name",
                           zero_name(row.choice.sizes, all.mesh.homes()));
  write_sizes(out.member("zero"), row.choice.sizes);
  if (row.weight.experts.z1 > 0) {
    out.field("name_of_experts",
              zero_name(row.weight.experts, all.mesh.expert_homes()));
    write_sizes(out.member("experts"), row.weight.experts);
  }
  if (all.several_strategies) out.field("strategy", row.choice.strategy);
  out.field("words", in_words(row.choice.sizes));
  out.field("fits", row.fits()).field("reason", brief_reason(row, all.search));
  if (row.weight.is_dropped) out.field("least_memory_bytes", all.total(row));
  if (!row.is_planned()) {
    out.end_object();
    return;
  }
  out.field("memory_bytes", all.total(row)).member("memory").begin_object();
  for (const ZeroMemory& kind : memory_of(all, row))
    out.field(kind.name, kind.bytes);
  out.end_object();
  out.field("fast_bytes", row.weight.fast_bytes)
      .field("slow_bytes", row.weight.slow_bytes);
  out.field("predicted_iteration_seconds", row.weight.seconds);
  out.field("predicted_step_seconds", row.weight.step_seconds);
  if (all.tokens_per_second(row) > 0)
    out.field("tokens_per_second", all.tokens_per_second(row));
  out.field("bucket_bytes_max_over_even", row.weight.bucket_unevenness);
  out.field("replicas", row.weight.replicas);
  out.field("z2_crosses_nodes", row.weight.z2_crosses_nodes);
  out.field("z3_crosses_nodes", row.weight.z3_crosses_nodes).end_object();
}

}  // namespace

std::string work_text(const ZeroComparison& all) {
  const Workload& work = all.work;
  return cat(
      work.num_micro_batches,
      work.num_micro_batches == 1 ? " micro-batch of " : " micro-batches of ",
      work.compute.tokens, " tokens per data-parallel rank, ",
      human_count(all.global_batch()), " tokens on all ranks, ",
      to_string(work.overlap), work.compute.recompute ? ", recomputed" : "");
}

std::string rates_text(const ZeroComparison& all) {
  if (!all.rates.empty()) return all.rates;
  return cat(flops_text(all.work.compute.flops_per_second),
             "/s in forward and backward; ", links_text(all.options));
}

std::vector<ZeroMemory> memory_of(const ZeroComparison& all,
                                  const RankedZero& row) {
  std::vector<ZeroMemory> kinds;
  for (const MemoryKind& kind : memory_kinds(true))
    kinds.push_back({kind.name, (row.weight.memory.*kind.field).value()});
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
  out.begin_object().field("report", "zero");
  out.field("model", all.model).member("mesh");
  write_mesh(out, all.mesh);
  out.field("world", all.mesh.world()).field("rule", all.rule);
  out.field("strategy", all.strategy)
      .field("parameters", to_string(all.options.parameters));
  out.field("ranks_per_node", all.options.ranks_per_node);
  out.field("expert_homes", all.mesh.expert_homes());
  out.field("memory_cap_bytes", all.options.memory_cap_bytes);
  if (all.terms) {
    out.field("gradients", to_string(all.terms->gradients));
    write_activations(out.member("activations"), *all.terms);
  }
  out.field("global_batch_tokens", all.global_batch());
  out.field("work", work_text(all)).field("rates", rates_text(all));
  out.field("verdict", all.search.summary()).member("choice");
  if (all.search.is_found())
    write_sizes(out, all.search.ranking.front().choice.sizes);
  else
    out.null();
  if (all.search.is_found() && all.search.ranking.front().weight.experts.z1 > 0)
    write_sizes(out.member("choice_of_experts"),
                all.search.ranking.front().weight.experts);
  out.member("sizes").begin_array();
  for (const RankedZero& row : all.search.ranking) write_row(out, all, row);
  out.end_array().end_object();
}

std::string zero_comparison_json(const ZeroComparison& all) {
  JsonWriter out(2);
  write_zero_comparison(out, all);
  return out.take() + "\n";
}

std::string zero_comparison_html(const ZeroComparison& all) {
  JsonWriter out;
  write_zero_comparison(out, all);
  return make_page(out.text(), {"bars.js", "zero.js"});
}

}  // namespace canzona
