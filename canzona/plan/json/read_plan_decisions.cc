// Reads the planner's decisions (who keeps and computes what) and their
// figures.
#include <algorithm>
#include <map>
#include <utility>

#include "canzona/base/text.h"
#include "canzona/plan/coordinates.h"
#include "canzona/plan/json/plan_reader.h"

namespace canzona::plan {
namespace {

// Longer lists of owners are rejected right away.
constexpr size_t kMaxTeamNamed = 1024;

class DecisionReader {
 public:
  DecisionReader(const Json& root, bool is_former, const PlanValues& in,
                 PlanPart& part)
      : root_(root),
        is_former_(is_former),
        in_(in),
        where_(in.where()),
        plan_(part) {}

  void run() {
    read_buffers();
    read_buckets();
    read_homes();
    derive(plan_);
    check_homes();
    read_owners();
  }

 private:
  const Json& member(const char* key) const {
    return get_member(root_, key, where_);
  }

  void read_buffers() {
    const Mesh& mesh = plan_.grid;
    for (const Json& b : in_.array(member("buffers"), "buffers")) {
      in_.row(b, 3, "buffer");
      Buffer buffer;
      buffer.stage = in_.index(b[0], 0, mesh.pp - 1, "buffer stage");
      // Without expert parallelism there are no groups of experts.
      const int32_t last_ep = mesh.ep > 1 ? mesh.ep - 1 : -1;
      buffer.ep = in_.index(b[1], -1, last_ep, "buffer ep");
      const int32_t homes = buffer.ep < 0 ? mesh.homes() : mesh.expert_homes();
      buffer.num_homes = in_.index(b[2], homes, homes, "buffer homes");
      plan_.buffers.push_back(buffer);
    }
  }

  void read_buckets() {
    std::vector<int> places(plan_.model.tensors.size(), 0);
    for (const Json& b : in_.array(member("buckets"), "buckets")) {
      plan_.buckets.push_back(bucket(b));
      for (int32_t t : plan_.buckets.back().tensors) {
        ++places[static_cast<size_t>(t)];
      }
    }
    for (size_t t = 0; t < places.size(); ++t) {
      if (places[t] == 1) continue;
      in_.fail(cat("tensor ", quoted(plan_.model.tensors[t].name), " lies in ",
                   places[t] == 0 ? "no bucket" : "more than one place"));
    }
  }

  Bucket bucket(const Json& b) const {
    require_known_keys(
        b, {"buffer", "matrix_tensors", "tensors", "cuts", "adamw_cuts"},
        where_);
    Bucket out;
    out.buffer = static_cast<int32_t>(
        get_integer(b, "buffer", 0, std::ssize(plan_.buffers) - 1, where_));
    out.tensors =
        in_.indices(get_member(b, "tensors", where_), 0,
                    std::ssize(plan_.model.tensors) - 1, "bucket tensors");
    out.num_matrix_tensors = static_cast<int32_t>(
        get_integer(b, "matrix_tensors", 0, std::ssize(out.tensors), where_));
    check_regions(out);
    out.cuts = cuts(b, "cuts", out);
    out.adamw_cuts = cuts(b, "adamw_cuts", out);
    return out;
  }

  void check_regions(const Bucket& bucket) const {
    for (size_t i = 0; i < bucket.tensors.size(); ++i) {
      const auto t = static_cast<size_t>(bucket.tensors[i]);
      const Tensor& tensor = plan_.model.tensors[t];
      if (tensor.matrix_rule ==
          (i < static_cast<size_t>(bucket.num_matrix_tensors))) {
        continue;
      }
      in_.fail(cat("tensor ", quoted(tensor.name),
                   " lies in the wrong region of its bucket"));
    }
  }

  // validate() checks whether the cuts are right. Here they only have to lie
  // inside the bucket, so that counts derived from them fit 64 bits.
  std::vector<int64_t> cuts(const Json& b, const char* key,
                            const Bucket& bucket) const {
    int64_t elements = 0;
    for (int32_t t : bucket.tensors) {
      elements = checked_add(
          elements, plan_.model.tensors[static_cast<size_t>(t)].elements(),
          "elements of a bucket");
    }
    std::vector<int64_t> out =
        in_.integers(get_member(b, key, where_), 0, elements, key);
    const int32_t homes =
        plan_.buffers[static_cast<size_t>(bucket.buffer)].num_homes;
    if (!out.empty() && std::ssize(out) != homes + 1) {
      in_.fail(cat(key, ": expected ", homes + 1, " cuts, got ", out.size()));
    }
    return out;
  }

  void read_homes() {
    const int64_t matrices = std::ssize(plan_.matrices);
    const char* rounds = is_former_ ? "micro_group" : "rounds";
    plan_.home =
        in_.indices(member("home"), kEveryHome, plan_.grid.homes() - 1, "home");
    plan_.micro_group = in_.indices(member(rounds), 0, matrices - 1, rounds);
    if (plan_.home.size() != plan_.model.tensors.size() ||
        std::ssize(plan_.micro_group) != matrices) {
      in_.fail(cat("expected ", plan_.model.tensors.size(), " homes and ",
                   matrices, " rounds"));
    }
  }

  void read_owners() {
    const int64_t matrices = std::ssize(plan_.matrices);
    const Json& owners = in_.array(member("owners"), "owners");
    if (std::ssize(owners) != matrices)
      in_.fail(cat(owners.size(), " owners of ", matrices, " matrices"));
    for (size_t m = 0; m < owners.size(); ++m) read_owner(owners[m], m);
  }

  void read_owner(const Json& owner, size_t m) {
    try {
      if (owner.is_array())
        read_team(owner, m);
      else
        plan_.owners.push_back(plane(owner, m, plan_.grid.tp));
    } catch (const UsageError& error) {
      throw UsageError(cat(error.what(), "; it is the owner of matrix ",
                           quoted(matrix_name(plan_.model, plan_.matrices[m],
                                              plan_.options.splits))));
    }
  }

  // validate() reports what is wrong with a team.
  void read_team(const Json& ranks, size_t m) {
    if (in_.array(ranks, "owner").size() > kMaxTeamNamed)
      in_.fail(cat("a team of ", ranks.size(), " ranks, expected 2, 4 or 8"));
    std::vector<int32_t> planes;
    for (const Json& rank : ranks)
      planes.push_back(plane(rank, m, plan_.grid.ranks_per_stage()));
    plan_.owners.push_back(planes);
  }

  // Returns the plane of an owner in the home of its matrix. Former versions
  // have it in the file, in a team even one beyond the home.
  int32_t plane(const Json& owner, size_t m, int32_t former_end) {
    if (is_former_) return in_.index(owner, 0, former_end - 1, "owner");
    const int32_t rank = in_.index(owner, 0, kMaxWorld, "owner");
    const int32_t tensor = plan_.matrices[m].tensor;
    const int32_t home = plan_.home[static_cast<size_t>(tensor)];
    if (home == kEveryHome)
      in_.fail("owner: every rank repeats the update; expected []");
    const Buffer& buffer = plan_.buffer_of(tensor);
    std::vector<int32_t>& ranks =
        ranks_of_[{buffer.stage, plan_.stage_home(buffer, home)}];
    if (ranks.empty()) ranks = ranks_of_home(plan_, tensor, home);
    const auto found = std::ranges::find(ranks, rank);
    if (found == ranks.end())
      in_.fail(cat("owner: rank ", rank, " is not one of the ", ranks.size(),
                   " ranks of its home, from rank ", ranks.front(), " on"));
    return static_cast<int32_t>(found - ranks.begin());
  }

  // Checks the preconditions of predict().
  void check_homes() const {
    const bool repeats = plan_.traffic == Traffic::kAllReduce;
    for (size_t t = 0; t < plan_.home.size(); ++t) {
      const Tensor& tensor = plan_.model.tensors[t];
      const int32_t home = plan_.home[t];
      const int32_t homes = plan_.buffer_of(static_cast<int32_t>(t)).num_homes;
      const bool owned = tensor.matrix_rule && !repeats;
      if (owned ? home < 0 || home >= homes : home != kEveryHome) {
        in_.fail(cat("home ", home, " of tensor ", quoted(tensor.name),
                     ": expected ",
                     owned ? cat("0..", homes - 1) : cat(kEveryHome)));
      }
    }
  }

  const Json& root_;
  const bool is_former_;
  const PlanValues& in_;
  const std::string& where_;
  PlanPart& plan_;
  // Those of each home, by stage and home.
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> ranks_of_;
};

}  // namespace

void read_loads(const Json& s, const PlanValues& in, LoadSummary& out) {
  const auto count = [&](const char* key, int64_t most = INT64_MAX) {
    return get_integer(s, key, 0, most, in.where());
  };
  out.makespan = Ticks(count("makespan_ticks"));
  out.bound = Ticks(count("bound_ticks"));
  out.mean = get_number(s, "mean_ticks", in.where());
  out.idle_ranks = static_cast<int32_t>(count("idle_ranks", INT32_MAX));
  out.bytes_per_rank_max = Bytes(count("bytes_per_rank_max"));
}

void read_plan_summary(const Json& s, const PlanValues& in,
                       const PlanOptions& options, PlanSummary& out) {
  const std::string& where = in.where();
  const auto count = [&](const char* key) {
    return get_integer(s, key, 0, INT64_MAX, where);
  };
  constexpr const char* kTeamBound = "team_bound_ticks";
  require_known_keys(
      s,
      {"makespan_ticks", "bound_ticks", kTeamBound, "mean_ticks", "idle_ranks",
       "bytes_per_rank_max", "memory_per_rank_max", "memory_per_rank_mean",
       "step_seconds_mean", "step_seconds_worst"},
      where);
  const bool teams = options.teams != kTeamsOff;
  if (!teams && s.contains(kTeamBound))
    in.fail(cat(kTeamBound, " of a plan without teams"));
  if (teams) out.team_bound = Ticks(count(kTeamBound));
  read_loads(s, in, out);
  out.memory_per_rank_max = Bytes(count("memory_per_rank_max"));
  out.memory_per_rank_mean = get_number(s, "memory_per_rank_mean", where);
  const auto seconds = [&](const char* key) {
    return in.number(s, key, 0, kMostPredictedSeconds);
  };
  out.step_seconds_mean = seconds("step_seconds_mean");
  out.step_seconds_worst = seconds("step_seconds_worst");
}

void read_plan_decisions(const Json& object, bool is_former,
                         const PlanValues& values, PlanPart& part) {
  DecisionReader(object, is_former, values, part).run();
}

}  // namespace canzona::plan
