#include "canzona/comm/nccl/nccl_world.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::comm {

NcclTransport::NcclTransport(std::shared_ptr<NcclWorld> world,
                             std::unique_ptr<Transport> host,
                             std::vector<int> world_ranks)
    : world_(std::move(world)),
      host_(std::move(host)),
      world_ranks_(std::move(world_ranks)) {}

NcclTransport::~NcclTransport() {
  if (progress_ != nullptr) world_->remove_group(progress_);
  end_registrations();
}

void NcclTransport::end_registrations() noexcept {
  for (NcclWorld::Registration* of : registrations_)
    world_->end_registration(of);
  registrations_.clear();
}

// A single rank sends no messages. The group of host memory allocates what
// groups with a lane use.
std::byte* NcclTransport::allocate(int64_t bytes) {
  return lane_ != nullptr && comm_ == nullptr ? nullptr
                                              : world_->allocate(bytes);
}

// First the lane finishes what uses the memory, then registrations end, then
// the memory is freed.
void NcclTransport::release(std::byte* memory) {
  if (lane_ != nullptr) {
    const std::unique_ptr<Mark> mark = lane_->make_mark();
    lane_->record(*mark);
    mark->wait();
    end_registrations();
  }
  world_->free(memory);
}

void NcclTransport::copy_by(const WireOps& ops) {
  if (!ops.is_host())
    throw UsageError(
        "NCCL's groups work on the lanes of a device: a group of its memory "
        "must be split off with a lane");
  host_->copy_by(ops);
}

void NcclTransport::issue_on(std::shared_ptr<Lane> lane, Deadline until) {
  comm_ = world_->found(world_ranks_, *host_, until);
  stream_ = lane->native();
  CANZONA_CHECK(stream_ != nullptr, "a lane that NCCL cannot issue to");
  progress_ = world_->add_group(world_ranks_, *lane);
  posted_.reserve(4 * static_cast<size_t>(size()));
  lane_ = std::move(lane);
}

void NcclTransport::watch(const IssuedOperation& operation) {
  progress_->issued(operation);
}

void NcclTransport::pass_gate(std::string_view group, Operation operation,
                              std::string_view label) {
  if (progress_ != nullptr) progress_->set_name(group);
  host_->pass_gate(group, operation, label);
}

void NcclTransport::enter(int64_t sequence) {
  if (progress_ != nullptr) progress_->begin(sequence);
  host_->enter(sequence);
}

void NcclTransport::post_send(int to, std::span<const std::byte> data) {
  if (is_of_host()) return host_->post_send(to, data);
  post({.kind = Posted::Kind::kSend,
        .from = data.data(),
        .count = data.size(),
        .peer = to});
}

void NcclTransport::post_receive(int from, std::span<std::byte> data) {
  if (is_of_host()) return host_->post_receive(from, data);
  post({.kind = Posted::Kind::kReceive,
        .to = data.data(),
        .count = data.size(),
        .peer = from});
}

NcclResult NcclTransport::issue(const NcclApi& nccl, const Posted& call) const {
  switch (call.kind) {
    case Posted::Kind::kSend:
      return nccl.send(call.from, call.count, call.type, call.peer, comm_,
                       stream_);
    case Posted::Kind::kReceive:
      return nccl.recv(call.to, call.count, call.type, call.peer, comm_,
                       stream_);
    case Posted::Kind::kAllGather:
      return nccl.all_gather(call.from, call.to, call.count, call.type, comm_,
                             stream_);
    case Posted::Kind::kBroadcast:
      return nccl.broadcast(call.from, call.to, call.count, call.type,
                            call.peer, comm_, stream_);
    case Posted::Kind::kAllReduce:
      break;
  }
  return nccl.all_reduce(call.from, call.to, call.count, call.type,
                         call.reduction, comm_, stream_);
}

// A group that has begun must be ended whatever happens, because NCCL keeps it
// per thread.
void NcclTransport::issue_all() {
  const bool several = posted_.size() > 1;
  world_->call_by_issuer([&](const NcclApi& nccl) {
    NcclResult worst = NcclResult::kSuccess;
    const auto note = [&](NcclResult result) {
      if (result != NcclResult::kSuccess && result != NcclResult::kInProgress)
        worst = result;
    };
    if (several) note(nccl.group_start());
    for (const Posted& call : posted_) note(issue(nccl, call));
    if (several) note(nccl.group_end());
    world_->require(worst, "issuing an operation", comm_);
  });
  posted_.clear();
  issuing_ = true;
}

bool NcclTransport::poll() {
  if (is_of_host()) return host_->poll();
  if (!posted_.empty()) issue_all();
  if (issuing_) issuing_ = !world_->is_done(comm_, "issuing an operation");
  return !issuing_;
}

void NcclTransport::pause(Deadline until) {
  if (is_of_host()) return host_->pause(until);
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void NcclTransport::retract() noexcept {
  posted_.clear();
  issuing_ = false;
  of_host_ = false;
  host_->retract();
}

bool NcclTransport::is_pending(int peer) const {
  if (is_of_host()) return host_->is_pending(peer);
  return peer != rank() && (issuing_ || !posted_.empty());
}

std::unique_ptr<Transport> NcclTransport::ordered_subgroup(
    std::span<const int> members, int64_t id, int color, Deadline until,
    std::shared_ptr<Lane> lane) {
  std::vector<int> ranks;
  for (const int member : members)
    ranks.push_back(world_ranks_[static_cast<size_t>(member)]);
  auto group = std::make_unique<NcclTransport>(
      world_, host_->subgroup(members, id, color, until), std::move(ranks));
  if (lane != nullptr) group->issue_on(std::move(lane), until);
  return group;
}

std::unique_ptr<Transport> NcclTransport::subgroup(std::span<const int> members,
                                                   int64_t id, int color,
                                                   Deadline until) {
  return ordered_subgroup(members, id, color, until, lane_);
}

void NcclTransport::register_memory(std::span<std::byte> memory,
                                    SharedUse use) {
  if (comm_ == nullptr) return;
  NcclWorld::Registration* of = world_->add_registration(
      comm_, memory, use, *host_, deadline_after(world_->options().deadline));
  if (of != nullptr) registrations_.push_back(of);
}

// Operations that NCCL provides itself.

bool NcclTransport::post_own_gather(std::span<std::byte> whole) {
  if (comm_ == nullptr) return false;
  const size_t each = whole.size() / static_cast<size_t>(size());
  post({.kind = Posted::Kind::kAllGather,
        .from = whole.data() + each * static_cast<size_t>(rank()),
        .to = whole.data(),
        .count = each});
  return true;
}

bool NcclTransport::post_own_broadcast(int root, std::span<std::byte> data) {
  if (comm_ == nullptr) return false;
  post({.kind = Posted::Kind::kBroadcast,
        .from = data.data(),
        .to = data.data(),
        .count = data.size(),
        .peer = root});
  return true;
}

// Sums are modulo 2^64, hence unsigned.
bool NcclTransport::post_own_integers(Reduction reduction,
                                      std::span<std::byte> data) {
  if (comm_ == nullptr) return false;
  const bool sum = reduction == Reduction::kInt64Sum;
  post({.kind = Posted::Kind::kAllReduce,
        .from = data.data(),
        .to = data.data(),
        .count = data.size() / sizeof(int64_t),
        .type = sum ? NcclType::kUint64 : NcclType::kInt64,
        .reduction = sum ? NcclReduction::kSum : NcclReduction::kMax});
  return true;
}

}  // namespace canzona::comm
