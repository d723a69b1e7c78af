// How to read the report, in the project's words.

#include <array>
#include <utility>

#include "canzona/report/html_sections.h"

namespace canzona {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 14> kWords = {{
    {"tensor", "a named parameter as the model has it"},
    {"matrix",
     "one 2-D block that the rule treats as a whole: a tensor, or a "
     "piece of one after a split"},
    {"shard", "the part of a tensor that one rank stores"},
    {"rule",
     "an optimizer: how one matrix is updated. Tensors that are no "
     "matrices are left to AdamW"},
    {"bucket", "a run of tensors reduced together during backward"},
    {"home",
     "the data-parallel coordinate to which a matrix's gradient is "
     "reduced; its tp ranks keep the master weights, 1/tp each"},
    {"owner",
     "the rank of the home that computes a matrix's update; several "
     "that share one matrix are a team"},
    {"micro-group",
     "the matrices moved and computed together in one "
     "all-to-all round"},
    {"load",
     "the work of a rank over a period of steps: ordinary steps and "
     "the refreshes of the rule"},
    {"mean",
     "all work divided by the number of ranks: what each would carry "
     "if matrices could be cut anywhere"},
    {"lower bound",
     "no plan that gives whole matrices to ranks can have a "
     "smaller makespan"},
    {"makespan",
     "the largest load, summed over the steps of a period: all "
     "other ranks wait for it"},
    {"idle rank", "a rank that owns no matrix"},
    {"predicted",
     "computed from the plan and a rate of work, not measured. "
     "Nominal: no cost table of the device, or no link speeds, "
     "were given; ratios hold, times are rough"},
}};

}  // namespace

void add_glossary(Html& out) {
  begin_section(out, "words", "How to read it");
  out.add(
      "<p>Who computes a matrix is decided apart from where its pieces "
      "are stored. The result of a step is the same under every strategy; "
      "time, traffic and memory differ.</p><dl class=\"words\">\n");
  for (const auto& [word, meaning] : kWords) {
    out.put("<div><dt>{}</dt><dd>{}</dd></div>\n", word, meaning);
  }
  out.add("</dl>");
  end_section(out);
}

}  // namespace canzona
