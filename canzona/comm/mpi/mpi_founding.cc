// How ranks found a group: its members agree on a number for it.
#include <algorithm>
#include <chrono>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_transport.h"

namespace canzona {

// What was posted is taken back, and MPI left alone, before its buffers end.
void MpiTransport::wait_for_members(Deadline until) {
  while (!poll()) {
    std::string why;
    const bool late = std::chrono::steady_clock::now() >= until;
    const int lost = lost_peer();
    if (is_aborted()) {
      why = cat("founding a group given up: ", abort_reason());
    } else if (late || lost >= 0) {
      int missing = lost;
      for (int rank = 0; missing < 0; ++rank)
        if (is_pending(rank)) missing = rank;
      why = cat("rank ", missing, " did not come to found a group");
    } else {
      pause(until);
      continue;
    }
    retract();
    abort(why);
    throw PeerLost(why);
  }
}

// One more than the last group of any member has.
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

}  // namespace canzona
