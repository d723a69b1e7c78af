// Computes new eigenbases for the factors of one axis, one per tensor: by eigh,
// or from the old ones by power steps, each a product and a QR.
//
//   find_bases(engine, soap, task, DType::kFp64, found, outcomes);
//
// A factor that is diagonal enough keeps its basis while the others continue;
// each result is independent of the others. At most kMostTogether factors.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/rules/refresh.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/soap/facts.h"
#include "canzona/rules/together.h"

namespace canzona::rules {

struct BasisTask {
  ConstMatrices factor;  // symmetric and finite
  ConstMatrices basis;   // the old ones
  double factor_scale = 1;
  bool by_eigh = false;
  bool is_first = false;
  FactorId part;  // of the first factor; the others' tensors follow
  DecompositionHook* hook = nullptr;

  BasisTask some(int64_t begin, int64_t size) const;
};

// The results, one of each per factor, in the caller's memory on the engine.
struct NewBases {
  Matrices basis;
  // Eigenvalues of the factor in the new basis, 1 x n; no data if not needed.
  Matrices eigenvalues;
  // The old vector that each new one grew from, and whether to permute the
  // second moment accordingly.
  Orders order;
  std::span<bool> moved;

  NewBases some(int64_t begin, int64_t size) const;
};

// True if find_bases computes eigenvalues.
bool finds_eigenvalues(const SoapOptions& soap);

// Computes in `dtype`; results are in the factors' type. A factor also fails if
// the hook refuses its result. A Cholesky QR that fails is redone by
// Householder. Neither factors nor old bases are written.
void find_bases(Engine& engine, const SoapOptions& soap, const BasisTask& task,
                DType dtype, const NewBases& found,
                std::span<Outcome> outcomes);

// One attempt to find new bases, all in one type.
//
//   BasisSearch(engine, soap, task, found, outcomes).run();
//
// Lives for one call and requires an open scope of the engine's arena.
class BasisSearch {
 public:
  BasisSearch(Engine& engine, const SoapOptions& soap, const BasisTask& task,
              const NewBases& found, std::span<Outcome> outcomes);

  void run();

 private:
  // A factor is kGoing until its basis is found; then its columns are sorted.
  enum class State { kGoing, kFound, kFinished, kFailed };

  Matrices scratch(int64_t rows, int64_t count);
  template <class Work>
  void for_each(State state, const Work& work) const;
  void end(int64_t place, State state) { states_[place] = state; }
  void fail(int64_t place, const char* reason);

  void multiply(int64_t begin, Matrices to, ConstMatrices q);
  void sort(int64_t begin, int64_t size, bool falling);
  Orders reversed();
  void let_hook_order(int64_t begin, int64_t size);
  void require_estimates(State state);
  PerTensor<bool> diagonal_ones(ConstMatrices product, int64_t begin,
                                int64_t size);

  void keep_diagonal_ones(ConstMatrices product, ConstMatrices current);
  void by_eigh();
  void by_power_steps();
  void permute_columns(Matrices to, ConstMatrices from);
  void orthogonalise(Matrices a);
  void orthogonalise_run(Matrices a, int64_t begin);
  void finish();
  void require_vectors();

  Engine& engine_;
  const SoapOptions& soap_;
  const BasisTask& task_;
  const NewBases& found_;
  std::span<Outcome> outcomes_;
  int64_t n_;
  int64_t count_;
  Matrices values_;  // estimates of eigenvalues, in the order of columns
  PerTensor<State> states_;
};

}  // namespace canzona::rules
