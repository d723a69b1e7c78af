#include "canzona/comm/thread/link_model.h"

#include <cmath>
#include <limits>
#include <string>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/thread_world.h"

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

struct LanePacer::Line {
  std::shared_ptr<ThreadGroup> group;
  int rank = 0;  // in the group
  Lane* lane = nullptr;
  LaneWord* begun = nullptr;
  LaneWord* ended = nullptr;
  uint32_t last = 0;              // number of the last exchange
  std::deque<Passing> under_way;  // up to `last`

  int world_rank() const { return group->ranks[static_cast<size_t>(rank)]; }
  uint32_t first() const {
    return last + 1 - static_cast<uint32_t>(under_way.size());
  }
};

LanePacer::LanePacer(LinkSchedule& schedule, LinkClock* clock)
    : schedule_(schedule), clock_(clock) {}

LanePacer::~LanePacer() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  more_.notify_all();
  if (thread_.joinable()) thread_.join();
}

LanePacer::Time LanePacer::now() const {
  if (clock_ != nullptr) return clock_->now();
  return std::chrono::steady_clock::now().time_since_epoch();
}

LanePacer::Line* LanePacer::add_line(std::shared_ptr<ThreadGroup> group,
                                     int rank, Lane& lane) {
  auto line = std::make_unique<Line>();
  line->group = std::move(group);
  line->rank = rank;
  line->lane = &lane;
  line->begun = lane.make_word();
  line->ended = lane.make_word();
  if (line->begun == nullptr || line->ended == nullptr)
    throw UsageError(
        "links are modelled, but the lanes of this device cannot wait for a "
        "clock");
  const std::lock_guard lock(mutex_);
  if (clock_ == nullptr && !thread_.joinable())
    thread_ = std::thread([this] { run(); });
  return lines_.emplace_back(std::move(line)).get();
}

void LanePacer::remove(Line* line) noexcept {
  const std::lock_guard lock(mutex_);
  line->ended->store(line->last, std::memory_order_release);
  num_passing_ -= std::ssize(line->under_way);
  for (const Passing& exchange : line->under_way)
    for (const Message& message : exchange.arriving)
      --passing(*message.from, message.from_number).num_leaving;
  for (const auto& other : lines_)
    for (Passing& exchange : other->under_way)
      std::erase_if(exchange.arriving, [&](const Message& message) {
        return message.from == line;
      });
  std::erase_if(lines_, [&](const auto& own) { return own.get() == line; });
}

LanePacer::Passing& LanePacer::passing(Line& line, uint32_t number) {
  const uint32_t place = number - line.first();
  CANZONA_CHECK(place < line.under_way.size(), "exchange ", number,
                " is not under way");
  return line.under_way[place];
}

uint32_t LanePacer::begin(Line& line) {
  uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++line.last;
    line.under_way.emplace_back();
    ++num_passing_;
  }
  more_.notify_one();
  line.lane->write(*line.begun, number);
  return number;
}

void LanePacer::add_message(Line& from, uint32_t from_number, Line& to,
                            uint32_t to_number, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (released_) return;
  ++passing(from, from_number).num_leaving;
  passing(to, to_number).arriving.push_back({&from, from_number, bytes});
}

void LanePacer::end(Line& line) {
  uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = line.last;
    passing(line, number).all_known = true;
    if (released_) line.ended->store(number, std::memory_order_release);
  }
  line.lane->wait_for(*line.ended, number);
}

void LanePacer::release() noexcept {
  const std::lock_guard lock(mutex_);
  released_ = true;
  for (const auto& line : lines_)
    line->ended->store(line->last, std::memory_order_release);
}

// Only the first exchange of a line can have begun, because the lane waits for
// its end before the next.
bool LanePacer::has_begun(Line& line, uint32_t number) {
  return number == line.first() && line.under_way.front().began.has_value();
}

void LanePacer::book(Line& to) {
  Passing& own = to.under_way.front();
  const auto use = [](const Line& line) {
    return line.group->uses[static_cast<size_t>(line.rank)].load();
  };
  std::erase_if(own.arriving, [&](const Message& message) {
    if (!has_begun(*message.from, message.from_number)) return false;
    Passing& other = message.from->under_way.front();
    const Time ready = std::max(*own.began, *other.began);
    const LinkSchedule::Passage passage = schedule_.book(
        message.from->world_rank(), to.world_rank(), message.bytes, ready);
    if (LinkUse* counted = use(*message.from))
      counted->add(ready, passage.sent);
    if (LinkUse* counted = use(to)) counted->add(ready, passage.received);
    own.over = std::max(own.over, passage.arrival());
    other.over = std::max(other.over, passage.arrival());
    --other.num_leaving;
    return true;
  });
}

std::optional<LanePacer::Time> LanePacer::end_first(Line& line) {
  const Passing& first = line.under_way.front();
  if (!first.began || !first.all_known || !first.arriving.empty() ||
      first.num_leaving > 0)
    return {};
  if (first.over > now()) return first.over;
  line.ended->store(line.first(), std::memory_order_release);
  line.under_way.pop_front();
  --num_passing_;
  return {};
}

std::optional<LanePacer::Time> LanePacer::look() {
  std::optional<Time> next;
  if (released_) return next;
  for (const auto& line : lines_) {
    if (line->under_way.empty()) continue;
    Passing& first = line->under_way.front();
    if (!first.began && has_come_to(*line->begun, line->first()))
      first.began = now();
  }
  for (const auto& line : lines_)
    if (!line->under_way.empty() && line->under_way.front().began) book(*line);
  for (const auto& line : lines_) {
    if (line->under_way.empty()) continue;
    if (const std::optional<Time> later = end_first(*line))
      next = next ? std::min(*next, *later) : *later;
  }
  return next;
}

void LanePacer::pass_time() {
  const std::lock_guard lock(mutex_);
  const std::optional<Time> next = look();
  if (!next) return;
  clock_->sleep_until(*next);
  look();
}

// Polls, because lanes are faster than any sleep of this process.
void LanePacer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock,
               [&] { return closing_ || (!released_ && num_passing_ > 0); });
    if (closing_) return;
    look();
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

}  // namespace canzona
