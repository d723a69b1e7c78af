// The layouts of a question by room: a mesh with its micro-batches and its
// sizes of ZeRO. What depends on the sizes of dense tensors or of experts alone
// is computed once, so that a bound of a pair of them takes a few additions.
//
//   MeshRooms rooms(question);
//   for (OpenLayouts& one : rooms.expand(open, kind, best, over_cap)) …
//
// One thread at a time, except where `tight_bound` is called.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "canzona/sim/mesh_bounds.h"
#include "canzona/sim/mesh_search.h"

namespace canzona::sim {

// Layouts that are not decided: all of a mesh with some micro-batches, those of
// them with the same sizes of experts and collectives, or a single one.
struct OpenLayouts {
  double bound = 0;    // on the iteration of each of them
  int64_t number = 0;  // breaks ties
  int32_t room = 0;
  int32_t setting = 0;
  int32_t experts = -1;  // -1: all sizes
  int32_t dense = -1;    // likewise
  Reach reach = Reach::kDirect;
  bool is_tight = false;     // a second bound, which takes longer, was computed
  bool is_doubtful = false;  // it probably does not fit
  double work = 0;           // work_of() a single one

  bool is_single() const { return dense >= 0; }
};

// The sizes of dense tensors or of experts on a mesh, and what depends on them
// alone.
struct SizesOfPart {
  std::vector<ZeroSizes> all;
  std::vector<BytesByStage> bytes = {};  // of each
  BytesByStage least = {};
  // True if groups go in two levels, of parts that are planned together and
  // apart.
  std::array<std::vector<bool>, 2> two_levels = {};
  // By apart and reach, filled when first asked for.
  std::array<std::array<std::vector<LoadByStage>, 2>, 2> loads = {};
};

struct MeshRoom {
  MeshBounds bounds;
  std::vector<MeshChoice> settings = {};  // micro-batches and recomputation
  std::vector<MeshPace> paces = {};       // of each
  SizesOfPart dense = {}, experts = {};
  SecondsByStage least_step = {};
  std::array<int64_t, kNumLayoutKinds> layouts = {};    // of a setting, by kind
  std::array<std::vector<int64_t>, 2> by_experts = {};  // and by reach
};

class MeshRooms {
 public:
  // Throws UsageError if no layout is possible.
  explicit MeshRooms(const MeshQuestion& question);

  int64_t size() const { return std::ssize(rooms_); }
  const MeshRoom& operator[](int32_t room) const {
    return *rooms_[index(room)];
  }
  int64_t refused() const { return refused_; }  // meshes

  const MeshPace& pace(const OpenLayouts& open) const {
    return (*this)[open.room].paces[index(open.setting)];
  }
  // Requires a single layout.
  MeshChoice choice_of(const OpenLayouts& open) const;
  // About how much it takes to plan a single layout: its matrices, each by the
  // ranks of a home, and the ranks.
  double work_of(const OpenLayouts& open) const;
  // How many layouts of a kind these are.
  int64_t count(const OpenLayouts& open, LayoutKind kind) const;
  // The bound on memory of each of them, and whether it is above the cap.
  int64_t memory(const OpenLayouts& open) const;
  bool is_over_cap(const OpenLayouts& open) const;

  // Divides layouts into smaller sets with bounds of their own, without those
  // that take at least `best` seconds or, counted, need too much memory.
  std::vector<OpenLayouts> expand(const OpenLayouts& open, LayoutKind kind,
                                  double best, int64_t& over_cap);
  double loose_bound(const OpenLayouts& open);
  double tight_bound(const OpenLayouts& open) const;

  // The layout of each mesh with the smallest bound on memory, the smallest
  // first.
  struct Least {
    MeshChoice choice = {};
    int64_t bytes = INT64_MAX;
  };
  std::vector<Least> least_memory() const;

 private:
  std::unique_ptr<MeshRoom> room_of(const Mesh& mesh) const;
  SizesOfPart sizes_of(const MeshBounds& bounds, bool experts) const;
  void count_layouts(MeshRoom& room) const;
  bool is_apart(const MeshRoom& room, int32_t dense, int32_t experts) const;
  bool has_two_levels(const MeshRoom& room, int32_t dense,
                      int32_t experts) const;
  bool has_reach(const MeshRoom& room, int32_t dense, int32_t experts,
                 Reach reach) const;
  LayoutKind kind(const MeshRoom& room, int32_t dense, int32_t experts) const;
  // Returns the loads of all sizes.
  const std::vector<LoadByStage>& loads(MeshRoom& room, bool experts,
                                        bool apart, Reach reach);

  const MeshQuestion& question_;
  TensorFacts facts_;
  double dense_tensors_ = 0, expert_tensors_ = 0;
  std::vector<std::unique_ptr<MeshRoom>> rooms_;
  int64_t refused_ = 0;
};

// Throws UsageError for questions that make no sense.
void check_question(const MeshQuestion& question);

// The layout that comes closest to the cap, and the cheapest change after which
// a search finds one that fits. `planned` is the closest of those that were
// planned, if any were.
NearestMesh nearest_mesh(const MeshQuestion& question, const MeshRooms& rooms,
                         const std::optional<WeighedMesh>& planned);
// The mesh of a layout that fits, if a few plans have one.
std::optional<Mesh> find_mesh_that_fits(const MeshQuestion& question);

}  // namespace canzona::sim
