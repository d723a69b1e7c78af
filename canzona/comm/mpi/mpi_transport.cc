#include "canzona/comm/mpi/mpi_world.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/thread_world.h"
#include "canzona/comm/wire_ops.h"

namespace canzona::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono_literals::operator""us;

constexpr int kNumSpins = 100;
constexpr Clock::duration kShortestSleep = 20us;
constexpr Clock::duration kLongestSleep = 100us;

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<MpiWorld> world,
                           std::vector<int> world_ranks, int64_t number)
    : world_(std::move(world)),
      world_ranks_(std::move(world_ranks)),
      number_(number),
      part_bytes_(static_cast<size_t>(world_->options().part_bytes)),
      peers_(world_ranks_.size()),
      requests_(2 * peers_.size(), MPI_REQUEST_NULL),
      statuses_(requests_.size()),
      ended_(requests_.size()) {
  const auto self = std::ranges::find(world_ranks_, world_->rank());
  CANZONA_CHECK(self != world_ranks_.end(), "rank ", world_->rank(),
                " is not a member");
  rank_ = static_cast<int>(self - world_ranks_.begin());
}

int MpiTransport::tag_of(MpiKind kind) const {
  return static_cast<int>(number_ * kNumMpiKinds) + static_cast<int>(kind);
}

void MpiTransport::copy_by(const WireOps& ops) {
  if (!ops.is_host())
    throw UsageError("MPI moves memory of the host, not of a device");
}

void MpiTransport::pass_gate(std::string_view group, Operation operation,
                             std::string_view label) {
  if (Gate* gate = world_->options().gate)
    gate->pass(group, operation, label, world_->rank());
}

void MpiTransport::post_send(int to, std::span<const std::byte> data) {
  Flow& flow = peer(to).out;
  CANZONA_CHECK(!flow.active, "a second message to rank ", to);
  // MPI does not write to the buffer that it sends.
  flow.data = const_cast<std::byte*>(data.data());
  flow.bytes = data.size();
  post(to, flow, false);
}

void MpiTransport::post_receive(int from, std::span<std::byte> data) {
  Flow& flow = peer(from).in;
  CANZONA_CHECK(!flow.active, "a second message from rank ", from);
  flow.data = data.data();
  flow.bytes = data.size();
  post(from, flow, true);
}

void MpiTransport::post(int rank, Flow& flow, bool receive) {
  flow.begun = 0;
  flow.active = true;
  ++num_pending_;
  num_pauses_ = 0;
  start_part(rank, flow, receive);
}

// All chunks of a message but the first have a different tag, so that surplus
// bytes are never mistaken for a new message.
void MpiTransport::start_part(int rank, Flow& flow, bool receive) {
  const int count =
      static_cast<int>(std::min(flow.bytes - flow.begun, part_bytes_));
  const int tag =
      tag_of(flow.begun == 0 ? MpiKind::kMessage : MpiKind::kContinuation);
  const int with = world_ranks_[static_cast<size_t>(rank)];
  std::byte* data = flow.data + flow.begun;
  MPI_Request* request = &requests_[place(rank, receive)];
  flow.begun += static_cast<size_t>(count);
  world_->call_mpi([&] {
    if (receive) {
      require_mpi(MPI_Irecv(data, count, MPI_BYTE, with, tag,
                            world_->messages(), request),
                  "MPI_Irecv");
    } else {
      require_mpi(MPI_Isend(data, count, MPI_BYTE, with, tag,
                            world_->messages(), request),
                  "MPI_Isend");
    }
  });
}

bool MpiTransport::poll() {
  if (num_pending_ == 0) return true;
  int num_ended = 0;
  world_->call_mpi([&] {
    const int result =
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(),
                     &num_ended, ended_.data(), statuses_.data());
    if (result != MPI_ERR_IN_STATUS) {
      require_mpi(result, "MPI_Testsome");
      for (int i = 0; i < num_ended; ++i)
        statuses_[static_cast<size_t>(i)].MPI_ERROR = MPI_SUCCESS;
    }
  });
  for (size_t i = 0; std::cmp_less(i, num_ended); ++i)
    end_part(static_cast<size_t>(ended_[i]), statuses_[i]);
  if (num_ended > 0) num_pauses_ = 0;
  return num_pending_ == 0;
}

void MpiTransport::end_part(size_t place, const MPI_Status& status) {
  const int with = static_cast<int>(place / 2);
  const bool receive = place % 2 == 0;
  Flow& flow = receive ? peer(with).in : peer(with).out;
  if (receive) {
    require_size(with, flow, status);
    peer(with).heard = true;
  } else {
    require_mpi(status.MPI_ERROR, "MPI_Isend");
  }
  if (flow.begun < flow.bytes) return start_part(with, flow, receive);
  flow.active = false;
  ++flow.passed;
  --num_pending_;
}

void MpiTransport::require_size(int from, const Flow& flow,
                                const MPI_Status& status) const {
  int kind = MPI_SUCCESS;
  if (status.MPI_ERROR != MPI_SUCCESS) MPI_Error_class(status.MPI_ERROR, &kind);
  if (kind == MPI_ERR_TRUNCATE)
    throw UsageError(cat("rank ", from, " sent more than the ", flow.bytes,
                         " bytes that rank ", rank_, " expects"));
  require_mpi(status.MPI_ERROR, "MPI_Irecv");
  const size_t part = (flow.begun - 1) % part_bytes_ + 1;
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  if (!std::cmp_equal(count, part))
    throw UsageError(cat("rank ", from, " sent ",
                         flow.begun - part + static_cast<size_t>(count),
                         " bytes where rank ", rank_, " expects ", flow.bytes));
}

void MpiTransport::pause(Deadline until) {
  if (++num_pauses_ <= kNumSpins) return std::this_thread::yield();
  world_->look();
  const int doublings = std::min((num_pauses_ - kNumSpins) / 8, 3);
  const auto sleep = std::min(kShortestSleep * (1 << doublings), kLongestSleep);
  std::this_thread::sleep_for(std::min(sleep, until - Clock::now()));
}

// A receive for which nothing has arrived can be cancelled. A receive that has
// begun cannot, nor can a send: MPI would continue it at the next call. abort()
// prevents such calls, and the caller aborts next.
void MpiTransport::retract() noexcept {
  if (num_pending_ == 0) return;
  world_->call_mpi([&] {
    for (size_t i = 0; i < requests_.size(); i += 2)
      if (requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    int num_ended = 0;
    MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(),
                 &num_ended, ended_.data(), MPI_STATUSES_IGNORE);
  });
  for (Peer& with : peers_) with.in.active = with.out.active = false;
  num_pending_ = 0;
}

bool MpiTransport::is_pending(int rank) const {
  return peer(rank).in.active || peer(rank).out.active;
}

void MpiTransport::enter(int64_t /*sequence*/) {
  for (Peer& with : peers_) with.heard = false;
}

bool MpiTransport::has_entered(int rank, int64_t /*sequence*/) const {
  return !is_pending(rank) || peer(rank).heard;
}

// The reason why it left may follow.
int MpiTransport::lost_peer() {
  read_letters();
  const int lost = find_lost();
  if (lost >= 0) world_->listen();
  return lost;
}

int MpiTransport::find_lost() const {
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& with = peer(rank);
    if (!with.left) continue;
    const auto& [sent, received] = with.at_leaving;
    if (with.in.active && with.in.passed >= sent) return rank;
    if (with.out.active && with.out.passed >= received) return rank;
  }
  return -1;
}

void MpiTransport::read_letters() {
  const int tag = tag_of(MpiKind::kLeaving);
  world_->call_mpi([&] {
    while (true) {
      int found = 0;
      MPI_Status status;
      require_mpi(
          MPI_Iprobe(MPI_ANY_SOURCE, tag, world_->messages(), &found, &status),
          "MPI_Iprobe");
      if (found == 0) return;
      const auto from = std::ranges::find(world_ranks_, status.MPI_SOURCE);
      Peer& with = peer(static_cast<int>(from - world_ranks_.begin()));
      with.left = true;
      require_mpi(MPI_Recv(with.at_leaving.data(), sizeof(MpiWorld::Letter),
                           MPI_BYTE, status.MPI_SOURCE, tag, world_->messages(),
                           MPI_STATUS_IGNORE),
                  "MPI_Recv");
    }
  });
}

// The letter carries counts because it may overtake the last message.
void MpiTransport::leave() noexcept {
  if (has_left_) return;
  has_left_ = true;
  if (num_pending_ > 0) {
    retract();
    world_->abort(cat("rank ", rank_, " left in the middle of an operation"));
  }
  try {
    for (int step = 1; step < size(); ++step) {
      const int to = (rank_ + step) % size();
      world_->send_letter(world_ranks_[static_cast<size_t>(to)],
                          tag_of(MpiKind::kLeaving),
                          {peer(to).out.passed, peer(to).in.passed});
    }
  } catch (const std::exception& error) {
    world_->abort(error.what());
  }
}

// Creating a group: its members agree on a number for it.

// On failure, cancels what was posted and closes the gate to MPI before the
// buffers go out of scope.
void MpiTransport::wait_for_members(Deadline until) {
  while (!poll()) {
    std::string why;
    const bool late = std::chrono::steady_clock::now() >= until;
    const int lost = lost_peer();
    if (is_aborted()) {
      why = cat("creating a group was given up: ", abort_reason());
    } else if (late || lost >= 0) {
      int missing = lost;
      for (int rank = 0; missing < 0; ++rank)
        if (is_pending(rank)) missing = rank;
      why = cat("rank ", missing, " did not join to create a group");
    } else {
      pause(until);
      continue;
    }
    retract();
    abort(why);
    throw PeerLost(why);
  }
}

// Returns one more than the last group number of any member.
int64_t MpiTransport::agree_on_number(std::span<const int> members,
                                      Deadline until) {
  const int64_t mine = world_->last_group + 1;
  std::vector<int64_t> theirs(members.size(), mine);
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == rank_) continue;
    post_receive(members[i], std::as_writable_bytes(std::span(&theirs[i], 1)));
    post_send(members[i], std::as_bytes(std::span(&mine, 1)));
  }
  wait_for_members(until);
  return std::ranges::max(theirs);
}

std::unique_ptr<Transport> MpiTransport::subgroup(std::span<const int> members,
                                                  int64_t /*id*/, int /*color*/,
                                                  Deadline until) {
  const auto lock = world_->lock_founding(until);
  const int64_t number = agree_on_number(members, until);
  if (number >= world_->most_groups())
    throw UsageError(cat("group number ", number,
                         ", but this MPI has tags for ",
                         world_->most_groups()));
  world_->last_group = number;
  std::vector<int> world_ranks;
  for (const int member : members)
    world_ranks.push_back(world_ranks_[static_cast<size_t>(member)]);
  return std::make_unique<MpiTransport>(world_, std::move(world_ranks), number);
}

}  // namespace canzona::comm
