// One try to find new bases, all in one type of number; basis.h has the whole.
//
//   BasisSearch(engine, soap, task, found, outcomes).run();
//
// Lives for one call, in a scope of the engine's arena.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/rules/soap/basis.h"
#include "canzona/rules/together.h"

namespace canzona {

class BasisSearch {
 public:
  BasisSearch(Engine& engine, const SoapOptions& soap, const BasisTask& task,
              const NewBases& found, std::span<Outcome> outcomes);

  void run();

 private:
  // A factor goes on until its basis is found, then that is put in order.
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

}  // namespace canzona
