// Training runs: how the loss fell, what time and memory went to, what was asked
// and where it ran; several runs side by side.

const AXES = [["steps", 0], ["tokens", 1], ["time", 2]];  // [name, place in a point]
const VALUE = 3;                                          // its place in a point
const PROBES = 64;
const colorOf = number => "s" + number % 6;

function positionText(position, axis) {
  if (axis === "time") return position < 10 ? significant(position, 3) + " s" : clock(position);
  return axis === "tokens" ? count(position) : grouped(position);
}

// Curves {name, css, points, dots, probed, label} over a common horizontal axis,
// named where they end. Above `clip` nothing is drawn; 0: all is.
class LineChart extends Drawing {
  constructor({title, unit, axis, place, curves, width, height, right, fromZero, clip = 0, text}) {
    super(width, height, title);
    Object.assign(this, {axisName: axis, clip, format: text, left: 58, right: width - right, above: 22,
                         bottom: height - 34});
    this.curves = curves.map(curve => ({...curve, points: curve.points.map(
      point => [point[place], point[point.length - 1]])}));
    this.x1 = largest(this.curves.flatMap(curve => curve.points.map(([x]) => x))) || 1;
    this.findHeights(fromZero);
    this.drawAxes(unit);
    this.curves.forEach(curve => this.drawCurve(curve));
    this.drawLabels();
    this.drawProbes();
  }

  findHeights(fromZero) {
    const values = this.curves.flatMap(curve => curve.points.map(([, y]) => y))
      .filter(y => !this.clip || y <= this.clip);
    if (this.clip) values.push(this.clip);
    if (fromZero || !values.length) values.push(0);
    let low = smallest(values), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    // Values that differ by rounding alone are drawn as one.
    const size = Math.max(Math.abs(low), Math.abs(high)), span = high - low;
    const margin = span > 1e-9 * size ? span * 0.05 : size / 10 + 1e-12;
    if (!fromZero) low -= margin;
    if (!this.clip) high += margin;
    [this.y0, this.y1] = [low, high];
  }

  x(value) { return this.left + value / this.x1 * (this.right - this.left); }
  y(value) {
    return this.bottom - (value - this.y0) / (this.y1 - this.y0) * (this.bottom - this.above);
  }

  drawAxes(unit) {
    for (const tick of ticksBetween(this.y0, this.y1, 5)) {
      this.line(this.left, this.y(tick), this.right, this.y(tick), "grid");
      this.text(this.left - 6, this.y(tick) + 4, "end", this.format(tick));
    }
    this.line(this.left, this.bottom, this.right, this.bottom, "axis");
    const number = Math.max(1, Math.floor((this.right - this.left) / 110));
    for (const tick of ticksBetween(0, this.x1, number))
      this.text(this.x(tick), this.bottom + 16, "middle", positionText(tick, this.axisName));
    this.text((this.left + this.right) / 2, this.bottom + 31, "middle dim", this.axisName);
    this.text(4, 11, "start dim", unit);
  }

  isSeen([, y]) { return !this.clip || y <= this.clip; }

  // The point at which the line between two points meets the clip.
  atClip([x1, y1], [x2, y2]) {
    return [x1 + (this.clip - y1) / (y2 - y1) * (x2 - x1), this.clip];
  }

  drawCurve({name, css, points, dots}) {
    let d = "";
    const add = (command, [x, y]) => { d += `${command}${round(this.x(x))} ${round(this.y(y))}`; };
    points.forEach((point, i) => {
      const wasSeen = i > 0 && this.isSeen(points[i - 1]);
      if (!this.isSeen(point)) {
        if (wasSeen) add("L", this.atClip(points[i - 1], point));
        return;
      }
      if (i > 0 && !wasSeen) add("M", this.atClip(points[i - 1], point));
      add(i > 0 ? "L" : "M", point);
    });
    if (d) this.path(d, "curve " + css, name);
    if (dots && points.length)
      this.dots(points.filter(p => this.isSeen(p)).map(([x, y]) => [this.x(x), this.y(y)]),
                "dot " + css, name);
  }

  drawLabels() {
    const labels = this.curves.filter(curve => curve.label && curve.points.length).map(curve => {
      const last = curve.points[curve.points.length - 1][1], value = this.format(last);
      const room = this.width - this.right - 20 - textWidth(value + "  ");
      return {y: this.y(Math.min(last, this.y1)) + 4, css: curve.css,
              text: value + "  " + shorten(curve.label, Math.max(4, Math.floor(room / textWidth("0"))))};
    });
    for (const {y, css, text} of spreadLabels(labels, 15)) {
      this.dots([[this.right + 11, y - 4]], "dot " + css, text);
      this.text(this.right + 20, y, "start strong", text);
    }
  }

  // Columns that tell the values under the pointer.
  drawProbes() {
    const width = (this.right - this.left) / PROBES;
    for (let i = 0; i < PROBES; i++) {
      const begin = this.x1 * i / PROBES, end = this.x1 * (i + 1) / PROBES;
      const values = this.curves.filter(curve => curve.probed && curve.points.length &&
        curve.points[0][0] <= end && curve.points[curve.points.length - 1][0] >= begin)
        .map(({name, points}) => name + " " + this.format(points.findLast(([x]) => x <= end)[1]));
      if (values.length)
        this.rect(this.left + i * width, this.above, width, this.bottom - this.above, "probe",
                  positionText(end, this.axisName) + ": " + values.join(", "));
    }
  }
}

// Radio buttons; `choose` is called with the number of the one that is chosen.
function choice(name, texts, choose) {
  return el("span.choice", {role: "radiogroup"}, texts.map((text, i) => {
    const input = el("input", {type: "radio", name, id: name + i});
    input.checked = i === 0;
    input.addEventListener("change", () => choose(i));
    return [input, el("label", {for: name + i}, text)];
  }));
}

function lossCurves(runs) {
  return runs.flatMap((run, i) => {
    const {every_step, smoothed, evaluation} = run.curves, css = colorOf(i);
    return [
      {name: run.name + ", every step", css: "faint " + css, points: every_step},
      // The loss that runs are compared by stands at the end.
      {name: run.name, css, points: smoothed, probed: true, label: evaluation.length ? "" : run.name},
      {name: run.name + " eval", css: "eval " + css, points: evaluation, dots: true, probed: true,
       label: run.name},
    ];
  });
}

function lossSection({runs}) {
  if (runs.every(run => !run.curves.learning_rate.length))
    return section("loss", "Loss", "Loss", el("p", "No steps were recorded."));
  // So high that the last three quarters of every run are seen.
  const clip = largest(runs.map(({curves: {smoothed: line}}) =>
    line.length ? line[Math.floor(line.length / 4)][VALUE] : 0));
  const place = el("div");
  let axis = 0, end = 0;
  const draw = () => place.replaceChildren(figure(width => new LineChart({
    title: "Loss over " + AXES[axis][0], unit: "loss", axis: AXES[axis][0], place: AXES[axis][1],
    curves: lossCurves(runs), width, height: width < WIDE ? 300 : 360, right: width < WIDE ? 116 : 150,
    clip: end ? clip : 0, text: value => significant(value, 4)})));
  draw();
  return section("loss", "Loss", "Loss",
    choice("loss-over-", AXES.map(([name]) => name), i => { axis = i; draw(); }),
    choice("loss-part-", ["whole run", "the end, larger"], i => { end = i; draw(); }), place,
    el("p.note", "Pale: training loss of every step; line: the same, smoothed",
       runs.some(run => run.eval_loss !== null)
         ? "; dots: loss on text that is held back from training" : "",
       ". Point at the drawing to read values."));
}

const small = value => significant(value, 3);
const PANELS = [
  ["learning_rate", "Learning rate", "learning rate", small],
  ["gradient_norm", "Norm of the gradient", "gradient norm, before clipping", small],
  ["tokens_per_second", "Tokens per second", "tokens / s",
   value => value < 10000 ? significant(value, 4) : count(value)],
  ["optimizer_ms", "Optimizer", "optimizer, per step", value => small(value) + " ms"],
  ["communication_ms", "Communication", "links busy, per step", value => small(value) + " ms"],
  ["hidden_percent", "Hidden communication", "of it hidden behind compute, %", small],
];

function optimizationSection({runs}) {
  const panel = ([key, title, unit, text]) => el("figure", new LineChart({
    title, unit, axis: "steps", place: 0, width: WIDE / 2, height: 190, right: 16, fromZero: true, text,
    curves: runs.map((run, i) =>
      ({name: run.name, css: colorOf(i), points: run.curves[key], probed: true}))}).svg);
  return section("optimization", "Optimization", "Optimization and speed",
    el("div.pairs", PANELS.map(panel)),
    runs.length > 1 ? legend(runs.map((run, i) => [colorOf(i), run.name])) : null,
    runs.flatMap(run => run.odd_steps.map(text => el("p.note", `${run.name}: ${text}.`))));
}

const TIMES = [["s0", "forward and backward"], ["s1", "optimizer"], ["s5", "waiting for other ranks"],
               ["every", "evaluation, records"]];
const timesOf = rank => [rank.forward_backward_seconds, rank.optimizer_seconds, rank.waited_seconds,
                         rank.other_seconds].map(value => Math.max(value, 0));
const meanOf = (ranks, value) => sum(ranks.map(value)) / ranks.length;

function timeSection({runs}) {
  const shown = runs.filter(run => run.ranks.length);
  if (!shown.length) return null;
  const several = runs.length > 1;
  const bars = several
    ? shown.map(run => ({label: run.name, title: run.name,
        parts: TIMES.map((_, kind) => meanOf(run.ranks, rank => timesOf(rank)[kind]))}))
    : runs[0].ranks.map(rank => ({label: String(rank.rank), title: "rank " + rank.rank,
        parts: timesOf(rank)}));
  const drawn = width => stackedBars({title: "Time of a step, by " + (several ? "run" : "rank"), bars,
    kinds: TIMES, ticks: secondTicks, text: seconds, below: several ? "mean over ranks" : "rank"}, width);
  const busy = meanOf(shown[0].ranks, rank => rank.links_busy_seconds);
  return section("time", "Time", "Where the time of a step goes", legend(TIMES), figure(drawn),
    several ? null : el("p.note", busy > 0
      ? `Links were busy for ${seconds(busy)} of a step; compute waited ${
          seconds(meanOf(shown[0].ranks, rank => rank.waited_seconds))}.`
      : "No bytes moved between ranks."),
    several || !runs[0].late ? null : el("p.note", el("b", runs[0].late + ".")));
}

// One drawing of the ranks of a run that stands alone.
function rankSection({runs}, id, heading, parts, drawing, ...words) {
  const {ranks} = runs[0];
  const bars = ranks.map(rank => ({label: String(rank.rank), parts: parts(rank),
    title: "rank " + rank.rank + (id === "plan" && rank.owned_matrices >= 0
      ? ", owns " + counted(rank.owned_matrices, "matrix") : "")}));
  if (runs.length > 1 || !(largest(bars.map(bar => sum(bar.parts))) > 0)) return null;
  return section(id, heading, heading, words,
    drawing.kinds.length > 1 ? legend(drawing.kinds) : null,
    figure(width => stackedBars({...drawing, bars, below: "rank"}, width), drawing.caption));
}

const memorySection = report => rankSection(report, "memory", "Memory",
  rank => [rank.reserved_bytes, Math.max(rank.predicted_bytes - rank.reserved_bytes, 0)],
  {title: "Memory by rank", kinds: [["s0", "reserved"], ["adamw", "predicted, not needed"]],
   ticks: byteTicks, text: bytes});

const planSection = report => rankSection(report, "plan", "Plan", rank => [rank.load],
  {title: "Matrix work by rank", kinds: [["s0", "matrix work"]], ticks: plainTicks, text: ratio,
   caption: "Planned matrix work of every rank, as a multiple of the mean."},
  el("p", "Strategy ", el("b", report.runs[0].strategy), ": the rank with most matrix work has ",
     ratio(largest(report.runs[0].ranks.map(rank => rank.load))), " × the mean."));

// Settings of one run as a list, of several as a table with what differs first.
function factsSection({runs}, key, id, name, heading) {
  const names = [...new Set(runs.flatMap(run => run[key].map(([fact]) => fact)))];
  if (!names.length) return null;
  if (runs.length === 1) return section(id, name, heading, facts(runs[0][key]));
  const values = runs.map(run => new Map(run[key]));
  const rows = names.map(fact => [fact, ...values.map(map => map.get(fact) || "")]);
  const differs = ([, first, ...others]) => others.some(value => value !== first);
  const line = row => el(differs(row) ? "tr.differs" : "tr", el("th", row[0]),
                         row.slice(1).map(value => el("td.name", value)));
  return section(id, name, heading,
    table(["", ...runs.map(run => run.name)],
          [...rows.filter(differs), ...rows.filter(row => !differs(row))].map(line)),
    el("p.note", "What differs comes first and is marked."));
}

function runRow(report, run, i) {
  const best = loss(report.runs.map(one => one.eval_loss).filter(value => value !== null)
    .reduce((a, b) => a === null || b < a ? b : a, null));
  const remarks = [run.rule, run.mesh, run.state === "running" ? "did not finish"
    : run.state !== "finished" ? run.state : "", i === report.baseline_run ? "baseline" : ""];
  const times = value => value > 0 ? el("small", " " + fixed(value, 2) + " ×") : null;
  const at = run.reached, end = loss(run.eval_loss);
  return el("tr",
    el("th.who", el("i.swatch." + colorOf(i)), run.name, el("small", remarks.filter(Boolean).join(" · "))),
    at ? [el("td.n", clock(at.seconds), times(at.seconds_ratio)),
          el("td.n", grouped(at.steps), times(at.steps_ratio)),
          el("td.n", count(at.tokens), times(at.tokens_ratio))]
       : el("td.n", {colspan: 3}, "not reached"),
    el("td.n", loss(run.final_loss)),
    el(end === best && end !== "–" ? "td.n.best" : "td.n", end),
    [perplexity(run), grouped(run.steps), count(run.tokens), clock(run.seconds),
     count(run.tokens_per_second)].map(text => el("td.n", text)),
    el("td", {title: run.digest}, run.weights || "–"));
}

const perplexity = run => run.perplexity === null ? "–" : significant(run.perplexity, 4);

function runsSection(report) {
  if (report.runs.length < 2) return null;
  return section("runs", "Runs", "Runs",
    table(["run", ">time", ">steps", ">tokens", ">training", ">evaluation", ">perplexity",
           ">steps", ">tokens", ">time", ">tokens/s", "weights"],
          report.runs.map((run, i) => runRow(report, run, i)),
          {css: "wide", groups: [["", 1], ["until the baseline’s loss", 3], ["loss at the end", 3],
                                 ["whole run", 4], ["", 1]]}),
    el("p.note", `The baseline is ${report.baseline}, its evaluation loss ${loss(report.target_loss)}. ` +
       "A run has reached it at its first evaluation that is not above; × is the multiple of what the " +
       "baseline took. Runs with the same letter ended with the same weights, bit by bit."),
    report.remark ? el("p.note", `Note: ${report.remark}.`) : null);
}

// What the first two other runs took until they reached the baseline's loss.
function reachedTiles({runs, baseline, baseline_run, target_loss}) {
  const base = runs[baseline_run].reached;
  if (!base) return [];
  return runs.filter((_, i) => i !== baseline_run).slice(0, 2).flatMap(({name, reached}) => {
    const of = (key, word, text) => tile(`${name}: ${word} to ${baseline}’s loss`,
      reached ? fixed(reached[key + "_ratio"], 2) + " ×" : "–", "",
      reached ? `${text(reached[key])} against ${text(base[key])}` : `never at ${loss(target_loss)} or below`);
    return [of("seconds", "time", clock), of("steps", "steps", grouped)];
  });
}

const runTiles = run => [
  tile("Evaluation loss", loss(run.eval_loss), "", "on the text held back", "perplexity " + perplexity(run)),
  tile("Training loss", loss(run.final_loss), "", "from " + loss(run.first_loss)),
  tile("Steps", grouped(run.steps), "", count(run.tokens) + " tokens"),
  tile("Time", clock(run.seconds), "", count(run.tokens_per_second) + " tokens/s",
       run.mfu === null ? "" : `MFU ${percent(run.mfu)} of measured products`),
  tile("Memory per rank", bytes(run.memory_bytes), "at most"),
];

function askedOf(run) {
  const of = (name, value) => value ? name + " " + value : "";
  return run.num_ranks ? [run.parameters ? count(run.parameters) + " parameters" : "",
    counted(run.num_ranks, "rank") + (run.mesh ? " on " + run.mesh : ""), of("transport", run.transport),
    of("rule", run.rule), of("strategy", run.strategy)].filter(Boolean).join(" · ") : run.remark;
}

const RUN_WORDS = [
  ["Training loss", "Cross entropy per token, in nats, of the batch of a step, before the step."],
  ["Evaluation loss", "The same on text from the last 5 % of the data, which no step trains on; " +
   "perplexity is e to it."],
  ["MFU", "The flops of the model’s forward and backward over what the ranks reach in products alone, " +
   "measured before the run; only runs that measured it have one."],
  ["Hidden", "The share of the time links were busy in which compute went on and did not wait."],
  ["Weights", "Compared by their digest: equal names, positions and bits, whatever the mesh."],
];

start(report => {
  const runs = report.runs.map(run => ({...run, ranks: records(run.ranks)}));
  report = {...report, runs};
  const several = runs.length > 1;
  const title = several ? `${runs[0].name} and ${counted(runs.length - 1, "other run")}` : runs[0].name;
  showPage({
    title, kind: several ? "Canzona runs" : "Canzona run", heading: title,
    asked: several ? ["measured against ", el("b", report.baseline)] : askedOf(runs[0]),
    verdict: report.verdict, tiles: several ? reachedTiles(report) : runTiles(runs[0]),
    sections: [
      runsSection(report), lossSection(report), optimizationSection(report), timeSection(report),
      memorySection(report), planSection(report),
      factsSection(report, "configuration", "configuration", "Configuration", "Configuration"),
      factsSection(report, "environment", "environment", "Environment", "What ran, and where"),
      words(RUN_WORDS)],
    footer: "Made by Canzona from what the runs recorded.",
  });
});
