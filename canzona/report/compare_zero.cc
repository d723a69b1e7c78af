// Sizes of hierarchical ZeRO side by side.
#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/plan/zero.h"
#include "canzona/report/compare_view.h"
#include "canzona/report/mesh_view.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/zero_view.h"
#include "canzona/sim/zero_ranking.h"

namespace canzona::report {
namespace {

constexpr size_t kZeroBarWidth = 24;

std::string sizes_cell(const ZeroSizes& z) {
  return fmt::format("{},{},{}", z.z1, z.z2, z.z3);
}

std::string work_text(const ZeroRanking& all) {
  const Workload& work = all.work;
  return cat(
      work.num_micro_batches,
      work.num_micro_batches == 1 ? " micro-batch of " : " micro-batches of ",
      work.compute.tokens, " tokens per data-parallel rank, ",
      human_count(all.global_batch()), " tokens on all ranks, ",
      to_string(work.overlap), work.compute.recompute ? ", recomputed" : "");
}

std::string rates_text(const ZeroRanking& all) {
  if (!all.rates.empty()) return all.rates;
  const std::string rates =
      all.work.rates.empty() ? flops_text(all.work.compute.flops_per_second) +
                                   "/s in forward and backward"
                             : all.work.rates;
  return cat(rates, "; ", links_text(all.options));
}

std::string choice_text(const ZeroRanking& all, const RankedMesh& row) {
  return sizes_cell(row.weighed.choice.dense) +
         (all.several_strategies ? " " + printable(row.strategy) : "");
}

std::string experts_text(const RankedMesh& row) {
  return row.weighed.choice.experts.z1 > 0
             ? sizes_cell(row.weighed.choice.experts)
             : "-";
}

void add_heading(const ZeroRanking& all, Document& out) {
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
void add_figures(const ZeroRanking& all, const RankedMesh& row, Row& out) {
  const WeighedMesh& mesh = row.weighed;
  const int64_t memory = row.memory_bytes();
  if (!row.is_planned()) {
    out.add({memory > 0 ? "least_memory_bytes" : "", ">memory", memory,
             memory > 0 ? "≥ " + human_bytes(memory) : "-"});
    for (const char* heading :
         {">in nodes", ">between", ">iteration", ">tokens/s"})
      out.add({"", heading, "-"});
    return;
  }
  const double rate = mesh.tokens_per_second;
  out.add({"memory_bytes", ">memory", as_bytes(memory)});
  out.add({"fast_bytes", ">in nodes", as_bytes(mesh.fast_bytes)});
  out.add({"slow_bytes", ">between", as_bytes(mesh.slow_bytes)});
  out.add({"predicted_iteration_seconds", ">iteration",
           as_seconds(mesh.seconds())});
  out.add({rate > 0 ? "tokens_per_second" : "", ">tokens/s", rate,
           rate > 0 ? human_count(rate) : "-"});
  Members kinds;
  for (const MemoryPart& part : report::memory_of(mesh))
    kinds.push_back({part.name, part.bytes});
  out.set("memory", kinds);
  out.set("predicted_step_seconds", mesh.step_seconds());
  out.set("bucket_bytes_max_over_even", mesh.bucket_unevenness);
  out.set("replicas", all.mesh.homes() / mesh.choice.dense.z1);
}

void add_ranking(const ZeroRanking& all, Document& out) {
  Listing rows;
  bool first = true;
  for (const RankedMesh& row : all.rows()) {
    const Tone tone = !row.is_planned() ? Tone::kPlain
                      : !row.fits()     ? Tone::kPoor
                      : first           ? Tone::kGood
                                        : Tone::kPlain;
    first = first && !row.is_planned();
    const ZeroSizes& sizes = row.weighed.choice.dense;
    const ZeroSizes& experts = row.weighed.choice.experts;
    Row& line = rows.add({{"zero", "<z1,z2,z3", sizes_value(sizes),
                           toned(tone, choice_text(all, row))}});
    if (all.has_experts())
      line.add({experts.z1 > 0 ? "experts" : "", "<experts",
                sizes_value(experts), experts_text(row)});
    add_figures(all, row, line);
    line.add({"reason", "~why", row.reason});
    line.add({"words", "?data-parallel ranks", in_words(sizes)});
    line.set("name", zero_name(sizes, all.mesh.homes()));
    line.set("fits", row.fits());
    if (experts.z1 > 0)
      line.set("name_of_experts", zero_name(experts, all.mesh.expert_homes()));
    if (all.several_strategies) line.set("strategy", row.strategy);
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
std::vector<std::string> kind_names(const ZeroRanking& all) {
  std::vector<std::string> names;
  for (const RankedMesh& row : all.rows())
    for (const MemoryPart& part : report::memory_of(row.weighed))
      if (part.bytes > 0 && std::ranges::find(names, part.name) == names.end())
        names.push_back(part.name);
  return names;
}

// Returns a bar, or a number where the sizes of experts leave no room for one.
std::string share_text(const ZeroRanking& all, const RankedMesh& row,
                       int64_t most, size_t kinds) {
  const auto total = static_cast<double>(row.memory_bytes());
  const auto whole = static_cast<double>(std::max<int64_t>(most, 1));
  if (all.has_experts()) return fmt::format("{:.0f} %", 100 * total / whole);
  return bar(total, whole, kinds > 5 ? kZeroBarWidth / 2 : kZeroBarWidth);
}

void add_memory(const ZeroRanking& all, Document& out) {
  const std::vector<std::string> kinds = kind_names(all);
  const int64_t cap = all.options.memory_cap_bytes;
  int64_t most = cap;
  for (const RankedMesh& row : all.rows())
    if (cap == 0) most = std::max(most, row.memory_bytes());
  Listing rows;
  for (const RankedMesh& row : all.rows()) {
    if (!row.is_planned()) continue;
    Row& line = rows.add();
    if (all.has_experts())
      line.add({"", "<dense/experts",
                choice_text(all, row) + "/" + experts_text(row)});
    else
      line.add({"", "<z1,z2,z3", choice_text(all, row)});
    for (const MemoryPart& part : report::memory_of(row.weighed))
      if (std::ranges::find(kinds, part.name) != kinds.end())
        line.add({"", ">" + part.name, as_bytes(part.bytes)});
    line.add({"", ">all", as_bytes(row.memory_bytes())});
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

std::string notes(const ZeroRanking& all) {
  const auto note = [&](ZeroSizes MeshChoice::*sizes, int32_t homes,
                        const char* whose) {
    const bool repeats =
        std::ranges::any_of(all.rows(), [&](const RankedMesh& row) {
          const int32_t z1 = (row.weighed.choice.*sizes).z1;
          return z1 > 0 && z1 < homes;
        });
    return repeats ? fmt::format(
                         "  with z1 {}below {}, states are stored and the step "
                         "is computed {}/z1 times\n",
                         whose, homes, homes)
                   : "";
  };
  return note(&MeshChoice::dense, all.mesh.homes(), "") +
         note(&MeshChoice::experts, all.mesh.expert_homes(), "of experts ");
}

void add_verdict(const ZeroRanking& all, Document& out) {
  out.set("verdict", summary_of(all));
  out.text(cat("\n  ",
               toned(all.answer.is_found() ? Tone::kGood : Tone::kPoor,
                     wrap(summary_of(all), kPageWidth - 2, 2)),
               "\n"));
}

}  // namespace

Document zero_ranking_view(const ZeroRanking& all) {
  Document out;
  add_heading(all, out);
  add_ranking(all, out);
  add_verdict(all, out);
  return out;
}

Document zero_comparison_view(const ZeroRanking& all) {
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
  if (!all.answer.is_found()) return out.set("choice", nullptr);
  const RankedMesh& best = all.rows().front();
  if (best.weighed.choice.experts.z1 > 0)
    out.set("choice_of_experts", sizes_value(best.weighed.choice.experts));
  return out.set("choice", sizes_value(best.weighed.choice.dense));
}

std::string zero_comparison_html(const ZeroRanking& all) {
  return make_page(to_json(zero_comparison_view(all), 0),
                   {"bars.js", "zero.js"});
}

}  // namespace canzona::report
