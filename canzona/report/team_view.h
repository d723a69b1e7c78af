// Describes teams: which ranks share a matrix, by strips or by blocks with
// owners of their own, what each rank does and moves, and why, or why not.
//
//   std::string line = describe_teams(plan);
//   std::string reason = TeamReasons(plan).of(matrix);
//   if (const auto team = team_of(plan, matrix)) …
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/cost/cost.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/report/document.h"

namespace canzona::report {

// True unless teams are off.
bool may_have_teams(const SettledRequest& plan);

struct TeamMember {
  int32_t rank = 0;  // of the world; with replicas, the one in the first
  int32_t first_strip = 0;
  int32_t num_strips = 0;
  std::vector<int32_t> blocks;        // owned by this rank
  std::vector<Rectangle> rectangles;  // of the matrix, that it computes
  Ticks work;                         // per step
  Ticks refresh;                      // in addition, once per period
  Bytes gathered;  // parts of its strips received, and updates sent back
  Bytes scattered;
  TeamBytes inside;  // sums and factors
};

struct TeamStory {
  int32_t blocks = 0;       // blocks with owners; 0: the team has strips
  int32_t strips = 1;       // of the matrix
  bool has_helper = false;  // the second of two members
  int64_t helped_side = 0;  // of the factor that the helper decomposes
  int32_t segments = 0;
  Ticks path;                       // of the head, sums and factors included
  Ticks refresh_path;               // the same, what a refresh adds
  std::vector<TeamMember> members;  // the head first

  bool has_head() const { return blocks == 0; }
};

// Returns nothing if one rank owns the matrix, or all ranks repeat it.
std::optional<TeamStory> team_of(const PlanPart& part, int32_t matrix);

// Explains why matrices of a plan are shared, or are not. The plan must outlive
// it.
class TeamReasons {
 public:
  explicit TeamReasons(const Plan& plan);
  // Returns a sentence; empty if teams are off.
  std::string of(int32_t matrix);

 private:
  const Plan& plan_;
  std::string none_;  // why nothing is shared at all
  std::vector<TeamTable> tables_;
};

// "64 of 256 matrices: 32 by 2 ranks, 32 by 4", or "none: …".
std::string describe_teams(const Plan& plan);

// The members as a table, and the team.
Document team_view(const SettledRequest& plan, const TeamStory& team,
                   size_t indent = 2);
// "2 of 8 strips", "22 of 85 blocks", "helper in refreshes".
std::string share_text(const TeamStory& team, const TeamMember& member);
// "owner, with a helper" or "helper in refreshes".
std::string helper_place_text(bool is_owner);
// An object with the number of teams of each size.
Value teams_value(const Plan& plan);

}  // namespace canzona::report
