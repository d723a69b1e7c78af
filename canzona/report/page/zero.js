// Sizes of hierarchical ZeRO: memory against the cap, bytes by link class, and
// the ranking.

const SHOWN = 10;  // rows that are seen at once
const LINK_KINDS = report => [["k0", `within a node of ${counted(report.ranks_per_node, "rank")}`],
                              ["k3", "between nodes"]];
const isPlanned = row => row.memory !== undefined;
const sizesText = ({z1, z2, z3}) => `${z1}, ${z2}, ${z3}`;
const rateOf = row => row.tokens_per_second ? count(row.tokens_per_second) : "–";
const kindCss = kind => kind < 6 ? "k" + kind : "every";

// As one types it: "hier:8", and of experts with their own sizes "hier:8 / zero1".
const choiceText = row => row.name + (row.name_of_experts ? " / " + row.name_of_experts : "") +
  (row.strategy ? " " + row.strategy : "");

// A picture of every choice that was planned, the first ones outside the fold.
const bars = (picture, rows, caption) => folded(rows, SHOWN, "choice", some => figure(
  width => horizontalBars({...picture, rows: some.map(picture.row)}, width), some[0] === rows[0] ? caption : ""));

function zeroMemory(report, rows) {
  const cap = report.memory_cap_bytes, kinds = Object.keys(rows.length ? rows[0].memory : {});
  const used = kinds.map((name, i) => [kindCss(i), name]).filter(([, name]) => rows.some(row => row.memory[name] > 0));
  const picture = {
    title: "Memory of the fullest rank by kind", ticks: byteTicks,
    most: Math.max(cap, largest(rows.map(row => row.memory_bytes))),
    mark: cap > 0 ? {value: cap, text: "cap " + bytes(cap)} : null,
    row: row => ({name: choiceText(row), text: bytes(row.memory_bytes) + (row.fits ? "" : " over"),
      parts: kinds.map((name, i) =>
        [row.memory[name], kindCss(i), `${choiceText(row)}: ${name}: ${bytes(row.memory[name])}`])})};
  return section("memory", "Memory", "Memory of the fullest rank",
    bars(picture, rows, (rows.some(row => row.experts) ? "Choices as the options zero / zero-experts take them"
      : "Choices as the option zero takes them") + ", in the order of the ranking."), legend(used));
}

function zeroBytes(report, rows) {
  const picture = {
    title: "Bytes by link class", ticks: byteTicks,
    most: largest(rows.map(row => row.fast_bytes + row.slow_bytes)),
    row: row => ({name: choiceText(row), text: seconds(row.predicted_iteration_seconds), parts: [
      [row.fast_bytes, "k0", `${choiceText(row)}, within a node: ${bytes(row.fast_bytes)}`],
      [row.slow_bytes, "k3", `${choiceText(row)}, between nodes: ${bytes(row.slow_bytes)}`]]})};
  return section("bytes", "Bytes", "Bytes that a rank sends in an iteration",
    bars(picture, rows, "Beside each bar the predicted time of an iteration."), legend(LINK_KINDS(report)));
}

function remarksOn(report, row) {
  const copies = row.experts ? report.expert_homes / row.experts.z1 : 1;
  return [row.replicas > 1 ? counted(row.replicas, "replica") : "",
          copies > 1 ? counted(copies, "replica") + " of experts" : ""].filter(Boolean).join(", ");
}

function rankedRow(report, row, hasExperts) {
  const isBest = row === report.sizes[0] && row.fits, remarks = remarksOn(report, row);
  const number = (text, css) => el(css ? "td.n." + css : "td.n", text);
  return el("tr", el("th", row.name, el("small", row.strategy ? " " + row.strategy : "")),
    hasExperts ? el("td", row.name_of_experts || "–") : null, number(sizesText(row.zero)),
    !isPlanned(row) ? [number(row.least_memory_bytes ? "≥ " + bytes(row.least_memory_bytes) : "–", "over"),
                       el("td.n", {colspan: 5}, "–")] : [
      number(bytes(row.memory_bytes), row.fits ? "" : "over"), number(bytes(row.fast_bytes)),
      number(bytes(row.slow_bytes)), number(seconds(row.predicted_step_seconds)),
      number(seconds(row.predicted_iteration_seconds), isBest ? "best" : ""), number(rateOf(row))],
    el("td.why", row.reason, el("small", "; " + row.words), remarks ? el("small", "; " + remarks) : null));
}

function zeroRanking(report) {
  const hasExperts = report.sizes.some(row => row.experts);
  const columns = ["zero", ...(hasExperts ? ["zero-experts"] : []), ">z1, z2, z3", ">memory", ">within a node",
                   ">between nodes", ">step alone", ">iteration", ">tokens/s", "why"];
  return section("ranking", "Ranking", "Ranking",
    folded(report.sizes, SHOWN, "choice", some =>
      table(columns, some.map(row => rankedRow(report, row, hasExperts)), {css: "wide"})),
    el("p.note", "States are cut over z1, gradients over z2, parameters over z3 of the data-parallel ranks. Times are " +
       `predicted: ${report.rates}.`));
}

function zeroTiles(report) {
  const best = report.sizes[0], cap = report.memory_cap_bytes;
  if (!best || !isPlanned(best)) return [];
  return [
    tile(best.fits ? "Choice" : "Nearest", best.name, "z1, z2, z3 = " + sizesText(best.zero), best.words,
         best.name_of_experts ? "experts " + best.name_of_experts : "", best.strategy || "", best.reason),
    tile("Memory per rank", bytes(best.memory_bytes), "at most", cap > 0 ? "cap " + bytes(cap) : "no cap"),
    tile("Sent between nodes", bytes(best.slow_bytes), "", "within a node " + bytes(best.fast_bytes)),
    tile("Predicted iteration", seconds(best.predicted_iteration_seconds), "",
         best.tokens_per_second ? rateOf(best) + " tokens/s" : "",
         "of it the step " + seconds(best.predicted_step_seconds))];
}

start(report => {
  const mesh = meshText(report.mesh), rows = report.sizes.filter(isPlanned);
  showPage({
    title: `${report.model} on ${mesh}, ZeRO`, kind: "Canzona compare, hierarchical ZeRO", heading: report.model,
    asked: [el("b", counted(report.world, "rank")), ` on ${mesh}, ${report.ranks_per_node} a node · rule `,
            el("b", report.rule), ` · ${report.parameters} parameters · ${report.work}`],
    verdict: report.verdict, tiles: zeroTiles(report),
    sections: [zeroMemory(report, rows), zeroBytes(report, rows), zeroRanking(report)],
    footer: "Made by Canzona from shapes alone.",
  });
});
