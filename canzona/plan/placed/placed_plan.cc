#include "canzona/plan/placed/placed_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/placed/placed_basis.h"
#include "canzona/plan/placed/placed_json.h"
#include "canzona/plan/placed/placed_owners.h"
#include "canzona/plan/placed/placed_sharing.h"
#include "canzona/plan/placed/storage.h"
#include "canzona/plan/search/teams.h"

namespace canzona {

std::string list_text(const std::vector<int64_t>& numbers) {
  std::vector<std::string> words;
  words.reserve(numbers.size());
  for (const int64_t number : numbers) words.push_back(cat(number));
  return cat("[", join(words, ", "), "]");
}

std::vector<std::unique_ptr<RuleFacts>> group_facts(
    const std::vector<PlacedGroup>& groups) {
  std::vector<std::unique_ptr<RuleFacts>> facts;
  for (size_t g = 0; g < groups.size(); ++g) {
    try {
      facts.push_back(make_rule_facts(groups[g].rule, groups[g].options));
    } catch (const UsageError& error) {
      throw UsageError(cat("group ", g, ": ", error.what()));
    }
  }
  return facts;
}

int64_t whole_elements(const PlacedTensor& tensor) {
  return Box{{}, tensor.shape}.elements();
}

int64_t stack_of(const PlacedTensor& tensor) {
  int64_t product = 1;
  for (size_t d = 0; d + 2 < tensor.shape.size(); ++d)
    product *= tensor.shape[d];
  return product;
}

std::string placed_matrix_name(const PlacedTensor& tensor,
                               const PlacedMatrix& matrix) {
  std::string name = tensor.name;
  if (stack_of(tensor) > 1) name += cat("[", matrix.number, "]");
  if (tensor.splits.size() < 2) return name;
  int64_t row = 0;
  size_t split = 0;
  while (row < matrix.first_row) row += tensor.splits[split++];
  return cat(name, ":", split);
}

int64_t common_elements(const PlacedTensor& tensor, const PlacedMatrix& matrix,
                        const Box& box) {
  const size_t dims = tensor.shape.size();
  int64_t rest = matrix.number;
  for (size_t d = dims - 2; d-- > 0;) {
    const int64_t at = rest % tensor.shape[d];
    rest /= tensor.shape[d];
    if (at < box.first[d] || at >= box.first[d] + box.count[d]) return 0;
  }
  const int64_t first = std::max(box.first[dims - 2], matrix.first_row);
  const int64_t end = std::min(box.first[dims - 2] + box.count[dims - 2],
                               matrix.first_row + matrix.rows);
  return std::max<int64_t>(end - first, 0) * box.count[dims - 1];
}

namespace {

constexpr int64_t kMaxMatrices = int64_t{1} << 20;
constexpr int64_t kMostLoads = int64_t{1} << 26;  // kinds × matrices and ranks
constexpr double kMostWork = 4e18;                // ticks of a period
constexpr double kMostBytes = 4e18;               // 16 × elements × ranks

using GroupFacts = std::vector<std::unique_ptr<RuleFacts>>;

[[noreturn]] void refuse(const PlacedTensor& tensor, const std::string& what) {
  throw UsageError(cat("tensor ", quoted(tensor.name), ": ", what));
}

void check_shape(const PlacedTensor& tensor) {
  if (std::ssize(tensor.shape) > kMaxDims)
    refuse(tensor, cat("expected at most ", kMaxDims, " dimensions, got ",
                       tensor.shape.size()));
  int64_t elements = 1;
  for (const int64_t side : tensor.shape) {
    if (side < 1 || side > kMaxDim)
      refuse(tensor, cat("shape ", list_text(tensor.shape),
                         ": expected sides of 1 to ", kMaxDim));
    if (elements > std::numeric_limits<int64_t>::max() / side)
      refuse(tensor, cat("shape ", list_text(tensor.shape),
                         ": its elements do not fit in a 64-bit integer"));
    elements *= side;
  }
}

void check_splits(const PlacedTensor& tensor, bool matrix_rule) {
  if (tensor.splits.empty()) return;
  if (!matrix_rule)
    refuse(tensor,
           "splits require a matrix rule, but its group's rule is "
           "element-wise");
  const int64_t rows = tensor.shape[tensor.shape.size() - 2];
  int64_t sum = 0;
  for (const int64_t split : tensor.splits) {
    if (split < 1 || split > rows)
      refuse(tensor, cat("splits ", list_text(tensor.splits),
                         ": expected 1 to ", rows, " rows in each"));
    sum += split;
  }
  if (sum != rows)
    refuse(tensor, cat("splits ", list_text(tensor.splits), " add up to ", sum,
                       " rows, expected ", rows));
}

void settle_tensor(PlacedTensor& tensor, const PlacedRequest& request,
                   const GroupFacts& facts) {
  if (tensor.group < 0 || tensor.group >= std::ssize(request.groups))
    refuse(tensor, cat("group ", tensor.group, ": there are ",
                       request.groups.size(), " groups"));
  check_shape(tensor);
  check_dtype(tensor.dtype, cat("tensor ", quoted(tensor.name), ": dtype"));
  const bool matrix_rule = facts[index(tensor.group)]->needs_whole_matrix();
  if (matrix_rule && tensor.shape.size() < 2)
    refuse(tensor, cat("rule ", request.groups[index(tensor.group)].rule,
                       " needs two dimensions or more, the shape is ",
                       list_text(tensor.shape)));
  check_splits(tensor, matrix_rule);
  if (std::ssize(tensor.stored) != request.world)
    refuse(tensor, cat("stored: expected one entry for each of ", request.world,
                       " ranks, got ", tensor.stored.size()));
  for (auto& boxes : tensor.stored)
    std::erase_if(boxes, [&](const Box& box) {
      return box.count.size() == tensor.shape.size() &&
             std::find(box.count.begin(), box.count.end(), 0) !=
                 box.count.end();
    });
}

void check_options_of(const PlacedRequest& request) {
  const auto require = [](bool fine, const char* name, int64_t value) {
    if (!fine) throw UsageError(cat(name, " ", value, ": expected 1 or more"));
  };
  require(request.world >= 1, "world", request.world);
  check_dtype(request.options.wire, "wire");
  require(request.options.capacity_bytes >= 1, "capacity_bytes",
          request.options.capacity_bytes);
  require(request.options.ranks_per_node >= 1, "ranks_per_node",
          request.options.ranks_per_node);
  check_teams(request.options.teams);
}

void check_names_of(const std::vector<PlacedTensor>& tensors) {
  std::set<std::string_view> names;
  for (const PlacedTensor& tensor : tensors) {
    if (tensor.name.empty()) throw UsageError("a tensor has no name");
    if (!names.insert(tensor.name).second)
      refuse(tensor, "the name is used by two tensors");
  }
}

// Checks that the bytes of all ranks together fit 64 bits.
void check_countable(const PlacedRequest& request) {
  double elements = 0;
  for (const PlacedTensor& tensor : request.tensors)
    elements += static_cast<double>(whole_elements(tensor));
  constexpr double kBytesPerElement = 16;
  if (elements * kBytesPerElement * request.world > kMostBytes)
    throw UsageError(cat(elements, " elements on ", request.world,
                         " ranks exceed 64-bit counts of bytes"));
}

void cut_tensor(const PlacedPlan& plan, int32_t t,
                std::vector<PlacedMatrix>& out) {
  const PlacedTensor& tensor = plan.tensors[index(t)];
  const size_t dims = tensor.shape.size();
  const std::vector<int64_t> splits = tensor.splits.empty()
                                          ? std::vector{tensor.shape[dims - 2]}
                                          : tensor.splits;
  const int64_t stack = stack_of(tensor);
  if (stack > kMaxMatrices / std::ssize(splits) ||
      std::ssize(out) + stack * std::ssize(splits) > kMaxMatrices)
    refuse(tensor, cat("more than ", kMaxMatrices, " matrices"));
  for (int64_t number = 0; number < stack; ++number) {
    int64_t row = 0;
    for (const int64_t rows : splits) {
      out.push_back({.tensor = t,
                     .number = number,
                     .first_row = row,
                     .rows = rows,
                     .cols = tensor.shape[dims - 1]});
      row += rows;
    }
  }
}

// Assigns phases round-robin in name order to the matrices of each group.
void set_phases(const GroupFacts& facts, PlacedPlan& plan) {
  for (size_t g = 0; g < facts.size(); ++g) {
    const auto phases = static_cast<size_t>(facts[g]->phases());
    if (facts[g]->period() <= 1 || phases <= 1) continue;
    std::vector<std::pair<std::string, PlacedMatrix*>> names;
    for (PlacedMatrix& m : plan.matrices) {
      const PlacedTensor& tensor = plan.tensors[index(m.tensor)];
      if (index(tensor.group) == g)
        names.emplace_back(placed_matrix_name(tensor, m), &m);
    }
    std::stable_sort(
        names.begin(), names.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < names.size(); ++i)
      names[i].second->phase = static_cast<int32_t>(i % phases);
  }
}

void weigh_matrices(const GroupFacts& facts, const CostTable* table,
                    PlacedPlan& plan) {
  std::vector<CostModel> models;
  for (const auto& rule : facts) models.emplace_back(*rule, table);
  if (!models.empty()) plan.cost_basis = models.front().basis();
  for (PlacedMatrix& m : plan.matrices) {
    const size_t g = index(plan.tensors[index(m.tensor)].group);
    m.cost = models[g].cost({m.rows, m.cols});
  }
  check_placed_work(plan);
}

void make_classes(const GroupFacts& facts, PlacedPlan& plan) {
  const auto pieces = stored_pieces(plan);
  std::vector<std::vector<std::vector<int32_t>>> sets(plan.tensors.size());
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const PlacedTensor& tensor = plan.tensors[t];
    const bool matrix_rule = facts[index(tensor.group)]->needs_whole_matrix();
    const bool replicated =
        std::any_of(pieces[t]->begin(), pieces[t]->end(),
                    [](const auto& piece) { return piece.ranks.size() > 1; });
    const bool shared = plan.options.share_states && replicated;
    if (!matrix_rule && !shared) continue;
    sets[t] = replica_sets(tensor, *pieces[t]);
    if (!matrix_rule) plan.elements.push_back({static_cast<int32_t>(t), 0, 0});
  }
  PlacedClasses made = make_placed_classes(sets, plan.world);
  plan.classes = std::move(made.classes);
  plan.class_of = std::move(made.class_of);
}

}  // namespace

void check_placed_work(const PlacedPlan& plan) {
  double total = 0;
  for (const PlacedMatrix& m : plan.matrices)
    total += static_cast<double>(m.cost.every_step.value()) +
             static_cast<double>(m.cost.refresh.value());
  const StepKinds kinds = step_kinds(plan);
  const auto period = static_cast<double>(kinds.period());
  const int64_t counted = std::ssize(plan.matrices) + plan.world;
  if (counted * std::ssize(kinds.steps()) > kMostLoads)
    throw UsageError(cat(plan.matrices.size(), " matrices on ", plan.world,
                         " ranks in ", kinds.steps().size(),
                         " kinds of steps: more than ", kMostLoads,
                         " loads; reduce the number of phases"));
  if (total * period > kMostWork)
    throw UsageError(cat("the work of one period, ", total * period,
                         " ticks, exceeds 64-bit counts"));
}

void count_placed_rounds(PlacedPlan& plan) {
  for (PlacedClass& c : plan.classes) c.num_rounds = 0;
  const auto count = [&](int32_t tensor, int32_t round) {
    PlacedClass& c = plan.classes[index(plan.class_of[index(tensor)])];
    c.num_rounds = std::max(c.num_rounds, round + 1);
  };
  for (const PlacedMatrix& m : plan.matrices) count(m.tensor, m.round);
  for (const PlacedElements& e : plan.elements) count(e.tensor, e.round);
}

PlacedRequest settle_placed(PlacedRequest request) {
  check_options_of(request);
  const GroupFacts facts = group_facts(request.groups);
  for (size_t g = 0; g < facts.size(); ++g)
    request.groups[g].options = facts[g]->options();
  check_names_of(request.tensors);
  for (PlacedTensor& tensor : request.tensors)
    settle_tensor(tensor, request, facts);
  check_countable(request);
  return request;
}

PlacedPlan open_placed_plan(PlacedRequest settled, const CostTable* table) {
  PlacedPlan plan;
  static_cast<PlacedRequest&>(plan) = std::move(settled);
  const GroupFacts facts = group_facts(plan.groups);
  make_classes(facts, plan);
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    plan.first_matrix.push_back(static_cast<int32_t>(plan.matrices.size()));
    if (facts[index(plan.tensors[t].group)]->needs_whole_matrix())
      cut_tensor(plan, static_cast<int32_t>(t), plan.matrices);
  }
  plan.first_matrix.push_back(static_cast<int32_t>(plan.matrices.size()));
  set_phases(facts, plan);
  weigh_matrices(facts, table, plan);
  return plan;
}

namespace {

PlacedPlan planned(PlacedRequest settled, const CostTable* table) {
  PlacedPlan plan = open_placed_plan(std::move(settled), table);
  const PlacedBasis basis(plan);
  decide_owners(basis, plan);
  decide_rounds(basis, plan);
  if (share_placed_matrices(plan)) decide_rounds(basis, plan);
  plan.summary = summarize_placed(basis, plan);
  return plan;
}

// Returns the same request with as many strips as teams could use, where their
// number was left open; nothing if it was not, or if there are no teams.
std::optional<PlacedRequest> with_more_strips(const PlacedRequest& settled) {
  if (settled.options.teams == kTeamsOff) return std::nullopt;
  const int32_t most = largest_team(settled.options.teams, settled.world);
  std::optional<PlacedRequest> more;
  for (size_t g = 0; g < settled.groups.size(); ++g) {
    const auto strips = settled.groups[g].options.find("strips");
    if (strips == settled.groups[g].options.end() || strips->second != "auto")
      continue;
    if (!more) more = settled;
    more->groups[g].options["strips"] = cat(most);
  }
  return more;
}

double slowest_step(const PlacedPlan& plan) {
  const std::vector<double> seconds = placed_step_seconds(plan);
  return *std::ranges::max_element(seconds);
}

}  // namespace

PlacedPlan make_placed_plan(PlacedRequest request, const CostTable* table) {
  PlacedRequest settled = settle_placed(std::move(request));
  std::optional<PlacedRequest> more = with_more_strips(settled);
  PlacedPlan plan = planned(std::move(settled), table);
  if (more) {
    PlacedPlan other = planned(*std::move(more), table);
    if (slowest_step(other) < kWorthTeams * slowest_step(plan))
      plan = std::move(other);
  }
  plan.digest = digest_of(plan);
  return plan;
}

namespace {

class PlacedValidation {
 public:
  explicit PlacedValidation(const PlacedPlan& plan) : plan_(plan) {}

  std::vector<std::string> run() {
    if (check_request()) {
      const PlacedBasis basis(plan_);
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

  std::string name(const PlacedMatrix& m) const {
    return quoted(placed_matrix_name(plan_.tensors[index(m.tensor)], m));
  }

  // Checks what follows from the request alone. Returns false if nothing more
  // can be checked.
  bool check_request() {
    PlacedPlan expected;
    try {
      expected = open_placed_plan(settle_placed(plan_), nullptr);
    } catch (const UsageError& error) {
      violated(error.what());
      return false;
    }
    if (static_cast<const PlacedRequest&>(expected) != plan_)
      violated(
          "the request does not list all rule options, or has empty "
          "boxes");
    check_classes(expected);
    return check_matrices(expected) && violations_.empty();
  }

  void check_classes(const PlacedPlan& expected) {
    if (plan_.class_of != expected.class_of ||
        plan_.classes.size() != expected.classes.size()) {
      violated("classes do not match the tensors' replicas");
      return;
    }
    for (size_t c = 0; c < plan_.classes.size(); ++c) {
      PlacedClass own = plan_.classes[c];
      own.num_rounds = expected.classes[c].num_rounds;
      if (own != expected.classes[c])
        violated("class ", c, ": lines or sets of replicas are not those of ",
                 "its tensors");
    }
    const auto shares = [](const PlacedElements& a, const PlacedElements& b) {
      return a.tensor == b.tensor;
    };
    if (!std::equal(plan_.elements.begin(), plan_.elements.end(),
                    expected.elements.begin(), expected.elements.end(), shares))
      violated("elements do not match the tensors that share states");
  }

  // Checks that matrices are cut and weighed as the request says. The costs of
  // a table are not known here.
  bool check_matrices(const PlacedPlan& expected) {
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
      PlacedMatrix own = expected.matrices[i];
      const PlacedMatrix& m = plan_.matrices[i];
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

  void check_owners(const PlacedBasis& basis) {
    for (size_t i = 0; i < plan_.matrices.size(); ++i) {
      const PlacedMatrix& m = plan_.matrices[i];
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
  void check_team(const PlacedBasis& basis, size_t i) {
    const PlacedMatrix& m = plan_.matrices[i];
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
    const int32_t most = largest_team(plan_.options.teams, plan_.world);
    if (std::ssize(ranks) > most)
      wrong(ranks.size(), " ranks share it, expected at most ", most);
    PlacedShares shares(plan_);
    const MatrixBlocks& blocks = shares.blocks(i);
    if (blocks.fall_apart()) {
      if (std::ssize(m.team) != blocks.count())
        wrong(m.team.size(), " owners of blocks, expected ", blocks.count());
      return;
    }
    if (ranks.size() != m.team.size() || !is_team_size(std::ssize(m.team)) ||
        std::ssize(m.team) > shares.strips(i).most_ranks())
      wrong("a team of ", m.team.size(), " ranks; its rule lets at most ",
            shares.strips(i).most_ranks(), " share it");
    for (const int32_t rank : ranks)
      if (rank / plan_.options.ranks_per_node !=
          m.owner / plan_.options.ranks_per_node)
        return wrong("rank ", rank, " of its team is on another node than ",
                     "rank ", m.owner);
  }

  // Returns false if bytes cannot be counted.
  bool check_lines() {
    bool fine = violations_.empty();
    for (const PlacedElements& e : plan_.elements) {
      const PlacedClass& c = class_of(e.tensor);
      if (e.line >= 0 && e.line < std::ssize(c.lines) && e.round >= 0) continue;
      fine = false;
      violated("tensor ", quoted(plan_.tensors[index(e.tensor)].name),
               ": line ", e.line, ", round ", e.round, ", expected one of ",
               c.lines.size(), " lines and a round");
    }
    return fine;
  }

  const PlacedClass& class_of(int32_t tensor) const {
    return plan_.classes[index(plan_.class_of[index(tensor)])];
  }

  // Checks that rounds are numbered without gaps.
  void check_rounds(const PlacedBasis& basis) {
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

  void check_capacity(const PlacedBasis& basis) {
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

  void check_summary(const PlacedBasis& basis) {
    const PlacedSummary expected = summarize_placed(basis, plan_);
    const PlacedSummary& own = plan_.summary;
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

  const PlacedPlan& plan_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> validate(const PlacedPlan& plan) {
  return PlacedValidation(plan).run();
}

}  // namespace canzona
