#include "canzona/comm/nccl/test_stub_nccl.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "canzona/base/text.h"

namespace canzona {
using namespace comm;
namespace nccl_stub {

enum class StubKind : uint8_t {
  kSend,
  kReceive,
  kAllGather,
  kBroadcast,
  kAllReduce
};

struct StubCall {
  StubKind kind = StubKind::kSend;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t count = 0;
  NcclType type = NcclType::kUint8;
  NcclReduction reduction = NcclReduction::kSum;
  int peer = 0;  // or root

  bool is_message() const { return kind <= StubKind::kReceive; }
  bool is_like(const StubCall& other) const {
    return kind == other.kind && count == other.count && type == other.type &&
           reduction == other.reduction && peer == other.peer;
  }
};

size_t bytes_of_type(NcclType type) {
  switch (type) {
    case NcclType::kUint8:
      return 1;
    case NcclType::kInt64:
    case NcclType::kUint64:
      break;
  }
  return 8;
}

struct StubMessage {
  const std::byte* from = nullptr;
  size_t bytes = 0;
  bool taken = false;
};

// One group of ranks, each of which has an NcclComm.
struct StubGroup {
  StubGroup(int64_t the_number, int the_size)
      : number(the_number),
        size(the_size),
        calls(static_cast<size_t>(the_size)),
        channels(calls.size() * calls.size()) {
    for (auto& channel : channels) channel.reserve(64);
  }
  std::vector<StubMessage*>& channel(int from, int to) {
    return channels[static_cast<size_t>(from) * calls.size() +
                    static_cast<size_t>(to)];
  }

  const int64_t number;
  const int size;
  std::mutex mutex;  // guards everything below
  std::condition_variable changed;
  int num_joined = 0;
  std::vector<StubCall> calls;  // by rank, of the current collective
  int num_arrived = 0;
  int64_t num_meetings = 0;
  std::vector<std::vector<StubMessage*>> channels;
};

}  // namespace nccl_stub

struct NcclComm {
  std::shared_ptr<nccl_stub::StubGroup> group;
  int rank = 0;
  std::atomic<NcclResult> error = NcclResult::kSuccess;
  std::atomic<bool> aborted = false;
  std::atomic<int> under_way = 0;           // launches
  int num_asked = 0;                        // queries since the last launch was
                                            // posted
  std::vector<nccl_stub::StubCall> posted;  // the next launch
  TestLane* lane = nullptr;                 // of that launch
  std::vector<nccl_stub::StubMessage> messages;  // of the current launch
  std::vector<std::byte> result;
};

namespace nccl_stub {
namespace {

struct StubState {
  std::mutex mutex;  // guards everything but the record
  int64_t num_ids = 0;
  std::map<int64_t, std::shared_ptr<StubGroup>> groups;
  std::vector<std::unique_ptr<NcclComm>> comms;
  struct Range {
    const NcclComm* comm = nullptr;
    const std::byte* first = nullptr;
    size_t bytes = 0;
    bool is_window = false;
  };
  std::list<Range> ranges;  // that are registered
  std::map<std::byte*, size_t> allocated;
  StubMemoryUse use;
  bool aborts_hang = false;
  std::condition_variable aborts_go_on;
  std::mutex record_mutex;
  StubRecord* record = nullptr;
};

// Never destroyed, because a process may exit while a thread hangs in an abort.
StubState& stub() {
  static StubState& state = *new StubState;
  return state;
}

thread_local int stub_version = 22809;
thread_local int group_depth = 0;

// Executes launches on the lane's thread.

// Returns false if the communicator was aborted meanwhile.
template <class Condition>
bool stub_wait(NcclComm& comm, std::unique_lock<std::mutex>& lock,
               Condition condition) {
  comm.group->changed.wait(lock, [&] { return comm.aborted || condition(); });
  return !comm.aborted;
}

// Meets all ranks of the group, each with its call, or null if it was given
// before.
bool stub_meet(NcclComm& comm, const StubCall* call) {
  StubGroup& group = *comm.group;
  std::unique_lock lock(group.mutex);
  if (call != nullptr) group.calls[static_cast<size_t>(comm.rank)] = *call;
  const int64_t number = group.num_meetings;
  if (++group.num_arrived == group.size) {
    group.num_arrived = 0;
    ++group.num_meetings;
    group.changed.notify_all();
  }
  return stub_wait(comm, lock, [&] { return group.num_meetings > number; });
}

template <class Number>
void stub_combine(std::byte* sum, const std::byte* piece, size_t count,
                  NcclReduction reduction) {
  for (size_t i = 0; i < count; ++i) {
    Number a, b;
    std::memcpy(&a, sum + i * sizeof(Number), sizeof a);
    std::memcpy(&b, piece + i * sizeof(Number), sizeof b);
    a = reduction == NcclReduction::kSum ? static_cast<Number>(a + b)
                                         : std::max(a, b);
    std::memcpy(sum + i * sizeof(Number), &a, sizeof a);
  }
}

// Reduces from the last rank to the first: an order of its own.
void stub_reduce(NcclComm& comm, const StubCall& call) {
  const std::vector<StubCall>& calls = comm.group->calls;
  const size_t bytes = call.count * bytes_of_type(call.type);
  comm.result.assign(calls.back().from, calls.back().from + bytes);
  for (size_t rank = calls.size() - 1; rank-- > 0;) {
    const std::byte* piece = calls[rank].from;
    if (call.type == NcclType::kInt64)
      stub_combine<int64_t>(comm.result.data(), piece, call.count,
                            call.reduction);
    else
      stub_combine<uint64_t>(comm.result.data(), piece, call.count,
                             call.reduction);
  }
}

// Computes this rank's result.
void stub_compute(NcclComm& comm, const StubCall& call) {
  const size_t bytes = call.count * bytes_of_type(call.type);
  const std::vector<StubCall>& calls = comm.group->calls;
  switch (call.kind) {
    case StubKind::kAllGather:
      comm.result.clear();
      for (const StubCall& of : calls)
        comm.result.insert(comm.result.end(), of.from, of.from + bytes);
      return;
    case StubKind::kBroadcast: {
      const std::byte* from = calls[static_cast<size_t>(call.peer)].from;
      return comm.result.assign(from, from + bytes);
    }
    default:
      return stub_reduce(comm, call);
  }
}

void stub_collective(NcclComm& comm, const StubCall& call) {
  comm.result.clear();
  if (!stub_meet(comm, &call)) return;
  const auto other = [&](const StubCall& of) { return !of.is_like(call); };
  if (std::ranges::any_of(comm.group->calls, other)) {
    comm.error = NcclResult::kInvalidUsage;
    stub_meet(comm, nullptr);
    return;
  }
  stub_compute(comm, call);
  if (!stub_meet(comm, nullptr)) return;
  std::ranges::copy(comm.result, call.to);
}

bool stub_receive(NcclComm& comm, std::unique_lock<std::mutex>& lock,
                  const StubCall& call) {
  auto& channel = comm.group->channel(call.peer, comm.rank);
  if (!stub_wait(comm, lock, [&] { return !channel.empty(); })) return false;
  StubMessage& message = *channel.front();
  if (message.bytes != call.count) comm.error = NcclResult::kInvalidUsage;
  std::copy_n(message.from, std::min(message.bytes, call.count), call.to);
  message.taken = true;
  channel.erase(channel.begin());
  comm.group->changed.notify_all();
  return true;
}

void stub_messages(NcclComm& comm, const std::vector<StubCall>& calls) {
  StubGroup& group = *comm.group;
  std::unique_lock lock(group.mutex);
  comm.messages.clear();
  comm.messages.reserve(calls.size());
  for (const StubCall& call : calls) {
    if (call.kind != StubKind::kSend) continue;
    comm.messages.push_back({call.from, call.count});
    group.channel(comm.rank, call.peer).push_back(&comm.messages.back());
  }
  group.changed.notify_all();
  bool whole = true;
  for (const StubCall& call : calls)
    whole = whole &&
            (call.kind != StubKind::kReceive || stub_receive(comm, lock, call));
  const auto passed = [&] {
    return std::ranges::all_of(comm.messages, &StubMessage::taken);
  };
  if (whole && stub_wait(comm, lock, passed)) return;
  for (int to = 0; to < group.size; ++to) group.channel(comm.rank, to).clear();
}

void stub_carry_out(NcclComm& comm, const std::vector<StubCall>& calls) {
  if (std::ranges::all_of(calls, &StubCall::is_message))
    stub_messages(comm, calls);
  else
    for (const StubCall& call : calls) stub_collective(comm, call);
  const std::lock_guard lock(comm.group->mutex);
  --comm.under_way;
  comm.group->changed.notify_all();
}

std::string stub_words(const StubCall& call) {
  constexpr const char* kNames[] = {"messages", "messages", "all_gather",
                                    "broadcast", "all_reduce"};
  const std::string name = kNames[static_cast<size_t>(call.kind)];
  return call.is_message() ? name : cat(name, " ", call.count);
}

void stub_note(const NcclComm& comm) {
  const std::lock_guard lock(stub().record_mutex);
  if (stub().record == nullptr) return;
  std::string what = stub_words(comm.posted.front());
  if (!comm.posted.front().is_message() && comm.posted.size() > 1)
    what = cat(comm.posted.size(), " × ", what);
  stub().record->add(comm.lane->rank(), {comm.group->number, what});
}

void stub_launch(NcclComm& comm) {
  stub_note(comm);
  ++comm.under_way;
  if (comm.lane->is_at_once())
    stub_carry_out(comm, comm.posted);
  else
    comm.lane->issue(
        [of = &comm, calls = comm.posted] { stub_carry_out(*of, calls); });
  comm.posted.clear();
}

// Functions of the table.

// Checks of a few numbers are not counted.
void stub_look(const NcclComm* comm, const std::byte* memory, size_t bytes,
               const char* what) {
  constexpr size_t kFew = 64;
  if (memory == nullptr || bytes <= kFew) return;
  const std::lock_guard lock(stub().mutex);
  const auto holds = [&](const StubState::Range& range) {
    return range.comm == comm && memory >= range.first &&
           memory + bytes <= range.first + range.bytes;
  };
  ++stub().use.num_looks;
  if (std::ranges::any_of(stub().ranges, holds)) return;
  ++stub().use.num_unregistered;
  stub().use.last_unregistered = what;
  stub().use.last_bytes = bytes;
}

void stub_look(const NcclComm* comm, const StubCall& call) {
  const size_t bytes = call.count * bytes_of_type(call.type);
  const auto n = static_cast<size_t>(comm->group->size);
  const bool gathers = call.kind == StubKind::kAllGather;
  stub_look(comm, call.from, bytes, "reading");
  stub_look(comm, call.to, gathers ? n * bytes : bytes, "writing");
}

NcclResult stub_register(const NcclComm* comm, void* memory, size_t bytes,
                         void** handle, bool is_window) {
  const std::lock_guard lock(stub().mutex);
  stub().ranges.push_back(
      {comm, static_cast<const std::byte*>(memory), bytes, is_window});
  *handle = &stub().ranges.back();
  return NcclResult::kSuccess;
}

NcclResult stub_deregister(const NcclComm* comm, void* handle) {
  const std::lock_guard lock(stub().mutex);
  const size_t ended = std::erase_if(stub().ranges, [&](const auto& range) {
    return &range == handle && range.comm == comm;
  });
  return ended == 1 ? NcclResult::kSuccess : NcclResult::kInvalidArgument;
}

NcclResult stub_free(void* memory) {
  const std::lock_guard lock(stub().mutex);
  const auto block = stub().allocated.find(static_cast<std::byte*>(memory));
  if (block == stub().allocated.end()) return NcclResult::kInvalidArgument;
  const auto inside = [&](const StubState::Range& range) {
    return range.first >= block->first &&
           range.first < block->first + block->second;
  };
  if (std::ranges::any_of(stub().ranges, inside))
    ++stub().use.num_freed_too_soon;
  stub().allocated.erase(block);
  std::free(memory);
  return NcclResult::kSuccess;
}

NcclResult stub_add(NcclComm* comm, void* stream, const StubCall& call) {
  stub_look(comm, call);
  if (comm->error != NcclResult::kSuccess) return comm->error;
  if (!comm->posted.empty() && group_depth == 0)
    return NcclResult::kInvalidUsage;  // the previous one is not launched yet
  comm->posted.push_back(call);
  comm->lane = static_cast<TestLane*>(stream);
  comm->num_asked = 0;
  return group_depth > 0 ? NcclResult::kSuccess : NcclResult::kInProgress;
}

const std::byte* read_from(const void* memory) {
  return static_cast<const std::byte*>(memory);
}
std::byte* write_to(void* memory) { return static_cast<std::byte*>(memory); }

NcclResult stub_get_id(NcclId* id) {
  const std::lock_guard lock(stub().mutex);
  const int64_t number = ++stub().num_ids;
  std::memcpy(id->bytes, &number, sizeof number);
  return NcclResult::kSuccess;
}

NcclResult stub_init(NcclComm** comm, int num_ranks, NcclId id, int rank,
                     NcclConfig* config) {
  if (config->blocking != 0) return NcclResult::kInvalidArgument;
  int64_t number = 0;
  std::memcpy(&number, id.bytes, sizeof number);
  const std::lock_guard lock(stub().mutex);
  std::shared_ptr<StubGroup>& group = stub().groups[number];
  if (group == nullptr) group = std::make_shared<StubGroup>(number, num_ranks);
  stub().comms.push_back(std::make_unique<NcclComm>());
  *comm = stub().comms.back().get();
  (*comm)->group = group;
  (*comm)->rank = rank;
  // Reserved in advance, because tests count allocations.
  (*comm)->posted.reserve(256);
  (*comm)->messages.reserve(256);
  (*comm)->result.reserve(size_t{1} << 16);
  const std::lock_guard group_lock(group->mutex);
  ++group->num_joined;
  return NcclResult::kInProgress;
}

std::atomic<bool> stub_connections_closed = false;

// Nothing is launched before the second query.
NcclResult stub_get_error(NcclComm* comm, NcclResult* error) {
  if (stub_connections_closed) {
    *error = NcclResult::kRemoteError;
    return NcclResult::kSuccess;
  }
  {
    const std::lock_guard lock(comm->group->mutex);
    *error = comm->group->num_joined < comm->group->size
                 ? NcclResult::kInProgress
                 : comm->error.load();
  }
  if (*error != NcclResult::kSuccess || comm->posted.empty())
    return NcclResult::kSuccess;
  if (++comm->num_asked < 2)
    *error = NcclResult::kInProgress;
  else
    stub_launch(*comm);
  return NcclResult::kSuccess;
}

NcclResult stub_abort(NcclComm* comm) {
  {
    std::unique_lock lock(stub().mutex);
    stub().aborts_go_on.wait(lock, [] { return !stub().aborts_hang; });
  }
  std::unique_lock lock(comm->group->mutex);
  comm->aborted = true;
  comm->group->changed.notify_all();
  comm->group->changed.wait(lock, [&] { return comm->under_way == 0; });
  return NcclResult::kSuccess;
}

NcclResult stub_good(NcclComm*) { return NcclResult::kSuccess; }

NcclApi make_stub() {
  NcclApi api;
  api.get_version = [](int* version) {
    *version = stub_version;
    return NcclResult::kSuccess;
  };
  api.get_unique_id = stub_get_id;
  api.comm_init_rank_config = stub_init;
  api.comm_finalize = stub_good;
  api.comm_destroy = stub_good;
  api.comm_abort = stub_abort;
  api.comm_get_async_error = stub_get_error;
  api.get_error_string = [](NcclResult result) {
    return result == NcclResult::kInvalidUsage ? "invalid usage" : "an error";
  };
  api.get_last_error = [](NcclComm*) { return "words of the stub"; };
  api.all_reduce = [](const void* from, void* to, size_t count, NcclType type,
                      NcclReduction reduction, NcclComm* comm, void* stream) {
    return stub_add(comm, stream,
                    {StubKind::kAllReduce, read_from(from), write_to(to), count,
                     type, reduction});
  };
  api.broadcast = [](const void* from, void* to, size_t count, NcclType type,
                     int root, NcclComm* comm, void* stream) {
    return stub_add(comm, stream,
                    {StubKind::kBroadcast, read_from(from), write_to(to), count,
                     type, NcclReduction::kSum, root});
  };
  api.all_gather = [](const void* from, void* to, size_t count, NcclType type,
                      NcclComm* comm, void* stream) {
    return stub_add(
        comm, stream,
        {StubKind::kAllGather, read_from(from), write_to(to), count, type});
  };
  api.send = [](const void* from, size_t count, NcclType type, int peer,
                NcclComm* comm, void* stream) {
    return stub_add(comm, stream,
                    {StubKind::kSend, read_from(from), nullptr, count, type,
                     NcclReduction::kSum, peer});
  };
  api.recv = [](void* to, size_t count, NcclType type, int peer, NcclComm* comm,
                void* stream) {
    return stub_add(comm, stream,
                    {StubKind::kReceive, nullptr, write_to(to), count, type,
                     NcclReduction::kSum, peer});
  };
  api.group_start = [] {
    ++group_depth;
    return NcclResult::kSuccess;
  };
  api.group_end = [] {
    --group_depth;
    return NcclResult::kInProgress;
  };
  api.mem_alloc = [](void** memory, size_t bytes) {
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    const std::lock_guard lock(stub().mutex);
    stub().allocated[static_cast<std::byte*>(*memory)] = bytes;
    return NcclResult::kSuccess;
  };
  api.mem_free = stub_free;
  api.window_register = [](NcclComm* comm, void* memory, size_t bytes,
                           NcclWindow** window, int) {
    return stub_register(comm, memory, bytes, reinterpret_cast<void**>(window),
                         true);
  };
  api.window_deregister = [](NcclComm* comm, NcclWindow* window) {
    return stub_deregister(comm, window);
  };
  api.comm_register = [](const NcclComm* comm, void* memory, size_t bytes,
                         void** handle) {
    return stub_register(comm, memory, bytes, handle, false);
  };
  api.comm_deregister = [](const NcclComm* comm, void* handle) {
    return stub_deregister(comm, handle);
  };
  return api;
}

}  // namespace
}  // namespace nccl_stub

using nccl_stub::stub;

}  // namespace canzona

namespace canzona::comm {

const NcclApi& stub_nccl() {
  static const NcclApi api = nccl_stub::make_stub();
  return api;
}

StubRecord::StubRecord(int num_ranks)
    : launches_(static_cast<size_t>(num_ranks)) {
  const std::lock_guard lock(stub().record_mutex);
  stub().record = this;
}

StubRecord::~StubRecord() {
  const std::lock_guard lock(stub().record_mutex);
  stub().record = nullptr;
}

void StubRecord::add(int rank, StubLaunch launch) {
  launches_[static_cast<size_t>(rank)].push_back(std::move(launch));
}

void set_stub_version(int version) { nccl_stub::stub_version = version; }

void hang_stub_aborts(bool hang) {
  const std::lock_guard lock(stub().mutex);
  stub().aborts_hang = hang;
  stub().aborts_go_on.notify_all();
}

void close_stub_connections(bool closed) {
  nccl_stub::stub_connections_closed = closed;
}

int num_stub_allocated() {
  const std::lock_guard lock(stub().mutex);
  return static_cast<int>(stub().allocated.size());
}

StubMemoryUse take_stub_memory_use() {
  const std::lock_guard lock(stub().mutex);
  stub().use.num_registered = static_cast<int>(stub().ranges.size());
  for (const auto& range : stub().ranges)
    stub().use.num_windows += range.is_window ? 1 : 0;
  return std::exchange(stub().use, {});
}

}  // namespace canzona::comm
