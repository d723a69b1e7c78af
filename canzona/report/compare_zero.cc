// Sizes of hierarchical ZeRO side by side.
#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/plan/zero.h"
#include "canzona/report/compare_view.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/zero_view.h"
#include "canzona/sim/zero_search.h"

namespace canzona {
namespace {

constexpr size_t kZeroBarWidth = 24;

std::string sizes_cell(const ZeroSizes& z) {
  return fmt::format("{},{},{}", z.z1, z.z2, z.z3);
}

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
  const std::string rates =
      all.work.rates.empty() ? flops_text(all.work.compute.flops_per_second) +
                                   "/s in forward and backward"
                             : all.work.rates;
  return cat(rates, "; ", links_text(all.options));
}

// A kind of memory of a row with its bytes, those that any row has.
struct ZeroMemory {
  std::string name;
  int64_t bytes = 0;
};

std::vector<ZeroMemory> memory_of(const ZeroComparison& all,
                                  const RankedZero& row) {
  std::vector<ZeroMemory> kinds;
  for (const MemoryKind& kind : memory_kinds(true))
    kinds.push_back({kind.name, (row.weight.memory.*kind.field).value()});
  kinds.push_back({"activations", all.beside_bytes});
  return kinds;
}

std::string choice_text(const ZeroComparison& all, const RankedZero& row) {
  return sizes_cell(row.choice.sizes) +
         (all.several_strategies ? " " + printable(row.choice.strategy) : "");
}

std::string experts_text(const RankedZero& row) {
  return row.weight.experts.z1 > 0 ? sizes_cell(row.weight.experts) : "-";
}

void add_heading(const ZeroComparison& all, Document& out) {
  out.heading(
      "Hierarchical ZeRO",
      cat(" for ", printable(all.model), ", ", all.rule, " (", all.strategy,
          ") on ", to_string(all.mesh), ": ", counted(all.mesh.world(), "rank"),
          ", ", all.options.ranks_per_node, " per node, ",
          to_string(all.options.parameters), " parameters"));
  const auto line = [&](const char* key, const char* name,
                        const std::string& text) {
    out.text(cat("  ", toned(Tone::kDim, name), " ",
                 wrap(text, kPageWidth - 14, 4), "\n"));
    if (key != nullptr) out.set(key, text);
  };
  line("work", "iteration:", work_text(all));
  line("rates", "times:", rates_text(all));
  for (const std::string& gap : all.gaps)
    line(nullptr, "known to be off:", gap);
  out.set("known_gaps", std::vector<Value>(all.gaps.begin(), all.gaps.end()));
  if (all.options.memory_cap_bytes > 0)
    line(nullptr, "memory cap:",
         human_bytes(all.options.memory_cap_bytes) + " per rank");
  if (!all.terms) return;
  line(nullptr, "activations:", describe_activations(*all.terms, all.mesh));
  line(nullptr, "gradients:", cat(to_string(all.terms->gradients), " at rest"));
  out.set("gradients", to_string(all.terms->gradients));
  out.set("activations", activations_value(*all.terms));
}

// Of a choice that was not planned at most a bound of its memory is known.
void add_figures(const ZeroComparison& all, const RankedZero& row, Row& out) {
  const ZeroWeight& weight = row.weight;
  const int64_t memory = all.total(row);
  if (!row.is_planned()) {
    out.add({weight.is_dropped ? "least_memory_bytes" : "", ">memory", memory,
             weight.is_dropped ? "≥ " + human_bytes(memory) : "-"});
    for (const char* heading :
         {">in nodes", ">between", ">iteration", ">tokens/s"})
      out.add({"", heading, "-"});
    return;
  }
  const double rate = all.tokens_per_second(row);
  out.add({"memory_bytes", ">memory", as_bytes(memory)});
  out.add({"fast_bytes", ">in nodes", as_bytes(weight.fast_bytes)});
  out.add({"slow_bytes", ">between", as_bytes(weight.slow_bytes)});
  out.add({"predicted_iteration_seconds", ">iteration",
           as_seconds(weight.seconds)});
  out.add({rate > 0 ? "tokens_per_second" : "", ">tokens/s", rate,
           rate > 0 ? human_count(rate) : "-"});
  Members kinds;
  for (const ZeroMemory& kind : memory_of(all, row))
    kinds.push_back({kind.name, kind.bytes});
  out.set("memory", kinds);
  if (weight.is_dropped) out.set("least_memory_bytes", memory);
  out.set("predicted_step_seconds", weight.step_seconds);
  out.set("bucket_bytes_max_over_even", weight.bucket_unevenness);
  out.set("replicas", weight.replicas);
  out.set("z2_crosses_nodes", weight.z2_crosses_nodes);
  out.set("z3_crosses_nodes", weight.z3_crosses_nodes);
}

void add_ranking(const ZeroComparison& all, Document& out) {
  Listing rows;
  bool first = true;
  for (const RankedZero& row : all.search.ranking) {
    const Tone tone = !row.is_planned() ? Tone::kPlain
                      : !row.fits()     ? Tone::kPoor
                      : first           ? Tone::kGood
                                        : Tone::kPlain;
    first = first && !row.is_planned();
    const ZeroSizes& sizes = row.choice.sizes;
    const ZeroSizes& experts = row.weight.experts;
    Row& line = rows.add({{"zero", "<z1,z2,z3", sizes_value(sizes),
                           toned(tone, choice_text(all, row))}});
    if (all.has_experts())
      line.add({experts.z1 > 0 ? "experts" : "", "<experts",
                sizes_value(experts), experts_text(row)});
    add_figures(all, row, line);
    line.add({"reason", "~why", brief_reason(row, all.search)});
    line.add({"words", "?data-parallel ranks", in_words(sizes)});
    line.set("name", zero_name(sizes, all.mesh.homes()));
    line.set("fits", row.fits());
    if (experts.z1 > 0)
      line.set("name_of_experts", zero_name(experts, all.mesh.expert_homes()));
    if (all.several_strategies) line.set("strategy", row.choice.strategy);
  }
  out.title(
         "Ranking: memory of the fullest rank, bytes sent inside nodes and "
         "between them, predicted time")
      .text(
          "  z1, z2, z3: data-parallel ranks that share states, gradients, "
          "parameters\n")
      .table("sizes", rows);
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

void add_memory(const ZeroComparison& all, Document& out) {
  const std::vector<std::string> kinds = kind_names(all);
  const int64_t cap = all.options.memory_cap_bytes;
  int64_t most = cap;
  for (const RankedZero& row : all.search.ranking)
    if (cap == 0) most = std::max(most, all.total(row));
  Listing rows;
  for (const RankedZero& row : all.search.ranking) {
    if (!row.is_planned()) continue;
    Row& line = rows.add();
    if (all.has_experts())
      line.add({"", "<dense/experts",
                choice_text(all, row) + "/" + experts_text(row)});
    else
      line.add({"", "<z1,z2,z3", choice_text(all, row)});
    for (const ZeroMemory& kind : memory_of(all, row))
      if (std::ranges::find(kinds, kind.name) != kinds.end())
        line.add({"", ">" + kind.name, as_bytes(kind.bytes)});
    line.add({"", ">all", as_bytes(all.total(row))});
    line.add({"",
              cap == 0            ? "<"
              : all.has_experts() ? "<of cap"
                                  : "<of the cap",
              "",
              toned(row.fits() ? Tone::kGood : Tone::kPoor,
                    share_text(all, row, most, kinds.size()))});
  }
  out.title("Memory of the fullest rank")
      .table("", rows, "no size was planned");
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

void add_verdict(const ZeroComparison& all, Document& out) {
  out.set("verdict", all.search.summary());
  out.text(cat("\n  ",
               toned(all.search.is_found() ? Tone::kGood : Tone::kPoor,
                     wrap(all.search.summary(), kPageWidth - 2, 2)),
               "\n"));
}

}  // namespace

Document zero_ranking_view(const ZeroComparison& all) {
  Document out;
  add_heading(all, out);
  add_ranking(all, out);
  add_verdict(all, out);
  return out;
}

Document zero_comparison_view(const ZeroComparison& all) {
  Document out;
  out.set("report", "zero").set("model", all.model);
  out.set("mesh", mesh_value(all.mesh)).set("world", all.mesh.world());
  out.set("rule", all.rule).set("strategy", all.strategy);
  out.set("parameters", to_string(all.options.parameters));
  out.set("ranks_per_node", all.options.ranks_per_node);
  out.set("expert_homes", all.mesh.expert_homes());
  out.set("memory_cap_bytes", all.options.memory_cap_bytes);
  out.set("global_batch_tokens", all.global_batch());
  add_heading(all, out);
  add_ranking(all, out);
  add_memory(all, out);
  out.text(notes(all));
  add_verdict(all, out);
  if (!all.search.is_found()) return out.set("choice", nullptr);
  const RankedZero& best = all.search.ranking.front();
  if (best.weight.experts.z1 > 0)
    out.set("choice_of_experts", sizes_value(best.weight.experts));
  return out.set("choice", sizes_value(best.choice.sizes));
}

std::string zero_comparison_html(const ZeroComparison& all) {
  return make_page(to_json(zero_comparison_view(all), 0),
                   {"bars.js", "zero.js"});
}

}  // namespace canzona
