// The drawings of a plan: loads, buckets, micro-groups, memory and bytes.

const LINKS = [["k0", "within a node"], ["k3", "between nodes"]];

// Load per rank, before and after, against the mean and the lower bound. Loads
// are multiples of `unit`, the mean.

// Upper ends of the colours of a grid, as multiples of the lower bound. The
// sixth is near enough to it that a reader need not care.
const HEAT = [0, 0.25, 0.5, 0.75, 0.95, 1.02, 1.1, 1.25, 1.5, 2];
const AT_BOUND = 5;
// A strategy of which even the least loaded rank carries more than this many
// times the mean repeats work; its line would flatten all others.
const OFF_THE_CHART = 3;

function heatOf(load) {
  const found = HEAT.findIndex(limit => load <= limit);
  return "heat" + (found < 0 ? HEAT.length : found);
}

const heatLegend = () => legend([...HEAT.map((limit, i) =>
  ["heat" + i, i === 0 ? "idle" : i === AT_BOUND ? "at the bound" : "≤ " + limit]),
  ["heat" + HEAT.length, `> ${HEAT[HEAT.length - 1]} × the bound`]]);

const loadText = load => load > 0 ? ratio(load) + " × mean" : "idle";

// One bar per rank and series {name, css, loads}, side by side.
function loadBars(mesh, series, lines, width) {
  const top = 1.06 * Math.max(largest(series.flatMap(one => one.loads)), largest(lines.map(one => one.value)));
  const chart = new Chart("Load per rank, as a multiple of the mean", 220, top, width);
  chart.axis(plainTicks(top));
  const world = series[0].loads.length, slots = chart.slots(world);
  const gap = slots.width * 0.18, bar = (slots.width - gap) / series.length;
  series.forEach((one, i) => one.loads.forEach((load, rank) => {
    const y = chart.y(load);
    chart.rect(slots.at(rank) + gap / 2 + bar * i, y, bar, Math.max(chart.bottom - y, load > 0 ? 1 : 0),
               "run " + one.css, `${rankTitle(mesh, rank)}, ${one.name}: ${loadText(load)}`, "rank:" + rank);
  }));
  chart.references(lines);
  labelRanks(chart, slots, mesh, world);
  return chart;
}

// Rank numbers, and under them the homes where each has several ranks.
function labelRanks(chart, slots, mesh, world) {
  for (let rank = 0; rank < world; rank += Math.ceil(18 / slots.width))
    chart.text(slots.at(rank + 0.5), chart.bottom + 14, "middle", String(rank));
  if (mesh.tp === 1) {
    chart.text(slots.left, chart.bottom + 30, "start dim", mesh.pp === 1 ? "rank = home" : "rank");
    return;
  }
  const wide = slots.width * mesh.tp, skip = Math.floor(50 / wide) + 1, homes = homesOf(mesh);
  for (let first = 0; first < world; first += mesh.tp) {
    const home = first / mesh.tp % homes, y = chart.bottom + 19;
    chart.line(slots.at(first) + 1, y, slots.at(first + mesh.tp) - 1, y, "axis");
    if (wide < 50 && home % skip) continue;
    chart.text(slots.at(first + mesh.tp / 2), chart.bottom + 31, "middle dim",
               (mesh.pp > 1 && wide > 90 ? `stage ${Math.floor(first / mesh.tp / homes)}, ` : "") + "home " + home);
  }
}

// One cell per rank: homes from left to right, tp downwards, stages as bands.
// If a mesh is too large, a cell stands for several ranks and shows the busiest.
function gridCells(mesh, width) {
  const narrow = width < WIDE, homes = homesOf(mesh);
  const planes = Math.ceil(mesh.tp / 64), rows = Math.ceil(mesh.tp / planes);
  const perCell = Math.min(homes, Math.ceil(mesh.pp * homes * rows / (narrow ? 1024 : 8192)));
  const perStage = Math.ceil(homes / perCell), lines = Math.ceil(perStage / (narrow ? 32 : 128));
  return {homes, planes, rows, perCell, perStage, lines, perLine: Math.ceil(perStage / lines)};
}

function busiestOfCell(mesh, cells, stage, column, row, loads) {
  let best = -1;
  const endHome = Math.min((column + 1) * cells.perCell, cells.homes);
  const endPlane = Math.min((row + 1) * cells.planes, mesh.tp);
  for (let home = column * cells.perCell; home < endHome; home++)
    for (let t = row * cells.planes; t < endPlane; t++) {
      const rank = (stage * cells.homes + home) * mesh.tp + t;
      if (best < 0 || loads[rank] > loads[best]) best = rank;
    }
  return best;
}

function loadGrid(mesh, {name, loads}, bound, drawingWidth) {
  const cells = gridCells(mesh, drawingWidth), left = 64;
  const width = Math.min(30, (drawingWidth - left) / cells.perLine), height = Math.min(16, width);
  const band = height * cells.rows + 20;
  const drawing = new Drawing(drawingWidth, band * cells.lines * mesh.pp + 2, "Load of every rank, " + name);
  const every = width >= 16 ? 4 : width >= 8 ? 8 : 16;
  for (let stage = 0; stage < mesh.pp; stage++) for (let line = 0; line < cells.lines; line++) {
    const top = band * (stage * cells.lines + line) + 16, first = line * cells.perLine;
    drawing.text(left - 8, top - 4, "end dim", mesh.pp > 1 ? "stage " + stage : "home");
    drawing.text(left - 8, top + Math.min(height, 11), "end dim", "t 0");
    if (height * cells.rows >= 26)
      drawing.text(left - 8, top + height * cells.rows - 2, "end dim", "t " + (mesh.tp - 1));
    for (let column = first; column < Math.min(first + cells.perLine, cells.perStage); column++) {
      const x = left + width * (column - first);
      if ((column - first) % every === 0) drawing.text(x + 1, top - 4, "start", String(column * cells.perCell));
      for (let row = 0; row < cells.rows; row++) {
        const rank = busiestOfCell(mesh, cells, stage, column, row, loads);
        drawing.rect(x, top + height * row, width, height, "cell " + heatOf(loads[rank] / bound),
                     `${rankTitle(mesh, rank)}: ${loadText(loads[rank])}`, "rank:" + rank);
      }
    }
  }
  return drawing;
}

// Ranks sorted from the busiest to the least loaded, one line of steps per series.
function loadCurve(series, lines, width) {
  const top = 1.06 * Math.max(1.1, largest(series.flatMap(one => one.loads)), largest(lines.map(one => one.value)));
  const chart = new Chart("Loads sorted from the busiest rank to the least loaded", 200, top, width);
  chart.axis(plainTicks(top));
  chart.references(lines);
  const wide = chart.right - chart.left;
  for (const {name, css, loads} of series) {
    const sorted = [...loads].sort((a, b) => b - a), steps = Math.min(sorted.length, 1024);
    const at = i => sorted[steps < 2 ? 0 : Math.round(i * (sorted.length - 1) / (steps - 1))];
    let d = `M${chart.left} ${round(chart.y(at(0)))}`;
    for (let i = 1; i <= steps; i++)  // runs of equal loads become one step
      if (i === steps || at(i) !== at(i - 1))
        d += `H${round(chart.left + wide * i / steps)}` + (i < steps ? `V${round(chart.y(at(i)))}` : "");
    chart.path(d, css, `${name}: busiest ${ratio(sorted[0])}, least loaded ${ratio(sorted[sorted.length - 1])} × mean`);
  }
  for (let quarter = 0; quarter <= 4; quarter++)
    chart.text(chart.left + wide * quarter / 4, chart.bottom + 16, "middle", grouped(series[0].loads.length * quarter / 4));
  chart.below("ranks, the busiest first");
  return chart;
}

// All strategies in one drawing, without those that would flatten it.
function allCurves({plans, before, after}, loadsOf, lines) {
  let others = 2;
  const series = plans.map(plan => {
    const color = plan === after ? "s0" : plan === before ? "s1" : "s" + (2 + (others++ - 2) % 4);
    return {plan, name: plan.name, color, css: "curve dashed " + color, loads: loadsOf(plan)};
  });
  const isOff = one => one.plan !== after && smallest(one.loads) > OFF_THE_CHART;
  const drawn = series.filter(one => !isOff(one)), off = series.filter(isOff);
  return [
    el("h3", plans.length > 2 ? "All strategies, ranks sorted by load" : "Ranks sorted by load"),
    figure(width => loadCurve(drawn, lines, width), off.length
      ? "Off the chart, every rank repeats work: " +
        off.map(one => `${one.name} (${ratio(largest(one.loads))})`).join(", ") : ""),
    legend(drawn.map(one => ["key " + one.color, `${one.name} (at most ${ratio(largest(one.loads))})`]))];
}

function loadsCaption({plan, pair}, loadsOf) {
  const texts = pair.map(one => {
    const loads = loadsOf(one);
    return `${nameOf(one)}: busiest rank ${ratio(largest(loads))}, least loaded ${ratio(smallest(loads))}, ` +
      `${one.all_ranks.idle_ranks} idle. `;
  });
  const {period} = plan.rule;
  return `${texts.join("")}1 = the mean load, ${ticksText(plan, plan.mean / period)} of matrix work per step ` +
    `(predicted, ${rateText(plan)}).` + (period > 1 ? ` Loads are over a period of ${period} steps. The makespan ` +
      "adds up the largest load of each step, so that it may lie above the busiest rank." : "");
}

function loadsSection(view) {
  const {plan, plans, pair, before} = view, {mesh, mean} = plan;
  if (!(mean > 0)) return section("loads", "Load", "Load per rank", el("p", "No matrices, no load to balance."));
  const loadsOf = one => one.loads.map(load => load / mean);
  const bound = plan.bound / mean, makespan = plan.makespan / mean;
  const lines = [{value: 1, text: "mean 1", css: "mean-line"},
                 {value: bound, text: "bound " + ratio(bound), css: "bound-line"}];
  if (!before) lines.push({value: makespan, text: "makespan " + ratio(makespan), css: "limit-line"});
  const series = pair.map((one, i) => before
    ? {name: (i ? "after, " : "before, ") + nameOf(one), css: i ? "after" : "before", loads: loadsOf(one)}
    : {name: nameOf(one), css: "after", loads: loadsOf(one)});
  const caption = loadsCaption(view, loadsOf), cells = gridCells(mesh, WIDE);
  const perCell = cells.perCell * cells.planes;
  const pictures = plan.world <= MANY
    ? [figure(width => loadBars(mesh, series, lines, width), caption),
       before ? legend(series.map(one => [one.css, one.name])) : null]
    : [series.map(one => [el("h3", one.name), figure(width => loadGrid(mesh, one, bound, width),
         perCell > 1 ? `Each cell stands for ${perCell} ranks and shows the busiest of them.` : "")]),
       heatLegend(),
       el("p.note", "Orange: above the lower bound, all others wait for it. Blue: below it. " + caption)];
  return section("loads", "Load", "Load per rank", pictures,
    plans.length > 1 ? allCurves(view, loadsOf, lines)
      : plan.world > MANY ? [el("h3", "Ranks sorted by load"), figure(width =>
          loadCurve([{...series[0], css: "curve s0"}], lines, width))] : null);
}

// Buckets cut by owner: one row per bucket, its runs coloured by home.

const MAX_RUNS = 10000;    // so that the page stays light
const NARROWEST = 2;       // narrower runs of neighbours are drawn as one
const NAMED_HOMES = 6;     // as many get a colour each; more alternate between two shades
const EVERY_HOME = -1;
const fp32 = elements => bytes(4 * elements) + " fp32";

function visibleRuns(runs, scale) {
  const out = [];
  for (const [home, tensors, elements] of runs) {
    const last = out[out.length - 1];
    if (last && last.elements * scale < NARROWEST)
      Object.assign(last, {last: home, tensors: last.tensors + tensors, elements: last.elements + elements});
    else out.push({first: home, last: home, tensors, elements});
  }
  return out;
}

const homeText = run => run.first === EVERY_HOME ? "every home"
  : run.first === run.last ? "home " + run.first : `homes ${run.first} … ${run.last}`;

const runColour = (part, run, i) => "run " + (run.first === EVERY_HOME ? "every"
  : part.homes <= NAMED_HOMES ? "s" + run.first : i % 2 ? "shade1" : "shade0");

// The longest part that a home keeps of a bucket, over an even share.
function widestOverEven({runs, homes}) {
  const perHome = new Map();
  for (const [home, , elements] of runs)
    if (home !== EVERY_HOME) perHome.set(home, (perHome.get(home) || 0) + elements);
  const all = sum(runs.map(([, , elements]) => elements));
  return all > 0 ? largest([...perHome.values()]) * homes / all : 0;
}

function drawBuckets(part, rows, mesh, strategy, drawingWidth) {
  const narrow = drawingWidth < WIDE;
  const left = narrow ? 84 : 112, right = drawingWidth - (narrow ? 48 : 150);
  const widest = largest(rows.map(row => sum(row.runs.map(run => run[2])) + row.adamw_elements));
  const scale = widest > 0 ? (right - left) / widest : 0;
  const step = rows.length <= 24 ? 22 : rows.length <= 48 ? 13 : 9, height = step - (step > 10 ? 3 : 1);
  const drawing = new Drawing(drawingWidth, step * rows.length + 22, `Buckets of ${strategy} cut by home`);
  const head = (mesh.pp > 1 ? "stage · " : "") + (part.ep > 1 ? "ep · " : "") + "bucket";
  drawing.text(narrow ? 0 : left - 8, 12, narrow ? "start dim" : "end dim", head);
  if (!narrow) drawing.text(left, 12, "start dim", "elements of one TP plane, in layout order");
  drawing.text(narrow ? drawingWidth : right + 8, 12, narrow ? "end dim" : "start dim", "widest run / even share");
  rows.forEach((row, b) => {
    const y = 18 + step * b, base = y + height - (height > 12 ? 5 : 1), {number} = row;
    let x = left;
    visibleRuns(row.runs, scale).forEach((run, i) => {
      const width = run.elements * scale, one = run.first === run.last && run.first !== EVERY_HOME;
      drawing.rect(x, y, width, height, runColour(part, run, i),
        `bucket ${number}: ${homeText(run)}, ${counted(run.tensors, "tensor")}, ${fp32(run.elements)}`,
        `bucket:${number}` + (one ? " home:" + run.first : ""));
      x += width;
    });
    if (row.adamw_elements > 0)
      drawing.rect(x, y, row.adamw_elements * scale, height, "adamw",
        `bucket ${number}: AdamW tensors, cut anywhere, ${fp32(row.adamw_elements)}`, `bucket:${number} adamw`);
    if (step < 10 && b % 4) return;
    const names = [mesh.pp > 1 ? row.stage : "", part.ep > 1 ? (row.ep < 0 ? "all" : row.ep) : "", number];
    drawing.text(left - 8, base, "end", names.filter(name => name !== "").join(" · "));
    if (!part.repeated && row.runs.length)
      drawing.text(right + 8, base, "start", ratio(widestOverEven(row)));
  });
  return drawing;
}

function bucketPart(part, mesh, strategy) {
  if (!part.rows.length) return el("p", "No buckets.");
  const visible = Math.min(part.homes, (WIDE - 150 - 112) / NARROWEST);
  const rows = part.rows.slice(0, Math.floor(MAX_RUNS / visible));
  const homes = (part.home_ranks || []).map((ranks, home) => `Home ${home}: ${ranks}. `).join("");
  const named = part.homes <= NAMED_HOMES;
  return [
    figure(width => drawBuckets(part, rows, mesh, strategy, width), homes + (rows.length < part.rows.length
      ? `The first ${grouped(rows.length)} of ${grouped(part.rows.length)} buckets are drawn.` : "")),
    legend([
      ...(named ? Array.from({length: part.homes}, (_, home) => ["s" + home, "home " + home])
                : [["shade0", "a home's run"], ["shade1", "the next home's run"]]),
      ...(part.repeated ? [["every", "every home repeats it"]] : []),
      ["adamw", "AdamW tensors, cut anywhere"]])];
}

const bucketsSection = ({plan, pair}) => section("buckets", "Buckets", "Buckets cut by owner",
  el("p", "A bucket is reduced as one message during backward. Each home keeps one run of it; the longest " +
     "run decides how long the reduce-scatter takes."),
  pair.map(one => one.buckets.map(part => [
    part.part ? el("h3", `${nameOf(one)}: ${part.part}${part.apart ? ", where the busiest rank is" : ""}`)
      : pair.length > 1 ? el("h3", nameOf(one)) : null,
    bucketPart(part, plan.mesh, nameOf(one))])));

// Micro-groups of the home of the busiest rank: rounds from left to right, tp
// ranks downwards, blocks as wide as their cost.

const MAX_ROWS = 32;
const MAX_BLOCKS = 2000;
const LISTED_ROUNDS = 16;
const workOf = blocks => sum(blocks.map(([, ticks]) => ticks));
const widestOf = round => largest(round.blocks.map(workOf));

// Distinct shapes of the matrices, the largest first: each has a colour.
function shapesOf(home) {
  const sizes = new Map(home.matrices.map(([, , rows, cols]) => [dims([rows, cols]), rows * cols]));
  return [...sizes].sort((a, b) => b[1] - a[1]).map(([shape]) => shape);
}

function drawRounds(plan, home, shapes, drawingWidth) {
  const left = 64, room = drawingWidth - left - 8, rows = Math.min(home.tp, MAX_ROWS), {rounds} = home;
  const gap = rounds.length > 1 ? Math.min(6, room * 0.2 / rounds.length) : 0;
  const scale = (room - gap * rounds.length) / (sum(rounds.map(widestOf)) || 1);
  const drawing = new Drawing(drawingWidth, 24 + 24 * rows, "Micro-groups of one home");
  for (let t = 0; t < rows; t++) drawing.text(left - 8, 36 + 24 * t, "end", "t " + t);
  drawing.text(left - 8, 12, "end dim", "round");
  let x = left, drawn = 0;
  for (const round of rounds) {
    const width = widestOf(round) * scale;
    drawing.rect(x, 18, width, 24 * rows, "round",
                 `round ${round.number}: ${ticksText(plan, widestOf(round))} of work, predicted`);
    if (width > 14) drawing.text(x + width / 2, 12, "middle", String(round.number));
    round.blocks.slice(0, rows).forEach((blocks, t) => {
      let at = x;
      for (const [m, ticks] of blocks) {
        if (drawn++ >= MAX_BLOCKS) return;
        drawBlock(drawing, plan, home.matrices[m], shapes, ticks, at, 20 + 24 * t, ticks * scale);
        at += ticks * scale;
      }
    });
    x += width + gap;
  }
  return drawing;
}

function drawBlock(drawing, plan, [name, tensor, rows, cols, team, inBlocks, helped], shapes, ticks, x, y, width) {
  const shape = dims([rows, cols]);
  drawing.rect(x, y, width, 20, (width < 4 ? "area s" : "run s") + shapes.indexOf(shape) % 6,
    `${name}, ${shape}, ${fp32(rows * cols)}, ${ticksText(plan, ticks)} predicted` +
      (inBlocks ? `, by blocks with ${team.length} owners`
        : helped ? `, owner t ${team[0]} with helper t ${team[1]}`
        : team.length ? `, of a team of ${team.length} with head t ${team[0]}` : ""), tensor);
  if (width > 7 * shape.length) drawing.text(x + width / 2, y + 14, "middle on", shape);
}

// "2 of 5120 × 25600" for every shape in a cell, then the bytes.
function roundCell(home, blocks) {
  const shapes = new Map();
  let size = 0;
  for (const [m] of blocks) {
    const [, , rows, cols] = home.matrices[m], shape = dims([rows, cols]);
    shapes.set(shape, (shapes.get(shape) || 0) + 1);
    size += 4 * rows * cols;
  }
  return el("td", [...shapes].map(([shape, number]) => [(number > 1 ? number + " of " : "") + shape, el("br")]),
            el("small", size > 0 ? bytes(size) : "–"));
}

function microGroups(plan, home) {
  const shapes = shapesOf(home), {rounds} = home, columns = Math.min(home.tp, MAX_ROWS);
  const blocks = sum(rounds.map(round => sum(round.blocks.slice(0, columns).map(one => one.length))));
  const listed = rounds.slice(0, LISTED_ROUNDS);
  return [
    home.part ? [el("h3", home.part), el("p", counted(home.num_rounds, "round") + ".")] : null,
    !rounds.length ? null : [
      figure(width => drawRounds(plan, home, shapes, width),
        (rounds.length < home.num_rounds ? `The first ${rounds.length} of ${home.num_rounds} rounds are drawn. ` : "") +
        (columns < home.tp ? `The first ${columns} of ${home.tp} tp ranks are drawn. ` : "") +
        (blocks > MAX_BLOCKS ? `Only ${MAX_BLOCKS} matrices are drawn. ` : "")),
      legend(shapes.slice(0, 12).map((shape, i) => ["s" + i % 6, shape])),
      el("details", el("summary", "As a table: rounds × tp ranks, shapes and fp32 bytes of the whole matrices"),
        table(["round", ...Array.from({length: columns}, (_, t) => "t " + t)],
          listed.map(round => [String(round.number), ...round.blocks.slice(0, columns).map(one => roundCell(home, one))])),
        listed.length < home.num_rounds
          ? el("p.note", `The first ${listed.length} of ${home.num_rounds} rounds are listed.`) : null)]];
}

const teamTable = (plan, shapes) => !shapes.length ? null : table(
  ["matrix", ">teams", ">ranks", ">of each", ">head", ">member", ">head receives in sums",
   ">member receives in factors"],
  shapes.map(one => [dims([one.rows, one.cols]), grouped(one.teams), one.ranks,
    one.of_each, ticksText(plan, one.head_ticks), ticksText(plan, one.member_ticks),
    bytes(one.head_receives_sums), bytes(one.member_receives_factors)]));

// What owners and their helpers do: in a refresh, the helper decomposes one factor.
const helperTable = (plan, shapes) => !shapes.length ? null : table(
  ["matrix", ">helpers", ">owner, per step", ">owner, in a refresh", ">helper, in a refresh",
   ">helper decomposes", ">helper receives", ">owner receives"],
  shapes.map(one => [dims([one.rows, one.cols]), grouped(one.teams), ticksText(plan, one.head_ticks),
    ticksText(plan, one.owner_refresh_ticks), ticksText(plan, one.helper_refresh_ticks),
    dims([one.helped_side, one.helped_side]), bytes(one.helper_receives_triangle),
    bytes(one.owner_receives_factor)]));

const teamsPart = plan => plan.teams_text === undefined ? null : [
  el("h3", "Teams"), el("p", plan.teams_text + "."),
  teamTable(plan, plan.team_shapes.filter(one => !one.helper)),
  helperTable(plan, plan.team_shapes.filter(one => one.helper))];

function microGroupsSection({plan}) {
  const homes = plan.micro_groups;
  if (!homes.length)
    return section("micro-groups", "Micro-groups", "Micro-groups", el("p", "No matrices, no micro-groups."));
  return section("micro-groups", "Micro-groups", "Micro-groups",
    el("p", `The home of the busiest rank, ${rankTitle(plan.mesh, plan.busiest_rank)}: ` +
      (homes[0].part ? "its dense tensors and its experts are cut over ranks of their own, and their rounds follow each other"
                     : counted(homes[0].num_rounds, "round")) + ". " +
      (homes.every(home => home.tp === 1) ? "With tp = 1 nothing is exchanged: the home computes alone."
        : "In a round the tp ranks exchange shards, each owner computes its matrices, and the updates go back.") +
      " Blocks are as wide as their cost, a round as its busiest owner; what is left of it is waiting."),
    homes.map(home => microGroups(plan, home)), teamsPart(plan));
}

// Memory per rank, stacked by kind, and bytes on the wire.

const kindsOf = memory => Object.keys(memory).filter(kind => kind !== "total" && kind !== "staging");

function memorySection({plan, plans}) {
  const {columns: [, ...names], rows} = plan.memory_by_rank;
  const cap = plan.options.memory_cap_bytes, mean = plan.memory_per_rank_mean;
  const lines = [{value: mean, text: "mean " + bytes(mean), css: "mean-line"}];
  // A cap far above would flatten the rest; the headline names it anyway.
  if (cap > 0 && cap < 4 * plan.fullest_rank.total)
    lines.push({value: cap, text: "cap " + bytes(cap), css: "limit-line"});
  const kinds = names.map((name, i) => ["k" + i, name]);
  const bars = rows.map(([rank, ...parts]) => ({label: String(rank), title: rankTitle(plan.mesh, rank), parts,
                                               query: "rank:" + rank}));
  const shown = [...new Set(plans.flatMap(one => kindsOf(one.fullest_rank)))];
  const perRow = Math.ceil(plan.world / rows.length);
  return section("memory", "Memory", "Memory per rank",
    el("p", `What Canzona allocates on every rank with ${plan.strategy}.`),
    figure(width => stackedBars({title: "Memory per rank, stacked by kind", bars, lines, kinds, ticks: byteTicks, text: bytes,
      below: "rank"}, width),
      perRow > 1 ? `Each step stands for ${perRow} ranks and shows the fullest of them.` : ""),
    legend(kinds),
    table(["fullest rank of", ...shown.map(kind => ">" + kind), ">sum", ">mean of all ranks"],
      plans.map(one => [nameOf(one), ...shown.map(kind => bytes(one.fullest_rank[kind] || 0)),
        el("td.n", el("b", bytes(one.fullest_rank.total))), bytes(one.memory_per_rank_mean)])));
}

function wireSection({plan, plans}) {
  const {links, options} = plan;
  const longest = largest(plans.flatMap(one =>
    Object.values(one.wire).map(row => row.sent_intra_max + row.sent_inter_max)));
  const rows = plans.flatMap(one => [
    plans.length > 1 ? el("tr.group", el("th", {colspan: 7}, nameOf(one))) : null,
    ...Object.entries(one.wire).map(([collective, row]) => [collective, row.when,
      bytes(row.sent_intra_max), bytes(row.sent_intra_mean), bytes(row.sent_inter_max), bytes(row.sent_inter_mean),
      barCell(row.sent_intra_max, row.sent_inter_max, longest)]),
    Object.keys(one.wire).length ? null : el("tr", el("td", {colspan: 7}, "nothing is sent"))]).filter(Boolean);
  return section("wire", "Bytes", "Bytes on the wire",
    el("p", `Sent by a rank in one step. Links: ${bandwidth(links.intra_bytes_per_second)} within a node of ` +
      `${counted(options.ranks_per_node, "rank")}, ${bandwidth(links.inter_bytes_per_second)} between nodes, latency ` +
      seconds(links.latency_seconds) + (links.nominal ? " (nominal links)." : ".")),
    table(["collective", "when", ">busiest", ">mean", ">busiest", ">mean", "busiest rank"], rows,
          {groups: [["", 2], ["within a node", 2], ["between nodes", 2], ["", 1]]}),
    legend(LINKS));
}
