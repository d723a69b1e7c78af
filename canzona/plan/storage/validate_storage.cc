#include <algorithm>
#include <map>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/storage/storage_basis.h"
#include "canzona/plan/storage/storage_json.h"
#include "canzona/plan/storage/storage_owners.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/storage_sharing.h"
#include "canzona/plan/validate/validate.h"

namespace canzona {
using namespace plan;
namespace {

class StorageValidation {
 public:
  explicit StorageValidation(const StoragePlan& plan) : plan_(plan) {}

  std::vector<std::string> run() {
    if (check_request()) {
      const StorageBasis basis(plan_);
      check_owners(basis);
      if (check_lines()) {
        check_rounds(basis);
        check_capacity(basis);
        check_summary(basis);
      }
    }
    const std::string digest = digest_of(plan_);
    if (digest != plan_.digest)
      violated("digest ", printable(plan_.digest), ", expected ", digest);
    return std::move(violations_);
  }

 private:
  template <class... Args>
  void violated(const Args&... args) {
    violations_.push_back(cat(args...));
  }

  std::string name(const OwnedMatrix& m) const {
    return quoted(matrix_name(plan_.tensors[index(m.tensor)], m));
  }

  // Checks what follows from the request alone. Returns false if nothing more
  // can be checked.
  bool check_request() {
    StoragePlan expected;
    try {
      StorageRequest settled = settle_storage(plan_);
      if (!is_settled(plan_, settled))
        violated(
            "the request has rule options that are not settled, or empty "
            "boxes");
      expected = open_storage_plan(std::move(settled), nullptr);
    } catch (const UsageError& error) {
      violated(error.what());
      return false;
    }
    check_classes(expected);
    return check_matrices(expected) && violations_.empty();
  }

  void check_classes(const StoragePlan& expected) {
    if (plan_.class_of != expected.class_of ||
        plan_.classes.size() != expected.classes.size()) {
      violated("classes do not match the tensors' replicas");
      return;
    }
    for (size_t c = 0; c < plan_.classes.size(); ++c) {
      ReplicaClass own = plan_.classes[c];
      own.num_rounds = expected.classes[c].num_rounds;
      if (own != expected.classes[c])
        violated("class ", c, ": lines or sets of replicas are not those of ",
                 "its tensors");
    }
    const auto shares = [](const SharedElements& a, const SharedElements& b) {
      return a.tensor == b.tensor;
    };
    if (!std::equal(plan_.elements.begin(), plan_.elements.end(),
                    expected.elements.begin(), expected.elements.end(), shares))
      violated("elements do not match the tensors that share states");
  }

  // Checks that matrices are cut and weighed as the request says. The costs of
  // a table are not known here.
  bool check_matrices(const StoragePlan& expected) {
    if (plan_.matrices.size() != expected.matrices.size() ||
        plan_.first_matrix != expected.first_matrix) {
      violated(plan_.matrices.size(), " matrices, expected ",
               expected.matrices.size());
      return false;
    }
    const bool nominal = plan_.cost_basis.source == expected.cost_basis.source;
    if (nominal && plan_.cost_basis != expected.cost_basis)
      violated("cost: a nominal tick is worth ",
               expected.cost_basis.seconds_per_tick, " s, not ",
               plan_.cost_basis.seconds_per_tick);
    std::set<std::pair<int32_t, MatrixShape>> wrong;
    for (size_t i = 0; i < plan_.matrices.size(); ++i) {
      OwnedMatrix own = expected.matrices[i];
      const OwnedMatrix& m = plan_.matrices[i];
      own.owner = m.owner;
      own.round = m.round;
      own.team = m.team;
      if (nominal && own.cost != m.cost &&
          wrong.insert({plan_.tensors[index(m.tensor)].group, {m.rows, m.cols}})
              .second)
        violated("cost: ", m.cost.every_step.value(), " + ",
                 m.cost.refresh.value(), " ticks for ", name(own),
                 ", expected ", own.cost.every_step.value(), " + ",
                 own.cost.refresh.value());
      own.cost = m.cost;
      if (own != m) {
        violated("matrix ", i, " does not match the request: ", name(own));
        return false;
      }
    }
    return true;
  }

  void check_owners(const StorageBasis& basis) {
    for (size_t i = 0; i < plan_.matrices.size(); ++i) {
      const OwnedMatrix& m = plan_.matrices[i];
      const auto holders = basis.holders()[i];
      if (std::none_of(holders.begin(), holders.end(),
                       [&](const Holder& h) { return h.rank == m.owner; }))
        violated("matrix ", name(m), ": its owner, rank ", m.owner,
                 ", stores no piece of it");
      check_team(basis, i);
      if (holders.size() == 1 && m.round != -1)
        violated("matrix ", name(m), ": round ", m.round,
                 ", but no piece of it moves");
      if (holders.size() > 1 && m.round < 0)
        violated("matrix ", name(m), ": no round, but its pieces are on ",
                 holders.size(), " ranks");
    }
  }

  // Checks the ranks that share a matrix.
  void check_team(const StorageBasis& basis, size_t i) {
    const OwnedMatrix& m = plan_.matrices[i];
    if (m.team.empty()) return;
    const auto wrong = [&](const auto&... what) {
      violated("matrix ", name(m), ": ", what...);
    };
    const std::vector<int32_t> ranks = distinct(m.team);
    if (m.team.front() != m.owner)
      wrong("rank ", m.team.front(), " is the first that shares it, expected ",
            "its owner, rank ", m.owner);
    const auto holders = basis.holders()[i];
    const std::vector<int32_t>& line = basis.ranks_of(basis.class_of(i)).line;
    for (const int32_t rank : ranks)
      if (std::ranges::find(holders, rank, &Holder::rank) == holders.end() ||
          line[index(rank)] != basis.line_of(i))
        return wrong("rank ", rank, " shares it, but is not a rank of its ",
                     "owner's line that stores a piece");
    StorageShares shares(plan_);
    check_sharing(shares, i, cat("matrix ", name(m)), m.team,
                  plan_.options.teams, plan_.world, violations_);
    if (shares.is_in_blocks(i)) return;
    for (const int32_t rank : ranks)
      if (rank / plan_.options.ranks_per_node !=
          m.owner / plan_.options.ranks_per_node)
        return wrong("rank ", rank, " of its team is on another node than ",
                     "rank ", m.owner);
  }

  // Returns false if bytes cannot be counted.
  bool check_lines() {
    bool fine = violations_.empty();
    for (const SharedElements& e : plan_.elements) {
      const ReplicaClass& c = class_of(e.tensor);
      if (e.line >= 0 && e.line < std::ssize(c.lines) && e.round >= 0) continue;
      fine = false;
      violated("tensor ", quoted(plan_.tensors[index(e.tensor)].name),
               ": line ", e.line, ", round ", e.round, ", expected one of ",
               c.lines.size(), " lines and a round");
    }
    return fine;
  }

  const ReplicaClass& class_of(int32_t tensor) const {
    return plan_.classes[index(plan_.class_of[index(tensor)])];
  }

  // Checks that rounds are numbered without gaps.
  void check_rounds(const StorageBasis& basis) {
    std::vector<std::set<int32_t>> used(plan_.classes.size());
    for (size_t i = 0; i < basis.holders().size(); ++i)
      if (basis.round_of(i) >= 0)
        used[index(basis.class_of(i))].insert(basis.round_of(i));
    for (size_t c = 0; c < used.size(); ++c) {
      const int32_t rounds = plan_.classes[c].num_rounds;
      const int32_t last = used[c].empty() ? -1 : *used[c].rbegin();
      if (std::ssize(used[c]) != rounds || last != rounds - 1)
        violated("class ", c, ": ", used[c].size(), " rounds are used, up to ",
                 last, ", expected ", rounds, " of ", rounds);
    }
  }

  void check_capacity(const StorageBasis& basis) {
    struct Round {
      std::vector<RoundBytes> bytes;  // by rank
      std::set<int32_t> owners;
      std::set<int32_t> lines;
      bool has_several = false;
    };
    std::map<std::pair<int32_t, int32_t>, Round> rounds;  // by class, number
    RoundCounter counter(basis, plan_.world);
    for (size_t i = 0; i < basis.holders().size(); ++i) {
      if (basis.round_of(i) < 0) continue;
      Round& round = rounds[{basis.class_of(i), basis.round_of(i)}];
      for (const int32_t owner : basis.owners_of(i))
        round.has_several |= !round.owners.insert(owner).second;
      round.lines.insert(basis.line_of(i));
      round.bytes.resize(index(plan_.world));
      for (const RankRoundBytes& more : counter.bytes_of(i)) {
        RoundBytes& sum = round.bytes[index(more.rank)];
        for (size_t k = 0; k < sum.size(); ++k) sum[k] += more.bytes[k];
      }
    }
    for (const auto& [key, round] : rounds) {
      const bool may =
          !plan_.options.strict_capacity || round.lines.size() == 1;
      if (!round.has_several && may) continue;
      for (size_t rank = 0; rank < round.bytes.size(); ++rank) {
        const RoundBytes& bytes = round.bytes[rank];
        const int64_t most = *std::max_element(bytes.begin(), bytes.end());
        if (most > plan_.options.capacity_bytes)
          violated("class ", key.first, ", round ", key.second, ": ", most,
                   " bytes of messages on rank ", rank, ", expected at most ",
                   plan_.options.capacity_bytes);
      }
    }
  }

  void check_summary(const StorageBasis& basis) {
    const LoadSummary expected = summarize_storage(basis, plan_);
    const LoadSummary& own = plan_.summary;
    const auto compare = [&](const char* what, auto stored, auto counted) {
      if (stored != counted)
        violated("predicted ", what, " ", stored, ", expected ", counted);
    };
    compare("makespan", own.makespan.value(), expected.makespan.value());
    compare("bound", own.bound.value(), expected.bound.value());
    compare("mean", own.mean, expected.mean);
    compare("idle ranks", own.idle_ranks, expected.idle_ranks);
    compare("bytes per rank", own.bytes_per_rank_max.value(),
            expected.bytes_per_rank_max.value());
  }

  const StoragePlan& plan_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> validate(const StoragePlan& plan) {
  return StorageValidation(plan).run();
}

}  // namespace canzona
