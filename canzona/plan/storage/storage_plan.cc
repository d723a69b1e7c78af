#include "canzona/plan/storage/storage_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/storage/storage_basis.h"
#include "canzona/plan/storage/storage_json.h"
#include "canzona/plan/storage/storage_owners.h"
#include "canzona/plan/storage/storage_sharing.h"
#include "canzona/plan/storage/stored_pieces.h"
#include "canzona/plan/search/teams.h"

namespace canzona {
using namespace plan;

std::string list_text(const std::vector<int64_t>& numbers) {
  std::vector<std::string> words;
  words.reserve(numbers.size());
  for (const int64_t number : numbers) words.push_back(cat(number));
  return cat("[", join(words, ", "), "]");
}

std::vector<std::unique_ptr<RuleFacts>> group_facts(
    const std::vector<RuleGroup>& groups) {
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

int64_t whole_elements(const CutTensor& tensor) {
  return Box{{}, tensor.shape}.elements();
}

int64_t stack_of(const CutTensor& tensor) {
  int64_t product = 1;
  for (size_t d = 0; d + 2 < tensor.shape.size(); ++d)
    product *= tensor.shape[d];
  return product;
}

std::string matrix_name(const CutTensor& tensor, const OwnedMatrix& matrix) {
  std::string name = tensor.name;
  if (stack_of(tensor) > 1) name += cat("[", matrix.number, "]");
  if (tensor.splits.size() < 2) return name;
  int64_t row = 0;
  size_t split = 0;
  while (row < matrix.first_row) row += tensor.splits[split++];
  return cat(name, ":", split);
}

int64_t common_elements(const CutTensor& tensor, const OwnedMatrix& matrix,
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

[[noreturn]] void refuse(const CutTensor& tensor, const std::string& what) {
  throw UsageError(cat("tensor ", quoted(tensor.name), ": ", what));
}

void check_shape(const CutTensor& tensor) {
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

void check_splits(const CutTensor& tensor, bool matrix_rule) {
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

void settle_tensor(CutTensor& tensor, const StorageRequest& request,
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

void check_options_of(const StorageRequest& request) {
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

void check_names_of(const std::vector<CutTensor>& tensors) {
  std::set<std::string_view> names;
  for (const CutTensor& tensor : tensors) {
    if (tensor.name.empty()) throw UsageError("a tensor has no name");
    if (!names.insert(tensor.name).second)
      refuse(tensor, "the name is used by two tensors");
  }
}

// Checks that the bytes of all ranks together fit 64 bits.
void check_countable(const StorageRequest& request) {
  double elements = 0;
  for (const CutTensor& tensor : request.tensors)
    elements += static_cast<double>(whole_elements(tensor));
  constexpr double kBytesPerElement = 16;
  if (elements * kBytesPerElement * request.world > kMostBytes)
    throw UsageError(cat(elements, " elements on ", request.world,
                         " ranks exceed 64-bit counts of bytes"));
}

void cut_tensor(const StoragePlan& plan, int32_t t,
                std::vector<OwnedMatrix>& out) {
  const CutTensor& tensor = plan.tensors[index(t)];
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
void set_phases(const GroupFacts& facts, StoragePlan& plan) {
  for (size_t g = 0; g < facts.size(); ++g) {
    const auto phases = static_cast<size_t>(facts[g]->phases());
    if (facts[g]->period() <= 1 || phases <= 1) continue;
    std::vector<std::pair<std::string, OwnedMatrix*>> names;
    for (OwnedMatrix& m : plan.matrices) {
      const CutTensor& tensor = plan.tensors[index(m.tensor)];
      if (index(tensor.group) == g)
        names.emplace_back(matrix_name(tensor, m), &m);
    }
    std::stable_sort(
        names.begin(), names.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < names.size(); ++i)
      names[i].second->phase = static_cast<int32_t>(i % phases);
  }
}

void weigh_matrices(const GroupFacts& facts, const CostTable* table,
                    StoragePlan& plan) {
  std::vector<CostModel> models;
  for (const auto& rule : facts) models.emplace_back(*rule, table);
  if (!models.empty()) plan.cost_basis = models.front().basis();
  for (OwnedMatrix& m : plan.matrices) {
    const size_t g = index(plan.tensors[index(m.tensor)].group);
    m.cost = models[g].cost({m.rows, m.cols});
  }
  check_storage_work(plan);
}

void make_classes(const GroupFacts& facts, StoragePlan& plan) {
  const auto pieces = stored_pieces(plan);
  std::vector<std::vector<std::vector<int32_t>>> sets(plan.tensors.size());
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const CutTensor& tensor = plan.tensors[t];
    const bool matrix_rule = facts[index(tensor.group)]->needs_whole_matrix();
    const bool replicated =
        std::any_of(pieces[t]->begin(), pieces[t]->end(),
                    [](const auto& piece) { return piece.ranks.size() > 1; });
    const bool shared = plan.options.share_states && replicated;
    if (!matrix_rule && !shared) continue;
    sets[t] = replica_sets(tensor, *pieces[t]);
    if (!matrix_rule) plan.elements.push_back({static_cast<int32_t>(t), 0, 0});
  }
  ReplicaClasses made = make_replica_classes(sets, plan.world);
  plan.classes = std::move(made.classes);
  plan.class_of = std::move(made.class_of);
}

}  // namespace

void check_storage_work(const StoragePlan& plan) {
  double total = 0;
  for (const OwnedMatrix& m : plan.matrices)
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

void count_storage_rounds(StoragePlan& plan) {
  for (ReplicaClass& c : plan.classes) c.num_rounds = 0;
  const auto count = [&](int32_t tensor, int32_t round) {
    ReplicaClass& c = plan.classes[index(plan.class_of[index(tensor)])];
    c.num_rounds = std::max(c.num_rounds, round + 1);
  };
  for (const OwnedMatrix& m : plan.matrices) count(m.tensor, m.round);
  for (const SharedElements& e : plan.elements) count(e.tensor, e.round);
}

StorageRequest settle_storage(StorageRequest request) {
  check_options_of(request);
  const GroupFacts facts = group_facts(request.groups);
  for (size_t g = 0; g < facts.size(); ++g)
    request.groups[g].options = facts[g]->options();
  check_names_of(request.tensors);
  for (CutTensor& tensor : request.tensors)
    settle_tensor(tensor, request, facts);
  check_countable(request);
  return request;
}

bool is_settled(const StorageRequest& request, const StorageRequest& settled) {
  StorageRequest filled = request;
  for (size_t g = 0; g < filled.groups.size(); ++g)
    for (const auto& option : settled.groups[g].options)
      filled.groups[g].options.insert(option);
  return filled == settled;
}

StoragePlan open_storage_plan(StorageRequest settled, const CostTable* table) {
  StoragePlan plan;
  static_cast<StorageRequest&>(plan) = std::move(settled);
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

StoragePlan planned(StorageRequest settled, const CostTable* table) {
  StoragePlan plan = open_storage_plan(std::move(settled), table);
  const StorageBasis basis(plan);
  decide_owners(basis, plan);
  decide_rounds(basis, plan);
  if (share_storage_matrices(plan)) decide_rounds(basis, plan);
  plan.summary = summarize_storage(basis, plan);
  return plan;
}

// Returns the same request with as many strips as teams could use, where their
// number was left open; nothing if it was not, or if there are no teams.
std::optional<StorageRequest> with_more_strips(const StorageRequest& settled) {
  if (settled.options.teams == kTeamsOff) return std::nullopt;
  const int32_t most = largest_team(settled.options.teams, settled.world);
  std::optional<StorageRequest> more;
  for (size_t g = 0; g < settled.groups.size(); ++g) {
    const auto strips = settled.groups[g].options.find("strips");
    if (strips == settled.groups[g].options.end() || strips->second != "auto")
      continue;
    if (!more) more = settled;
    more->groups[g].options["strips"] = cat(most);
  }
  return more;
}

double slowest_step(const StoragePlan& plan) {
  const std::vector<double> seconds = storage_step_seconds(plan);
  return *std::ranges::max_element(seconds);
}

}  // namespace

StoragePlan make_storage_plan(StorageRequest request, const CostTable* table) {
  StorageRequest settled = settle_storage(std::move(request));
  std::optional<StorageRequest> more = with_more_strips(settled);
  StoragePlan plan = planned(std::move(settled), table);
  if (more) {
    StoragePlan other = planned(*std::move(more), table);
    if (slowest_step(other) < kWorthTeams * slowest_step(plan))
      plan = std::move(other);
  }
  plan.digest = digest_of(plan);
  return plan;
}

}  // namespace canzona
