// Meshes that were searched: where the time of the best of each kind goes, its
// memory beside the cap, and what would change.

const PARTS_OF_TIME = [
  ["k0", "compute", "compute_seconds"], ["k4", "bubble", "bubble_seconds"], ["k1", "tp", "tp_seconds"],
  ["k3", "ep", "ep_seconds"], ["k5", "pp", "pp_seconds"], ["every", "dp", "dp_seconds"],
  ["k2", "optimizer", "step_seconds"]];
const SHOWN_KINDS = 12;

const kindCss = kind => kind < 6 ? "k" + kind : "every";

const bars = (picture, rows, caption) => folded(rows, SHOWN_KINDS, "kind", some => figure(
  width => horizontalBars({...picture, rows: some.map(picture.row)}, width), some[0] === rows[0] ? caption : ""));

function timesSection({kinds}) {
  const used = PARTS_OF_TIME.filter(([, , key]) => kinds.some(row => row[key] > 0));
  const picture = {
    title: "Predicted iteration of the best of each kind", ticks: secondTicks,
    most: largest(kinds.map(row => row.seconds)),
    row: row => ({name: row.kind, text: seconds(row.seconds),
      parts: used.map(([css, name, key]) => [row[key], css, `${row.kind}, ${name}: ${seconds(row[key])}`])})};
  return section("times", "Times", "Where the time goes",
    bars(picture, kinds, "The best of each kind. tp, ep, pp and dp: communication of this axis that compute waits for."),
    legend(used));
}

function memorySection({kinds, memory_cap_bytes: cap}) {
  const names = Object.keys(kinds[0].memory);
  const used = names.map((name, i) => [kindCss(i), name]).filter(([, name]) => kinds.some(row => row.memory[name] > 0));
  const picture = {
    title: "Memory of the fullest rank by kind", ticks: byteTicks,
    most: Math.max(cap, largest(kinds.map(row => row.memory_bytes))),
    mark: cap > 0 ? {value: cap, text: "cap " + bytes(cap)} : null,
    row: row => ({name: row.kind, text: bytes(row.memory_bytes),
      parts: names.map((name, i) =>
        [row.memory[name], kindCss(i), `${row.kind}: ${name}: ${bytes(row.memory[name])}`])})};
  return section("memory", "Memory", "Memory of the fullest rank", bars(picture, kinds, ""), legend(used));
}

const kindsSection = ({kinds}) => section("kinds", "Kinds", "The best of each kind",
  table(["kind", "mesh", "zero", ">micro-batch", ">memory", ">between nodes", ">iteration", "why"],
    kinds.map((row, i) => el("tr", el("th", row.kind), el("td", meshText(row.mesh)), el("td", row.zero_name),
      el("td.n", `${grouped(row.micro_batches)} × ${grouped(row.tokens)}`, el("small", row.recompute ? " recomputed" : "")),
      el("td.n", bytes(row.memory_bytes)), el("td.n", bytes(row.slow_bytes)),
      el(i ? "td.n" : "td.n.best", seconds(row.seconds)),
      el("td.why", row.reason))), {css: "wide"}));

const changesSection = ({changes = []}) => !changes.length ? null : section("changes", "If", "If things are otherwise",
  table(["if", "the best is", ">iteration", "today's"], changes.map(row =>
    [row.change, row.best ? row.best.name : "–", row.best ? seconds(row.best.seconds) : "–", row.kept]), {css: "wide"}));

const commandsSection = ({commands = []}) => !commands.length ? null : section("commands", "Commands", "To copy", commands.map(({title, command, why_not}) =>
  el("div", el("h3", title), why_not ? el("p.note", "Not the best: " + why_not) : null,
     command ? el("div.scroll", el("pre", command)) : null)));

const basisSection = ({inputs, not_searched}) => section("basis", "Basis", "What it stands on",
  el("ul", inputs.map(input => el("li", input))), el("p.note", "Not searched: " + not_searched.join(", ") + "."));

function meshTiles({choice: best, memory_cap_bytes: cap, peak_flops: peak}) {
  return [
    tile("Mesh", meshText(best.mesh), "", best.zero_name, `${grouped(best.micro_batches)} × ${grouped(best.tokens)} tokens`,
         best.recompute ? "layers recomputed" : ""),
    tile("Iteration", seconds(best.seconds), "predicted", count(best.tokens_per_second) + " tokens/s"),
    tile("A card", percent(best.share_of_peak), peak > 0 ? "of its peak" : "of its rate"),
    tile("Memory per rank", bytes(best.memory_bytes), "at most", cap > 0 ? "cap " + bytes(cap) : "no cap"),
    tile("Sent between nodes", bytes(best.slow_bytes), "", "within a node " + bytes(best.fast_bytes))];
}

start(report => {
  showPage({
    title: `${report.model} on ${counted(report.world, "rank")}`, kind: "Canzona plan, meshes, predicted", heading: report.model,
    asked: [el("b", counted(report.world, "rank")), `, ${report.ranks_per_node} a node · rule `, el("b", report.rule),
            ` · ${count(report.global_batch_tokens)} tokens in sequences of ${grouped(report.length)}`],
    verdict: report.verdict, tiles: meshTiles(report),
    sections: [timesSection(report), memorySection(report), kindsSection(report), changesSection(report), commandsSection(report),
               basisSection(report)],
    footer: "Made by Canzona from shapes alone.",
  });
});
