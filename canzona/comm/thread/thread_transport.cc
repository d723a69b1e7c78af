#include <algorithm>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/thread_world.h"
#include "canzona/comm/transport.h"

namespace canzona {
namespace {

using Time = std::chrono::nanoseconds;
using State = Inbox::Letter::State;

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadWorld> world,
                  std::shared_ptr<ThreadGroup> group, int rank,
                  std::shared_ptr<Lane> lane = nullptr)
      : world_(std::move(world)),
        group_(std::move(group)),
        ops_(&world_->ops()),
        rank_(rank),
        lane_(std::move(lane)),
        pending_(static_cast<size_t>(group_->size())) {
    if (lane_ == nullptr) return;
    ops_ = &lane_->ops();
    written_ = lane_->make_mark();
    for (int peer = 0; peer < size(); ++peer)
      taken_.push_back(lane_->make_mark());
    if (LanePacer* pacer = world_->pacer())
      line_ = pacer->add_line(group_, rank_, *lane_);
  }
  ~ThreadTransport() override { leave(); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void copy_by(const WireOps& ops) override { ops_ = &ops; }
  Lane* lane() override { return lane_.get(); }
  bool can_order() const override { return true; }
  std::unique_ptr<Transport> ordered_subgroup(
      std::span<const int> members, int64_t id, int color, Deadline until,
      std::shared_ptr<Lane> lane) override;
  void set_of_host(bool of_host) override { of_host_ = of_host; }
  bool can_show() const override { return lane_ != nullptr; }
  void post_show(int to, std::span<const std::byte> data,
                 int64_t wire_bytes) override;
  void post_look(int from, int64_t bytes, const std::byte** where) override;
  void end_looks() override;
  void post_send(int to, std::span<const std::byte> data) override;
  void post_receive(int from, std::span<std::byte> data) override;
  void pass_gate(std::string_view group, Operation operation,
                 std::string_view label) override {
    if (Gate* gate = world_->gate())
      gate->pass(group, operation, label, world_rank());
  }
  bool poll() override;
  void pause(Deadline until) override;
  void follow_on() override { follows_ = true; }
  Time link_time() const override;
  const LinkUse* links() const override {
    const LinkSchedule* schedule = world_->schedule();
    return schedule == nullptr ? nullptr : &schedule->use(world_rank());
  }
  void count_links(LinkUse* use) override {
    group_->uses[static_cast<size_t>(rank_)].store(use);
  }
  void retract() noexcept override;

  bool is_pending(int peer) const override {
    const Pending& with = pending_[static_cast<size_t>(peer)];
    return with.sending || with.receiving;
  }
  void enter(int64_t sequence) override {
    group_->entered[static_cast<size_t>(rank_)].store(sequence);
  }
  bool has_entered(int peer, int64_t sequence) const override {
    return group_->entered[static_cast<size_t>(peer)].load() >= sequence;
  }
  int lost_peer() override;
  void leave() noexcept override;

  void abort(std::string_view reason) override { world_->abort(reason); }
  bool is_aborted() const override { return world_->aborted(); }
  std::string abort_reason() const override { return world_->abort_reason(); }
  std::unique_ptr<Transport> subgroup(std::span<const int> members, int64_t id,
                                      int color, Deadline until) override;

 private:
  struct Pending {
    bool sending = false;
    bool receiving = false;
    std::span<std::byte> data;
    Time ready{0};
    // With a lane: what is sent, until poll() puts it into the inbox.
    std::span<const std::byte> sent;
    bool is_in_inbox = false;
    bool shown = false;  // what is sent
    int64_t wire_bytes = 0;
    const std::byte** where = nullptr;
    bool looking = false;
  };

  int world_rank() const { return group_->ranks[static_cast<size_t>(rank_)]; }
  Inbox& own() { return group_->inbox(rank_); }
  Inbox::Peer& mail(int peer) { return own().peers[static_cast<size_t>(peer)]; }
  // Callers must hold own().mutex.
  bool has_news();
  bool is_ordered() const { return lane_ != nullptr && !of_host_; }
  // Returns true if poll() must wait for a receipt.
  bool wants_receipt(const Pending& with) const {
    return with.sending && (!with.shown || looks_ended_);
  }
  void put_in_inboxes();
  void put_in_inbox(int to, const Inbox::Letter& letter);
  bool try_receive(int from);
  Time take(int from, const Inbox::Letter& letter);
  void give_receipt(int from, Time arrival, std::shared_ptr<Mark> taken);
  bool try_end_send(int to);
  void end_taking(int from);
  // Returns false if it was already taken.
  bool take_back(int to) noexcept;
  void wait_for_taking(Inbox::Receipt& receipt) noexcept;
  // Counts the messages that poll() does not wait for yet: those that are
  // shown.
  int num_shown() const {
    return static_cast<int>(
        std::ranges::count_if(pending_, [&](const Pending& with) {
          return with.sending && !wants_receipt(with);
        }));
  }
  Time arrival_of(int from, const Inbox::Letter& letter, Time ready);
  void count(int rank, Time ready, Time end);
  Time post_time() const { return follows_ ? passed_ : link_time(); }
  void wait_for_link(Deadline until);
  // With a lane: tell the pacer about the current exchange, and the lane about
  // its end.
  void begin_pacing();
  void end_pacing();
  bool is_looking() const {
    return std::ranges::any_of(
        pending_, [](const Pending& with) { return with.looking; });
  }

  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<ThreadGroup> group_;
  const WireOps* ops_;
  int rank_;
  std::shared_ptr<Lane> lane_;
  // A letter's mark is recorded again when all receivers have taken their
  // letters; the mark for data taken from a rank is recorded again when that
  // rank has waited for it.
  std::shared_ptr<Mark> written_;
  std::vector<std::shared_ptr<Mark>> taken_;  // by rank
  LanePacer::Line* line_ = nullptr;           // where links are modelled
  std::optional<uint32_t> paced_;             // number of the current exchange
  bool of_host_ = false;
  bool looks_ended_ = false;
  int num_outgoing_ = 0;  // to be put in inboxes
  std::vector<Pending> pending_;
  int num_pending_ = 0;
  Time last_arrival_{0};  // of what this exchange has moved
  std::optional<Time> waiting_since_;
  Time passed_{0};  // when the last exchange ended
  bool follows_ = false;
};

void ThreadTransport::leave() noexcept {
  retract();
  if (line_ != nullptr) world_->pacer()->remove(std::exchange(line_, nullptr));
  count_links(nullptr);
  for (int peer = 0; peer < size(); ++peer) {
    Inbox& inbox = group_->inbox(peer);
    {
      std::lock_guard lock(inbox.mutex);
      inbox.peers[static_cast<size_t>(rank_)].gone = true;
    }
    inbox.changed.notify_all();
  }
}

Time ThreadTransport::link_time() const {
  if (world_->schedule() == nullptr) return Time{0};
  LinkClock* clock = world_->clock(world_rank());
  if (clock != nullptr) return clock->now();
  return std::chrono::steady_clock::now().time_since_epoch();
}

void ThreadTransport::post_send(int to, std::span<const std::byte> data) {
  Pending& with = pending_[static_cast<size_t>(to)];
  CANZONA_CHECK(!with.sending, "a second message to rank ", to);
  with.sending = true;
  ++num_pending_;
  if (is_ordered()) {
    with.sent = data;
    with.wire_bytes = static_cast<int64_t>(data.size());
    with.is_in_inbox = false;
    ++num_outgoing_;
    return;
  }
  put_in_inbox(to, {State::kPosted, data.data(),
                    static_cast<int64_t>(data.size()), post_time()});
}

void ThreadTransport::put_in_inbox(int to, const Inbox::Letter& letter) {
  pending_[static_cast<size_t>(to)].is_in_inbox = true;
  Inbox& inbox = group_->inbox(to);
  {
    std::lock_guard lock(inbox.mutex);
    inbox.peers[static_cast<size_t>(rank_)].letter = letter;
  }
  inbox.changed.notify_all();
}

// Records one mark for everything posted since the last call.
void ThreadTransport::put_in_inboxes() {
  if (num_outgoing_ == 0) return;
  num_outgoing_ = 0;
  looks_ended_ = false;
  lane_->record(*written_);
  for (int peer = 0; peer < size(); ++peer) {
    const Pending& with = pending_[static_cast<size_t>(peer)];
    if (with.sending && !with.is_in_inbox)
      put_in_inbox(peer,
                   {State::kPosted, with.sent.data(),
                    static_cast<int64_t>(with.sent.size()), Time{0}, written_,
                    with.shown, line_, paced_.value_or(0), with.wire_bytes});
  }
}

void ThreadTransport::begin_pacing() {
  if (line_ != nullptr && is_ordered() && !paced_ && num_pending_ > 0)
    paced_ = world_->pacer()->begin(*line_);
}

void ThreadTransport::end_pacing() {
  if (!paced_ || num_pending_ > 0 || is_looking()) return;
  paced_.reset();
  world_->pacer()->end(*line_);
}

void ThreadTransport::post_show(int to, std::span<const std::byte> data,
                                int64_t wire_bytes) {
  post_send(to, data);
  pending_[static_cast<size_t>(to)].shown = true;
  pending_[static_cast<size_t>(to)].wire_bytes = wire_bytes;
}

void ThreadTransport::post_look(int from, int64_t bytes,
                                const std::byte** where) {
  post_receive(from,
               {static_cast<std::byte*>(nullptr), static_cast<size_t>(bytes)});
  pending_[static_cast<size_t>(from)].where = where;
}

void ThreadTransport::end_looks() {
  looks_ended_ = true;
  if (!is_looking()) return;
  // One mark serves all ranks that showed memory: each waits for it before it
  // shows again.
  const std::shared_ptr<Mark>& read = taken_[static_cast<size_t>(rank_)];
  lane_->record(*read);
  for (int peer = 0; peer < size(); ++peer) {
    Pending& with = pending_[static_cast<size_t>(peer)];
    if (with.looking) give_receipt(peer, Time{0}, read);
    with.looking = false;
  }
}

void ThreadTransport::post_receive(int from, std::span<std::byte> data) {
  Pending& with = pending_[static_cast<size_t>(from)];
  CANZONA_CHECK(!with.receiving, "a second message from rank ", from);
  with.receiving = true;
  with.data = data;
  with.where = nullptr;
  with.ready = post_time();
  ++num_pending_;
}

// Each rank begins with a different peer: a modelled link carries one message
// at a time, and if all began with rank 0, they would queue at its port.
bool ThreadTransport::poll() {
  follows_ = false;
  begin_pacing();
  put_in_inboxes();
  if (!waiting_since_) waiting_since_ = link_time();
  for (int step = 0; step < size(); ++step) {
    const int peer = (rank_ + size() - step) % size();
    Pending& with = pending_[static_cast<size_t>(peer)];
    if (with.receiving && try_receive(peer)) {
      with.receiving = false;
      --num_pending_;
    }
    if (wants_receipt(with) && try_end_send(peer)) {
      with.sending = with.shown = false;
      --num_pending_;
    }
  }
  if (num_pending_ > num_shown()) return false;
  if (world_->schedule() != nullptr && link_time() < last_arrival_)
    return false;
  passed_ = std::max(last_arrival_, *waiting_since_);
  last_arrival_ = Time{0};
  waiting_since_.reset();
  end_pacing();
  return true;
}

// Copies outside the lock; until it is done the sender knows that we read, and
// does not leave. So if a copy throws, the sender must still learn that it is
// over.
bool ThreadTransport::try_receive(int from) {
  const Pending& with = pending_[static_cast<size_t>(from)];
  Inbox::Letter letter;
  {
    std::lock_guard lock(own().mutex);
    Inbox::Letter& posted = mail(from).letter;
    if (posted.state != State::kPosted) return false;
    if (!std::cmp_equal(posted.bytes, with.data.size()))
      throw UsageError(cat("rank ", from, " sent ", posted.bytes,
                           " bytes where rank ", rank_, " expects ",
                           with.data.size()));
    posted.state = State::kTaking;
    letter = posted;
  }
  Time arrival{0};
  try {
    arrival = take(from, letter);
  } catch (...) {
    end_taking(from);
    throw;
  }
  end_taking(from);
  if (!letter.shown)
    give_receipt(from, arrival,
                 is_ordered() ? taken_[static_cast<size_t>(from)] : nullptr);
  return true;
}

Time ThreadTransport::take(int from, const Inbox::Letter& letter) {
  Pending& with = pending_[static_cast<size_t>(from)];
  if (!is_ordered()) {
    const WireOps& ops = lane_ == nullptr ? *ops_ : cpu_wire_ops();
    ops.copy(with.data.data(), letter.data, letter.bytes);
    return arrival_of(from, letter, with.ready);
  }
  CANZONA_CHECK(letter.shown == (with.where != nullptr), "rank ", from,
                " does not follow the protocol");
  if (line_ != nullptr)
    world_->pacer()->add_message(*letter.line, letter.exchange, *line_, *paced_,
                                 letter.wire_bytes);
  lane_->wait_for(*letter.written);
  if (letter.shown) {
    *with.where = letter.data;
    with.looking = true;
  } else {
    ops_->copy(with.data.data(), letter.data, letter.bytes);
    lane_->record(*taken_[static_cast<size_t>(from)]);
  }
  return Time{0};
}

void ThreadTransport::give_receipt(int from, Time arrival,
                                   std::shared_ptr<Mark> taken) {
  Inbox& sender = group_->inbox(from);
  {
    std::lock_guard lock(sender.mutex);
    sender.peers[static_cast<size_t>(rank_)].receipt = {true, arrival,
                                                        std::move(taken)};
  }
  sender.changed.notify_all();
}

void ThreadTransport::end_taking(int from) {
  {
    std::lock_guard lock(own().mutex);
    mail(from).letter.state = State::kNone;
  }
  own().changed.notify_all();
}

Time ThreadTransport::arrival_of(int from, const Inbox::Letter& letter,
                                 Time ready) {
  if (world_->schedule() == nullptr) return Time{0};
  ready = std::max(letter.ready, ready);
  const LinkSchedule::Passage passage =
      world_->schedule()->book(group_->ranks[static_cast<size_t>(from)],
                               world_rank(), letter.bytes, ready);
  count(from, ready, passage.sent);
  count(rank_, ready, passage.received);
  last_arrival_ = std::max(last_arrival_, passage.arrival());
  return passage.arrival();
}

// This is safe because a sender stays until its letter is taken.
void ThreadTransport::count(int rank, Time ready, Time end) {
  LinkUse* use = group_->uses[static_cast<size_t>(rank)].load();
  if (use != nullptr) use->add(ready, end);
}

bool ThreadTransport::try_end_send(int to) {
  std::lock_guard lock(own().mutex);
  Inbox::Receipt& receipt = mail(to).receipt;
  if (!receipt.given) return false;
  last_arrival_ = std::max(last_arrival_, receipt.arrival);
  if (receipt.taken != nullptr) lane_->wait_for(*receipt.taken);
  receipt = {};
  return true;
}

bool ThreadTransport::has_news() {
  if (world_->aborted()) return true;
  for (int peer = 0; peer < size(); ++peer) {
    const Pending& with = pending_[static_cast<size_t>(peer)];
    const Inbox::Peer& from = mail(peer);
    if (with.receiving && from.letter.state == State::kPosted) return true;
    if (wants_receipt(with) && from.receipt.given) return true;
    if ((with.receiving || wants_receipt(with)) && from.gone) return true;
  }
  return false;
}

void ThreadTransport::pause(Deadline until) {
  if (num_pending_ == 0) return wait_for_link(until);
  std::unique_lock lock(own().mutex);
  own().changed.wait_until(lock, until, [&] { return has_news(); });
}

void ThreadTransport::wait_for_link(Deadline until) {
  LinkClock* clock = world_->clock(world_rank());
  if (clock != nullptr) return clock->sleep_until(last_arrival_);
  const Deadline arrival(
      std::chrono::duration_cast<Deadline::duration>(last_arrival_));
  std::unique_lock lock(own().mutex);
  own().changed.wait_until(lock, std::min(until, arrival),
                           [&] { return world_->aborted(); });
}

void ThreadTransport::wait_for_taking(Inbox::Receipt& receipt) noexcept {
  try {
    if (receipt.taken != nullptr) lane_->wait_for(*receipt.taken);
  } catch (...) {
    // The device is lost, and everything issued to it is void.
  }
  receipt = {};
}

bool ThreadTransport::take_back(int to) noexcept {
  Inbox& inbox = group_->inbox(to);
  std::unique_lock lock(inbox.mutex);
  Inbox::Letter& letter = inbox.peers[static_cast<size_t>(rank_)].letter;
  inbox.changed.wait(lock, [&] { return letter.state != State::kTaking; });
  return std::exchange(letter.state, State::kNone) == State::kPosted;
}

// A receiver that is copying from us finishes soon; messages that it has not
// begun to take are withdrawn.
//
// With a lane, later work must wait for everything that was taken.
void ThreadTransport::retract() noexcept {
  try {
    end_looks();
  } catch (...) {
    // The device is lost; others learn of it when this rank leaves.
  }
  for (int peer = 0; peer < size(); ++peer) {
    Pending& with = pending_[static_cast<size_t>(peer)];
    if (with.sending && with.is_in_inbox && !take_back(peer) &&
        lane_ != nullptr) {
      std::unique_lock lock(own().mutex);
      Inbox::Receipt& receipt = mail(peer).receipt;
      own().changed.wait(lock,
                         [&] { return receipt.given || mail(peer).gone; });
      wait_for_taking(receipt);
    }
    with = {};
  }
  num_pending_ = num_outgoing_ = 0;
  waiting_since_.reset();
  paced_.reset();
}

int ThreadTransport::lost_peer() {
  std::lock_guard lock(own().mutex);
  for (int peer = 0; peer < size(); ++peer) {
    const Pending& with = pending_[static_cast<size_t>(peer)];
    const Inbox::Peer& from = mail(peer);
    const bool moving =
        (with.receiving && from.letter.state == State::kPosted) ||
        (with.sending && from.receipt.given);
    if (is_pending(peer) && from.gone && !moving) return peer;
  }
  return -1;
}

std::unique_ptr<Transport> ThreadTransport::subgroup(
    std::span<const int> members, int64_t id, int color, Deadline until) {
  return ordered_subgroup(members, id, color, until, nullptr);
}

std::unique_ptr<Transport> ThreadTransport::ordered_subgroup(
    std::span<const int> members, int64_t id, int color, Deadline /*until*/,
    std::shared_ptr<Lane> lane) {
  const auto self = std::ranges::find(members, rank_);
  CANZONA_CHECK(self != members.end(), "rank ", rank_, " is not a member");
  return std::make_unique<ThreadTransport>(
      world_, world_->subgroup(*group_, id, color, members),
      static_cast<int>(self - members.begin()), std::move(lane));
}

}  // namespace

std::unique_ptr<Transport> make_thread_transport(
    std::shared_ptr<ThreadWorld> world, int rank) {
  CANZONA_CHECK(rank >= 0 && rank < world->everyone()->size(), "rank ", rank);
  std::shared_ptr<ThreadGroup> everyone = world->everyone();
  return std::make_unique<ThreadTransport>(std::move(world),
                                           std::move(everyone), rank);
}

}  // namespace canzona
