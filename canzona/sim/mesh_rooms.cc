#include "canzona/sim/mesh_rooms.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::sim {
namespace {

constexpr std::array kReaches{Reach::kDirect, Reach::kPerNode};
size_t number_of(Reach reach) { return reach == Reach::kDirect ? 0 : 1; }

std::vector<MeshChoice> settings_of(const MeshQuestion& question,
                                    const Mesh& mesh) {
  const MeshLimits& limits = question.limits;
  std::vector<bool> recompute{false, true};
  if (limits.no_recompute) recompute = {false};
  if (limits.recompute) recompute = {*limits.recompute};
  std::vector<MeshChoice> out;
  for (const BatchSplit& split :
       batch_splits(question.global_batch, question.work.compute.length,
                    mesh.homes(), limits))
    for (const bool again : recompute)
      out.push_back({.mesh = mesh,
                     .tokens = split.tokens,
                     .num_micro_batches = split.num_micro_batches,
                     .recompute = again});
  return out;
}

}  // namespace

void check_question(const MeshQuestion& question) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw UsageError(cat("mesh auto: ", what));
  };
  require(question.model != nullptr && question.rule != nullptr,
          "a model and a rule are needed");
  require(question.ranks >= 1 && question.ranks <= kMaxWorld,
          cat("expected 1 to ", kMaxWorld, " ranks, got ", question.ranks));
  if (question.limits.batch) return;
  require(question.global_batch >= 1, "a global batch is needed");
  require(question.work.compute.length >= 1, "a length is needed");
  require(question.global_batch >= question.work.compute.length ||
              question.limits.tokens.has_value(),
          cat("a global batch of ", question.global_batch,
              " tokens is shorter than a sequence of ",
              question.work.compute.length));
  const std::string both = question.limits.contradiction();
  require(both.empty(), cat(both, " is fixed and forbidden"));
}

MeshRooms::MeshRooms(const MeshQuestion& question)
    : question_(question), facts_(question) {
  for (const Tensor& tensor : question.model->tensors)
    ++(tensor.expert < 0 ? dense_tensors_ : expert_tensors_);
  const MeshSpace space =
      meshes_in_space(facts_.outline, question.ranks,
                      question.options.ranks_per_node, question.limits);
  refused_ = space.refused;
  std::vector<std::unique_ptr<MeshRoom>> rooms(space.meshes.size());
  question.each(rooms.size(),
                [&](size_t i) { rooms[i] = room_of(space.meshes[i]); });
  for (auto& room : rooms)
    if (room != nullptr) rooms_.push_back(std::move(room));
  if (!rooms_.empty()) return;
  const bool has_settings = std::ranges::any_of(
      space.meshes,
      [&](const Mesh& mesh) { return !settings_of(question, mesh).empty(); });
  throw UsageError(
      cat("mesh auto: no layout of ", question.ranks, " ranks is possible; ",
          space.meshes.empty() ? space.refusal
          : has_settings       ? "the fixed sizes of ZeRO divide the "
                                 "data-parallel ranks of no mesh"
                               : "every mesh has more data-parallel ranks than "
                                 "the batch has sequences"));
}

std::unique_ptr<MeshRoom> MeshRooms::room_of(const Mesh& mesh) const {
  auto room =
      std::make_unique<MeshRoom>(MeshRoom{MeshBounds(question_, facts_, mesh)});
  room->settings = settings_of(question_, mesh);
  room->dense = sizes_of(room->bounds, false);
  room->experts = sizes_of(room->bounds, true);
  if (room->settings.empty() || room->dense.all.empty() ||
      room->experts.all.empty())
    return nullptr;
  room->paces = room->bounds.paces(room->settings);
  room->least_step = room->bounds.step_seconds(
      {mesh.homes(), 1, 1}, room->bounds.has_experts()
                                ? ZeroSizes{mesh.expert_homes(), 1, 1}
                                : ZeroSizes{});
  count_layouts(*room);
  return room;
}

SizesOfPart MeshRooms::sizes_of(const MeshBounds& bounds, bool experts) const {
  const MeshLimits& limits = question_.limits;
  SizesOfPart out{.all = {ZeroSizes{}}};
  if (!experts)
    out.all = sizes_in_space(bounds.mesh().homes(), limits, limits.zero);
  else if (bounds.has_experts())
    out.all = sizes_in_space(bounds.mesh().expert_homes(), limits,
                             limits.zero_experts);
  out.least.fill(INT64_MAX / 4);
  for (const ZeroSizes& sizes : out.all) {
    out.bytes.push_back(bounds.memory(sizes, experts));
    for (size_t s = 0; s < kMostStages; ++s)
      out.least[s] = std::min(out.least[s], out.bytes.back()[s]);
    for (const bool apart : {false, true})
      out.two_levels[apart ? 1 : 0].push_back(
          sizes.z1 > 0 && bounds.has_two_levels(sizes, experts, apart));
  }
  return out;
}

void MeshRooms::count_layouts(MeshRoom& room) const {
  for (auto& counts : room.by_experts)
    counts.assign(room.experts.all.size(), 0);
  for (int32_t x = 0; x < std::ssize(room.experts.all); ++x)
    for (int32_t d = 0; d < std::ssize(room.dense.all); ++d)
      for (const Reach reach : kReaches)
        if (has_reach(room, d, x, reach)) {
          ++room.layouts[static_cast<size_t>(kind(room, d, x))];
          ++room.by_experts[number_of(reach)][index(x)];
        }
}

bool MeshRooms::is_apart(const MeshRoom& room, int32_t dense,
                         int32_t experts) const {
  return room.bounds.is_apart(room.dense.all[index(dense)],
                              room.experts.all[index(experts)]);
}

bool MeshRooms::has_two_levels(const MeshRoom& room, int32_t dense,
                               int32_t experts) const {
  const size_t apart = is_apart(room, dense, experts) ? 1 : 0;
  return room.dense.two_levels[apart][index(dense)] ||
         room.experts.two_levels[apart][index(experts)];
}

// Collectives once per node are not different where no group has two levels.
bool MeshRooms::has_reach(const MeshRoom& room, int32_t dense, int32_t experts,
                          Reach reach) const {
  const ZeroSizes& own = room.experts.all[index(experts)];
  if (question_.limits.experts_beside && own.z1 > 0 &&
      own != experts_beside(room.dense.all[index(dense)], room.bounds.mesh()))
    return false;
  if (!has_two_levels(room, dense, experts)) return reach == Reach::kDirect;
  return question_.limits.reach.value_or(reach) == reach;
}

LayoutKind MeshRooms::kind(const MeshRoom& room, int32_t dense,
                           int32_t experts) const {
  return kind_of({.mesh = room.bounds.mesh(),
                  .dense = room.dense.all[index(dense)],
                  .experts = room.experts.all[index(experts)]},
                 !question_.limits.mesh);
}

MeshChoice MeshRooms::choice_of(const OpenLayouts& open) const {
  const MeshRoom& room = (*this)[open.room];
  MeshChoice choice = room.settings[index(open.setting)];
  choice.dense = room.dense.all[index(open.dense)];
  choice.experts = room.experts.all[index(open.experts)];
  choice.reach = open.reach;
  return choice;
}

double MeshRooms::work_of(const OpenLayouts& open) const {
  // Experts have parts of a plan and messages of their own on every rank.
  constexpr double kOfTensor = 30, kOfRank = 100, kOfRankOfExperts = 3000;
  const MeshRoom& room = (*this)[open.room];
  const auto planes = [&](const ZeroSizes& sizes) {
    return kOfTensor +
           (sizes.z1 > 0 ? sizes.places() : 1) * room.bounds.mesh().tp;
  };
  return dense_tensors_ * planes(room.dense.all[index(open.dense)]) +
         expert_tensors_ * planes(room.experts.all[index(open.experts)]) +
         (expert_tensors_ > 0 ? kOfRankOfExperts : kOfRank) * question_.ranks;
}

int64_t MeshRooms::count(const OpenLayouts& open, LayoutKind of) const {
  const MeshRoom& room = (*this)[open.room];
  if (open.is_single()) return 1;
  if (open.experts < 0) return room.layouts[static_cast<size_t>(of)];
  if (room.layouts[static_cast<size_t>(of)] == 0) return 0;
  // All are of one kind but for those of dp alone.
  if (!question_.limits.mesh && (room.bounds.mesh().homes() < question_.ranks ||
                                 room.bounds.mesh().ep > 1))
    return room.by_experts[number_of(open.reach)][index(open.experts)];
  int64_t sum = 0;
  for (int32_t d = 0; d < std::ssize(room.dense.all); ++d)
    if (has_reach(room, d, open.experts, open.reach) &&
        kind(room, d, open.experts) == of)
      ++sum;
  return sum;
}

bool MeshRooms::is_over_cap(const OpenLayouts& open) const {
  const int64_t cap = question_.options.memory_cap_bytes;
  return cap > 0 && memory(open) > cap;
}

int64_t MeshRooms::memory(const OpenLayouts& open) const {
  const MeshRoom& room = (*this)[open.room];
  const BytesByStage& dense =
      open.dense < 0 ? room.dense.least : room.dense.bytes[index(open.dense)];
  const BytesByStage& experts = open.experts < 0
                                    ? room.experts.least
                                    : room.experts.bytes[index(open.experts)];
  return fullest(dense, experts) + pace(open).activations;
}

const std::vector<LoadByStage>& MeshRooms::loads(MeshRoom& room, bool experts,
                                                 bool apart, Reach reach) {
  SizesOfPart& part = experts ? room.experts : room.dense;
  std::vector<LoadByStage>& out = part.loads[apart ? 1 : 0][number_of(reach)];
  if (out.empty())
    for (const ZeroSizes& sizes : part.all)
      out.push_back(sizes.z1 == 0 ? LoadByStage{}
                                  : room.bounds.loads(room.bounds.ops(
                                        sizes, experts, apart, reach)));
  return out;
}

// Experts whose dense tensors are not known are taken to be planned apart,
// which counts least.
double MeshRooms::loose_bound(const OpenLayouts& open) {
  MeshRoom& room = *rooms_[index(open.room)];
  if (open.experts < 0)
    return room.bounds.busiest_seconds(pace(open), {}, {}, room.least_step);
  const ZeroSizes& experts = room.experts.all[index(open.experts)];
  const bool apart =
      !open.is_single() || is_apart(room, open.dense, open.experts);
  const LoadByStage& of_experts =
      loads(room, true, apart, open.reach)[index(open.experts)];
  if (!open.is_single())
    return room.bounds.busiest_seconds(
        pace(open), {}, of_experts,
        room.bounds.step_seconds({room.bounds.mesh().homes(), 1, 1}, experts));
  return room.bounds.busiest_seconds(
      pace(open), loads(room, false, apart, open.reach)[index(open.dense)],
      of_experts,
      room.bounds.step_seconds(room.dense.all[index(open.dense)], experts));
}

double MeshRooms::tight_bound(const OpenLayouts& open) const {
  const MeshRoom& room = (*this)[open.room];
  const MeshBounds& bounds = room.bounds;
  if (open.experts < 0) return open.bound;
  const ZeroSizes& experts = room.experts.all[index(open.experts)];
  const bool apart =
      !open.is_single() || is_apart(room, open.dense, open.experts);
  std::vector<StageOps> of_experts;
  if (experts.z1 > 0) of_experts = bounds.ops(experts, true, apart, open.reach);
  const auto* own = of_experts.empty() ? nullptr : &of_experts;
  if (!open.is_single())
    return bounds.seconds(
        pace(open), nullptr, own,
        bounds.step_seconds({bounds.mesh().homes(), 1, 1}, experts));
  const ZeroSizes& dense = room.dense.all[index(open.dense)];
  const auto of_dense = bounds.ops(dense, false, apart, open.reach);
  const PoolSlots slots = bounds.slots(dense, experts, pace(open).activations);
  return bounds.seconds(pace(open), &of_dense, own,
                        bounds.step_seconds(dense, experts), &slots);
}

std::vector<OpenLayouts> MeshRooms::expand(const OpenLayouts& open,
                                           LayoutKind of, double best,
                                           int64_t& over_cap) {
  const MeshRoom& room = (*this)[open.room];
  std::vector<OpenLayouts> out;
  const auto add = [&](OpenLayouts one) {
    if (is_over_cap(one)) {
      over_cap += count(one, of);
      return;
    }
    one.bound = std::max(open.bound, loose_bound(one));
    one.is_tight = false;
    if (one.bound < best) out.push_back(one);
  };
  OpenLayouts one = open;
  if (open.experts >= 0) {
    for (one.dense = 0; one.dense < std::ssize(room.dense.all); ++one.dense)
      if (kind(room, one.dense, one.experts) == of &&
          has_reach(room, one.dense, one.experts, one.reach))
        add(one);
    return out;
  }
  for (one.experts = 0; one.experts < std::ssize(room.experts.all);
       ++one.experts)
    for (const Reach reach : kReaches) {
      one.reach = reach;
      if (count(one, of) > 0) add(one);
    }
  return out;
}

std::vector<MeshRooms::Least> MeshRooms::least_memory() const {
  const auto smallest = [](const SizesOfPart& part, size_t stage) {
    const auto found = std::ranges::min_element(
        part.bytes, {}, [&](const BytesByStage& b) { return b[stage]; });
    return part.all[static_cast<size_t>(found - part.bytes.begin())];
  };
  std::vector<Least> all;
  for (const auto& room : rooms_) {
    const auto setting = std::ranges::min_element(
        room->paces, {}, [](const MeshPace& pace) { return pace.activations; });
    const BytesByStage &dense = room->dense.least,
                       &experts = room->experts.least;
    size_t stage = 0;
    for (size_t s = 1; s < kMostStages; ++s)
      if (dense[s] + experts[s] > dense[stage] + experts[stage]) stage = s;
    Least& least = all.emplace_back();
    least.bytes = fullest(dense, experts) + setting->activations;
    least.choice =
        room->settings[static_cast<size_t>(setting - room->paces.begin())];
    least.choice.dense = smallest(room->dense, stage);
    least.choice.experts = smallest(room->experts, stage);
  }
  std::ranges::stable_sort(all, {}, &Least::bytes);
  return all;
}

}  // namespace canzona::sim
