#include "canzona/plan/validate/validate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "canzona/base/text.h"
#include "canzona/plan/layout/layout.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/rank_costs.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona {
using namespace plan;
namespace {

class Validation {
 public:
  explicit Validation(const PlanPart& part) : part_(part), teams_(part) {}

  // Returns false if the part is too broken to be predicted.
  bool run() {
    check_matrices();
    check_places();
    for (size_t b = 0; b < part_.buckets.size(); ++b) check_bucket(b);
    check_homes();
    check_owners();
    check_micro_groups();
    if (!violations_.empty()) return false;
    check_routes(part_, violations_);
    if (part_.options.strategy == "balanced") check_bytes();
    if (part_.grid.tp > 1) check_capacity();
    if (part_.grid.places == 1)
      for (size_t b = 0; b < part_.buckets.size(); ++b) check_size(b);
    return true;
  }

  const std::vector<std::string>& violations() const { return violations_; }

 private:
  template <class... Args>
  void violated(const Args&... args) {
    violations_.push_back(cat(args...));
  }
  std::string name(int32_t tensor) const {
    return quoted(part_.model.tensors[static_cast<size_t>(tensor)].name);
  }
  const Tensor& tensor(int32_t t) const {
    return part_.model.tensors[static_cast<size_t>(t)];
  }

  // Checks that every tensor lies in exactly one bucket, on the ranks that hold
  // it.
  void check_places() {
    std::vector<int32_t> places(part_.model.tensors.size(), 0);
    for (size_t b = 0; b < part_.buckets.size(); ++b) {
      const Bucket& bucket = part_.buckets[b];
      const Buffer& buffer = part_.buffers[static_cast<size_t>(bucket.buffer)];
      for (int32_t t : bucket.tensors) {
        ++places[static_cast<size_t>(t)];
        if (stage_of(part_.grid, part_.model, tensor(t)) != buffer.stage ||
            ep_of(part_.grid, part_.model, tensor(t)) != buffer.ep) {
          violated("tensor ", name(t), ": bucket ", b,
                   " belongs to other ranks (stage ", buffer.stage, ", ep ",
                   buffer.ep, ")");
        }
      }
    }
    for (size_t t = 0; t < places.size(); ++t) {
      if (places[t] != 1) {
        violated("tensor ", name(static_cast<int32_t>(t)), " has ", places[t],
                 " places, expected one");
      }
    }
    for (const Buffer& buffer : part_.buffers) {
      const int32_t expected =
          buffer.ep < 0 ? part_.grid.homes() : part_.grid.expert_homes();
      if (buffer.num_homes != expected) {
        violated("buffer of stage ", buffer.stage, ", ep ", buffer.ep, ": ",
                 buffer.num_homes, " homes, expected ", expected);
      }
    }
  }

  void check_bucket(size_t b) {
    const Bucket& bucket = part_.buckets[b];
    for (size_t i = 0; i < bucket.tensors.size(); ++i) {
      const bool matrix = i < static_cast<size_t>(bucket.num_matrix_tensors);
      if (tensor(bucket.tensors[i]).matrix_rule != matrix) {
        violated("bucket ", b, ": tensor ", name(bucket.tensors[i]),
                 " lies in the wrong region");
      }
    }
    const bool scatters = is_scattered(part_.traffic);
    if (scatters) {
      check_cuts(b, "cuts", bucket.cuts, matrix_elements(part_, bucket));
      check_runs(b);
    } else if (!bucket.cuts.empty()) {
      violated("bucket ", b,
               ": has cuts although its gradients are all-reduced");
    }
    if (part_.traffic != Traffic::kAllReduce) {
      check_cuts(b, "AdamW cuts", bucket.adamw_cuts,
                 adamw_elements(part_, bucket));
    }
  }

  void check_cuts(size_t b, const char* what, const std::vector<int64_t>& cuts,
                  int64_t elements) {
    const Buffer& buffer =
        part_.buffers[static_cast<size_t>(part_.buckets[b].buffer)];
    if (cuts.size() != static_cast<size_t>(buffer.num_homes) + 1) {
      violated("bucket ", b, ": ", cuts.size(), " ", what, ", expected ",
               buffer.num_homes + 1);
      return;
    }
    if (cuts.front() != 0 || cuts.back() != elements ||
        !std::is_sorted(cuts.begin(), cuts.end())) {
      violated("bucket ", b, ": ", what, " do not cut its ", elements,
               " elements into runs");
    }
  }

  // Checks that each tensor lies inside its home's run, so that each element is
  // kept once.
  void check_runs(size_t b) {
    const Bucket& bucket = part_.buckets[b];
    int64_t offset = 0;
    for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
      const int32_t t = bucket.tensors[static_cast<size_t>(i)];
      const int32_t home = part_.home[static_cast<size_t>(t)];
      const int64_t end = offset + shard_elements(part_.grid, tensor(t));
      const auto h = static_cast<size_t>(home);
      if (home < 0 || h + 1 >= bucket.cuts.size() || offset < bucket.cuts[h] ||
          end > bucket.cuts[h + 1]) {
        violated("bucket ", b, ": tensor ", name(t), " at elements ", offset,
                 "..", end, " lies outside the run of its home ", home);
      }
      offset = end;
    }
  }

  // Checks that the matrices are those into which the split cuts each tensor.
  void check_matrices() {
    const std::vector<Matrix> expected =
        split_into_matrices(part_.model, part_.options.splits);
    const size_t n = std::max(expected.size(), part_.matrices.size());
    for (size_t m = 0; m < n; ++m) {
      if (m < expected.size() && m < part_.matrices.size() &&
          expected[m] == part_.matrices[m]) {
        continue;
      }
      const Matrix& known =
          m < expected.size() ? expected[m] : part_.matrices[m];
      violated("matrix ", m,
               " is not what split=", to_string(part_.options.splits),
               " makes of tensor ", name(known.tensor));
    }
  }

  void check_homes() {
    const bool repeats = part_.traffic == Traffic::kAllReduce;
    for (size_t t = 0; t < part_.home.size(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      const bool owned = part_.model.tensors[t].matrix_rule && !repeats;
      if (owned == (part_.home[t] == kEveryHome)) {
        violated("tensor ", name(tensor),
                 owned ? " has no home" : " has a home but no owner");
      }
      if (part_.bucket_of[t] < 0) continue;  // has no place, as said above
      const int32_t homes = part_.buffer_of(tensor).num_homes;
      if (part_.home[t] < kEveryHome || part_.home[t] >= homes) {
        violated("tensor ", name(tensor), ": home ", part_.home[t], " of ",
                 homes);
      }
    }
  }

  std::string matrix_text(size_t m) const {
    return cat("matrix ", quoted(matrix_name(part_.model, part_.matrices[m],
                                             part_.options.splits)));
  }

  void check_owners() {
    const bool one_owner = is_scattered(part_.traffic);
    for (size_t m = 0; m < part_.matrices.size(); ++m) {
      const auto owners = part_.owners[m];
      const bool inside =
          std::all_of(owners.begin(), owners.end(),
                      [&](int32_t t) { return t >= 0 && t < part_.grid.tp; });
      if (!inside) {
        violated(matrix_text(m), " has an owner beyond the ", part_.grid.tp,
                 " tp ranks of its home");
      }
      if (owners.size() > 1) {
        check_shared(m, inside);
      } else if (owners.empty() == one_owner) {
        violated(matrix_text(m), " has ", owners.size(), " owners");
      }
    }
  }

  // A team has ranks of one home and node.
  void check_shared(size_t m, bool inside) {
    const auto owners = part_.owners[m];
    check_sharing(teams_, m, matrix_text(m), owners, part_.options.teams,
                  part_.grid.tp, violations_);
    const bool in_blocks = teams_.is_in_blocks(m);
    if (!is_scattered(part_.traffic) ||
        (in_blocks && part_.options.micro_groups != "balanced"))
      violated(matrix_text(m), ": ranks cannot share it: strategy ",
               part_.options.strategy,
               " with micro-groups=", part_.options.micro_groups,
               " gives each matrix one owner");
    if (!in_blocks && inside && !is_on_one_node(m))
      violated(matrix_text(m), ": its team has ranks of several nodes of ",
               counted_text(part_.options.ranks_per_node, "rank"));
  }

  bool is_on_one_node(size_t m) {
    const int32_t tensor = part_.matrices[m].tensor;
    const auto t = static_cast<size_t>(tensor);
    if (part_.bucket_of[t] < 0) return true;  // has no place, as said above
    const Buffer& buffer = part_.buffer_of(tensor);
    const int32_t home = part_.home[t];
    if (home < 0 || home >= buffer.num_homes) return true;  // the same
    if (nodes_.empty()) nodes_ = nodes_for_teams(part_);
    const int32_t first =
        part_.grid.rank(buffer.stage, part_.stage_home(buffer, home), 0);
    const auto node = [&](int32_t own) {
      return nodes_[static_cast<size_t>(first + own)];
    };
    const auto owners = part_.owners[m];
    return std::all_of(owners.begin(), owners.end(), [&](int32_t own) {
      return node(own) == node(owners[0]);
    });
  }

  // Checks that the rounds of a home are numbered without gaps.
  void check_micro_groups() {
    const int32_t num_homes = part_.grid.pp * part_.grid.homes();
    std::vector<std::set<int32_t>> rounds(static_cast<size_t>(num_homes));
    for (size_t m = 0; m < part_.matrices.size(); ++m) {
      const int32_t t = part_.matrices[m].tensor;
      if (part_.bucket_of[static_cast<size_t>(t)] < 0) continue;
      const Buffer& buffer = part_.buffer_of(t);
      const int32_t home = std::max(part_.home[static_cast<size_t>(t)], 0);
      if (home >= buffer.num_homes) continue;  // said above
      const int32_t in_all =
          buffer.stage * part_.grid.homes() + part_.stage_home(buffer, home);
      rounds[static_cast<size_t>(in_all)].insert(part_.micro_group[m]);
    }
    for (size_t h = 0; h < rounds.size(); ++h) {
      if (!rounds[h].empty() &&
          *rounds[h].rbegin() != static_cast<int32_t>(rounds[h].size()) - 1) {
        violated("home ", h, ": micro-groups are not numbered 0 to ",
                 rounds[h].size() - 1);
      }
    }
  }

  void check_bytes() {
    for (size_t b = 0; b < part_.buckets.size(); ++b) {
      const Bucket& bucket = part_.buckets[b];
      std::vector<int64_t> shards;
      for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
        shards.push_back(shard_elements(
            part_.grid, tensor(bucket.tensors[static_cast<size_t>(i)])));
      }
      const auto homes = static_cast<int64_t>(bucket.cuts.size()) - 1;
      const int64_t cap =
          reachable_bucket_cap(shards, homes, *part_.options.alpha);
      if (longest_run(bucket) > cap) {
        violated("bucket ", b, ": a home keeps ", longest_run(bucket),
                 " elements, above its budget of ", cap);
      }
    }
  }

  // In one round an owner receives several matrices only within the capacity.
  // Matrices of several owners, which get a part of them, are not counted.
  void check_capacity() {
    struct Load {
      int64_t bytes = 0, matrices = 0;
    };
    std::map<std::array<int32_t, 4>, Load> loads;
    for (size_t m = 0; m < part_.matrices.size(); ++m) {
      const Matrix& matrix = part_.matrices[m];
      const auto t = static_cast<size_t>(matrix.tensor);
      if (part_.owners[m].size() != 1) continue;
      const int32_t ranks = tensor(matrix.tensor).cut == Cut::kNone
                                ? part_.grid.places
                                : part_.grid.tp;
      Load& load = loads[{
          part_.buffer_of(matrix.tensor).stage,
          part_.stage_home(part_.buffer_of(matrix.tensor), part_.home[t]),
          part_.micro_group[m], part_.owners[m][0]}];
      load.bytes += matrix.rows * matrix.cols * kBytesPerFp32 / ranks;
      ++load.matrices;
    }
    for (const auto& [at, load] : loads)
      if (load.matrices > 1 && load.bytes > part_.options.capacity_bytes)
        violated("home ", at[1], ": owner ", at[3], " receives ", load.matrices,
                 " matrices of ", load.bytes, " bytes in micro-group ", at[2],
                 ", above the capacity of ", part_.options.capacity_bytes);
  }

  // Matrices fill a bucket from the last tensor to the first, until it has
  // bucket_elements; less than half as many may remain for it at the end.
  void check_size(size_t b) {
    const Bucket& bucket = part_.buckets[b];
    std::vector<int32_t> matrices(
        bucket.tensors.begin(),
        bucket.tensors.begin() + bucket.num_matrix_tensors);
    std::ranges::sort(matrices, std::greater());
    const int64_t limit = part_.options.bucket_elements;
    int64_t elements = 0, rest = 0;
    for (const int32_t t : matrices)
      (elements < limit ? elements : rest) +=
          shard_elements(part_.grid, tensor(t));
    if (rest >= limit - rest)
      violated("bucket ", b, " has ", elements + rest,
               " elements of matrices, but is full with ", elements,
               " (bucket_elements=", limit, ")");
  }

  const PlanPart& part_;
  TeamTable teams_;
  std::vector<int32_t> nodes_;  // for teams, of the grid's ranks
  std::vector<std::string> violations_;
};

// True if a part has the tensors of `expected` and the same fields derived from
// the whole plan.
bool belongs(const PlanPart& part, const PlanPart& expected,
             const std::vector<Tensor>& tensors) {
  const auto given = [](const PlanPart& p) {
    const Model& m = p.model;
    return std::tie(m.name, m.num_layers, m.num_experts, m.query_heads,
                    m.kv_heads, m.fused, p.mesh, p.rule, p.rule_options,
                    p.options, p.costs, p.tensors, p.cost_basis, p.traffic,
                    p.ep, p.e, p.phase);
  };
  return given(part) == given(expected) &&
         std::ranges::equal(part.model.tensors, part.tensors,
                            [&](const Tensor& own, int32_t t) {
                              return own == tensors[static_cast<size_t>(t)];
                            });
}

// Predicted seconds are not part of what a plan promises, because another
// version may predict others from the same decisions; only the digest covers
// them.
PlanSummary with_seconds_of(PlanSummary summary, const PlanSummary& stored) {
  summary.step_seconds_mean = stored.step_seconds_mean;
  summary.step_seconds_worst = stored.step_seconds_worst;
  return summary;
}

// A mean of equal times may be rounded up.
bool are_times(const PlanSummary& s) {
  constexpr double kRounded = 1 - 1e-9;
  return s.step_seconds_mean >= 0 && std::isfinite(s.step_seconds_worst) &&
         s.step_seconds_worst >= kRounded * s.step_seconds_mean;
}

// Checks that the stored predictions of the plan and of its parts are those
// that follow from its decisions.
void check_predictions(const Plan& plan, std::vector<std::string>& violations) {
  constexpr const char* kOthers =
      "the stored predictions are not those of this plan";
  std::vector<std::vector<RankCost>> of_parts;
  for (const PlanPart& part : plan.parts) {
    of_parts.push_back(predict_without_times(part));
    const PlanSummary& stored = part.summary;
    if (!part.name.empty() &&
        (!are_times(stored) ||
         with_seconds_of(summarize(part, of_parts.back()), stored) != stored))
      violations.push_back(cat(part.name, ": ", kOthers));
  }
  const std::vector<RankCost> ranks = sum_of_parts(plan, std::move(of_parts));
  const PlanSummary expected =
      with_seconds_of(summarize(plan, ranks), plan.summary);
  if (!are_times(plan.summary) || expected != plan.summary)
    violations.push_back(kOthers);
  check_memory_cap(plan.options.memory_cap_bytes, ranks, 0, violations);
}

}  // namespace

std::vector<std::string> validate(const Plan& plan) {
  const std::vector<PlanPart> expected = parts_without_tensors(plan);
  if (plan.parts.size() != expected.size())
    return {cat("the plan has ", plan.parts.size(), " parts, expected ",
                expected.size())};
  std::vector<std::string> violations;
  bool countable = true;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const PlanPart& part = plan.parts[i];
    const std::string where = part.name.empty() ? "" : part.name + ": ";
    if (!belongs(part, expected[i], plan.model.tensors))
      violations.push_back(where + "not a part of this plan");
    Validation validation(part);
    countable &= validation.run();
    for (const std::string& violation : validation.violations())
      violations.push_back(where + violation);
  }
  if (!countable) return violations;
  check_predictions(plan, violations);
  return violations;
}

void check_memory_cap(int64_t cap, const std::vector<RankCost>& ranks,
                      int64_t activations,
                      std::vector<std::string>& violations) {
  if (cap == 0) return;
  size_t above = 0, worst = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    above += ranks[r].memory.total().value() > cap - activations;
    if (ranks[r].memory.total() > ranks[worst].memory.total()) worst = r;
  }
  if (above == 0) return;
  const RankMemory& m = ranks[worst].memory;
  auto size = [](Bytes bytes) { return human_bytes(bytes.value()); };
  violations.push_back(cat(
      above, " of ", ranks.size(), " ranks need more memory than the cap ",
      "of ", human_bytes(cap), "; the largest is rank ", worst, " with ",
      size(m.total() + Bytes(activations)), ": parameters ", size(m.parameters),
      ", gradients ", size(m.gradients), ", master ", size(m.master),
      ", states ", size(m.states), ", buffers ", size(m.buffers),
      m.pools.value() > 0 ? cat(", pools ", size(m.pools)) : "",
      activations > 0 ? cat(", activations ", human_bytes(activations)) : ""));
}

}  // namespace canzona
