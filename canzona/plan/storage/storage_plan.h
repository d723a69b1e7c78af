// Plans for a given storage layout: the trainer has already cut every tensor,
// and the plan decides only who computes which matrix, and when.
//
//   StorageInput input = read_storage(text);             // storage_json.h
//   StoragePlan plan = make_storage_plan(input.request, input.table());
//   plan.matrices[m].owner, plan.matrices[m].round
//
// A tensor's last two dimensions are its matrices; the dimensions before them
// stack matrices. `splits` cuts each matrix by rows. A rank stores a list of
// boxes of a tensor (usually one or none), one after another in its memory,
// each row-major.
//
// Ranks that store the same box are *replicas* of each other. Tensors whose
// replicas are the same ranks form a *class*. The first ranks of all sets of
// replicas form a *line*, the second ones the next line, and so on, so that
// each line holds every piece once. The owner of a matrix is a rank that stores
// a piece of it. Its line gathers the pieces to the owner and receives the
// updates, and every rank of that line forwards its updates to its replicas.
// Ranks of one line may share a matrix (storage_sharing.h).
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/box.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/plan/cost/cost_table.h"
#include "canzona/plan/options.h"
#include "canzona/plan/plan.h"
#include "canzona/rules/facts.h"

namespace canzona {

std::string list_text(const std::vector<int64_t>& numbers);  // "[16, 32]"

// A rule with its options, shared by the tensors that refer to it.
struct RuleGroup {
  std::string rule;     // "muon"; "adamw" updates elements in place
  RuleOptions options;  // all of them, in a plan
  friend bool operator==(const RuleGroup&, const RuleGroup&) = default;
};

struct CutTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kFp32;
  int32_t group = 0;
  std::vector<int64_t> splits;           // rows, which add up; empty: one
  std::vector<std::vector<Box>> stored;  // by rank
  friend bool operator==(const CutTensor&, const CutTensor&) = default;
};

struct StorageOptions {
  // In which numbers travel between ranks. With kBf16, values are also rounded
  // on the rank where they stay, so that all ranks use the same numbers.
  DType wire = DType::kFp32;
  MasterForm master = MasterForm::kFp32;  // of bf16 tensors
  // Only the owner's line keeps the states of replicated tensors.
  bool share_states = false;
  // The most bytes that the messages of a round may take on one rank.
  int64_t capacity_bytes = int64_t{64} << 20;
  // Owners of different lines take turns instead of exceeding it together.
  bool strict_capacity = false;
  int32_t ranks_per_node = 8;
  // How many ranks of a line may share a matrix (options.h).
  int32_t teams = kTeamsOff;
  Links links;
  friend bool operator==(const StorageOptions&,
                         const StorageOptions&) = default;
};

struct StorageRequest {
  int32_t world = 1;
  std::vector<RuleGroup> groups;
  std::vector<CutTensor> tensors;
  StorageOptions options;
  friend bool operator==(const StorageRequest&,
                         const StorageRequest&) = default;
};

// Rows [first_row, first_row + rows) of matrix `number` of a tensor's stack,
// updated as a separate matrix.
struct OwnedMatrix {
  int32_t tensor = 0;
  int64_t number = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  MatrixCost cost = {};
  int32_t phase = 0;
  int32_t owner = 0;  // rank
  int32_t round = 0;  // of its class; -1: none of its pieces ever moves
  // The ranks that share it, all of one line: a team with the owner first, or
  // the owner of each block (RuleFacts::block). Empty: the owner alone.
  std::vector<int32_t> team = {};

  std::span<const int32_t> owners() const {
    return team.empty() ? std::span(&owner, 1) : std::span(team);
  }
  friend bool operator==(const OwnedMatrix&, const OwnedMatrix&) = default;
};

// Tensors whose replicas are the same ranks: those of matrix rules and, with
// share_states, other tensors that have replicas. Line i consists of the i-th
// rank of every set. Ranks that store nothing of a class are in no line.
struct ReplicaClass {
  std::vector<std::vector<int32_t>> lines;     // ascending ranks
  std::vector<std::vector<int32_t>> replicas;  // sets, ascending ranks
  std::vector<int32_t> tensors;                // ascending
  int32_t num_rounds = 0;
  friend bool operator==(const ReplicaClass&, const ReplicaClass&) = default;
};

// An element-wise tensor whose replicas share its states: one line of its class
// keeps them, updates the weights and broadcasts these, in fp32, in a round.
// Exists only with share_states, and only for tensors that have replicas.
struct SharedElements {
  int32_t tensor = 0;
  int32_t line = 0;   // of its class
  int32_t round = 0;  // of its class
  friend bool operator==(const SharedElements&,
                         const SharedElements&) = default;
};

struct StoragePlan : StorageRequest {
  CostBasis cost_basis;
  std::vector<OwnedMatrix> matrices;     // in tensor order
  std::vector<SharedElements> elements;  // in tensor order
  std::vector<ReplicaClass> classes;
  LoadSummary summary;
  std::string digest;  // SHA-256 of the request and the decisions

  // Derived: the first matrix of each tensor, and one past the end.
  std::vector<int32_t> first_matrix;
  // By tensor; -1: no class, every rank updates the elements that it stores.
  std::vector<int32_t> class_of;
};

// Returns the facts of each group's rule. The UsageError names the group and
// the unknown rule or option.
std::vector<std::unique_ptr<RuleFacts>> group_facts(
    const std::vector<RuleGroup>& groups);

// Returns the number of elements of a tensor, wherever they are stored.
int64_t whole_elements(const CutTensor& tensor);

// Returns the number of matrices that the leading dimensions stack.
int64_t stack_of(const CutTensor& tensor);

// Returns "layers.0.qkv", "layers.0.qkv:2" for its third split, and
// "experts[7]" or "experts[7]:0" in a stack.
std::string matrix_name(const CutTensor& tensor, const OwnedMatrix& matrix);

// Returns how many elements of a matrix of the tensor lie in `box`.
int64_t common_elements(const CutTensor& tensor, const OwnedMatrix& matrix,
                        const Box& box);

// make_storage_plan() turns a given storage layout into a finished plan.
//
//   StorageInput input = read_storage(text, "storage.json");
//   StoragePlan plan = make_storage_plan(input.request, input.table());
//   std::vector<std::string> violations = validate(plan);

// Returns the request as a plan stores it: all rule options filled in, empty
// boxes removed. The UsageError names the tensor that cannot be planned.
StorageRequest settle_storage(StorageRequest request);

// True if a request says what settle_storage() made of it, up to rule options
// that came with later releases: a finished plan may lack those.
bool is_settled(const StorageRequest& request, const StorageRequest& settled);

// Returns a plan with the weighed matrices of all matrix-rule tensors, not yet
// assigned, the classes, the shared elements and all derived fields. The
// UsageError names the tensor and rank whose storage breaks the requirements of
// this file. If `table` is null, a matrix costs its rule's flops.
StoragePlan open_storage_plan(StorageRequest settled, const CostTable* table);

// Throws UsageError if the work of a period does not fit 64 bits.
void check_storage_work(const StoragePlan& plan);

// Sets the number of rounds of each class from those of its matrices.
void count_storage_rounds(StoragePlan& plan);

// Returns the plan with owners, rounds, summary and digest.
StoragePlan make_storage_plan(StorageRequest request,
                              const CostTable* table = nullptr);

// Checks the invariants of a plan for a given storage layout and lists every
// violation, not only the first: every element is stored; every matrix has an
// owner that stores a piece of it; matrices that move have a round and others
// have none; rounds respect the capacity; classes, costs, figures and digest
// follow from the request and the decisions.

std::vector<std::string> validate(const StoragePlan& plan);

}  // namespace canzona
