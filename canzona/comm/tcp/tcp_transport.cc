#include "canzona/comm/tcp/tcp_world.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/thread_world.h"
#include "canzona/comm/wire_ops.h"

namespace canzona::comm {
namespace {

using std::chrono_literals::operator""ms;

constexpr int kNumYields = 20;
constexpr int kMostSleep = 1000;  // milliseconds
constexpr auto kTimeForGoodbye = 200ms;
constexpr size_t kSizeBytes = sizeof(uint64_t);

}  // namespace

TcpTransport::TcpTransport(std::shared_ptr<TcpWorld> world,
                           std::vector<int> world_ranks, uint64_t key)
    : world_(std::move(world)),
      world_ranks_(std::move(world_ranks)),
      key_(key),
      peers_(world_ranks_.size()),
      opening_(world_->opening(key, false)) {
  const auto self = std::ranges::find(world_ranks_, world_->rank());
  CANZONA_CHECK(self != world_ranks_.end(), "rank ", world_->rank(),
                " is not a member");
  rank_ = static_cast<int>(self - world_ranks_.begin());
  files_.reserve(peers_.size() + 1);
  world_->add_group(key_, wake_up_);
}

TcpTransport::~TcpTransport() { leave(); }

void TcpTransport::copy_by(const WireOps& ops) {
  if (!ops.is_host())
    throw UsageError("sockets move memory of the host, not of a device");
}

void TcpTransport::pass_gate(std::string_view group, Operation operation,
                             std::string_view label) {
  if (Gate* gate = world_->gate())
    gate->pass(group, operation, label, world_->rank());
}

void TcpTransport::begin(int rank, Flow& flow, std::byte* data, size_t bytes) {
  CANZONA_CHECK(!flow.active, "a second message with rank ", rank);
  flow = {
      .data = data, .bytes = bytes, .done = 0, .size = bytes, .active = true};
  ++num_pending_;
  num_pauses_ = 0;
}

void TcpTransport::post_send(int to, std::span<const std::byte> data) {
  // The buffer is only read.
  begin(to, peer(to).out, const_cast<std::byte*>(data.data()), data.size());
}

void TcpTransport::post_receive(int from, std::span<std::byte> data) {
  begin(from, peer(from).in, data.data(), data.size());
}

void TcpTransport::end_flow(Flow& flow) {
  flow.active = false;
  --num_pending_;
}

bool TcpTransport::poll() {
  if (num_pending_ == 0) return true;
  for (int other = 0; other < size(); ++other) {
    Peer& with = peer(other);
    if (!with.in.active && !with.out.active) continue;
    if (other == rank_) {
      copy_to_itself();
    } else if (is_connected(other)) {
      if (with.out.active) send(with);
      if (with.in.active) receive(other, with);
    }
  }
  return num_pending_ == 0;
}

void TcpTransport::copy_to_itself() {
  Peer& self = peer(rank_);
  if (!self.in.active || !self.out.active) return;
  if (self.in.bytes != self.out.bytes)
    throw UsageError(cat("rank ", rank_, " sent ", self.out.bytes,
                         " bytes to itself where it expects ", self.in.bytes));
  std::memcpy(self.in.data, self.out.data, self.in.bytes);
  end_flow(self.in);
  end_flow(self.out);
}

bool TcpTransport::is_connected(int rank) {
  Peer& with = peer(rank);
  if (with.socket.is_open()) return has_opened(with);
  if (with.ended) return false;
  if (rank_ < rank) {
    with.socket =
        world_->begin_connection_to(world_ranks_[static_cast<size_t>(rank)]);
    with.connecting = true;
    with.ended = with.refuses = !with.socket.is_open();
    return with.socket.is_open() && has_opened(with);
  }
  auto arrival = world_->take(key_, world_ranks_[static_cast<size_t>(rank)]);
  if (!arrival) return false;
  with.socket = std::move(arrival->socket);
  with.opened = sizeof(opening_);  // by the other side
  with.ended = with.refuses = arrival->left;
  return with.socket.is_open();
}

// Returns true once the connection exists and the other side was told its
// purpose.
bool TcpTransport::has_opened(Peer& with) {
  if (with.connecting) {
    pollfd file{with.socket.file(), POLLOUT, 0};
    if (::poll(&file, 1, 0) <= 0) return false;
    with.connecting = false;
    if (connection_error(with.socket) != 0) {
      with.socket.close();
      with.ended = with.refuses = true;
      return false;
    }
  }
  if (with.opened == sizeof(opening_)) return true;
  const auto bytes = std::as_bytes(std::span(&opening_, 1));
  const Passed passed = send_some(with.socket, bytes.subspan(with.opened));
  with.opened += passed.bytes;
  with.refuses = passed.ended;
  return with.opened == sizeof(opening_);
}

void TcpTransport::send(Peer& with) {
  Flow& flow = with.out;
  const auto pass = [&](std::span<const std::byte> bytes) {
    const Passed passed = send_some(with.socket, bytes);
    flow.done += passed.bytes;
    if (passed.bytes > 0) num_pauses_ = 0;
    with.refuses = with.refuses || passed.ended;
    return passed.bytes == bytes.size();
  };
  if (flow.done < kSizeBytes &&
      !pass(std::as_bytes(std::span(&flow.size, 1)).subspan(flow.done)))
    return;
  if (pass({flow.data + (flow.done - kSizeBytes),
            flow.bytes - (flow.done - kSizeBytes)}))
    end_flow(flow);
}

void TcpTransport::receive(int from, Peer& with) {
  Flow& flow = with.in;
  const auto pass = [&](std::span<std::byte> bytes) {
    const Passed passed = receive_some(with.socket, bytes);
    flow.done += passed.bytes;
    if (passed.bytes > 0) num_pauses_ = 0;
    with.heard = with.heard || passed.bytes > 0;
    with.ended = with.ended || passed.ended;
    return passed.bytes == bytes.size();
  };
  if (flow.done < kSizeBytes) {
    if (!pass(std::as_writable_bytes(std::span(&flow.size, 1))
                  .subspan(flow.done)))
      return;
    if (flow.size != flow.bytes)
      throw UsageError(cat("rank ", from, " sent ", flow.size,
                           " bytes where rank ", rank_, " expects ",
                           flow.bytes));
  }
  if (pass({flow.data + (flow.done - kSizeBytes),
            flow.bytes - (flow.done - kSizeBytes)}))
    end_flow(flow);
}

// Short waits spin instead of sleeping.
void TcpTransport::pause(Deadline until) {
  if (++num_pauses_ <= kNumYields) return std::this_thread::yield();
  files_.clear();
  files_.push_back({wake_up_.file(), POLLIN, 0});
  for (const Peer& with : peers_) {
    if (!with.socket.is_open()) continue;
    const bool writes = with.out.active || with.connecting;
    const auto events = static_cast<short>((with.in.active ? POLLIN : 0) |
                                           (writes ? POLLOUT : 0));
    if (events != 0) files_.push_back({with.socket.file(), events, 0});
  }
  ::poll(files_.data(), files_.size(), poll_time(until, kMostSleep));
  wake_up_.clear();
}

void TcpTransport::retract() noexcept {
  for (Peer& with : peers_) with.in.active = with.out.active = false;
  num_pending_ = 0;
}

bool TcpTransport::is_pending(int rank) const {
  return peer(rank).in.active || peer(rank).out.active;
}

void TcpTransport::enter(int64_t /*sequence*/) {
  for (Peer& with : peers_) with.heard = false;
}

bool TcpTransport::has_entered(int rank, int64_t /*sequence*/) const {
  return !is_pending(rank) || peer(rank).heard;
}

// The reason why it left may follow.
int TcpTransport::lost_peer() {
  for (int other = 0; other < size(); ++other) {
    const Peer& with = peer(other);
    if ((with.in.active && with.ended) ||
        (with.out.active && (with.refuses || with.ended))) {
      world_->listen();
      return other;
    }
  }
  return -1;
}

// A peer that would have opened the connection finds the group closed.
void TcpTransport::say_goodbye(int rank, Peer& with) {
  if (with.socket.is_open() && !with.connecting &&
      with.opened == sizeof(opening_))
    return end_sending(with.socket);
  if (rank_ > rank || with.ended || world_->aborted()) return;
  const auto until = std::chrono::steady_clock::now() + kTimeForGoodbye;
  const TcpWorld::Opening letter = world_->opening(key_, true);
  const Socket socket =
      world_->begin_connection_to(world_ranks_[static_cast<size_t>(rank)]);
  if (socket.is_open())
    send_all(socket, std::as_bytes(std::span(&letter, 1)), until);
}

void TcpTransport::leave() noexcept {
  if (has_left_) return;
  has_left_ = true;
  if (num_pending_ > 0) {
    retract();
    world_->abort(cat("rank ", rank_, " left in the middle of an operation"));
  }
  world_->remove_group(key_);
  try {
    for (int step = 1; step < size(); ++step) {
      const int other = (rank_ + step) % size();
      say_goodbye(other, peer(other));
    }
  } catch (const std::exception& error) {
    world_->abort(error.what());
  }
}

std::unique_ptr<Transport> TcpTransport::subgroup(std::span<const int> members,
                                                  int64_t id, int color,
                                                  Deadline /*until*/) {
  std::vector<int> world_ranks;
  for (const int member : members)
    world_ranks.push_back(world_ranks_[static_cast<size_t>(member)]);
  const uint64_t key = bits_at(bits_at(key_, static_cast<uint64_t>(id)),
                               static_cast<uint64_t>(color));
  return std::make_unique<TcpTransport>(world_, std::move(world_ranks), key);
}

}  // namespace canzona::comm
