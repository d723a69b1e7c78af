#include "canzona/report/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/in_parts.h"
#include "canzona/report/moves.h"
#include "canzona/report/numbers.h"
#include "canzona/report/owner_story.h"
#include "canzona/report/terminal_table.h"

namespace canzona {
namespace {

// A tensor split by head has hundreds of matrices that differ in little.
constexpr size_t kMaxExplained = 8;
constexpr size_t kLabel = 12;

std::string owner_text(const SettledRequest& plan, const OwnerStory& story) {
  if (story.repeated && story.owners.size() > 1)
    return fmt::format("none: {} ranks repeat the update", story.owners.size());
  std::string out;
  for (const int32_t rank : story.owners)
    out += fmt::format("{}rank {} ({})", out.empty() ? "" : ", ", rank,
                       coordinates_text(plan.mesh, rank));
  return out;
}

std::string cost_line(const PlanPart& plan, int32_t matrix) {
  const MatrixCost& cost = plan.costs[static_cast<size_t>(matrix)];
  const auto ticks = [&](Ticks t) {
    return cost_text(plan.cost_basis, static_cast<double>(t.value()));
  };
  std::string out = ticks(cost.every_step) + " predicted per step";
  if (cost.refresh.value() > 0)
    out += fmt::format("; refresh {} every {} steps, phase {} of {}",
                       ticks(cost.refresh), plan.period,
                       plan.phase[static_cast<size_t>(matrix)], plan.phases);
  return out;
}

// Ranks of a group of experts do not follow each other: they are named.
std::string home_text(const PlanPart& plan, const Matrix& m) {
  const int32_t home = plan.home[static_cast<size_t>(m.tensor)];
  const std::string text =
      fmt::format("{} of {}", home, plan.buffer_of(m.tensor).num_homes);
  if (plan.ep == 1) return text;
  return text + ": " + ranks_text(ranks_of_home(plan, m.tensor, home));
}

// "3 of 12", and of a plan in parts: "9 of 12, experts of ep 1".
std::string bucket_text(const Plan& whole, int32_t number) {
  const std::string part = find_bucket(whole, number).part->name;
  return fmt::format("{} of {}{}{}", number, num_buckets(whole),
                     part.empty() ? "" : ", ", part);
}

std::string facts_text(const Plan& whole, int32_t number,
                       const OwnerStory& story, const Ink& ink) {
  const MatrixInPart at = matrix_in_part(whole, number);
  const PlanPart& plan = *at.part;
  const int32_t matrix = at.matrix;
  const Matrix& m = plan.matrices[static_cast<size_t>(matrix)];
  const auto t = static_cast<size_t>(m.tensor);
  const Tensor& tensor = plan.model.tensors[t];
  std::string out = ink(Tone::kBold, printable(name_of(plan, matrix))) + "\n";
  const auto line = [&](const char* name, const std::string& text) {
    out += "  " + ink(Tone::kDim, pad_right(name, kLabel)) +
           wrap(text, kPageWidth - kLabel - 2, kLabel + 2) + "\n";
  };
  line("shape", fmt::format("{} × {}, tp cut: {}", m.rows, m.cols,
                            to_string(tensor.cut)));
  line("owner", owner_text(whole, story));
  if (plan.home[t] != kEveryHome)
    line(plan.grid.places > 1 ? "home group" : "home", home_text(plan, m));
  line("bucket", bucket_text(whole, bucket_number(plan, m.tensor)));
  if (plan.grid.tp > 1 && !story.repeated)
    line("micro-group",
         fmt::format("{} of its home",
                     plan.micro_group[static_cast<size_t>(matrix)]));
  line("cost", cost_line(plan, matrix));
  return out;
}

std::string loads_table(const OwnerStory& story, const Ink& ink) {
  Table table("<>");
  const auto row = [&](const std::string& name, double load) {
    table.row({name, story.mean > 0 ? ratio_text(load / story.mean) + " × mean"
                                    : "-"});
  };
  const int32_t owner = story.owners.front();
  row(fmt::format("rank {} as planned", owner), story.load_with);
  row(fmt::format("rank {} without this matrix", owner), story.load_without);
  if (story.other_rank >= 0)
    row(fmt::format("rank {} (best other) with it", story.other_rank),
        story.other_load);
  row("makespan of the plan", story.makespan);
  row("lower bound of any plan", story.bound);
  return table.text(ink);
}

std::string verdict(const Plan& plan, const OwnerStory& story) {
  if (story.other_rank < 0) return "";
  if (plan.period > 1)
    return "Loads are sums over a period; the makespan adds the largest load "
           "of "
           "each of its steps.";
  if (story.other_load > story.makespan)
    return fmt::format("On rank {} it would raise the makespan by {:.2f} %.",
                       story.other_rank,
                       100 * (story.other_load / story.makespan - 1));
  if (plan.options.strategy != "balanced")
    return fmt::format(
        "On rank {} it would stay within the makespan; {} does "
        "not weigh that.",
        story.other_rank, plan.options.strategy);
  return fmt::format(
      "Rank {} could take it within the makespan: bytes per "
      "bucket, memory or the order of names decided.",
      story.other_rank);
}

std::string why_text(const Plan& plan, const OwnerStory& story,
                     const Ink& ink) {
  std::string out = "\n" + ink(Tone::kBold, "Why") + "\n";
  for (const std::string& reason : story.reasons)
    out += "  " + wrap(reason, kPageWidth - 2, 2) + "\n";
  out += loads_table(story, ink);
  const std::string last = verdict(plan, story);
  return last.empty() ? out : out + "  " + wrap(last, kPageWidth - 2, 2) + "\n";
}

std::string explain_one(const ReportPlan& shown, int32_t matrix,
                        const Ink& ink) {
  const OwnerStory story = tell_owner(shown, matrix);
  return facts_text(shown.plan, matrix, story, ink) +
         why_text(shown.plan, story, ink) + moves_text(shown.plan, matrix, ink);
}

// The homes whose run of the AdamW region overlaps the tensor.
std::pair<int32_t, int32_t> adamw_homes(const Bucket& bucket,
                                        const BucketRegion& region) {
  const auto& cuts = bucket.adamw_cuts;
  const auto home = [&](int64_t element) {
    const auto after = std::upper_bound(cuts.begin(), cuts.end(), element);
    return static_cast<int32_t>(after - cuts.begin()) - 1;
  };
  const int64_t last =
      region.offset + std::max<int64_t>(1, region.elements) - 1;
  return {home(region.offset), home(last)};
}

std::string explain_adamw(const Plan& whole, int32_t number, const Ink& ink) {
  const PlannedTensor planned = planned_tensor(whole, number);
  const PlanPart& plan = *planned.part;
  const int32_t tensor = planned.tensor;
  const auto at = static_cast<size_t>(tensor);
  const Tensor& t = plan.model.tensors[at];
  const Bucket& bucket = plan.buckets[static_cast<size_t>(plan.bucket_of[at])];
  std::string out =
      ink(Tone::kBold, printable(t.name)) +
      fmt::format(
          "\n  {} ({}), updated by AdamW: element-wise, so it has no "
          "owner\n",
          dims_text(t.shape), to_string(t.role));
  if (bucket.adamw_cuts.empty())
    return out + fmt::format("  bucket {}: every home keeps all of it\n",
                             bucket_number(plan, tensor));
  const auto [first, last] = adamw_homes(bucket, region_of(plan, tensor));
  return out +
         fmt::format("  last in bucket {}, kept by home{} {}\n",
                     bucket_number(plan, tensor), first == last ? "" : "s",
                     first == last ? fmt::format("{}", first)
                                   : fmt::format("{} to {}", first, last));
}

void write_story(JsonWriter& out, const OwnerStory& story) {
  out.member("owners").values(story.owners);
  out.field("repeated", story.repeated);
  out.member("load").begin_object();
  out.field("with", story.load_with).field("without", story.load_without);
  out.field("mean", story.mean).field("makespan", story.makespan);
  out.field("bound", story.bound).end_object();
  if (story.other_rank >= 0) {
    out.member("best_other").begin_object().field("rank", story.other_rank);
    out.field("load_with_it", story.other_load).end_object();
  }
  out.member("reasons").values(story.reasons);
}

void write_matrix(JsonWriter& out, const ReportPlan& shown, int32_t matrix) {
  const MatrixInPart planned = matrix_in_part(shown.plan, matrix);
  const PlanPart& plan = *planned.part;
  const auto at = static_cast<size_t>(planned.matrix);
  const Matrix& m = plan.matrices[at];
  const auto t = static_cast<size_t>(m.tensor);
  out.begin_object().field("name", name_of(plan, planned.matrix));
  out.field("rows", m.rows).field("cols", m.cols);
  out.field("tp", to_string(plan.model.tensors[t].cut));
  out.field("home", plan.home[t]);
  out.field("bucket", bucket_number(plan, m.tensor));
  out.field("micro_group", plan.micro_group[at]);
  out.field("cost_every_step", plan.costs[at].every_step.value());
  out.field("cost_refresh", plan.costs[at].refresh.value());
  out.field("phase", plan.phase[at]);
  write_story(out, tell_owner(shown, matrix));
  out.member("moves");
  write_moves(out, shown.plan, matrix);
  out.end_object();
}

}  // namespace

std::string explain_matrices(const ReportPlan& shown, const Found& found,
                             const Ink& ink) {
  if (found.matrices.empty())
    return explain_adamw(shown.plan, found.tensor, ink);
  std::string out;
  const size_t count = std::min(found.matrices.size(), kMaxExplained);
  for (size_t i = 0; i < count; ++i)
    out += (i > 0 ? "\n" : "") + explain_one(shown, found.matrices[i], ink);
  if (found.matrices.size() > count)
    out +=
        fmt::format("\n… and {} more matrices of this tensor, the last is {}\n",
                    found.matrices.size() - count,
                    printable(name_of(shown.plan, found.matrices.back())));
  return out;
}

std::string explain_matrices_json(const ReportPlan& shown, const Found& found) {
  JsonWriter out(2);
  const auto at = static_cast<size_t>(found.tensor);
  out.begin_object().field("tensor", shown.plan.model.tensors[at].name);
  out.field("rule", found.matrices.empty() ? "adamw" : shown.plan.rule.c_str());
  out.member("matrices").begin_array();
  for (const int32_t matrix : found.matrices) write_matrix(out, shown, matrix);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona
