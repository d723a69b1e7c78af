#include "canzona/sim/mesh_bounds.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "canzona/plan/cost/cost.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/strategies/strategy.h"

namespace canzona::sim {
namespace {

// Predicted memory is rounded down rank by rank.
constexpr int64_t kRoundedBytes = 64;

size_t part_number(bool experts) { return experts ? 1 : 0; }

}  // namespace

TensorFacts::TensorFacts(const MeshQuestion& question)
    : weights(weights_per_token(*question.model,
                                question.work.compute.experts_per_token)),
      step_seconds(question.model->tensors.size(), 0),
      alone(step_seconds.size(), 0),
      state_bytes(step_seconds.size(), 0),
      spreads(is_scattered(
                  find_strategy(question.options.strategy).layout.traffic) &&
              question.options.zero.replica_sum == ReplicaSum::kScatter) {
  Model model = *question.model;
  const RuleFacts& rule = *question.rule;
  for (Tensor& tensor : model.tensors)
    tensor.matrix_rule &= rule.needs_whole_matrix();
  const CostModel cost(rule, question.cost_table);
  const CostBasis& basis = question.cost_basis.value_or(cost.basis());
  // Members of a team do work that is not counted here.
  const double tick =
      question.options.teams == kTeamsOff ? basis.seconds_per_tick : 0;
  StateBytesTable states(rule);
  std::vector<bool> has_matrices(step_seconds.size(), false);
  for (const Matrix& m : split_into_matrices(model, question.options.splits)) {
    const auto t = static_cast<size_t>(m.tensor);
    const MatrixCost own = cost.cost(shape_of(m));
    const StateBytes& bytes = states.of(shape_of(m));
    has_matrices[t] = true;
    const double seconds =
        tick * (static_cast<double>(own.every_step.value()) +
                static_cast<double>(own.refresh.value()) / rule.period());
    step_seconds[t] += seconds;
    const bool whole = m.rows * m.cols == model.tensors[t].elements() &&
                       rule.block(shape_of(m)) == shape_of(m);
    if (whole && spreads) alone[t] = seconds;
    state_bytes[t] += bytes.with_shard + bytes.with_owner;
  }
  for (size_t t = 0; t < state_bytes.size(); ++t)
    if (!has_matrices[t] && !model.tensors[t].frozen)
      state_bytes[t] = 2 * kBytesPerFp32 * model.tensors[t].elements();
  outline_experts(*question.model);
}

// Experts are alike if those of every layer have the same tensors with the same
// facts.
void TensorFacts::outline_experts(const Model& model) {
  using Facts = std::tuple<int32_t, Role, Cut, int64_t, int64_t, bool, double,
                           double, int64_t>;
  std::vector<std::multiset<Facts>> of_expert(
      static_cast<size_t>(std::max(1, model.num_experts)));
  std::vector<size_t> kept;
  for (size_t t = 0; t < model.tensors.size(); ++t) {
    const Tensor& tensor = model.tensors[t];
    if (tensor.expert <= 0) kept.push_back(t);
    if (tensor.expert >= 0)
      of_expert[static_cast<size_t>(tensor.expert)].insert(
          {tensor.layer, tensor.role, tensor.cut, tensor.rows(), tensor.cols(),
           tensor.frozen, step_seconds[t], alone[t], state_bytes[t]});
  }
  const bool are_alike = std::ranges::all_of(
      of_expert, [&](const auto& facts) { return facts == of_expert.front(); });
  outline = model;
  if (!are_alike || model.num_experts < 2) return;
  experts_alike = model.num_experts;
  const auto keep = [&](auto& all) {
    auto whole = std::exchange(all, {});
    for (const size_t t : kept) all.push_back(whole[t]);
  };
  keep(outline.tensors);
  keep(step_seconds);
  keep(alone);
  keep(state_bytes);
}

MeshBounds::MeshBounds(const MeshQuestion& question, const TensorFacts& facts,
                       const Mesh& mesh)
    : question_(question),
      facts_(facts),
      mesh_(mesh),
      links_(question.options.links),
      has_experts_(canzona::has_experts(facts.outline)),
      is_tied_(is_tied(facts.outline)) {
  const Model& model = facts.outline;
  for (const int32_t number : stages_to_look_at(mesh)) {
    Stage& stage = stages_.emplace_back();
    stage.number = number;
    const std::array<Direction, 2> passes{Direction::kForward,
                                          Direction::kBackward};
    stage.uses = uses_of(calls_of(model, mesh, number, passes));
    stage.module_class.assign(static_cast<size_t>(num_modules(model)), -1);
  }
  classify();
  for (Stage& stage : stages_) count_uses(stage);
}

// A tensor that is alone in its module needs no staging.
void MeshBounds::size_pools(const std::vector<Pooled>& dense,
                            const std::vector<Pooled>& experts, Stage& stage) {
  std::vector<int64_t> both, apart;
  int64_t staged = 0, staged_apart = 0;
  const auto staging = [](const Pooled& module) {
    return module.tensors > 1 ? module.trained : 0;
  };
  for (size_t m = 0; m < dense.size(); ++m) {
    apart.push_back(experts[m].elements);
    both.push_back(dense[m].elements + experts[m].elements);
    staged = std::max(staged, staging(dense[m]) + staging(experts[m]));
    staged_apart = std::max(staged_apart, staging(experts[m]));
  }
  auto& [of_dense, of_experts] = stage.kept;
  const int64_t slot = usual_slot(both), most = std::ranges::max(both);
  of_experts.slot = usual_slot(apart);
  of_dense.slot = std::max<int64_t>(0, slot - of_experts.slot);
  of_dense.large_slot = most > slot ? most : 0;
  of_experts.staging = staged_apart;
  of_dense.staging = staged - staged_apart;
}

// Tensors of other stages than those that are looked at do not count.
void MeshBounds::classify() {
  const Model& model = facts_.outline;
  const auto modules = static_cast<size_t>(num_modules(model));
  std::vector<std::map<Shards, int64_t>> alike(2 * modules);
  std::vector<std::vector<Pooled>> of_module(2 * stages_.size(),
                                             std::vector<Pooled>(modules));
  for (size_t t = 0; t < model.tensors.size(); ++t) {
    const Tensor& tensor = model.tensors[t];
    const int32_t number = stage_of(mesh_, model, tensor);
    const size_t part = part_number(tensor.expert >= 0);
    const auto module = static_cast<size_t>(module_of(model, tensor));
    const int64_t elements = shard_elements(mesh_, tensor);
    // Tensors for which this one stands, and those of ep rank 0.
    const int64_t all = part == 1 ? facts_.experts_alike : 1;
    const int64_t here =
        all > 1 ? all / mesh_.ep : (ep_of(mesh_, model, tensor) <= 0 ? 1 : 0);
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (stages_[s].number != number) continue;
      Kept& kept = stages_[s].kept[part];
      const int64_t ranks = part == 1 ? mesh_.ep : 1;
      kept.all += all * elements / ranks;
      if (!tensor.frozen) kept.trained += all * elements / ranks;
      kept.state_bytes += all * (facts_.state_bytes[t] / mesh_.tp) / ranks;
      kept.step_seconds += static_cast<double>(all) * facts_.step_seconds[t] /
                           mesh_.tp / static_cast<double>(ranks);
      Pooled& pooled = of_module[2 * s + part][module];
      pooled.elements += here * elements;
      pooled.tensors += here;
      if (!tensor.frozen) pooled.trained += here * elements;
      stages_[s].module_class[module] = 0;
      if (facts_.alone[t] > 0)
        stages_[s].matrices[part].insert(
            {.seconds = facts_.alone[t],
             .rows = shard_rows(mesh_, tensor),
             .cols = shard_cols(mesh_, tensor),
             .planes = tensor.cut == Cut::kNone ? 1 : mesh_.tp});
    }
    if (here > 0)
      alike[2 * module + part][{.rows = shard_rows(mesh_, tensor),
                                .cols = shard_cols(mesh_, tensor),
                                .trained = !tensor.frozen,
                                .matrix = facts_.step_seconds[t] > 0}] += here;
  }
  for (size_t s = 0; s < stages_.size(); ++s)
    size_pools(of_module[2 * s], of_module[2 * s + 1], stages_[s]);
  std::map<ModuleClass, int32_t> known;
  for (size_t m = 0; m < modules; ++m) {
    ModuleClass own;
    for (const size_t part : {0, 1})
      for (const auto& [shards, count] : alike[2 * m + part])
        own[part].push_back(
            {shards.rows, shards.cols, count, shards.trained, shards.matrix});
    const auto [found, is_new] =
        known.try_emplace(own, static_cast<int32_t>(classes_.size()));
    if (is_new) classes_.push_back(own);
    for (Stage& stage : stages_)
      if (stage.module_class[m] >= 0) stage.module_class[m] = found->second;
  }
}

// Every module is used in the same way in every micro-batch.
void MeshBounds::count_uses(Stage& stage) const {
  stage.counts.assign(classes_.size(), {});
  for (const ModuleUse& use : stage.uses) {
    auto& counts = stage.counts[static_cast<size_t>(
        stage.module_class[static_cast<size_t>(use.module)])];
    counts[0] += 1;
    if (use.completes()) counts[1] += 1;
  }
  for (const int32_t c : stage.module_class)
    if (c >= 0) stage.counts[static_cast<size_t>(c)][2] += 1;
}

std::vector<MeshPace> MeshBounds::paces(
    const std::vector<MeshChoice>& settings) const {
  Plan shape;
  shape.model = facts_.outline;
  shape.mesh = mesh_;
  shape.options = question_.options;
  std::vector<MeshPace> out;
  for (const MeshChoice& choice : settings) {
    MeshPace& pace = out.emplace_back();
    pace.num_micro_batches = choice.num_micro_batches;
    pace.activations = terms_of(question_, choice, &facts_.outline).activations;
    Workload work = work_of(question_, choice);
    work.compute.weights = facts_.weights;
    pace.batch = micro_batch_of(shape, work);
    for (const Stage& stage : stages_) {
      pace.use_seconds.push_back(use_seconds(stage, pace.batch));
      const std::vector<double>& uses = pace.use_seconds.back();
      pace.pass_seconds[pace.use_seconds.size() - 1] =
          std::reduce(uses.begin(), uses.end());
    }
  }
  return out;
}

std::vector<double> MeshBounds::use_seconds(const Stage& stage,
                                            const MicroBatch& batch) const {
  std::vector<double> out;
  bool is_first_backward = true;
  for (const ModuleUse& use : stage.uses) {
    const PassSeconds& own = batch.passes[static_cast<size_t>(use.module)];
    double seconds = use.is_beside     ? 0
                     : use.is_backward ? own.backward
                                       : own.forward;
    if (out.empty() && stage.number > 0) seconds += batch.exposed_send;
    if (use.completes() && is_first_backward) {
      is_first_backward = false;
      if (stage.number + 1 < mesh_.pp) seconds += batch.exposed_send;
    }
    out.push_back(seconds);
  }
  return out;
}

BytesByStage MeshBounds::memory(const ZeroSizes& sizes, bool experts) const {
  const int64_t parameter = size_of(question_.options.parameters);
  const int64_t gradient = size_of(question_.gradients);
  const int64_t master = master_bytes_per_element(question_.options);
  BytesByStage out = {};
  if (sizes.z1 == 0) return out;
  for (size_t s = 0; s < stages_.size(); ++s) {
    const Kept& kept = stages_[s].kept[part_number(experts)];
    const int64_t slots = kept.slot + kept.large_slot;
    const int64_t staging =
        sizes.places() > 1 &&
                question_.options.zero.message == MessageUnit::kModule
            ? kept.staging
            : 0;
    out[s] = kept.all * parameter / sizes.z3 +
             kept.trained * gradient / sizes.z2 +
             (kept.trained * master + kept.state_bytes) / sizes.z1 +
             (sizes.z3 > 1 ? slots * parameter : 0) +
             (sizes.z2 > 1 ? slots * kBytesPerFp32 : 0) +
             staging * (parameter + kBytesPerFp32) - kRoundedBytes;
  }
  return out;
}

int64_t MeshBounds::memory(const ZeroSizes& dense,
                           const ZeroSizes& experts) const {
  return fullest(memory(dense, false), memory(experts, true));
}

// Its owner gets the pieces of all other ranks, computes, and sends updates.
double MeshBounds::alone_seconds(const Largest& matrix,
                                 const ZeroSizes& sizes) const {
  const int64_t planes = int64_t{sizes.places()} * matrix.planes;
  const int64_t node = question_.options.ranks_per_node;
  const bool near = planes <= node;
  const int64_t pieces = near ? planes - 1 : planes - node;
  const int64_t elements =
      pieces * (matrix.rows / sizes.places()) * matrix.cols;
  const RuleFacts& rule = *question_.rule;
  const int64_t bytes = elements * (rule.gather_bytes_per_element() +
                                    rule.scatter_bytes_per_element());
  const double rate = near ? std::max(links_.bytes_per_second(true),
                                      links_.bytes_per_second(false))
                           : links_.bytes_per_second(false);
  return matrix.seconds + static_cast<double>(bytes) / rate;
}

PoolSlots MeshBounds::slots(const ZeroSizes& dense, const ZeroSizes& experts,
                            int64_t activations) const {
  const PlanOptions& options = question_.options;
  int32_t prefetch = options.zero.prefetch;
  if (prefetch == kAutoPrefetch && options.memory_cap_bytes == 0)
    prefetch = kUsualPrefetch;
  const int64_t room =
      options.memory_cap_bytes - activations - memory(dense, experts);
  for (const Stage& stage : stages_) {
    if (options.zero.prefetch != kAutoPrefetch || options.memory_cap_bytes == 0)
      break;
    SlotBytes bytes;
    for (const bool of_experts : {false, true}) {
      const Kept& kept = stage.kept[part_number(of_experts)];
      if ((of_experts ? experts : dense).places() == 1) continue;
      bytes.usual += kept.slot * (size_of(options.parameters) + kBytesPerFp32);
      bytes.large += kept.large_slot * size_of(options.parameters);
    }
    const int32_t fit = bytes.fit_in(room, facts_.outline);
    prefetch = prefetch < 0 ? fit : std::min(prefetch, fit);
  }
  const auto count = [&](int32_t ahead) {
    return static_cast<size_t>((is_tied_ ? 3 : 1) + ahead);
  };
  return {count(prefetch), count(std::min(prefetch, kMostScatterAhead))};
}

SecondsByStage MeshBounds::step_seconds(const ZeroSizes& dense,
                                        const ZeroSizes& experts) const {
  SecondsByStage out = {};
  for (size_t s = 0; s < stages_.size(); ++s) {
    double mean = 0;
    for (const bool of_experts : {false, true}) {
      const ZeroSizes& sizes = of_experts ? experts : dense;
      if (sizes.z1 == 0) continue;
      const size_t part = part_number(of_experts);
      mean += stages_[s].kept[part].step_seconds / sizes.z1;
      for (const Largest& matrix : stages_[s].matrices[part])
        out[s] = std::max(out[s], alone_seconds(matrix, sizes));
    }
    out[s] = std::max(out[s], mean);
  }
  return out;
}

bool MeshBounds::is_apart(const ZeroSizes& dense,
                          const ZeroSizes& experts) const {
  if (!has_experts_) return false;
  const bool plain =
      is_plain(dense, mesh_.homes()) && is_plain(experts, mesh_.expert_homes());
  return !plain && !(mesh_.ep == 1 && dense == experts);
}

// Ranks are ascending, so those on the first one's node come first.
MeshBounds::Group MeshBounds::group(int32_t stage, int32_t step,
                                    int32_t count) const {
  const int64_t first = int64_t{stage} * mesh_.ranks_per_stage();
  const int64_t node = question_.options.ranks_per_node;
  const int64_t left = (first / node + 1) * node - first;
  const int64_t inside = std::min<int64_t>(count, (left + step - 1) / step);
  return {.intra = inside - 1, .inter = count - inside, .inside = inside};
}

double MeshBounds::elements(const ModuleClass& of, bool experts, int32_t places,
                            bool trained) const {
  int64_t sum = 0;
  for (const Shards& shards : of[part_number(experts)])
    if (shards.trained || !trained)
      sum += shards.count * (shards.rows / places) * shards.cols;
  return static_cast<double>(sum);
}

// Returns the elements of the largest slice of a matrix.
double MeshBounds::largest_slice(const ModuleClass& of, bool experts,
                                 int32_t places) const {
  int64_t most = 0;
  for (const Shards& shards : of[part_number(experts)])
    if (shards.matrix)
      most = std::max(most, shards.rows / places * shards.cols);
  return static_cast<double>(most);
}

// The time of messages of so many bytes from or to every other rank.
PortTime MeshBounds::over(const Group& group, double bytes,
                          double messages) const {
  const auto port = [&](bool near, int64_t peers) {
    return static_cast<double>(peers) * (messages * links_.overhead(near) +
                                         bytes / links_.bytes_per_second(near));
  };
  if (bytes <= 0) return {};
  return {port(true, group.intra), port(false, group.inter)};
}

bool MeshBounds::has_two_levels(const ZeroSizes& sizes, bool experts,
                                bool apart) const {
  const int32_t step = mesh_.tp * (experts ? mesh_.ep : 1);
  const int32_t homes = experts ? mesh_.expert_homes() : mesh_.homes();
  const auto two = [&](int32_t count) {
    for (const Stage& stage : stages_) {
      const Group own = group(stage.number, step, count);
      if (own.intra > 0 && own.inter > 0) return true;
    }
    return false;
  };
  if (is_plain(sizes, homes)) return !apart && two(homes);
  return two(sizes.z2) || two(sizes.z3);
}

// A gather goes across nodes first, a scatter inside them.
OpTime MeshBounds::module_op(const Group& group, double bytes, bool gathered,
                             Reach reach) const {
  if (reach == Reach::kDirect || group.intra == 0 || group.inter == 0)
    return {{over(group, bytes, 1), PortTime{}}};
  const int64_t across = (group.intra + 1 + group.inter) / group.inside;
  const PortTime far = over({.inter = across - 1}, bytes, 1);
  const PortTime near =
      over({.intra = group.intra}, static_cast<double>(across) * bytes, 1);
  return gathered ? OpTime{{far, near}} : OpTime{{near, far}};
}

// All wait for the longest run.
void MeshBounds::add_step_ops(const Part& part, double run,
                              ModuleOps& out) const {
  const auto [z1, z2, z3] = part.sizes;
  const auto group_of = [&](int32_t step, int32_t count) {
    return group(part.stage, part.step * step, count);
  };
  const double messages = part.sizes.places() > 1 ? 1 : 0;
  const double gradient = run * static_cast<double>(kBytesPerFp32);
  const double parameter =
      run * static_cast<double>(size_of(question_.options.parameters));
  const int32_t replicas = part.homes / z1;
  const double share = gradient / replicas;
  const bool at_once = replicas > 1 && !is_subtree(z1 / z2, part.homes / z2);
  const Group sums = group_of(z2, (at_once ? part.homes : z1) / z2);
  const Group again = group_of(z1, replicas);
  out[kSum].legs[0] = over(sums, at_once ? share : gradient, messages) +
                      over(again, (at_once ? 1 : 2) * share, 0);
  out[kPublish].legs[0] = over(group_of(z3, z1 / z3), parameter, messages);
}

// Sums inside nodes come before those across; new parameters go the other way.
void MeshBounds::add_two_level_ops(const Part& part, double run,
                                   ModuleOps& out) const {
  const Group all = group(part.stage, part.step, part.homes);
  const int64_t across = part.homes / all.inside;
  const auto bytes = [&](int64_t of_one) {
    return run * static_cast<double>(of_one);
  };
  const auto legs = [&](int64_t of_one) {
    const double whole = static_cast<double>(across) * bytes(of_one);
    return std::pair(over({.intra = all.intra}, whole, 0),
                     over({.inter = across - 1}, bytes(of_one), 0));
  };
  const auto [near, far] = legs(kBytesPerFp32);
  out[kSum] = {{near, far}};
  const auto [inside, beyond] = legs(size_of(question_.options.parameters));
  out[kPublish] = {{beyond, inside}};
}

// How the buckets of one part with expert parallelism are divided is not known:
// of n homes, one sends all but its run, or receives its run n - 1 times.
void MeshBounds::add_shared_ops(const Part& part, double elements,
                                ModuleOps& out) const {
  const Group all = group(part.stage, part.step, part.homes);
  const bool two = part.reach == Reach::kPerNode && all.intra > 0;
  const auto ranks = static_cast<double>(two ? all.inside : part.homes);
  const double moved = elements * (ranks - 1) / ranks;
  double rate = 0;
  if (all.intra > 0) rate += links_.bytes_per_second(true);
  if (all.inter > 0 && !two) rate += links_.bytes_per_second(false);
  if (rate == 0 || two) return;
  const auto time = [&](int64_t bytes) {
    const double seconds = moved * static_cast<double>(bytes) / rate;
    return PortTime{all.intra > 0 ? seconds : 0, all.inter > 0 ? seconds : 0};
  };
  out[kSum].legs[0] = time(kBytesPerFp32);
  out[kPublish].legs[0] = time(size_of(question_.options.parameters));
}

ModuleOps MeshBounds::module_ops(const Part& part,
                                 const ModuleClass& of) const {
  const ZeroSizes& sizes = part.sizes;
  const int32_t places = sizes.places();
  const double parameters =
      elements(of, part.experts, places, /*trained=*/false) *
      static_cast<double>(size_of(question_.options.parameters));
  const double trained = elements(of, part.experts, places, /*trained=*/true);
  ModuleOps out = {};
  if (sizes.z3 > 1)
    out[kGather] = module_op(group(part.stage, part.step, sizes.z3),
                             parameters * places / sizes.z3, true, part.reach);
  if (sizes.z2 > 1)
    out[kScatter] = module_op(
        group(part.stage, part.step, sizes.z2),
        trained * static_cast<double>(kBytesPerFp32) * places / sizes.z2, false,
        part.reach);
  if (!facts_.spreads) return out;
  // The longest run is at least the mean, and a whole matrix. Buckets of plain
  // parts may hold matrices of several modules.
  double run = trained * places / sizes.z1;
  if (places > 1) run = std::max(run, largest_slice(of, part.experts, places));
  const Group all = group(part.stage, part.step, part.homes);
  const bool two = part.reach == Reach::kPerNode && all.intra > 0 &&
                   all.inter > 0 && is_plain(sizes, part.homes);
  if (mesh_.ep > 1 && !part.apart)
    add_shared_ops(part, trained, out);
  else if (two)
    add_two_level_ops(part, run, out);
  else
    add_step_ops(part, run, out);
  return out;
}

std::vector<StageOps> MeshBounds::ops(const ZeroSizes& sizes, bool experts,
                                      bool apart, Reach reach) const {
  std::vector<StageOps> out;
  for (const Stage& stage : stages_) {
    const Part part{.stage = stage.number,
                    .sizes = sizes,
                    .experts = experts,
                    .apart = apart,
                    .reach = reach,
                    .step = mesh_.tp * (experts ? mesh_.ep : 1),
                    .homes = experts ? mesh_.expert_homes() : mesh_.homes()};
    StageOps& own = out.emplace_back();
    for (const ModuleClass& of : classes_)
      own.modules.push_back(module_ops(part, of));
    if (sizes.places() > 1) continue;
    own.spans_modules = true;
    // Such buckets cannot be added to those of other parts.
    if (!apart) continue;
    for (const int32_t c : stage.module_class) {
      if (c < 0) continue;
      const ModuleOps& ops = own.modules[static_cast<size_t>(c)];
      own.sums = own.sums + ops[kSum].ports();
      own.publications = own.publications + ops[kPublish].ports();
    }
    own.spans_modules = false;
    for (ModuleOps& ops : own.modules) ops[kSum] = ops[kPublish] = {};
  }
  return out;
}

}  // namespace canzona::sim
