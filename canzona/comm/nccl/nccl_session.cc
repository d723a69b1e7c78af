#include "canzona/comm/nccl/nccl_session.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/from_all.h"
#include "canzona/comm/nccl/nccl_watch.h"
#include "canzona/comm/nccl/nccl_world.h"

namespace canzona {
using namespace comm;
namespace {

// Fixed-size text, for a message.
using NcclWord = std::array<char, 120>;

NcclWord word_of(const std::string& text) {
  NcclWord word{};
  std::ranges::copy(text.substr(0, word.size() - 1), word.begin());
  return word;
}

struct NcclFacts {
  int64_t version = 0;
  NcclWord device{};
  NcclWord device_id{};
};

void require_version(const NcclApi& nccl) {
  const int version = nccl_version_of(nccl);
  if (version < kOldestNccl)
    throw UsageError(cat("NCCL ", nccl_version_text(version),
                         " is too old: ", nccl_version_text(kOldestNccl),
                         " or newer is needed"));
}

void require_same_kind(const std::vector<NcclFacts>& all, size_t rank) {
  const auto version = [&](size_t of) {
    return cat("NCCL ", nccl_version_text(static_cast<int>(all[of].version)));
  };
  if (all[rank].version != all[0].version)
    throw UsageError(cat("rank 0 has ", version(0), ", rank ", rank, " has ",
                         version(rank),
                         "; install the same NCCL on all machines, or name its "
                         "folder in LD_LIBRARY_PATH"));
  if (all[rank].device != all[0].device)
    throw UsageError(
        cat("rank 0 has the GPU ", all[0].device.data(), ", rank ", rank,
            " has the GPU ", all[rank].device.data(),
            "; results depend on the kind of GPU: all ranks need the same"));
}

void require_own_device(const std::vector<NcclFacts>& all, size_t rank) {
  if (all[rank].device_id[0] == 0) return;
  const auto same = [&](const NcclFacts& of) {
    return of.device_id == all[rank].device_id;
  };
  const auto first = std::ranges::find_if(all, same);
  if (std::cmp_equal(first - all.begin(), rank)) return;
  throw UsageError(cat("ranks ", first - all.begin(), " and ", rank,
                       " have the same GPU, ", all[rank].device_id.data(),
                       ", which ", std::ranges::count_if(all, same), " of ",
                       all.size(),
                       " ranks have: start one rank for each GPU, or let "
                       "ranks share them with share-gpu=on"));
}

// All ranks find the same two that do not match.
void require_alike(Communicator& world, const NcclApi& nccl,
                   const NcclOptions& options) {
  const auto all =
      one_from_all(world,
                   NcclFacts{.version = nccl_version_of(nccl),
                             .device = word_of(options.device),
                             .device_id = word_of(options.device_id)},
                   {.label = "NCCL's version and the device"});
  for (size_t rank = 1; rank < all.size(); ++rank) {
    require_same_kind(all, rank);
    if (!options.share_devices) require_own_device(all, rank);
  }
}

}  // namespace

struct NcclSession::State {
  std::unique_ptr<Transport> control;
  std::vector<int> ranks;
  int64_t num_groups = 0;  // of all ranks
  std::shared_ptr<NcclWorld> world;
  std::unique_ptr<Communicator> end;  // where all ranks meet at the end
  std::unique_ptr<NcclWatch> watch;   // last, because it uses the other members

  std::unique_ptr<Transport> make_group() {
    return control->subgroup(ranks, ++num_groups, 0,
                             deadline_after(world->options().deadline));
  }
};

NcclSession::NcclSession(std::unique_ptr<Transport> control,
                         const NcclApi& nccl, const NcclOptions& options)
    : state_(std::make_unique<State>()) {
  require_version(nccl);
  State& state = *state_;
  state.control = std::move(control);
  state.ranks.resize(static_cast<size_t>(state.control->size()));
  std::iota(state.ranks.begin(), state.ranks.end(), 0);
  state.world =
      std::make_shared<NcclWorld>(nccl, options, state.control->rank());
  state.end = std::make_unique<Communicator>(
      state.make_group(), cpu_wire_ops(),
      CommunicatorOptions{.deadline = options.deadline, .segment_bytes = 1},
      "the session of NCCL");
  require_alike(*state.end, nccl, options);
  state.watch = std::make_unique<NcclWatch>(*state.world, state.make_group());
}

NcclSession::~NcclSession() = default;

std::unique_ptr<Transport> NcclSession::make_world() {
  return std::make_unique<NcclTransport>(state_->world, state_->make_group(),
                                         state_->ranks);
}

int NcclSession::num_communicators() const {
  return state_->world->num_communicators();
}

void NcclSession::abort(std::string_view reason) {
  state_->watch->abort(reason);
}

void NcclSession::finish(std::chrono::nanoseconds time) {
  if (state_->watch == nullptr) return;
  state_->end->barrier({.label = "end of NCCL's groups", .deadline = time});
  state_->world->end_all(deadline_after(time));
  state_->watch->finish();
  state_->watch.reset();
}

}  // namespace canzona
