#include "canzona/sim/cluster.h"

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"

namespace canzona::sim {
namespace {

constexpr const char* kClusterFormat = "canzona.cluster";
constexpr int64_t kClusterVersion = 1;
constexpr int64_t kMaxClusterBytes = 1 << 20;
constexpr int64_t kMaxClusterValues = 10'000;
constexpr size_t kMaxLevels = 16;
constexpr double kTeraflops = 1e12;
constexpr double kMostTeraflops = 1e6;
constexpr double kMostBytesPerSecond = 1e18;
constexpr double kMostLatency = 10;
constexpr double kMostOversubscription = 1000;
constexpr double kMostSpread = 1;

// Reads a number in (0, most] or, with `or_zero`, [0, most].
double read_amount(const Json& object, const char* key, double most,
                   bool or_zero, const std::string& where) {
  const double number = get_number(object, key, where);
  if ((number > 0 || (or_zero && number == 0)) && number <= most) return number;
  throw UsageError(cat(where, ": ", key, " is ", number, ", expected ",
                       or_zero ? "0 to " : "more than 0 and at most ", most));
}

double amount_or(const Json& object, const char* key, double most, bool or_zero,
                 double usual, const std::string& where) {
  return object.contains(key) ? read_amount(object, key, most, or_zero, where)
                              : usual;
}

// It must be printable, because reports show it.
std::string read_cluster_word(const Json& object, const char* key,
                              const std::string& where) {
  std::string text = get_string(object, key, where);
  if (!text.empty() && printable(text, 200) == text) return text;
  throw UsageError(cat(where, ": ", key, " is ", quoted(text),
                       ", expected 1 to 200 printable characters"));
}

Card read_card(const Json& json, const std::string& where) {
  require_known_keys(json, {"name", "tflops", "cost_table"}, where);
  Card card;
  card.name = read_cluster_word(json, "name", where);
  card.flops_per_second =
      kTeraflops *
      read_amount(json, "tflops", kMostTeraflops, /*or_zero=*/false, where);
  if (json.contains("cost_table"))
    card.cost_table = read_cluster_word(json, "cost_table", where);
  return card;
}

LinkLevel read_level(const Json& json, const std::string& where) {
  require_known_keys(json,
                     {"name", "ranks", "bytes_per_second", "latency_seconds",
                      "oversubscription"},
                     where);
  LinkLevel level;
  level.name = read_cluster_word(json, "name", where);
  level.ranks =
      static_cast<int32_t>(get_integer(json, "ranks", 1, kMaxWorld, where));
  level.bytes_per_second =
      read_amount(json, "bytes_per_second", kMostBytesPerSecond, false, where);
  level.latency_seconds =
      amount_or(json, "latency_seconds", kMostLatency, true, 0, where);
  level.oversubscription = amount_or(json, "oversubscription",
                                     kMostOversubscription, false, 1, where);
  if (level.oversubscription < 1)
    throw UsageError(cat(where, ": oversubscription is ",
                         level.oversubscription, ", expected at least 1"));
  return level;
}

void require_blocks(const std::vector<LinkLevel>& levels,
                    const std::string& where) {
  for (size_t l = 1; l < levels.size(); ++l) {
    const LinkLevel& below = levels[l - 1];
    const LinkLevel& level = levels[l];
    if (level.ranks <= below.ranks || level.ranks % below.ranks != 0)
      throw UsageError(cat(
          where, "[", l, "]: level ", quoted(level.name), " has ", level.ranks,
          " ranks, which is not a multiple of the ", below.ranks, " of level ",
          quoted(below.name), " below it; expected ", 2 * int64_t{below.ranks},
          ", ", 3 * int64_t{below.ranks}, ", …"));
    if (level.latency_seconds < below.latency_seconds)
      throw UsageError(cat(
          where, "[", l, "]: level ", quoted(level.name), " has a latency of ",
          level.latency_seconds, " s, below the ", below.latency_seconds,
          " s of level ", quoted(below.name), "; a message passes both"));
  }
}

std::vector<LinkLevel> read_levels(const Json& root, const std::string& where) {
  const Json& array = get_member(root, "levels", where);
  const std::string inside = cat(where, ": levels");
  if (!array.is_array() || array.empty() || array.size() > kMaxLevels)
    throw UsageError(cat(inside, ": expected an array of 1 to ", kMaxLevels,
                         " levels, the smallest first"));
  std::vector<LinkLevel> levels;
  for (size_t l = 0; l < array.size(); ++l)
    levels.push_back(read_level(array[l], cat(inside, "[", l, "]")));
  require_blocks(levels, inside);
  return levels;
}

RankSpread read_spread(const Json& root, const std::string& where) {
  if (!root.contains("spread")) return {};
  const Json& json = get_member(root, "spread", where);
  const std::string inside = cat(where, ": spread");
  require_known_keys(json, {"compute", "length"}, inside);
  return {.compute = amount_or(json, "compute", kMostSpread, true, 0, inside),
          .length = amount_or(json, "length", kMostSpread, true, 0, inside)};
}

std::string read_collectives(const Json& root, const std::string& where) {
  if (!root.contains("collectives")) return "";
  std::string word = get_string(root, "collectives", where);
  const std::vector<std::string> known{"direct", "node", "ring", "auto"};
  for (const std::string& one : known)
    if (one == word) return word;
  throw UsageError(cat(where, ": collectives is ", quoted(word), ", expected ",
                       join(known, ", "), did_you_mean(word, known)));
}

}  // namespace

Cluster Cluster::parse(std::string_view json, const std::string& where) {
  const Json root = parse_json(json, {.what = where,
                                      .max_bytes = kMaxClusterBytes,
                                      .max_depth = 8,
                                      .max_values = kMaxClusterValues});
  require_known_keys(
      root,
      {"format", "version", "name", "card", "levels", "spread", "collectives"},
      where);
  if (get_string(root, "format", where) != kClusterFormat)
    throw UsageError(cat(where, ": expected \"format\": \"", kClusterFormat,
                         "\", found ",
                         quoted(get_string(root, "format", where))));
  const int64_t version = get_integer(root, "version", 0, INT32_MAX, where);
  if (version != kClusterVersion)
    throw UsageError(
        cat(where, ": version ", version, ", expected ", kClusterVersion));
  Cluster cluster;
  cluster.name = read_cluster_word(root, "name", where);
  cluster.card =
      read_card(get_member(root, "card", where), cat(where, ": card"));
  cluster.levels = read_levels(root, where);
  cluster.spread = read_spread(root, where);
  cluster.collectives = read_collectives(root, where);
  return cluster;
}

void check_cluster(const Cluster& cluster, const Mesh& mesh) {
  const int32_t world = mesh.world();
  if (world < kFewestClusterRanks || world > kMostClusterRanks)
    throw UsageError(cat("mesh ", to_string(mesh), " has ",
                         counted_text(world, "rank"), "; simulate expects ",
                         kFewestClusterRanks, " to ", kMostClusterRanks));
  if (world > cluster.most_ranks())
    throw UsageError(cat("mesh ", to_string(mesh), ": ", world,
                         " ranks, cluster ", quoted(cluster.name), " has ",
                         cluster.most_ranks(), " (its level ",
                         quoted(cluster.levels.back().name), ")"));
}

void apply(const Cluster& cluster, PlanOptions& options, Workload& workload) {
  options.ranks_per_node = cluster.ranks_per_node();
  options.links = links_of(cluster.levels);
  workload.levels = cluster.levels;
  workload.spread = cluster.spread;
  workload.compute.flops_per_second = cluster.card.flops_per_second;
  workload.rates =
      cat(printable(cluster.card.name), ": ",
          cluster.card.flops_per_second / kTeraflops, " Tflop/s given");
}

}  // namespace canzona::sim
