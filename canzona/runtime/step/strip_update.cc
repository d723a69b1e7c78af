#include "canzona/runtime/step/strip_update.h"

#include "canzona/base/check.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/runtime/step/slot_views.h"

namespace canzona {

StripUpdate::StripUpdate(Rank& rank) : rank_(rank) {
  for (const Round& round : rank.rounds) {
    OfRound& of = rounds_.emplace_back();
    if (!round.by_strips) continue;
    const KeptMatrix& kept = rank.kept.matrices[index(round.by_strips->kept)];
    const Rule& rule = *rank.rules.of(rank.tensor_of(kept)).rule;
    CANZONA_CHECK_EQ(rank.facts->gather_fields(), 1, "fields by strips");
    of.planned = &*round.by_strips;
    of.dims = &kept.dims;
    const MatrixShape shape{kept.dims[0], kept.dims[1]};
    of.transform = rule.by_strips(rank.engine, shape);
    if (of.transform == nullptr ||
        rule.facts().strips(shape).strips != std::ssize(of.planned->strips))
      throw UsageError(cat("matrix ", to_string(shape), " is exchanged in ",
                           of.planned->strips.size(), " strips, but rule ",
                           rule.facts().name(), " cannot compute it so on ",
                           rank.engine.kind(), "; plan with exchange=rounds"));
  }
}

void StripUpdate::begin(OfRound& of) {
  Arena& arena = rank_.engine.arena();
  scope_.emplace(arena);
  matrix_ = run_of(arena.take_array<float>(num_elements(*of.dims)));
  of.transform->begin(arena);
  num_left_ = of.planned->strips.size();
}

void StripUpdate::sum(size_t round, int strip, float* slot) {
  OfRound& of = rounds_[round];
  if (!scope_) begin(of);
  for (const SlotRectangle& r : of.planned->strips[index(strip)].rectangles)
    rank_.engine.copy(in_matrix(matrix_, r, *of.dims), in_slot(slot, r, 0));
  of.transform->sum(strip, {matrix_.data, matrix_.dtype});
}

void StripUpdate::iterate(size_t round) { rounds_[round].transform->iterate(); }

void StripUpdate::multiply(size_t round, int strip, float* slot) {
  OfRound& of = rounds_[round];
  of.transform->multiply(strip, matrix_);
  for (const SlotRectangle& r : of.planned->strips[index(strip)].rectangles)
    rank_.engine.copy(in_slot(slot, r, 0), in_matrix(matrix_, r, *of.dims));
  if (--num_left_ == 0) scope_.reset();
}

}  // namespace canzona
