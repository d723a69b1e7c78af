// A plan of storage that is given: loads, bytes, rounds and owners.

const MOST_MATRICES = 2000;
const MOST_ROUNDS = 64;
const MOVES = [["k0", "gather to owners"], ["k1", "scatter of updates"], ["k2", "broadcast to replicas"]];

// A cost in ticks over a period: predicted time of a step and, where ticks are
// flops, the flops.
function costText(plan, ticks) {
  const mean = ticks / plan.balance.period, time = seconds(mean * plan.seconds_per_tick);
  return plan.cost_source === "nominal" ? `${flops(mean)}, ${time}` : time;
}

const rankBars = (plan, parts) => plan.ranks.map(one =>
  ({label: String(one.rank), title: "rank " + one.rank, parts: parts(one)}));

function storageLoads(plan) {
  const {mean_ticks: mean, bound_ticks} = plan.balance;
  if (!(mean > 0)) return section("loads", "Load", "Load per rank", el("p", "No matrices, no load to balance."));
  const bound = bound_ticks / mean;
  const lines = [{value: 1, text: "mean 1", css: "mean-line"},
                 {value: bound, text: "bound " + ratio(bound), css: "bound-line"}];
  const bars = rankBars(plan, one => [one.load / mean]);
  return section("loads", "Load", "Load per rank",
    figure(width => stackedBars({title: "Load per rank, as a multiple of the mean", bars, lines,
      kinds: [["after", ""]], ticks: plainTicks, text: ratio, below: "rank"}, width),
      "The work of a rank over a period of steps. No owners can have a makespan below the bound."));
}

function storageBytes(plan) {
  const sent = wire => wire.sent_intra + wire.sent_inter;
  const bars = rankBars(plan, ({bytes}) => ["gather", "scatter", "broadcast"].map(name => bytes[name] ? sent(bytes[name]) : 0));
  return section("wire", "Bytes", "Bytes per rank and step",
    figure(width => stackedBars({title: "Bytes that a rank sends in a step", bars, kinds: MOVES, ticks: byteTicks,
      text: bytes, below: "rank"}, width), "Sent by each rank."), legend(MOVES));
}

// Matrices and work of each round of a class.
function classRounds(plan, own, number) {
  const rounds = Array.from({length: own.rounds}, () => ({matrices: 0, work: 0, perRank: new Map()}));
  for (const one of plan.matrices) {
    if (one.class !== number || one.round < 0) continue;
    const round = rounds[one.round];
    round.matrices++;
    round.work += one.load;
    round.perRank.set(one.owner, (round.perRank.get(one.owner) || 0) + one.load);
  }
  const ranks = sum(own.lines.map(line => line.length)), others = own.lines.length - 1;
  const rows = rounds.slice(0, MOST_ROUNDS).map((round, r) => {
    const most = largest([...round.perRank.values()]), mean = round.work / ranks;
    return [String(r), round.matrices, costText(plan, most), mean > 0 ? ratio(most / mean) : "–"];
  });
  return [
    el("h3", `Class ${number}: ${counted(own.tensors, "tensor")}, ${counted(own.rounds, "round")}`),
    el("p", `Exchanged over ${own.exchanged_over}` + (others ? ` and ${counted(others, "line")} like it; every update ` +
      `is broadcast to ${others} more` : "") + "."),
    table(["round", ">matrices", ">work, busiest owner", ">busiest / mean"], rows),
    rounds.length > MOST_ROUNDS ? el("p", `… and ${rounds.length - MOST_ROUNDS} more.`) : null];
}

const storageRounds = plan => section("rounds", "Rounds", "Rounds",
  el("p", "Matrices of a round are gathered to their owners, transformed and sent back together, while the next " +
     "round is on its way."),
  plan.classes.map((own, number) => classRounds(plan, own, number)));

const storageOrder = ({order}) => section("schedule", "Order", "What a rank does, in order",
  el("p", `A step on rank ${order.rank}, the busiest: `, el("code", "canzona explain"),
     " tells it of any rank of a plan."), orderTable(order));

const storageMatrices = plan => section("matrices", "Matrices", "Matrices and their owners",
  table(["matrix", ">shape", "rule", ">owner", ">class", ">round", ">cost"],
    plan.matrices.slice(0, MOST_MATRICES).map(one => [one.name, dims([one.rows, one.cols]), one.rule, one.owner,
      one.class, one.round < 0 ? "stays" : one.round, costText(plan, one.load)])),
  plan.matrices.length > MOST_MATRICES
    ? el("p", `… and ${plan.matrices.length - MOST_MATRICES} more; plan.json has all.`) : null);

start(plan => {
  const {balance} = plan;
  showPage({
    title: `Plan of given storage, ${counted(plan.world, "rank")}`,
    kind: "Canzona plan of given storage",
    heading: `${counted(plan.matrices.length, "matrix")} on ${counted(plan.world, "rank")}`,
    asked: [plan.rules_text + " · wire ", el("b", plan.wire)],
    tiles: [
      plan.matrices.length ? tile("Makespan", ratio(balance.makespan_over_bound), "× the lower bound",
                                  ratio(balance.makespan_over_mean) + " × the mean load")
                           : tile("Makespan", "–", "", "no matrices: nothing to balance"),
      tile("Idle ranks", grouped(balance.idle_ranks), "of " + grouped(plan.world), "own no matrix"),
      tile("Bytes per rank", bytes(balance.bytes_per_rank_max), "", "sent by the busiest rank in a step")],
    asides: el("details.facts", el("summary", "What was asked"), facts([
      ["Tensors", counted(plan.tensors, "tensor")], ["Rules", plan.rules_text],
      ["Capacity of a round", bytes(plan.capacity_bytes)],
      ["States of replicas", plan.share_states ? "at the owner's line alone" : "on every replica"],
      ["Ranks per node", grouped(plan.ranks_per_node)], ["Cost", plan.cost_text], ["Digest", plan.digest]])),
    sections: [storageLoads(plan), storageBytes(plan), storageRounds(plan), storageOrder(plan), storageMatrices(plan)],
    footer: "Made by Canzona from storage that is given.",
  });
});
