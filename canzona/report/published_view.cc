#include "canzona/report/published_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// An error that is worth the name of a prediction.
constexpr double kNearEnough = 0.15;

std::string amount_text(const PublishedCell& cell, double value) {
  return cell.quantity == PublishedQuantity::kUtilization
             ? fmt::format("{:.1f} %", 100 * value)
             : human_seconds(value);
}

bool is_fitted(const PublishedPaper& paper, double PublishedRates::*rate) {
  return std::ranges::find(paper.fitted, rate) != paper.fitted.end();
}

std::string rates_line(const PredictedPaper& shown) {
  const auto mark = [&](double PublishedRates::*rate) {
    return is_fitted(shown.paper, rate) ? " (fitted)" : "";
  };
  const PublishedRates& rates = shown.rates;
  return fmt::format(
      "card {:.0f} Tflop/s{}, {:.1f} GB/s inside a node{}, {:.1f} GB/s between "
      "nodes{}",
      rates.card_flops / 1e12, mark(&PublishedRates::card_flops),
      rates.exchange_bytes_per_second / 1e9,
      mark(&PublishedRates::exchange_bytes_per_second),
      rates.node_bytes_per_second / 1e9,
      mark(&PublishedRates::node_bytes_per_second));
}

std::string cells_table(const PredictedPaper& shown, const Ink& ink) {
  Table table("<>>>~");
  table.header({"published", "value", "predicted", "error", ""});
  for (const PredictedCell& one : shown.cells) {
    const double error = one.error();
    const Tone tone = one.cell.fit                     ? Tone::kDim
                      : std::abs(error) <= kNearEnough ? Tone::kGood
                                                       : Tone::kPoor;
    table.row({printable(one.cell.name), amount_text(one.cell, one.cell.value),
               amount_text(one.cell, one.predicted),
               ink(tone, fmt::format("{:+.1f} %", 100 * error)),
               one.cell.fit ? "fitted" : printable(one.cell.where)});
  }
  return table.text(ink);
}

// What is to be said of single cells, and of the order of groups.
std::string remarks_of(const PredictedPaper& shown, const Ink& ink) {
  std::vector<std::string> right, wrong;
  for (const PublishedOrder& order : shown.orders)
    (order.right ? right : wrong).push_back(printable(order.group));
  std::string out;
  constexpr size_t kColumn = 14;
  if (!right.empty())
    out += labelled(ink, "order right", join(right, "; "), kColumn);
  if (!wrong.empty())
    out += labelled(ink, "order wrong", join(wrong, "; "), kColumn);
  std::vector<std::string> said;
  for (const PredictedCell& one : shown.cells) {
    if (one.cell.note.empty() ||
        std::ranges::find(said, one.cell.note) != said.end())
      continue;
    said.push_back(one.cell.note);
    out += labelled(
        ink, "why not near",
        cat(printable(one.cell.name), ": ", printable(one.cell.note)), kColumn);
  }
  return out;
}

void write_cell(JsonWriter& out, const PredictedCell& one) {
  const PublishedCell& cell = one.cell;
  out.begin_object().field("name", cell.name).field("where", cell.where);
  out.field("model", cell.model).field("fused", cell.fused);
  out.field("mesh", cell.mesh).field("rule", cell.rule);
  out.field("strategy", cell.strategy);
  if (!cell.zero.empty()) out.field("zero", cell.zero);
  out.field("quantity", to_string(cell.quantity)).field("value", cell.value);
  out.field("predicted", one.predicted).field("error", one.error());
  out.field("fitted", cell.fit);
  if (!cell.note.empty()) out.field("note", cell.note);
  out.end_object();
}

void write_rates(JsonWriter& out, const PredictedPaper& shown) {
  out.member("rates").begin_object();
  out.field("card_tflops", shown.rates.card_flops / 1e12);
  out.field("exchange_bytes_per_second", shown.rates.exchange_bytes_per_second);
  out.field("node_bytes_per_second", shown.rates.node_bytes_per_second);
  out.field("latency_seconds", shown.paper.latency_seconds);
  out.end_object();
}

}  // namespace

std::string published_text(const std::vector<PredictedPaper>& papers,
                           const Ink& ink) {
  std::string out;
  for (const PredictedPaper& shown : papers) {
    constexpr size_t kColumn = 14;
    out += title(ink, printable(shown.paper.name));
    out += labelled(ink, "source", printable(shown.paper.source), kColumn);
    out += labelled(ink, "rates", rates_line(shown), kColumn);
    out += "\n" + cells_table(shown, ink) + "\n" + remarks_of(shown, ink);
    out += labelled(
        ink, "held back",
        fmt::format("largest error {:.1f} %", 100 * shown.worst_held_back()),
        kColumn);
  }
  return out;
}

std::string published_view_json(const std::vector<PredictedPaper>& papers) {
  JsonWriter out(2);
  out.begin_object().member("papers").begin_array();
  for (const PredictedPaper& shown : papers) {
    out.begin_object().field("name", shown.paper.name);
    out.field("source", shown.paper.source);
    write_rates(out, shown);
    out.field("num_fitted", static_cast<int64_t>(shown.paper.fitted.size()));
    out.field("worst_held_back_error", shown.worst_held_back());
    out.member("cells").begin_array();
    for (const PredictedCell& one : shown.cells) write_cell(out, one);
    out.end_array().member("orders").begin_array();
    for (const PublishedOrder& order : shown.orders)
      out.begin_object()
          .field("group", order.group)
          .field("right", order.right)
          .end_object();
    out.end_array().end_object();
  }
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona
