#include "canzona/c/handles.h"

#include <new>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"

namespace canzona::c {
namespace {

// Writes where a state lies and its initial value.
void write_state_memory(JsonWriter& out, const ScheduledState& state) {
  out.field("memory", state.memory).field("at", state.at);
  out.member("shape").values(state.shape);
  out.field("initially",
            state.initially == Initially::kIdentity ? "identity" : "zero");
}

// Writes the elements that this rank updates, as first and count.
void write_kept(JsonWriter& out, const ScheduledState& state) {
  out.member("kept").begin_array();
  for (const Extent& extent : state.kept)
    out.begin_array().value(extent.first).value(extent.count).end_array();
  out.end_array();
}

void write_states(JsonWriter& out, const RankSchedule& schedule,
                  int32_t tensor) {
  out.member("states").begin_array();
  for (const ScheduledState& state : schedule.states) {
    if (state.tensor != tensor || state.matrix >= 0) continue;
    out.begin_object().field("name", state.name);
    write_state_memory(out, state);
    write_kept(out, state);
    out.end_object();
  }
  out.end_array();
}

void write_owned(JsonWriter& out, const StoragePlan& plan,
                 const RankSchedule& schedule, int32_t tensor) {
  out.member("owned").begin_array();
  for (const ScheduledState& state : schedule.states) {
    if (state.tensor != tensor || state.matrix < 0) continue;
    const OwnedMatrix& matrix = plan.matrices[index(state.matrix)];
    out.begin_object().field("name", state.name);
    out.field("matrix", matrix_name(plan.tensors[index(tensor)], matrix))
        .field("number", matrix.number)
        .field("first_row", matrix.first_row)
        .field("rows", matrix.rows)
        .field("cols", matrix.cols);
    write_state_memory(out, state);
    if (!state.in_matrix.shape.empty()) {
      out.member("whole").values(state.in_matrix.shape);
      out.member("first").values(state.in_matrix.first);
      out.field("given", state.is_given);
    }
    out.end_object();
  }
  out.end_array();
}

void write_tensors(JsonWriter& out, const StoragePlan& plan,
                   const RankSchedule& schedule) {
  out.member("tensors").begin_array();
  for (int32_t t = 0; t < static_cast<int32_t>(plan.tensors.size()); ++t) {
    const CutTensor& tensor = plan.tensors[index(t)];
    out.begin_object().field("name", tensor.name);
    out.field("dtype", to_string(tensor.dtype)).field("group", tensor.group);
    out.field("stored", stored_elements(plan, t, schedule.rank));
    write_states(out, schedule, t);
    write_owned(out, plan, schedule, t);
    out.end_object();
  }
  out.end_array();
}

// Writes what lies one after another in the slots, in elements of the wire.
void write_all_to_all(JsonWriter& out, const RankSchedule& schedule,
                      const ScheduleEntry& entry, int64_t wire) {
  const auto side = [&](const char* at, const Extent& area, const char* counts,
                        std::vector<int64_t> bytes) {
    out.field(at, schedule.slot_element(entry, area.first, wire));
    for (int64_t& count : bytes) count /= wire;
    out.member(counts).values(bytes);
  };
  const ExchangeTable& moved = entry.exchange;
  out.field("group", entry.ranks_of);
  side("send_at", moved.source, "send", moved.send_bytes);
  side("receive_at", moved.target, "receive", moved.receive_bytes);
}

void write_broadcast(JsonWriter& out, const RankSchedule& schedule,
                     const ScheduleEntry& entry) {
  out.field("group", entry.ranks_of).field("root", entry.root);
  out.field("at", schedule.slot_element(entry, entry.all.first, 1));
  out.field("count", entry.all.count);
}

// Only what moves: from and to which member of the group, and where in rooms.
void write_exchange(JsonWriter& out, const ScheduleEntry& entry) {
  out.field("group", entry.ranks_of);
  const auto blocks = [&](const char* key, const Extent& area,
                          const std::vector<int64_t>& bytes,
                          const std::vector<int64_t>& offsets) {
    out.member(key).begin_array();
    for (size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] > 0)
        out.begin_array()
            .value(i)
            .value(area.first + offsets[i])
            .value(bytes[i])
            .end_array();
    out.end_array();
  };
  const ExchangeTable& moved = entry.exchange;
  blocks("send", moved.source, moved.send_bytes, moved.send_offsets);
  blocks("receive", moved.target, moved.receive_bytes, moved.receive_offsets);
}

void write_actions(JsonWriter& out, const RankSchedule& schedule,
                   int64_t wire) {
  out.member("actions").begin_array();
  for (const ScheduleEntry& entry : schedule.actions) {
    out.begin_object().field("kind", kind_text(entry));
    out.field("label", entry.label).member("tensors").values(entry.tensors);
    if (is_of_team(entry.purpose))
      write_exchange(out, entry);
    else if (entry.kind == EntryKind::kAllToAll)
      write_all_to_all(out, schedule, entry, wire);
    if (entry.kind == EntryKind::kBroadcast)
      write_broadcast(out, schedule, entry);
    if (entry.kind == EntryKind::kWait) out.field("for", entry.after[0]);
    out.end_object();
  }
  out.end_array();
}

}  // namespace

std::string layout_json(const StoragePlan& plan, const RankSchedule& schedule) {
  JsonWriter out;
  out.begin_object().field("rank", schedule.rank).field("world", plan.world);
  out.field("wire", to_string(plan.options.wire));
  out.field("num_groups", plan.groups.size());
  out.field("slot_elements", schedule.slot_elements);
  out.field("room_bytes", schedule.room_bytes);
  out.member("memories").values(schedule.memories);
  write_tensors(out, plan, schedule);
  out.member("groups").begin_array();
  for (const std::vector<int32_t>& group : schedule.groups) out.values(group);
  out.end_array();
  write_actions(out, schedule, size_of(plan.options.wire));
  return out.end_object().take();
}

namespace {

constexpr int32_t kMostThreads = 1024;

void check_request(const StoragePlan& plan, const StepRequest& request) {
  if (request.rank < 0 || request.rank >= plan.world)
    throw UsageError(cat("canzona_step_new: rank ", request.rank,
                         ", expected 0 to ", plan.world - 1));
  if (request.threads < 1 || request.threads > kMostThreads)
    throw UsageError(cat("canzona_step_new: ", request.threads,
                         " threads, expected 1 to ", kMostThreads));
  const canzona_allocator* scratch = request.scratch;
  if (scratch != nullptr &&
      (scratch->allocate == nullptr || scratch->release == nullptr))
    throw UsageError("canzona_step_new: a function of scratch is NULL");
}

}  // namespace

std::byte* CallerScratch::allocate(int64_t bytes) {
  void* memory = allocator_.allocate(allocator_.context, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

void CallerScratch::release(std::byte* memory) {
  allocator_.release(allocator_.context, memory);
}

StepHandle::StepHandle(std::shared_ptr<const PlanHandle> plan,
                       const StepRequest& request)
    : plan_(std::move(plan)), device_(read_device(request.device)) {
  check_request(plan_->plan(), request);
  const CurrentCudaDevice before(-1);
  if (device_.is_cuda) {
    if (request.scratch != nullptr) scratch_.emplace(*request.scratch);
    Memory* scratch = scratch_ ? &*scratch_ : nullptr;
    engine_ = cuda_engine_of(device_, request.stream, scratch);
    // The second engine's shapes run beside those of the first; all its work
    // lies between two points in the first one's order.
    beside_ = make_cuda_engine(device_.number, nullptr, scratch);
    step_ = std::make_unique<CallerStep>(
        plan_->plan(), request.rank,
        std::vector<Engine*>{engine_.get(), beside_.get()});
  } else {
    lanes_ = std::make_unique<Lanes>(request.threads,
                                     [] { return make_cpu_engine(); });
    step_ = std::make_unique<CallerStep>(plan_->plan(), request.rank, *lanes_);
  }
}

StepHandle::~StepHandle() {
  const CurrentCudaDevice current(device_.gpu());
  step_.reset();
  beside_.reset();
  engine_.reset();
}

const std::string& StepHandle::layout() {
  if (layout_.empty()) layout_ = layout_json(plan(), step_->schedule());
  return layout_;
}

StepUse::StepUse(std::shared_ptr<StepHandle> handle, const char* function)
    : handle_(std::move(handle)), current_(handle_->device().gpu()) {
  if (handle_->in_use.test_and_set(std::memory_order_acquire))
    throw UsageError(cat(function, ": another thread is using this step"));
}

}  // namespace canzona::c
