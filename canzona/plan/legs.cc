#include "canzona/plan/legs.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// z homes from `first` on, in one plane of tensor parallelism.
class Members {
 public:
  Members(const PlanPart& plan, int32_t world_rank, int32_t z)
      : plan_(plan),
        stage_(world_rank / plan.mesh.ranks_per_stage()),
        t_(world_rank % plan.mesh.tp),
        first_(world_rank / plan.mesh.tp % plan.mesh.homes() / z * z),
        z_(z) {}

  int32_t rank(int32_t i) const {
    return plan_.mesh.rank(stage_, first_ + i, t_);
  }
  int32_t node(int32_t i) const { return plan_.node_of(rank(i)); }

  // Ranks on the first node.
  int32_t first_run() const {
    int32_t run = 1;
    while (run < z_ && node(run) == node(0)) ++run;
    return run;
  }
  // Whether all nodes have so many, one after the other.
  bool is_even(int32_t run) const {
    if (z_ % run != 0) return false;
    for (int32_t i = 1; i < z_; ++i)
      if ((node(i) == node(i - 1)) != (i % run != 0)) return false;
    return true;
  }

 private:
  const PlanPart& plan_;
  int32_t stage_, t_, first_, z_;
};

void check_group(const PlanPart& plan, int32_t world_rank, int32_t z,
                 const char* name) {
  const Members members(plan, world_rank, z);
  const auto rank = [&](int32_t i) {
    return plan.rank_in_whole(members.rank(i));
  };
  if (members.is_even(members.first_run())) return;
  throw UsageError(cat("--collectives node: the group of ", name, " = ", z,
                       " data-parallel ranks from rank ", rank(0), " to ",
                       rank(z - 1),
                       " has not equally many ranks on each of its "
                       "nodes of ",
                       plan.options.ranks_per_node,
                       "; choose another size, or --collectives direct"));
}

}  // namespace

Legs module_legs(const PlanPart& plan, int32_t world_rank, int32_t z) {
  const Legs direct{.inside = z};
  if (plan.options.zero.reach == Reach::kDirect) return direct;
  const Members members(plan, world_rank, z);
  const int32_t run = members.first_run();
  return run == 1 ? direct : Legs{.inside = run, .across = z / run};
}

void check_reach(const PlanPart& plan) {
  const Mesh& mesh = plan.mesh;
  const ZeroOptions& zero = plan.options.zero;
  if (zero.reach == Reach::kDirect) return;
  const auto check = [&](int32_t z, const char* name) {
    for (int32_t stage = 0; stage < mesh.pp; ++stage)
      for (int32_t home = 0; home < mesh.homes(); home += z)
        for (int32_t t = 0; t < mesh.tp; ++t)
          check_group(plan, mesh.rank(stage, home, t), z, name);
  };
  check(zero.sizes.z2, "z2");
  check(zero.sizes.z3, "z3");
}

}  // namespace canzona
