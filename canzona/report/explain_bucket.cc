// Explains a bucket: its tensors, their homes and what each home keeps.
#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/report/explain.h"
#include "canzona/report/shown_plan.h"
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

void add_heading(const Plan& whole, int32_t number, Document& out) {
  const PlannedBucket at = find_bucket(whole, number);
  const Bucket& bucket = bucket_of(at);
  const auto [matrix_rule, adamw] = region_sizes(*at.part, bucket);
  out.heading(cat("Bucket ", number),
              cat(" of ", num_buckets(whole), ": ", where_text(at)));
  const auto line = [&](int64_t tensors, const std::string& rule,
                        int64_t elements) {
    out.line(cat(counted(tensors, "tensor"), " of ", rule, ", ",
                 human_count(static_cast<double>(elements)),
                 " elements per tp rank"));
  };
  line(bucket.num_matrix_tensors, at.part->rule, matrix_rule);
  line(std::ssize(bucket.tensors) - bucket.num_matrix_tensors, kElementRule,
       adamw);
}

// The ranks of groups of experts are not consecutive, so each is named.
void add_homes(const PlannedBucket& at, Document& out) {
  const PlanPart& plan = *at.part;
  const Bucket& bucket = bucket_of(at);
  if (bucket.tensors.empty()) return;
  const int32_t homes = plan.buffers[index(bucket.buffer)].num_homes;
  std::vector<std::vector<int32_t>> ranks;
  for (int32_t h = 0; h < homes; ++h)
    ranks.push_back(ranks_of_home(plan, bucket.tensors[0], h));
  for (int32_t h = 0; plan.ep > 1 && h < std::min(homes, kMaxHomes); ++h)
    out.line(cat(plan.grid.places > 1 ? "group" : "home", " ", h, ": ",
                 ranks_text(ranks[index(h)])),
             4);
  if (plan.ep > 1 && homes > kMaxHomes)
    out.line(cat("… and ", homes - kMaxHomes, " more"));
  if (!plan.name.empty()) out.set("ranks_of_homes", ranks);
}

void add_runs(const PlanPart& plan, const Bucket& bucket, Document& out) {
  out.set("cuts", bucket.cuts).set("adamw_cuts", bucket.adamw_cuts);
  out.title("Elements per home");
  if (bucket.cuts.empty()) {
    out.line(plan.traffic == Traffic::kBroadcast
                 ? "each home stores the matrices it owns"
                 : "every home stores all of it");
    return;
  }
  std::vector<double> sizes = runs(bucket.cuts);
  const Spread spread = spread_of(sizes);
  if (spread.max > 0)
    out.text(load_picture({.loads = sizes, .mean = spread.mean, .what = "home"},
                          Ink(true)));
  out.line(fmt::format("even share {} · largest {} × even (home {})",
                       human_count(spread.mean),
                       ratio_text(spread.max_over_mean()), spread.largest));
  const std::vector<double> rest = runs(bucket.adamw_cuts);
  for (size_t h = 0; h < std::min(sizes.size(), rest.size()); ++h)
    sizes[h] += rest[h];
  out.line(cat("with AdamW's elements: largest ",
               ratio_text(spread_of(sizes).max_over_mean()), " × even"));
}

Listing tensors_of(const PlanPart& plan, const Bucket& bucket) {
  Listing tensors(kMaxTensors);
  for (const int32_t t : bucket.tensors) {
    const Tensor& tensor = tensor_of(plan, t);
    const int32_t home = plan.home[index(t)];
    const int64_t size = shard_elements(plan.mesh, tensor);
    tensors.add(
        {{"name", "~tensor, in layout order", tensor.name},
         {"shape", ">shape", tensor.shape, dims_text(tensor.shape)},
         {"rule", ">rule", tensor.matrix_rule ? plan.rule : kElementRule},
         {"home", ">home", home, home == kEveryHome ? "-" : cat(home)},
         {"elements", ">elements", size,
          human_count(static_cast<double>(size))}});
  }
  return tensors;
}

}  // namespace

Document explain_bucket(const Plan& whole, int32_t number) {
  const PlannedBucket at = find_bucket(whole, number);
  const PlanPart& plan = *at.part;
  const Bucket& bucket = bucket_of(at);
  const Buffer& buffer = plan.buffers[index(bucket.buffer)];
  Document out;
  out.set("bucket", number).set("stage", buffer.stage);
  out.set("ep", plan.ep > 1 ? plan.e : buffer.ep);
  out.set("num_homes", buffer.num_homes);
  add_heading(whole, number, out);
  add_homes(at, out);
  add_runs(plan, bucket, out);
  return out.title("Tensors").table("tensors", tensors_of(plan, bucket));
}

}  // namespace canzona
