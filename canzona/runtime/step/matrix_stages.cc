#include "canzona/runtime/step/matrix_stages.h"

#include <algorithm>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/rules/runs.h"

namespace canzona::runtime {

Run take_floats(Engine& engine, int64_t count) {
  return run_of(engine.arena().take_array<float>(count));
}

ConstRun widened(Engine& engine, Run gradient, int64_t count) {
  if (gradient.dtype == DType::kFp32) return gradient;
  const Run wide = take_floats(engine, count);
  engine.convert(as_row(wide, count), as_row(gradient, count));
  return wide;
}

void copy_or_convert(Engine& engine, Matrices to, ConstMatrices from) {
  if (to.dtype == from.dtype)
    engine.copy(to, from);
  else
    engine.convert(to, from);
}

Matrices rectangle_in(Run matrix, const Rectangle& r, int64_t cols) {
  Matrices view =
      as_matrices(advanced(matrix, r.first_row * cols + r.first_col),
                  r.num_rows, r.num_cols);
  view.row_stride = cols;
  return view;
}

namespace {

// A rectangle that is packed in a slot.
Matrices in_slot(Run slot, const SlotRectangle& r, size_t field) {
  return as_matrices(
      advanced(slot, r.at + static_cast<int64_t>(field) * r.field_stride),
      r.num_rows, r.num_cols);
}

// A rectangle of a matrix, in a piece that contains it.
Matrices in_piece(Run piece, const Rectangle& r, const Rectangle& whole) {
  return rectangle_in(piece,
                      {r.first_row - whole.first_row, r.num_rows,
                       r.first_col - whole.first_col, r.num_cols},
                      whole.num_cols);
}

}  // namespace

std::vector<MatrixBatch> matrix_batches(
    const std::vector<UpdateBatch>& planned,
    const std::vector<SlotMatrix>& computed) {
  std::vector<MatrixBatch> batches;
  for (const UpdateBatch& one : planned) {
    MatrixBatch& batch = batches.emplace_back();
    batch.planned = &one;
    for (size_t i = 0; i < one.members.size(); ++i)
      batch.matrices.push_back(&*std::ranges::lower_bound(
          computed, std::pair(one.members[i], one.blocks[i]), {},
          [](const SlotMatrix& matrix) {
            return std::pair(matrix.kept, matrix.block);
          }));
  }
  return batches;
}

size_t MatrixStages::num_fields(int32_t kept) const {
  const auto num = index(stored_.rule_of(kept).facts().gather_fields());
  CANZONA_CHECK(num <= kMostFields, num, " fields");
  return num;
}

// ---- Pieces

// What must be rounded or widened goes run by run, so that caches hold it; a
// piece that is sent to several owners or members of a team goes at once.
void MatrixStages::prepare(Engine& engine, const SlotPiece& piece,
                           Run slot) const {
  if (!stored_.has_gradient(piece.kept)) return clear(engine, piece, slot);
  const int64_t all = piece.elements();
  const DType given =
      stored_.gradient(piece.kept, stored_.piece(piece), 0).dtype;
  const bool converts =
      piece.at < 0 || slot.dtype != DType::kFp32 || given != DType::kFp32;
  const int64_t most =
      converts && piece.parts.empty() ? std::min(all, engines_.chunk()) : all;
  for (int64_t i = 0; i < all; i += most)
    prepare_run(engine, piece, slot, {i, std::min(most, all - i)});
}

void MatrixStages::clear(Engine& engine, const SlotPiece& piece,
                         Run slot) const {
  if (piece.at < 0) return;
  for (size_t f = 0; f < num_fields(piece.kept); ++f) {
    const Matrices field = in_slot(slot, piece, f);
    engine.set_zero(field.data, piece.elements() * size_of(slot.dtype));
  }
}

void MatrixStages::prepare_run(Engine& engine, const SlotPiece& piece, Run slot,
                               Extent run) const {
  const Arena::Scope scope(engine.arena());
  const Piece& stored = stored_.piece(piece);
  const bool is_split = !piece.parts.empty();
  const bool moves = is_split || piece.at >= 0;
  const bool in_place = moves && !is_split && slot.dtype == DType::kFp32;
  const auto field_in_slot = [&](size_t f) {
    return advanced(
        slot,
        piece.at + static_cast<int64_t>(f) * piece.field_stride + run.first);
  };
  ShardStates states;
  Shard shard = stored_.shard(piece.kept, stored, run.first, run.count, states);
  shard.grad = widened(engine, stored_.gradient(piece.kept, stored, run.first),
                       run.count);
  Run fields[kMostFields];
  const size_t count = num_fields(piece.kept);
  for (size_t f = 0; f < count; ++f)
    fields[f] = in_place ? field_in_slot(f) : take_floats(engine, run.count);
  stored_.rule_of(piece.kept)
      .prepare_stored(engine, stored_.step_of(piece.kept), shard,
                      {fields, count});
  if (in_place || !moves) return;
  for (size_t f = 0; f < count; ++f)
    if (!is_split)
      engine.convert(as_row(field_in_slot(f), run.count),
                     as_row(fields[f], run.count));
    else
      for (const SlotRectangle& part : piece.parts)
        copy_or_convert(engine, in_slot(slot, part, f),
                        in_piece(fields[f], part, piece));
}

void MatrixStages::apply(Engine& engine, const SlotPiece& piece,
                         Run slot) const {
  if (!stored_.has_gradient(piece.kept)) return;
  const int64_t all = piece.elements();
  const bool at_once = slot.dtype == DType::kFp32 || !piece.parts.empty();
  const int64_t most = at_once ? all : std::min(all, engines_.chunk());
  for (int64_t i = 0; i < all; i += most)
    apply_run(engine, piece, slot, {i, std::min(most, all - i)});
}

void MatrixStages::apply_run(Engine& engine, const SlotPiece& piece, Run slot,
                             Extent run) const {
  const Arena::Scope scope(engine.arena());
  Run update;
  if (!piece.parts.empty()) {
    update = take_floats(engine, run.count);
    for (const SlotRectangle& part : piece.parts)
      copy_or_convert(engine, in_piece(update, part, piece),
                      in_slot(slot, part, 0));
  } else {
    update = advanced(slot, piece.at + run.first);
    if (slot.dtype != DType::kFp32) {
      const Run narrow = update;
      update = take_floats(engine, run.count);
      engine.convert(as_row(update, run.count), as_row(narrow, run.count));
    }
  }
  ShardStates states;
  const Shard shard = stored_.shard(piece.kept, stored_.piece(piece), run.first,
                                    run.count, states);
  stored_.rule_of(piece.kept)
      .apply_stored(engine, stored_.step_of(piece.kept), shard, update);
}

// ---- Matrices

MatrixStages::OwnedStates::OwnedStates(const StoredMatrices& stored,
                                       const UpdateBatch& batch, int64_t begin)
    : count_(batch.owned.size()) {
  CANZONA_CHECK(count_ <= std::size(states_), count_, " states of an owner");
  for (size_t s = 0; s < count_; ++s)
    states_[s] = run_of(stored.owned(batch.owned[s]) +
                        begin * batch.owned[s].fact->elements());
}

void MatrixStages::transform(Engine& engine, const MatrixBatch& batch,
                             Run slot) const {
  for_each_part(*batch.planned, [&](int64_t begin, int64_t end) {
    transform_part(engine, batch, begin, end, slot);
  });
}

namespace {

// Returns the element of the slot at which matrices lie whole, one after
// another, as fp32; -1 if they do not.
int64_t whole_at(const MatrixBatch& batch, int64_t begin, int64_t end,
                 std::vector<SlotRectangle> SlotMatrix::*list, DType dtype) {
  const Dims& dims = batch.planned->dims;
  int64_t first = -1;
  for (int64_t i = begin; i < end; ++i) {
    const std::vector<SlotRectangle>& rectangles =
        batch.matrices[index(i)]->*list;
    if (rectangles.size() != 1 || rectangles[0].elements() != dims[0] * dims[1])
      return -1;
    if (i == begin) first = rectangles[0].at;
    if (rectangles[0].at != first + (i - begin) * dims[0] * dims[1]) return -1;
  }
  return dtype == DType::kFp32 ? first : -1;
}

}  // namespace

// Matrices of a slot that moves are assembled outside it, where their alignment
// is the same on every rank; their updates are written back to where the fields
// came from.
void MatrixStages::transform_part(Engine& engine, const MatrixBatch& batch,
                                  int64_t begin, int64_t end, Run slot) const {
  const Arena::Scope scope(engine.arena());
  const Dims& dims = batch.planned->dims;
  const int64_t cols = dims[1], each = dims[0] * cols, count = end - begin;
  const size_t num = num_fields(batch.planned->members[index(begin)]);
  const auto first = [&](std::vector<SlotRectangle> SlotMatrix::*list) {
    return batch.is_here ? whole_at(batch, begin, end, list, slot.dtype) : -1;
  };
  const int64_t fields_at = first(&SlotMatrix::rectangles);
  const int64_t update_at = first(&SlotMatrix::updates);
  ConstRun fields[kMostFields];
  for (size_t f = 0; f < num; ++f) {
    if (fields_at >= 0) {
      const int64_t stride =
          batch.matrices[index(begin)]->rectangles[0].field_stride;
      fields[f] = advanced(slot, fields_at + static_cast<int64_t>(f) * stride);
      continue;
    }
    const Run field = take_floats(engine, count * each);
    for (int64_t i = 0; i < count; ++i)
      for (const SlotRectangle& r :
           batch.matrices[index(begin + i)]->rectangles)
        copy_or_convert(engine,
                        rectangle_in(advanced(field, i * each), r, cols),
                        in_slot(slot, r, f));
    fields[f] = field;
  }
  const Run update = update_at >= 0 ? advanced(slot, update_at)
                                    : take_floats(engine, count * each);
  transform_fields(engine, *batch.planned, begin, count, {fields, num}, update);
  if (update_at >= 0) return;
  for (int64_t i = 0; i < count; ++i)
    for (const SlotRectangle& r : batch.matrices[index(begin + i)]->updates)
      copy_or_convert(engine, in_slot(slot, r, 0),
                      rectangle_in(advanced(update, i * each), r, cols));
}

void MatrixStages::transform_fields(Engine& engine, const UpdateBatch& batch,
                                    int64_t begin, int64_t count,
                                    std::span<const ConstRun> fields,
                                    Run update) const {
  const OwnedStates states(stored_, batch, begin);
  const int32_t first = batch.members[index(begin)];
  stored_.rule_of(first).transform(engine, stored_.step_of(first),
                                   {.dims = batch.dims,
                                    .count = count,
                                    .fields = fields,
                                    .out = update,
                                    .states = states.all(),
                                    .phase = batch.phase});
}

}  // namespace canzona::runtime
