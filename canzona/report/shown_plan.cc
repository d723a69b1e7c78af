#include "canzona/report/shown_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/sim/prediction_inputs.h"

namespace canzona::report {

ShownIteration predicted_iteration(const Plan& plan, const Workload& work) {
  return {predict_iteration(plan, work).time,
          static_cast<double>(work.num_micro_batches) * plan.mesh.homes() *
              static_cast<double>(work.compute.tokens),
          describe_inputs(plan, work), known_gaps(plan, work)};
}

void add_basis(const std::string& inputs, const std::vector<std::string>& gaps,
               Document& out) {
  out.note("inputs: " + inputs).set("inputs", inputs);
  for (const std::string& gap : gaps) out.note("known to be off: " + gap);
  out.set("known_gaps", std::vector<Value>(gaps.begin(), gaps.end()));
}

Value iteration_value(const ShownIteration& iteration) {
  const IterationTime& time = iteration.time;
  return {{"seconds", time.seconds},
          {"compute_seconds", time.compute_seconds},
          {"step_seconds", time.step_seconds},
          {"bubble_seconds", time.bubble_seconds},
          {"waited_seconds", time.waited()},
          {"global_batch_tokens", iteration.tokens},
          {"tokens_per_second", iteration.tokens_per_second()}};
}

std::string ratio_text(double ratio) {
  if (ratio < 1.1) return fmt::format("{:.4f}", ratio);
  return ratio < 100 ? fmt::format("{:.3f}", ratio)
                     : fmt::format("{:.1f}", ratio);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string grouped(int64_t number) {
  std::string digits = fmt::format("{}", number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string counted(int64_t number, std::string_view thing) {
  if (number == 1) return fmt::format("1 {}", thing);
  return fmt::format("{} {}", grouped(number), plural_of(thing));
}

std::string dims_text(const std::vector<int64_t>& shape) {
  if (shape.empty()) return "scalar";
  std::string out;
  for (const int64_t size : shape)
    out += fmt::format("{}{}", out.empty() ? "" : " × ", size);
  return out;
}

std::string flops_text(double flops) {
  constexpr std::array kPrefixes = {"", "K", "M", "G", "T", "P", "E"};
  size_t prefix = 0;
  for (; flops >= 999.5 && prefix + 1 < kPrefixes.size(); ++prefix)
    flops /= 1000;
  const int digits = flops < 9.995 ? 2 : flops < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}flop", flops, digits, kPrefixes[prefix]);
}

std::string cost_text(const CostBasis& basis, double ticks) {
  std::string time = human_seconds(ticks * basis.seconds_per_tick);
  if (!is_nominal(basis)) return time;
  return flops_text(ticks) + ", " + time;
}

std::string bytes_text(double bytes) {
  return human_bytes(static_cast<int64_t>(bytes));
}

std::string bandwidth_text(double bytes_per_second) {
  return fmt::format("{:g} GB/s", bytes_per_second / 1e9);
}

Spread spread_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto most = std::max_element(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.max = *most,
          .min = *std::min_element(values.begin(), values.end()),
          .mean = sum / static_cast<double>(values.size()),
          .largest = static_cast<int32_t>(most - values.begin())};
}

std::vector<MemoryKind> memory_kinds(bool with_pools) {
  std::vector<MemoryKind> kinds = {
      {"parameters", &RankMemory::parameters},
      {"gradients", &RankMemory::gradients},
      {"master", &RankMemory::master},
      {"states", &RankMemory::states},
      {"buffers", &RankMemory::buffers},
  };
  if (with_pools) kinds.push_back({"pools", &RankMemory::pools});
  return kinds;
}

bool has_pools(const Plan& plan) {
  return std::ranges::any_of(
      plan.parts, [](const PlanPart& part) { return part.grid.places > 1; });
}

double period_load(const SettledRequest& plan, const RankCost& rank) {
  double load = static_cast<double>(rank.every_step.value()) * plan.period;
  for (const Ticks refresh : rank.refresh)
    load += static_cast<double>(refresh.value());
  return load;
}

double period_load(const SettledRequest& plan, const MatrixCost& cost) {
  return static_cast<double>(cost.every_step.value()) * plan.period +
         static_cast<double>(cost.refresh.value());
}

std::vector<double> period_loads(const SettledRequest& plan,
                                 const std::vector<RankCost>& ranks) {
  std::vector<double> loads;
  loads.reserve(ranks.size());
  for (const RankCost& rank : ranks) loads.push_back(period_load(plan, rank));
  return loads;
}

bool is_nominal(const CostBasis& basis) { return basis.source == "nominal"; }

Value mesh_value(const Mesh& mesh) {
  return {{"dp", mesh.dp},
          {"cp", mesh.cp},
          {"tp", mesh.tp},
          {"pp", mesh.pp},
          {"ep", mesh.ep}};
}

Document balance_members(const Balance& b) {
  const auto ratios = [](const AxisBalance& axis) {
    return Document()
        .set("memory_max_over_mean", axis.memory_max_over_mean)
        .set("shard_flops_max_over_mean", axis.shard_flops_max_over_mean)
        .set("cost_max_over_mean", axis.cost_max_over_mean);
  };
  Document all;
  all.set("makespan_over_mean", b.makespan_over_mean);
  all.set("makespan_over_bound", b.makespan_over_bound);
  all.set("bound_over_mean", b.bound_over_mean);
  if (b.team_bound_over_mean > 0)
    all.set("team_bound_over_mean", b.team_bound_over_mean);
  all.set("idle_ranks", b.idle_ranks);
  Document dp = ratios(b.dp);
  dp.set("bucket_bytes_max_over_even", b.bucket_bytes_max_over_even);
  dp.set("j_dp", b.j_dp).set("j_comm", b.j_comm);
  Document out;
  out.add("dp", dp).add("tp", ratios(b.tp)).add("tp_worst", ratios(b.tp_worst));
  return out.add("all_ranks", all);
}

namespace {

Members kinds_of_memory(const RankMemory& memory, bool with_pools) {
  Members out;
  for (const MemoryKind& kind : memory_kinds(with_pools))
    out.push_back({kind.name, (memory.*kind.field).value()});
  return out;
}

}  // namespace

Value memory_value(const RankMemory& memory) {
  Members out = kinds_of_memory(memory, memory.pools.value() > 0);
  out.push_back({"total", memory.total().value()});
  out.push_back({"staging", memory.staging.value()});
  return out;
}

Value activations_value(const MemoryTerms& terms) {
  const ActivationLoad& load = terms.load;
  return {{"counted", load.tokens > 0},
          {"bytes", terms.activations},
          {"tokens", load.tokens},
          {"micro_batches", load.num_micro_batches},
          {"experts_per_token", load.experts_per_token},
          {"dtype", to_string(load.dtype)},
          {"recompute", load.recompute}};
}

Value counted_memory(const ReportPlan& shown) {
  const MemoryTerms& terms = *shown.terms;
  const RankMemory& memory = fullest_memory(shown.ranks);
  Members fullest = kinds_of_memory(memory, true);
  fullest.push_back({"activations", terms.activations});
  fullest.push_back({"total", memory.total().value() + terms.activations});
  return {{"cap_bytes", terms.cap_bytes},
          {"gradients", to_string(terms.gradients)},
          {"activations", activations_value(terms)},
          {"fullest_rank", fullest}};
}

void write_wire_members(JsonWriter& out, const WireBytes& wire) {
  out.field("sent_intra", wire.sent_intra);
  out.field("sent_inter", wire.sent_inter);
  out.field("received_intra", wire.received_intra);
  out.field("received_inter", wire.received_inter);
}

Value wire_value(const WireBytes& wire) {
  return [wire](JsonWriter& out) {
    write_wire_members(out.begin_object(), wire);
    out.end_object();
  };
}

Value wire_value(const RankCost& rank) {
  Members out;
  for (int c = 0; c < kNumCollectives; ++c) {
    const WireBytes& wire = rank.wire[index(c)];
    if (wire.sent() == 0 && wire.received() == 0) continue;
    out.push_back(
        {std::string(to_string(static_cast<Collective>(c))), wire_value(wire)});
  }
  return out;
}

void add_rank_wire(const RankCost& rank, Listing& rows) {
  for (int c = 0; c < kNumCollectives; ++c)
    add_rank_wire(to_string(static_cast<Collective>(c)), rank.wire[index(c)],
                  rows);
}

Document wire_view(const std::vector<RankCost>& ranks) {
  Listing rows;
  for (int c = 0; c < kNumCollectives; ++c) {
    std::vector<WireBytes> all;
    for (const RankCost& rank : ranks) all.push_back(rank.wire[index(c)]);
    add_wire_spread(to_string(static_cast<Collective>(c)), all, rows);
  }
  return Document()
      .title("Bytes per rank and step")
      .table("", rows, "none: nothing moves");
}

bool add_rank_wire(std::string_view name, const WireBytes& w, Listing& rows) {
  if (w.sent() == 0 && w.received() == 0) return false;
  rows.add({{"", "<collective", name},
            {"", ">sent in node", human_bytes(w.sent_intra)},
            {"", ">sent outside", human_bytes(w.sent_inter)},
            {"", ">received in node", human_bytes(w.received_intra)},
            {"", ">received outside", human_bytes(w.received_inter)}});
  return true;
}

void add_wire_spread(std::string_view name, const std::vector<WireBytes>& ranks,
                     Listing& rows) {
  const auto spread = [&](auto figure) {
    std::vector<double> values;
    for (const WireBytes& wire : ranks)
      values.push_back(static_cast<double>(figure(wire)));
    return spread_of(values);
  };
  const Spread sent = spread([](const WireBytes& w) { return w.sent(); });
  if (sent.max <= 0) return;
  const Spread intra = spread([](const WireBytes& w) { return w.sent_intra; });
  const Spread inter = spread([](const WireBytes& w) { return w.sent_inter; });
  rows.add({{"", "<collective", name},
            {"", ">sent, largest", bytes_text(sent.max)},
            {"", ">sent, mean", bytes_text(sent.mean)},
            {"", ">inside nodes", bytes_text(intra.max)},
            {"", ">between nodes", bytes_text(inter.max)}});
}

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

// Returns the matrices of one tensor.
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
  const auto add = [&](const char* axis, int32_t size, int32_t coordinate) {
    if (size <= 1) return;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", axis, coordinate);
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

namespace {

// Adds a rank of one home of a tensor's buffer, in every replica.
void add_replicas(const PlanPart& plan, const Buffer& buffer, int32_t home,
                  int32_t t, std::vector<int32_t>& ranks) {
  const int32_t rank =
      plan.grid.rank(buffer.stage, plan.stage_home(buffer, home), t);
  for (int32_t i = 0; i < plan.num_replicas(); ++i)
    ranks.push_back(plan.rank_in_whole(rank_in_part(plan, rank, i)));
}

}  // namespace

std::vector<int32_t> owner_ranks(const PlanPart& plan, int32_t matrix) {
  const int32_t tensor = plan.matrices[static_cast<size_t>(matrix)].tensor;
  const int32_t home = plan.home[static_cast<size_t>(tensor)];
  const Buffer& buffer = plan.buffer_of(tensor);
  const std::vector<int32_t> owners =
      distinct(plan.owners[static_cast<size_t>(matrix)]);
  const int32_t first = home == kEveryHome ? 0 : home;
  const int32_t last = home == kEveryHome ? buffer.num_homes : home + 1;
  std::vector<int32_t> ranks;
  for (int32_t h = first; h < last; ++h) {
    for (const int32_t t : owners) add_replicas(plan, buffer, h, t, ranks);
    for (int32_t t = 0; owners.empty() && t < plan.grid.tp; ++t)
      add_replicas(plan, buffer, h, t, ranks);
  }
  std::ranges::sort(ranks);
  return ranks;
}

std::vector<int32_t> ranks_at(const PlanPart& plan, int32_t matrix, int32_t t) {
  const int32_t tensor = plan.matrices[static_cast<size_t>(matrix)].tensor;
  std::vector<int32_t> ranks;
  add_replicas(plan, plan.buffer_of(tensor),
               plan.home[static_cast<size_t>(tensor)], t, ranks);
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
  const auto found = std::find(begin, bucket.tensors.end(), tensor);
  BucketRegion region;
  for (auto at = found < split ? begin : split;
       at != (found < split ? split : bucket.tensors.end()); ++at) {
    const Tensor& other = plan.model.tensors[static_cast<size_t>(*at)];
    const int64_t size = shard_elements(plan.mesh, other);
    if (at == found) {
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
  throw UsageError(cat("matrix ", quoted(name),
                       ": the plan has no such matrix or tensor",
                       did_you_mean(name, known_names(plan))));
}

std::string name_of(const SettledRequest& plan, int32_t matrix) {
  return matrix_name(plan.model, plan.matrices[static_cast<size_t>(matrix)],
                     plan.options.splits);
}

void check_number(int64_t number, int64_t count, const char* option,
                  const char* thing) {
  if (number >= 0 && number < count) return;
  throw UsageError(fmt::format("{} {}: the plan has {}, numbered from 0",
                               option, number, counted(count, thing)));
}

}  // namespace canzona::report
