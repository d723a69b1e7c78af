#include "test_frozen_facts.h"

#include <map>
#include <string_view>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/runtime/testing/test_trial.h"
#include "canzona/sim/plan_iteration.h"

namespace canzona::tests {
namespace {

// Requests, from words.

// "dense/4": layers; "moe/4x8": layers and experts; "qwen3-32b": a preset.
Model frozen_model(const std::string& words) {
  const size_t slash = words.find('/');
  if (slash == std::string::npos) return read_model(words, {.fused = true});
  const std::string kind = words.substr(0, slash);
  const std::string sizes = words.substr(slash + 1);
  const int32_t layers = std::stoi(sizes);
  const size_t x = sizes.find('x');
  if (kind == "dense" || kind == "tied") {
    Model model = toy_model(layers);
    if (kind == "tied") model.tensors.back() = adamw_tensor("final_norm", 16);
    return model;
  }
  Model model = toy_moe(layers, std::stoi(sizes.substr(x + 1)));
  if (kind == "frozen")
    freeze(model, {"*norm*", model.tensors.front().name, "layers.0.*"});
  return model;
}

// "precondition_frequency:4,phases:3".
RuleOptions frozen_rule_options(std::string_view words) {
  RuleOptions options;
  while (!words.empty()) {
    const size_t comma = words.find(',');
    const std::string_view word = words.substr(0, comma);
    const size_t colon = word.find(':');
    options.insert_or_assign(std::string(word.substr(0, colon)),
                             std::string(word.substr(colon + 1)));
    words.remove_prefix(comma == word.npos ? words.size() : comma + 1);
  }
  return options;
}

ZeroOptions frozen_zero(const FrozenCase& c, const Mesh& mesh) {
  ZeroOptions zero;
  zero.sizes = parse_zero(c.get("zero", "zero1"), mesh.homes());
  if (const std::string experts = c.get("experts", ""); !experts.empty())
    zero.experts = parse_zero(experts, mesh.expert_homes(), "--zero-experts");
  if (c.get("message", "") == "parameter")
    zero.message = MessageUnit::kParameter;
  if (c.get("sum", "") == "allreduce")
    zero.replica_sum = ReplicaSum::kAllReduce;
  // Cases were drawn when this was for modules alone: plain storage is direct.
  const bool plain =
      is_plain(zero.sizes, mesh.homes()) &&
      (zero.experts.z1 == 0 || is_plain(zero.experts, mesh.expert_homes()));
  if (c.get("reach", "") == "per-node" && !plain) zero.reach = Reach::kPerNode;
  zero.prefetch =
      static_cast<int32_t>(c.number("prefetch", int64_t{kAutoPrefetch}));
  return zero;
}

PlanOptions frozen_options(const FrozenCase& c, const Mesh& mesh) {
  PlanOptions options;
  options.strategy = c.get("strategy", "balanced");
  options.micro_groups = c.get("rounds", "");
  options.splits = parse_splits(c.get("split", "none"));
  options.bucket_elements = c.number("bucket", options.bucket_elements);
  options.capacity_bytes = c.number("capacity", options.capacity_bytes);
  options.memory_cap_bytes = c.number("cap", 0);
  options.ranks_per_node = static_cast<int32_t>(c.number("nodes", 8));
  options.parameters = parse_dtype(c.get("parameters", "bf16"), "parameters");
  if (c.get("links", "") == "slow")
    options.links = parse_links("intra=2GB/s,inter=0.2GB/s,latency=20us");
  if (const std::string weight = c.get("weight", ""); !weight.empty())
    options.weight = parse_weight(weight);
  options.zero = frozen_zero(c, mesh);
  return options;
}

Plan frozen_plan(const FrozenCase& c, const std::string& mesh_words) {
  const Mesh mesh = parse_mesh(mesh_words);
  const std::string rule = c.get("rule", "muon");
  const std::string table = c.get("table", "");
  const auto facts = make_rule_facts(
      rule, with_device(rule, frozen_rule_options(c.get("options", "")),
                        table.empty() ? "cpu" : "cuda"));
  const Model model = frozen_model(c.get("model", ""));
  PlanRequest request{model, mesh, *facts, frozen_options(c, mesh)};
  if (table.empty()) return make_plan(request);
  const std::string path =
      CANZONA_TEST_DATA "/../../cost_tables/" + table + ".json";
  const CostTable costs =
      CostTable::parse(read_file(path, 1 << 20, "a cost table"), path);
  request.cost_table = &costs;
  return make_plan(request);
}

// Results, as text of which the digest is kept.

// This many digits of a digest tell two results apart.
constexpr size_t kDigits = 12;

std::string short_digest(std::string_view text) {
  return sha256_hex(text).substr(0, kDigits);
}

void write_wire(const WireBytes& wire, std::string& out) {
  out += cat(" ", wire.sent_intra, " ", wire.sent_inter, " ",
             wire.received_intra, " ", wire.received_inter);
}

void write_bytes(const RankCost& rank, std::string& out) {
  for (const Collective c :
       {Collective::kReduceScatter, Collective::kAllReduce, Collective::kGather,
        Collective::kScatter, Collective::kAllGather, Collective::kBroadcast})
    write_wire(rank.wire[static_cast<size_t>(c)], out);
  out += '\n';
}

void write_memory(const RankMemory& memory, std::string& out) {
  for (const Bytes bytes : {memory.parameters, memory.gradients, memory.master,
                            memory.states, memory.buffers, memory.pools})
    out += cat(bytes.value(), " ");
  out += '\n';
}

void write_loads(const RankCost& rank, std::string& out) {
  out += cat(rank.elements, " ", rank.computed, " ", rank.num_matrices, " ",
             rank.every_step.value());
  for (const Ticks ticks : rank.refresh) out += cat(" ", ticks.value());
  out += '\n';
}

// Describes at most 16 ranks, spread over the world.
std::string module_text(const Plan& plan) {
  std::string out;
  const int32_t world = plan.mesh.world();
  const int32_t every = std::max(1, (world + 15) / 16);
  for (int32_t rank = 0; rank < world; rank += every)
    for (const PurposeBytes& module : module_bytes(plan, rank)) {
      for (const Purpose purpose :
           {Purpose::kGatherModule, Purpose::kScatterModule, Purpose::kSum,
            Purpose::kSumReplicas, Purpose::kPublish})
        write_wire(of(module, purpose), out);
      out += '\n';
    }
  return out;
}

void write_pools(const PlanPart& plan, std::string& out) {
  for (int32_t stage = 0; stage < plan.mesh.pp; ++stage) {
    const PoolSizes p = pool_sizes(plan, stage);
    out +=
        cat(p.gather_slots, " ", p.scatter_slots, " ", p.slot, " ",
            p.large_gather_slots, " ", p.large_scatter_slots, " ", p.large_slot,
            " ", p.parameter_staging, " ", p.gradient_staging, "\n");
  }
}

// By part and stage; nothing where no slices are cut.
std::string pool_text(const Plan& plan) {
  std::string out;
  for (const PlanPart& part : plan.parts)
    if (plan.parts.size() > 1 || part.grid.places > 1) write_pools(part, out);
  return out;
}

// Every rank and field counts with another weight, so that exchanged ones show.
double checksum_of_times(const std::vector<RankCost>& ranks) {
  double sum = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankCost& c = ranks[r];
    sum += static_cast<double>(r + 1) *
           (c.step_seconds + 2 * c.step_seconds_mean +
            3 * c.step_seconds_worst + 4 * c.transform_seconds_mean +
            5 * c.transform_seconds_worst + 6 * c.element_wise_seconds);
  }
  return sum;
}

double checksum_of_passes(const std::vector<RankCost>& ranks) {
  double sum = 0;
  for (size_t r = 0; r < ranks.size(); ++r)
    sum += static_cast<double>(r + 1) * ranks[r].element_wise_bytes;
  return sum;
}

FrozenFacts refusal(const Error& error) {
  std::string text = error.what();
  for (char& letter : text)
    if (letter == '\n') letter = ' ';
  return {.exact = {{"refused", text}}, .times = {}};
}

FrozenFacts facts_of_plan(const Plan& plan) {
  const std::vector<RankCost> ranks = predict(plan);
  std::string bytes, memory, loads;
  for (const RankCost& rank : ranks) {
    write_bytes(rank, bytes);
    write_memory(rank.memory, memory);
    write_loads(rank, loads);
  }
  loads += cat(makespan(plan, ranks).value());
  FrozenFacts facts;
  facts.exact = {{"plan", plan.digest.substr(0, kDigits)},
                 {"bytes", short_digest(bytes)},
                 {"memory", short_digest(memory)},
                 {"loads", short_digest(loads)}};
  if (const std::string pools = pool_text(plan); !pools.empty()) {
    facts.exact.emplace_back("pools", short_digest(pools));
    facts.exact.emplace_back("modules", short_digest(module_text(plan)));
  }
  facts.times = {{"mean", plan.summary.step_seconds_mean},
                 {"worst", plan.summary.step_seconds_worst},
                 {"ranks", checksum_of_times(ranks)},
                 {"passes", checksum_of_passes(ranks)}};
  return facts;
}

// Iterations.

Overlap frozen_overlap(const FrozenCase& c) {
  return parse_overlap(c.get("overlap", "background"));
}

Workload frozen_workload(const FrozenCase& c, const Model& model) {
  Workload workload;
  workload.compute = {.tokens = 64, .flops_per_second = 1e9};
  if (model.num_experts > 0) workload.compute.experts_per_token = 2;
  workload.num_micro_batches = c.number("micro", 1);
  workload.overlap = frozen_overlap(c);
  workload.hidden = c.number("hidden", 0);
  workload.copy_bytes_per_second = std::stod(c.get("copies", "0"));
  return workload;
}

FrozenFacts facts_of_iteration(const IterationPrediction& p) {
  std::string bytes = cat(p.slow_bytes, " ", p.fast_bytes);
  write_wire(p.time.bytes, bytes);
  const IterationTime& t = p.time;
  return {.exact = {{"stage", cat(p.stage)},
                    {"memory", cat(p.memory_bytes)},
                    {"bytes", short_digest(bytes)}},
          .times = {{"seconds", t.seconds},
                    {"compute", t.compute_seconds},
                    {"step", t.step_seconds},
                    {"bubble", t.bubble_seconds},
                    {"parameters", t.waited_parameters},
                    {"gradients", t.waited_gradients},
                    {"waited_step", t.waited_step},
                    {"intra", t.busy_intra_seconds},
                    {"inter", t.busy_inter_seconds},
                    {"busy", t.busy_seconds},
                    {"edges", t.edge_seconds}}};
}

// Steps.

void write_sent(const Groups::Sent& sent, std::string& out) {
  out += cat(sent.reduce_scatter, " ", sent.all_reduce, " ", sent.gather, " ",
             sent.scatter, " ", sent.all_gather, " ", sent.broadcast, " ",
             sent.parameter_gather, " ", sent.gradient_scatter, "\n");
}

TrialResult run_frozen(const FrozenCase& c, Plan plan) {
  Trial trial{.plan = std::move(plan), .steps = 2};
  trial.micro_batches = static_cast<int>(c.number("micro", 1));
  trial.options.overlap = frozen_overlap(c);
  trial.ranks.communicator.ranks_per_node = trial.plan.options.ranks_per_node;
  return run_trial(trial);
}

// Returns the digest of a single rank that holds all of it, by what the result
// depends on.
std::string digest_alone(const FrozenCase& c) {
  static std::map<std::string, std::string> known;
  FrozenCase alone;
  for (const char* key : {"model", "rule", "options", "parameters", "micro"})
    alone.set(key, c.get(key, ""));
  std::string& digest = known[alone.text()];
  if (digest.empty()) {
    const TrialResult result = run_frozen(alone, frozen_plan(alone, "dp=1"));
    digest = result.parameters + result.states;
  }
  return digest;
}

// The timing decides how much of the pools a run uses, unless every transfer is
// waited for at once.
std::string pool_use_text(const FrozenCase& c, const TrialResult& result) {
  std::string out;
  for (size_t r = 0; r < result.pools.size(); ++r) {
    const Runtime::PoolUse& use = result.pools[r];
    out +=
        cat(use.slots_now, " ",
            use.bytes <= result.memory[r].pools.value() ? "fits" : "exceeds");
    if (frozen_overlap(c) == Overlap::kNone)
      out += cat(" ", use.gather_slots, " ", use.scatter_slots, " ", use.bytes);
    out += '\n';
  }
  return out;
}

FrozenFacts facts_of_run(const FrozenCase& c, const TrialResult& result) {
  std::string sent, slow, memory;
  for (size_t r = 0; r < result.sent.size(); ++r) {
    write_sent(result.sent[r], sent);
    write_sent(result.sent_slow[r], slow);
    write_memory(result.memory[r], memory);
  }
  FrozenFacts facts;
  facts.exact = {{"bytes", short_digest(sent)},
                 {"slow_bytes", short_digest(slow)},
                 {"memory", short_digest(memory)},
                 {"pools", short_digest(pool_use_text(c, result))}};
  if (c.get("rule", "") == "adamw") {
    facts.exact.emplace_back("parameters", short_digest(result.parameters));
    facts.exact.emplace_back("states", short_digest(result.states));
  }
  const bool same = digest_alone(c) == result.parameters + result.states;
  facts.exact.emplace_back("as_one_rank_alone", same ? "yes" : "no");
  return facts;
}

}  // namespace

FrozenFacts frozen_plan_facts(const FrozenCase& c) {
  try {
    return facts_of_plan(frozen_plan(c, c.get("mesh", "")));
  } catch (const Error& error) {
    return refusal(error);
  }
}

FrozenFacts frozen_iteration_facts(const FrozenCase& c) {
  try {
    const Plan plan = frozen_plan(c, c.get("mesh", ""));
    return facts_of_iteration(
        predict_iteration(plan, frozen_workload(c, plan.model)));
  } catch (const Error& error) {
    return refusal(error);
  }
}

FrozenFacts frozen_step_facts(const FrozenCase& c) {
  try {
    return facts_of_run(c, run_frozen(c, frozen_plan(c, c.get("mesh", ""))));
  } catch (const Error& error) {
    return refusal(error);
  }
}

}  // namespace canzona::tests
