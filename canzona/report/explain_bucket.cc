// Explains a bucket: its tensors, their homes and what each home keeps.
#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/report/explain.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/terminal.h"
#include "canzona/rules/facts.h"

namespace canzona {
namespace {

constexpr size_t kMaxTensors = 24;
constexpr int32_t kMaxHomes = 8;

const Bucket& bucket_of(const PlannedBucket& at) {
  return at.part->buckets[static_cast<size_t>(at.bucket)];
}

const Tensor& tensor_of(const PlanPart& plan, int32_t tensor) {
  return plan.model.tensors[static_cast<size_t>(tensor)];
}

// Returns the elements of one plane's regions: the matrix rule's and AdamW's.
std::pair<int64_t, int64_t> region_sizes(const PlanPart& plan,
                                         const Bucket& b) {
  const auto split = static_cast<size_t>(b.num_matrix_tensors);
  int64_t matrix_rule = 0, adamw = 0;
  for (size_t i = 0; i < b.tensors.size(); ++i) {
    const int64_t size =
        shard_elements(plan.mesh, tensor_of(plan, b.tensors[i]));
    (i < split ? matrix_rule : adamw) += size;
  }
  return {matrix_rule, adamw};
}

std::vector<double> runs(const std::vector<int64_t>& cuts) {
  std::vector<double> sizes;
  for (size_t h = 0; h + 1 < cuts.size(); ++h)
    sizes.push_back(static_cast<double>(cuts[h + 1] - cuts[h]));
  return sizes;
}

std::string where_text(const PlannedBucket& at) {
  const PlanPart& plan = *at.part;
  const Buffer& buffer =
      plan.buffers[static_cast<size_t>(bucket_of(at).buffer)];
  std::string out = at.part->name;
  if (out.empty())
    out = buffer.ep < 0 ? "dense tensors"
                        : fmt::format("experts of ep {}", buffer.ep);
  if (plan.mesh.pp > 1) out += fmt::format(", stage {}", buffer.stage);
  return out + ", " +
         counted(buffer.num_homes, plan.grid.places > 1 ? "group" : "home");
}

std::string heading(const Plan& whole, int32_t number, const Ink& ink) {
  const PlannedBucket at = find_bucket(whole, number);
  const Bucket& bucket = bucket_of(at);
  const PlanPart& plan = *at.part;
  const auto [matrix_rule, adamw] = region_sizes(plan, bucket);
  return ink(Tone::kBold, fmt::format("Bucket {}", number)) +
         fmt::format(" of {}: {}\n", num_buckets(whole), where_text(at)) +
         fmt::format("  {} of {}, {} elements per tp rank\n",
                     counted(bucket.num_matrix_tensors, "tensor"), plan.rule,
                     human_count(static_cast<double>(matrix_rule))) +
         fmt::format(
             "  {} of adamw, {} elements per tp rank\n",
             counted(std::ssize(bucket.tensors) - bucket.num_matrix_tensors,
                     "tensor"),
             human_count(static_cast<double>(adamw)));
}

// The ranks of groups of experts are not consecutive, so each is named.
std::string homes_of(const PlanPart& plan, const Bucket& bucket) {
  if (plan.ep == 1 || bucket.tensors.empty()) return "";
  const Buffer& buffer = plan.buffers[static_cast<size_t>(bucket.buffer)];
  std::string out;
  for (int32_t h = 0; h < std::min(buffer.num_homes, kMaxHomes); ++h)
    out += "  " +
           wrap(fmt::format(
                    "{} {}: {}", plan.grid.places > 1 ? "group" : "home", h,
                    ranks_text(ranks_of_home(plan, bucket.tensors[0], h))),
                kPageWidth - 2, 4) +
           "\n";
  if (buffer.num_homes > kMaxHomes)
    out += fmt::format("  … and {} more\n", buffer.num_homes - kMaxHomes);
  return out;
}

void write_homes(JsonWriter& out, const PlanPart& plan, const Bucket& bucket) {
  const Buffer& buffer = plan.buffers[static_cast<size_t>(bucket.buffer)];
  out.member("ranks_of_homes").begin_array();
  for (int32_t h = 0; h < buffer.num_homes; ++h)
    out.values(ranks_of_home(plan, bucket.tensors[0], h));
  out.end_array();
}

std::string home_runs(const PlanPart& plan, const Bucket& bucket,
                      const Ink& ink) {
  std::string out = title(ink, "Elements per home");
  if (bucket.cuts.empty())
    return out + (plan.traffic == Traffic::kBroadcast
                      ? "  each home stores the matrices it owns\n"
                      : "  every home stores all of it\n");
  std::vector<double> sizes = runs(bucket.cuts);
  const Spread spread = spread_of(sizes);
  if (spread.max > 0)
    out += load_picture({.loads = sizes, .mean = spread.mean, .what = "home"},
                        ink);
  out += fmt::format("  even share {} · largest {} × even (home {})\n",
                     human_count(spread.mean),
                     ratio_text(spread.max_over_mean()), spread.largest);
  const std::vector<double> rest = runs(bucket.adamw_cuts);
  for (size_t h = 0; h < std::min(sizes.size(), rest.size()); ++h)
    sizes[h] += rest[h];
  return out + fmt::format("  with AdamW's elements: largest {} × even\n",
                           ratio_text(spread_of(sizes).max_over_mean()));
}

std::string home_text(const PlanPart& plan, int32_t tensor) {
  const int32_t home = plan.home[static_cast<size_t>(tensor)];
  return home == kEveryHome ? "-" : fmt::format("{}", home);
}

std::string tensors_text(const PlanPart& plan, const Bucket& bucket,
                         const Ink& ink) {
  Table table("~>>>>");
  table.header(
      {"tensor, in layout order", "shape", "rule", "home", "elements"});
  const size_t shown = std::min(bucket.tensors.size(), kMaxTensors);
  for (size_t i = 0; i < shown; ++i) {
    const Tensor& tensor = tensor_of(plan, bucket.tensors[i]);
    const int64_t size = shard_elements(plan.mesh, tensor);
    table.row({printable(tensor.name), dims_text(tensor.shape),
               tensor.matrix_rule ? plan.rule : kElementRule,
               home_text(plan, bucket.tensors[i]),
               human_count(static_cast<double>(size))});
  }
  std::string out = title(ink, "Tensors") + table.text(ink);
  return out + left_out_text(bucket.tensors.size() - shown, ink);
}

}  // namespace

std::string explain_bucket(const Plan& whole, int32_t bucket, const Ink& ink) {
  const PlannedBucket at = find_bucket(whole, bucket);
  const PlanPart& plan = *at.part;
  const Bucket& b = bucket_of(at);
  return heading(whole, bucket, ink) + homes_of(plan, b) +
         home_runs(plan, b, ink) + tensors_text(plan, b, ink);
}

std::string explain_bucket_json(const Plan& whole, int32_t bucket) {
  const PlannedBucket at = find_bucket(whole, bucket);
  const PlanPart& plan = *at.part;
  const Bucket& b = bucket_of(at);
  const Buffer& buffer = plan.buffers[static_cast<size_t>(b.buffer)];
  JsonWriter out(2);
  out.begin_object().field("bucket", bucket).field("stage", buffer.stage);
  out.field("ep", plan.ep > 1 ? plan.e : buffer.ep);
  out.field("num_homes", buffer.num_homes);
  if (!at.part->name.empty() && !b.tensors.empty()) write_homes(out, plan, b);
  out.member("cuts").values(b.cuts);
  out.member("adamw_cuts").values(b.adamw_cuts);
  out.member("tensors").begin_array();
  for (const int32_t t : b.tensors) {
    const Tensor& tensor = tensor_of(plan, t);
    out.begin_object().field("name", tensor.name);
    out.member("shape").values(tensor.shape);
    out.field("rule", tensor.matrix_rule ? plan.rule.c_str() : kElementRule);
    out.field("home", plan.home[static_cast<size_t>(t)]);
    out.field("elements", shard_elements(plan.mesh, tensor)).end_object();
  }
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona
