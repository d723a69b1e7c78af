#include "canzona/report/json_parts.h"

#include "canzona/report/numbers.h"

namespace canzona {
namespace {

void axis_members(JsonWriter& out, const AxisBalance& axis) {
  out.field("memory_max_over_mean", axis.memory_max_over_mean);
  out.field("shard_flops_max_over_mean", axis.shard_flops_max_over_mean);
  out.field("cost_max_over_mean", axis.cost_max_over_mean);
}

}  // namespace

void write_mesh(JsonWriter& out, const Mesh& mesh) {
  out.begin_object();
  out.field("dp", mesh.dp).field("cp", mesh.cp).field("tp", mesh.tp);
  out.field("pp", mesh.pp).field("ep", mesh.ep).end_object();
}

void write_axis(JsonWriter& out, const AxisBalance& axis) {
  out.begin_object();
  axis_members(out, axis);
  out.end_object();
}

void write_balance_members(JsonWriter& out, const Balance& balance) {
  out.member("dp").begin_object();
  axis_members(out, balance.dp);
  out.field("bucket_bytes_max_over_even", balance.bucket_bytes_max_over_even);
  out.field("j_dp", balance.j_dp).field("j_comm", balance.j_comm).end_object();
  out.member("tp");
  write_axis(out, balance.tp);
  out.member("tp_worst");
  write_axis(out, balance.tp_worst);
  out.member("all_ranks").begin_object();
  out.field("makespan_over_mean", balance.makespan_over_mean);
  out.field("makespan_over_bound", balance.makespan_over_bound);
  out.field("bound_over_mean", balance.bound_over_mean);
  if (balance.team_bound_over_mean > 0)
    out.field("team_bound_over_mean", balance.team_bound_over_mean);
  out.field("idle_ranks", balance.idle_ranks).end_object();
}

void write_memory(JsonWriter& out, const RankMemory& memory) {
  out.begin_object();
  for (const MemoryKind& kind : memory_kinds(memory.pools.value() > 0))
    out.field(kind.name, (memory.*kind.field).value());
  out.field("total", memory.total().value());
  out.field("staging", memory.staging.value()).end_object();
}

void write_activations(JsonWriter& out, const MemoryTerms& terms) {
  const ActivationLoad& load = terms.load;
  out.begin_object().field("counted", load.tokens > 0);
  out.field("bytes", terms.activations).field("tokens", load.tokens);
  out.field("micro_batches", load.num_micro_batches);
  out.field("experts_per_token", load.experts_per_token);
  out.field("dtype", to_string(load.dtype));
  out.field("recompute", load.recompute).end_object();
}

void write_counted_memory(JsonWriter& out, const ReportPlan& shown) {
  const MemoryTerms& terms = *shown.terms;
  const RankMemory& memory = fullest_memory(shown.ranks);
  out.begin_object().field("cap_bytes", terms.cap_bytes);
  out.field("gradients", to_string(terms.gradients));
  write_activations(out.member("activations"), terms);
  out.member("fullest_rank").begin_object();
  for (const MemoryKind& kind : memory_kinds(true))
    out.field(kind.name, (memory.*kind.field).value());
  out.field("activations", terms.activations);
  out.field("total", memory.total().value() + terms.activations);
  out.end_object().end_object();
}

void write_wire_members(JsonWriter& out, const WireBytes& wire) {
  out.field("sent_intra", wire.sent_intra);
  out.field("sent_inter", wire.sent_inter);
  out.field("received_intra", wire.received_intra);
  out.field("received_inter", wire.received_inter);
}

void write_wire(JsonWriter& out, const RankCost& rank) {
  out.begin_object();
  for (int c = 0; c < kNumCollectives; ++c) {
    const WireBytes& wire = rank.wire[static_cast<size_t>(c)];
    if (wire.sent() == 0 && wire.received() == 0) continue;
    out.member(to_string(static_cast<Collective>(c))).begin_object();
    write_wire_members(out, wire);
    out.end_object();
  }
  out.end_object();
}

}  // namespace canzona
