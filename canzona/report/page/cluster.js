// The page of a cluster: the times and links that were predicted for a plan.

const PARTS_OF_TIME = [
  ["k0", "compute", "compute_seconds"], ["k2", "step", "step_seconds"], ["k4", "bubble", "bubble_seconds"],
  ["k1", "parameters", "waited_parameters_seconds"], ["k3", "gradients", "waited_gradients_seconds"],
  ["k5", "sums", "waited_step_seconds"]];

function timesSection({predicted}) {
  const rows = predicted.kinds.map(kind => ({name: kind.kind, text: seconds(kind.seconds),
    parts: PARTS_OF_TIME.map(([css, name, key]) => [kind[key], css, `${kind.kind}, ${name}: ${seconds(kind[key])}`])}));
  return section("times", "Times", "One rank of each kind",
    figure(width => horizontalBars({title: "Predicted time by kind of rank", rows, above: true, ticks: secondTicks,
                                    most: predicted.iteration_seconds}, width),
           "An iteration from the end of a step to the end of the next."),
    legend(PARTS_OF_TIME));
}

const linksSection = ({cluster}) => section("links", "Links", "Links",
  table(["level", ">ranks", ">per rank", ">latency", ">oversubscribed"], cluster.levels.map(level =>
    [level.name, grouped(level.ranks), bandwidth(level.bytes_per_second), seconds(level.latency_seconds),
     significant(level.oversubscription, 6)]), {css: "wide"}));

start(report => {
  const {predicted, cluster} = report, mesh = meshText(report.mesh);
  showPage({
    title: `${report.model} on ${cluster.name}`, kind: "Canzona simulate, predicted", heading: cluster.name,
    asked: [el("b", counted(report.world, "rank")), ` on ${mesh} · ${report.model} · rule `, el("b", report.rule),
            `, ${report.strategy} · ${report.zero}`],
    verdict: report.verdict,
    tiles: [
      tile("Iteration", seconds(predicted.iteration_seconds), "predicted", count(predicted.tokens_per_second) + " tokens/s"),
      tile("Step", seconds(predicted.step_seconds), "predicted",
           percent(predicted.step_seconds / predicted.iteration_seconds) + " of the iteration"),
      tile("A card", fixed(predicted.tflops_per_card, 1), "Tflop/s", percent(predicted.used_share) + " of what it reaches"),
      tile("Communication hidden", percent(predicted.hidden_fraction))],
    sections: [timesSection(report), linksSection(report)],
    footer: "Made by Canzona from shapes and a description of the cluster.",
  });
});
