// A plan, or several strategies side by side. `view` has the plan that is shown
// in detail, all plans that are compared, and of two the one before the other.

const nameOf = plan => plan.name || plan.strategy;
const stepSeconds = plan => plan.predicted_step_seconds ?? plan.predicted.step_seconds_mean;
const totalBytes = memory => memory.total;

function viewOf(report) {
  if (report.report === "plan") return {plan: report, plans: [report], refused: [], pair: [report]};
  const plans = report.strategies.filter(one => !one.error);
  const find = name => plans.find(one => one.name === name);
  const view = {plan: report.plan, plans, before: find(report.before), after: find(report.after),
                refused: report.strategies.filter(one => one.error)};
  view.before = view.before === view.after ? null : view.before;
  view.pair = view.before ? [{...view.before, buckets: report.buckets_before}, report.plan] : [report.plan];
  return view;
}

// Ticks as predicted time.
function ticksText(plan, ticks) {
  const rate = plan.cost.seconds_per_tick;
  return rate > 0 ? seconds(ticks * rate) : count(ticks) + " ticks";
}

const rateText = plan =>
  plan.cost.nominal ? "nominal rate, no cost table" : "measured on " + plan.cost.source;

// Homes of dense tensors in a stage.
const homesOf = mesh => mesh.dp * mesh.cp * mesh.ep;

// "rank 11 (home 1, t 3)"; the stage too where there are several.
function rankTitle(mesh, rank) {
  const homes = homesOf(mesh), home = Math.floor(rank / mesh.tp) % homes;
  const stage = mesh.pp > 1 ? `stage ${Math.floor(rank / (mesh.tp * homes))}, ` : "";
  return `rank ${rank} (${stage}home ${home}, t ${rank % mesh.tp})`;
}

// How near the plan is to the best possible one.
function verdictOf({plan, before, after}) {
  if (!plan.num_matrices) return "Every tensor is updated by AdamW; there is no matrix to own.";
  const over = plan.all_ranks.makespan_over_bound;
  const bound = `which lies at ${ratio(plan.all_ranks.makespan_over_mean / over)} × the mean load of a rank.`;
  const text = over < 1.00005
    ? "No plan can be faster in matrix work: the makespan is at the lower bound, "
    : over < 1.1 ? `No plan can be more than ${fixed((over - 1) * 100, 2)} % faster in matrix work, by the lower bound, `
    : `The makespan is ${ratio(over)} × the lower bound, `;
  return text + bound + (!before ? "" : ` Under ${before.name} matrix work takes ${
    ratio(before.all_ranks.makespan_over_bound / over)} × as long as under ${after.name}.`);
}

function planTiles({plan, before}) {
  const was = text => before ? "before: " + text(before) : "";
  const {all_ranks: balance, options, predicted} = plan;
  const activations = plan.counted_memory ? plan.counted_memory.activations.bytes : 0;
  return [
    plan.num_matrices
      ? tile("Makespan", ratio(balance.makespan_over_bound), "× the lower bound",
             ratio(balance.makespan_over_mean) + " × the mean load",
             was(old => ratio(old.all_ranks.makespan_over_bound) + " × the bound"))
      : tile("Makespan", "–", "", "no matrices: nothing to balance"),
    tile("Idle ranks", grouped(balance.idle_ranks), "of " + grouped(plan.world), "own no matrix",
         was(old => grouped(old.all_ranks.idle_ranks))),
    tile("Memory per rank", bytes(plan.memory_per_rank_max), "at most",
         "mean " + bytes(plan.memory_per_rank_mean),
         options.memory_cap_bytes > 0 ? "cap " + bytes(options.memory_cap_bytes) : "",
         activations > 0 ? `beside it ${bytes(activations)} of activations` : ""),
    tile("Bytes per rank", bytes(plan.bytes_per_rank_max), "", "sent by the busiest rank in a step",
         was(old => bytes(old.bytes_per_rank_max))),
    predicted.iteration
      ? tile("Predicted iteration", seconds(predicted.iteration.seconds), "",
             predicted.iteration.tokens_per_second ? count(predicted.iteration.tokens_per_second) + " tokens/s" : "",
             "waiting for collectives " + seconds(predicted.iteration.waited_seconds))
      : null,
    tile("Predicted step alone", seconds(predicted.step_seconds_mean), "", rateText(plan),
         plan.links.nominal ? "nominal links" : "",
         predicted.step_seconds_worst > predicted.step_seconds_mean
           ? "worst step " + seconds(predicted.step_seconds_worst) : "",
         was(old => seconds(stepSeconds(old)))),
  ].filter(Boolean);
}

function askedFacts(plan) {
  const {options} = plan;
  return el("details.facts", el("summary", "What was asked"), facts([
    ["Model", `${plan.model}${plan.fused ? ", fused" : ""}, ${count(plan.elements)} elements`],
    ["Tensors", counted(plan.num_tensors, "tensor")],
    ["Matrices", `${grouped(plan.num_matrices)}, split ${options.split}`],
    ["Mesh", `${meshText(plan.mesh)}, ${counted(plan.world, "rank")}, ${options.ranks_per_node} per node`],
    ["Rule", plan.rule.text],
    ["Micro-groups", `${options.micro_groups}, capacity ${bytes(options.capacity_bytes)}`],
    ["Balanced by", options.weight],
    ["Alpha", options.alpha === undefined ? "" : significant(options.alpha, 4)],
    ["Buckets", `${grouped(plan.num_buckets)}, closed at ${count(options.bucket_elements)} elements`],
    ["Memory cap", options.memory_cap_bytes > 0 ? bytes(options.memory_cap_bytes) + " per rank" : ""],
    ["Activations", plan.activations_text],
    ["Digest", plan.digest]]));
}

// All strategies side by side; the best figure of every column stands out.
const COLUMNS = [
  [">makespan / bound", plan => plan.all_ranks.makespan_over_bound, ratio],
  [">makespan / mean", plan => plan.all_ranks.makespan_over_mean, ratio],
  [">idle", plan => plan.all_ranks.idle_ranks, grouped],
  [">elements", plan => plan.dp.memory_max_over_mean, ratio],
  [">cost", plan => plan.dp.cost_max_over_mean, ratio],
  [">bucket bytes", plan => plan.dp.bucket_bytes_max_over_even, ratio],
  [">cost", plan => plan.tp_worst.cost_max_over_mean, ratio],
  [">memory", plan => plan.memory_per_rank_max, bytes],
  [">sent", plan => plan.bytes_per_rank_max, bytes],
  [">step alone, predicted", stepSeconds, seconds],
];

function strategiesSection({plan, plans, before, after, refused}) {
  if (plans.length + refused.length < 2) return null;
  // Text is compared, so that figures that look equal are marked alike.
  const best = COLUMNS.map(([, value, text]) => text(smallest(plans.map(value))));
  const mark = one => !before ? "" : one === before ? " (before)" : one === after ? " (after)" : "";
  const rows = plans.map(one => el("tr", el("th", one.name, el("small", mark(one))),
    COLUMNS.map(([, value, text], i) => {
      const shown = text(value(one));
      return el(shown === best[i] ? "td.n.best" : "td.n", shown);
    })));
  return section("strategies", "Strategies", "Strategies",
    table(["strategy", ...COLUMNS.map(([name]) => name)], rows, {css: "wide", groups: [
      ["", 1], ["all ranks", 3], ["homes, max / mean", 3], ["tp, worst home", 1],
      ["per rank, at most", 3]]}),
    el("p.note", "Smaller is better everywhere; the best of a column is bold. Times are predicted (",
       rateText(plan), plan.links.nominal ? ", nominal links" : "", ")."),
    refused.map(one => el("p.note", `${one.name} cannot plan this: ${one.error}.`)));
}

const PLAN_WORDS = [
  ["tensor", "a named parameter as the model has it"],
  ["matrix", "one 2-D block that the rule treats as a whole: a tensor, or a piece of one after a split"],
  ["shard", "the part of a tensor that one rank stores"],
  ["rule", "an optimizer: how one matrix is updated. Tensors that are no matrices are left to AdamW"],
  ["bucket", "a run of tensors reduced together during backward"],
  ["home", "the data-parallel coordinate to which a matrix's gradient is reduced; its tp ranks keep the " +
   "master weights, 1/tp each"],
  ["owner", "the rank of the home that computes a matrix's update; several that share one matrix are a team"],
  ["micro-group", "the matrices moved and computed together in one all-to-all round"],
  ["load", "the work of a rank over a period of steps: ordinary steps and the refreshes of the rule"],
  ["mean", "all work divided by the number of ranks: what each would carry if matrices could be cut anywhere"],
  ["lower bound", "no plan that gives whole matrices to ranks can have a smaller makespan"],
  ["makespan", "the largest load, summed over the steps of a period: all other ranks wait for it"],
  ["idle rank", "a rank that owns no matrix"],
  ["predicted", "computed from the plan and a rate of work, not measured. Nominal: no cost table of the " +
   "device, or no link speeds, were given; ratios hold, times are rough"],
];

function planWords() {
  const shown = words(PLAN_WORDS);
  shown.node.querySelector("h2").after(el("p",
    "Who computes a matrix is decided apart from where its pieces are stored. The result of a step is the " +
    "same under every strategy; time, traffic and memory differ."));
  return shown;
}

const orderSection = ({plan: {order}}) => section("schedule", "Order", "What a rank does, in order",
  el("p", `${order.title} on rank ${order.rank}, the busiest: `, el("code", "canzona explain"),
     " tells it of any rank of a plan."), orderTable(order));

function zeroSection({plan: {zero}}) {
  if (!zero) return null;
  const operations = Object.values(zero.operations);
  const longest = largest(operations.map(one => one.sent_intra_max + one.sent_inter_max));
  return section("zero", "ZeRO", "Hierarchical ZeRO",
    zero.described.map(kind => [kind.of ? el("h3", kind.of) : null, facts(kind.facts)]),
    table(["sent by the busiest rank", "with each", zero.among_heading, ">within a node", ">between nodes", ""],
          operations.map(one => [one.name, one.each, one.among, bytes(one.sent_intra_max),
            bytes(one.sent_inter_max), barCell(one.sent_intra_max, one.sent_inter_max, longest)])),
    legend(LINKS));
}

start(report => {
  const view = viewOf(report), {plan, plans, before} = view;
  const mesh = meshText(plan.mesh);
  showPage({
    title: `${plan.model} on ${mesh}, ${plan.rule.name}`,
    kind: plans.length > 2 ? "Canzona compare"
      : before ? "Canzona plan, against " + before.name : "Canzona plan",
    heading: plan.model,
    asked: [el("b", counted(plan.world, "rank")), ` on ${mesh} · rule `, el("b", plan.rule.name),
            " · strategy ", el("b", plan.strategy)],
    verdict: verdictOf(view), tiles: planTiles(view), asides: askedFacts(plan),
    sections: [
      strategiesSection(view), loadsSection(view), bucketsSection(view), microGroupsSection(view),
      zeroSection(view), memorySection(view), wireSection(view), orderSection(view), tensorsSection(plan),
      planWords()],
    footer: "Made by Canzona from shapes alone.",
  });
  listenForQueries();
});
