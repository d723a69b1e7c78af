// The scalars of a SOAP step. `updates` counts calls that moved weights,
// including this one; `step` counts all calls. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/stages.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/soap/basis.h"
#include "canzona/rules/soap/facts.h"

namespace canzona::rules {

// The coefficients of the moments and of their quotient.
AdamCoefficients soap_adam(const SoapOptions& soap, int64_t updates);

// The same for the rule whose length is grafted; the first moment is already up
// to date. Grafting from SGD uses from_moment and from_grad only.
AdamCoefficients soap_grafting_adam(const SoapOptions& soap, int64_t updates);

// The ratio of the update to the quotient that the reference implementations
// normalise: with epsilon_mode=uncorrected they correct the bias after that.
double soap_update_scale(const SoapOptions& soap, int64_t updates);

// F = keep·F + add·G·Gᵀ
struct FactorWeights {
  double keep = 0;
  double add = 1;
};
FactorWeights soap_factor_weights(const SoapOptions& soap, int64_t step);

// A factor is multiplied by this before it is decomposed.
double soap_factor_scale(const SoapOptions& soap, int64_t step);

// One step of SOAP on the same block of several tensors, all at the owner.
//
//   soap_update(engine, soap, {.step = 11, .phase = 0, .part = {}}, blocks);
//
// Runs hold the blocks of all tensors, concatenated, each contiguous and of the
// dims given; each tensor has its own factors and bases. refresh.h defines what
// happens if a basis cannot be found. Without a refresh nothing is read back
// from the engine, so the host does not wait for a device.

// The factors of one axis, one per tensor; no data if the axis has none.
struct SoapFactor {
  Matrices factor;
  Matrices basis;
  Matrices eigenvalues;  // 1 x n
  Matrices failures;     // 1 x 1

  bool exists() const { return factor.data != nullptr; }
};

struct SoapBlockRuns {
  std::span<const int64_t> dims;
  int64_t count = 1;     // of tensors, at most kMostTogether
  ConstRun factor_grad;  // what factors see
  ConstRun grad;         // what moments see
  Run first_moment;
  Run second_moment;
  Run grafting_moment;
  Run out;
  std::array<SoapFactor, kMostAxes> factors;
};

struct SoapCall {
  int64_t step = 1;
  int phase = 0;
  FactorId part;  // of the first tensor
  DecompositionHook* hook = nullptr;
};

void soap_update(Engine& engine, const SoapOptions& soap, const SoapCall& call,
                 const SoapBlockRuns& blocks);

// The parts of such a step, for callers that share a factor between blocks
// (strips.h). All require an open scope of the engine's arena.

// The new bases of one axis, one per tensor, in the engine's arena.
struct SoapBasisChange {
  explicit SoapBasisChange(int64_t count) : outcomes(count), moved(count) {}

  NewBases found;
  PerTensor<Outcome> outcomes;  // bases of failures stay as they are
  PerTensor<bool> moved;
};

// True if a step finds its bases before it uses them.
bool soap_learns_first(const SoapOptions& soap, int64_t step);
// Adds the gradients' statistics to all factors.
void soap_add_statistics(Engine& engine, const SoapOptions& soap,
                         const SoapCall& call, const SoapBlockRuns& blocks);
// Takes room for the bases of a factor.
void soap_make_room(Engine& engine, const SoapOptions& soap,
                    const SoapFactor& kept, SoapBasisChange& change);
// Decomposes the factor of an axis into `change`, which has room.
void soap_find_bases(Engine& engine, const SoapOptions& soap,
                     const SoapCall& call, int axis, const SoapFactor& kept,
                     SoapBasisChange& change);
// Counts failures, as soap_find_bases does, of bases found elsewhere.
void soap_count_failures(Engine& engine, const SoapCall& call, int axis,
                         const SoapFactor& kept, SoapBasisChange& change);
// Moves the moments of blocks, whose factors are the old ones, to new bases.
void soap_move_moments(Engine& engine, const SoapOptions& soap,
                       const SoapCall& call, const SoapBlockRuns& blocks,
                       int axis, const SoapBasisChange& change);
// Replaces bases and eigenvalues.
void soap_take_bases(Engine& engine, const SoapFactor& kept,
                     const SoapBasisChange& change);
// Moments and direction in the blocks' bases; zeros in a step without update.
void soap_direction(Engine& engine, const SoapOptions& soap,
                    const SoapCall& call, const SoapBlockRuns& blocks);

}  // namespace canzona::rules
