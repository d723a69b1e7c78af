#include "canzona/comm/thread/link_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

void set_part(LinkModel& model, std::string_view name, std::string_view value) {
  const std::string what = cat("link ", name);
  if (name == "intra") {
    model.intra_bytes_per_second = parse_bandwidth(value, what);
  } else if (name == "inter") {
    model.inter_bytes_per_second = parse_bandwidth(value, what);
  } else if (name == "latency") {
    model.latency_seconds = parse_duration(value, what);
  } else if (name == "ranks_per_node") {
    model.ranks_per_node = static_cast<int>(
        parse_integer(value, 1, std::numeric_limits<int>::max(), what));
  } else {
    throw UsageError(
        cat("link: unknown part ", quoted(name),
            did_you_mean(name, {"intra", "inter", "latency", "ranks_per_node"}),
            ", expected intra, inter, latency or ranks_per_node"));
  }
}

}  // namespace

LinkModel parse_link_model(std::string_view text, int ranks_per_node) {
  LinkModel model{.ranks_per_node = ranks_per_node};
  std::vector<std::string> seen;
  for (const std::string& part : split_text(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos)
      throw UsageError(cat("link ", quoted(text), ": expected name=value, got ",
                           quoted(part)));
    const std::string name = part.substr(0, equals);
    if (std::ranges::find(seen, name) != seen.end())
      throw UsageError(cat("link ", quoted(text), ": ", name, " comes twice"));
    seen.push_back(name);
    set_part(model, name, std::string_view(part).substr(equals + 1));
  }
  for (const char* needed : {"intra", "inter"})
    if (std::ranges::find(seen, needed) == seen.end())
      throw UsageError(cat("link ", quoted(text), ": ", needed,
                           "= is missing, for example ", needed, "=2GB/s"));
  return model;
}

LinkSchedule::LinkSchedule(const LinkModel& model, int num_ranks)
    : model_(model),
      ports_(static_cast<size_t>(num_ranks)),
      uses_(static_cast<size_t>(num_ranks)) {}

// A port that is not free when a message is ready is busy until the message has
// passed.
LinkSchedule::Passage LinkSchedule::book(int from, int to, int64_t bytes,
                                         Time ready) {
  const bool inside =
      from / model_.ranks_per_node == to / model_.ranks_per_node;
  const double speed =
      inside ? model_.intra_bytes_per_second : model_.inter_bytes_per_second;
  const auto nanoseconds = [](double seconds) {
    return Time{static_cast<int64_t>(std::round(seconds * 1e9))};
  };
  const Time duration =
      nanoseconds(LinkModel::kOverheadOfLatency * model_.latency_seconds +
                  static_cast<double>(bytes) / speed);
  const size_t kind = inside ? 0 : 1;
  std::lock_guard lock(mutex_);
  BusyTimes& sender = ports_[static_cast<size_t>(from)][kind].sending;
  BusyTimes& receiver = ports_[static_cast<size_t>(to)][kind].receiving;
  const Passage passage{sender.book(ready, duration),
                        receiver.book(ready, duration),
                        nanoseconds(model_.latency_seconds)};
  uses_[static_cast<size_t>(from)].add(ready, passage.sent);
  uses_[static_cast<size_t>(to)].add(ready, passage.received);
  return passage;
}

}  // namespace canzona
