#include "canzona/report/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

PlannedTensor planned_tensor(const Plan& plan, int32_t tensor) {
  const TensorInPart& at = plan.in_part[static_cast<size_t>(tensor)];
  return {&plan.parts[static_cast<size_t>(at.part)], at.tensor};
}

int32_t num_buckets(const Plan& plan) {
  const PlanPart& last = plan.parts.back();
  return last.first_bucket + static_cast<int32_t>(last.buckets.size());
}

PlannedBucket find_bucket(const Plan& plan, int32_t number) {
  for (const PlanPart& part : plan.parts) {
    const int32_t own = number - part.first_bucket;
    if (own >= 0 && std::cmp_less(own, part.buckets.size()))
      return {&part, own};
  }
  throw InternalError(cat("bucket ", number, " of ", num_buckets(plan)));
}

std::vector<PlannedRank> planned_ranks(const Plan& plan, int32_t rank) {
  std::vector<PlannedRank> out;
  for (const RankInPart& at : parts_of_rank(plan, rank))
    out.push_back({&plan.parts[static_cast<size_t>(at.part)], at.rank});
  return out;
}

namespace {

// The matrices of one tensor.
std::vector<int32_t> matrices_of(const Plan& plan, int32_t tensor) {
  const auto at = static_cast<size_t>(tensor);
  std::vector<int32_t> out;
  for (int32_t m = plan.first_matrix[at]; m < plan.first_matrix[at + 1]; ++m)
    out.push_back(m);
  return out;
}

std::vector<std::string> known_names(const Plan& plan) {
  std::vector<std::string> names;
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    names.push_back(name_of(plan, static_cast<int32_t>(m)));
  for (const Tensor& tensor : plan.model.tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace

std::string coordinates_text(const Mesh& mesh, int32_t rank) {
  const Coordinates at = coordinates_of(mesh, rank);
  std::string out;
  const auto add = [&](const char* axis, int32_t size, int32_t place) {
    if (size <= 1) return;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", axis, place);
  };
  add("dp", mesh.dp, at.dp);
  add("cp", mesh.cp, at.cp);
  add("tp", mesh.tp, at.t);
  add("pp", mesh.pp, at.stage);
  add("ep", mesh.ep, at.ep);
  return out.empty() ? "the only rank" : out;
}

std::string ranks_text(const std::vector<int32_t>& ranks) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    runs.push_back(end == i + 1
                       ? fmt::format("{}", ranks[i])
                       : fmt::format("{} to {}", ranks[i], ranks[end - 1]));
    i = end;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(runs, ", ");
}

int32_t rank_of(const PlanPart& plan, int32_t tensor, int32_t home, int32_t t) {
  const Buffer& buffer = plan.buffer_of(tensor);
  return plan.rank_in_whole(rank_in_part(
      plan, plan.grid.rank(buffer.stage, plan.stage_home(buffer, home), t), 0));
}

std::vector<int32_t> ranks_of_home(const PlanPart& plan, int32_t tensor,
                                   int32_t home) {
  std::vector<int32_t> ranks;
  for (int32_t t = 0; t < plan.grid.tp; ++t)
    ranks.push_back(rank_of(plan, tensor, home, t));
  return ranks;
}

std::vector<int32_t> owner_ranks(const PlanPart& plan, int32_t matrix) {
  const int32_t tensor = plan.matrices[static_cast<size_t>(matrix)].tensor;
  const int32_t home = plan.home[static_cast<size_t>(tensor)];
  const Buffer& buffer = plan.buffer_of(tensor);
  const std::vector<int32_t> owners =
      distinct(plan.owners[static_cast<size_t>(matrix)]);
  const int32_t first = home == kEveryHome ? 0 : home;
  const int32_t last = home == kEveryHome ? buffer.num_homes : home + 1;
  std::vector<int32_t> ranks;
  const auto add = [&](int32_t h, int32_t t) {
    const int32_t rank =
        plan.grid.rank(buffer.stage, plan.stage_home(buffer, h), t);
    for (int32_t i = 0; i < plan.num_replicas(); ++i)
      ranks.push_back(plan.rank_in_whole(rank_in_part(plan, rank, i)));
  };
  for (int32_t h = first; h < last; ++h) {
    for (const int32_t t : owners) add(h, t);
    for (int32_t t = 0; owners.empty() && t < plan.grid.tp; ++t) add(h, t);
  }
  std::ranges::sort(ranks);
  return ranks;
}

bool computes(const PlanPart& plan, int32_t rank, int32_t matrix) {
  const int32_t tensor = plan.matrices[static_cast<size_t>(matrix)].tensor;
  const int32_t home = plan.home[static_cast<size_t>(tensor)];
  const Buffer& buffer = plan.buffer_of(tensor);
  const Coordinates at = in_grid(plan, rank);
  const bool is_home = home == kEveryHome
                           ? buffer.ep < 0 || buffer.ep == at.ep
                           : plan.stage_home(buffer, home) == at.home;
  if (buffer.stage != at.stage || !is_home) return false;
  const auto owners = plan.owners[static_cast<size_t>(matrix)];
  return owners.empty() ||
         std::find(owners.begin(), owners.end(), at.t) != owners.end();
}

BucketRegion region_of(const PlanPart& plan, int32_t tensor) {
  const auto number = plan.bucket_of[static_cast<size_t>(tensor)];
  const Bucket& bucket = plan.buckets[static_cast<size_t>(number)];
  const auto begin = bucket.tensors.begin();
  const auto split = begin + bucket.num_matrix_tensors;
  const auto place = std::find(begin, bucket.tensors.end(), tensor);
  BucketRegion region;
  for (auto at = place < split ? begin : split;
       at != (place < split ? split : bucket.tensors.end()); ++at) {
    const Tensor& other = plan.model.tensors[static_cast<size_t>(*at)];
    const int64_t size = shard_elements(plan.mesh, other);
    if (at == place) {
      region.offset = region.total;
      region.elements = size;
    }
    region.total += size;
  }
  return region;
}

Found find_by_name(const Plan& plan, std::string_view name) {
  for (size_t i = 0; i < plan.model.tensors.size(); ++i) {
    if (plan.model.tensors[i].name != name) continue;
    const auto tensor = static_cast<int32_t>(i);
    return {tensor, matrices_of(plan, tensor)};
  }
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const auto matrix = static_cast<int32_t>(m);
    if (name_of(plan, matrix) == name)
      return {plan.matrices[m].tensor, {matrix}};
  }
  throw UsageError(cat("--matrix ", quoted(name),
                       ": the plan has no such matrix or tensor",
                       did_you_mean(name, known_names(plan))));
}

std::string name_of(const SettledRequest& plan, int32_t matrix) {
  return matrix_name(plan.model, plan.matrices[static_cast<size_t>(matrix)],
                     plan.options.splits);
}

void check_number(int64_t number, int64_t count, const char* option,
                  const char* what) {
  if (number >= 0 && number < count) return;
  throw UsageError(fmt::format("{} {}: the plan has {} {}, numbered from 0",
                               option, number, count, what));
}

}  // namespace canzona
