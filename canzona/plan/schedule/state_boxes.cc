#include "canzona/plan/schedule/state_boxes.h"

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/routes.h"

namespace canzona {
using namespace plan;
namespace {

// Splits a run of a rectangle's elements into up to three rectangles: the rest
// of a row, whole rows, and the beginning of a row.
void append_run(const Rectangle& all, Extent run, std::vector<Rectangle>& out) {
  const auto add = [&](int64_t rows, int64_t cols) {
    if (rows == 0 || cols == 0) return;
    out.push_back({all.first_row + run.first / all.num_cols, rows,
                   all.first_col + run.first % all.num_cols, cols});
    run.first += rows * cols;
    run.count -= rows * cols;
  };
  const int64_t in_row = run.first % all.num_cols;
  if (in_row > 0) add(1, std::min(run.count, all.num_cols - in_row));
  add(run.count / all.num_cols, all.num_cols);
  add(1, run.count);
}

class StateLister {
 public:
  StateLister(const PlanPart& part, int32_t rank, const RankBooks& books)
      : part_(part), rank_(rank), books_(books) {}

  std::vector<StateBox> list() {
    for (const RankBucket& bucket : books_.layout.parameters.buckets)
      for (int32_t t : part_.buckets[index(bucket.bucket)].tensors)
        if (tensor(t).frozen) add_frozen(t);
    for (size_t k = 0; k < books_.kept.matrices.size(); ++k) {
      add_weights(books_.kept.matrices[k]);
      add_shard_states(k);
    }
    for (const std::vector<UpdateBatch>& batches : books_.updates.batches)
      for (const UpdateBatch& batch : batches) add_owner_states(batch);
    for (const std::vector<SharedStates>& round : books_.updates.shared)
      for (const SharedStates& states : round) add_team_states(states);
    for (const KeptElements& elements : books_.kept.elements)
      add_elements(elements);
    return std::move(boxes_);
  }

 private:
  const Tensor& tensor(int32_t t) const {
    return part_.model.tensors[index(t)];
  }
  bool is_rounded() const { return part_.options.parameters == DType::kBf16; }
  bool gives_states(int32_t t) const { return counts_states(part_, rank_, t); }
  bool gives_shard(int32_t t) const {
    return gives_states(t) && counts_shard(part_, books_.at, t);
  }
  int32_t tensor_of(const KeptMatrix& matrix) const {
    return part_.matrices[index(matrix.matrix)].tensor;
  }
  std::string name_of(const KeptMatrix& matrix) const {
    return matrix_name(part_.model, part_.matrices[index(matrix.matrix)],
                       part_.options.splits);
  }

  // Adds a run of a tensor's shard that lies in a buffer from element `box.at`
  // on.
  void add_run(int32_t t, const Extent& in_shard, StateBox box) {
    const Tensor& what = tensor(t);
    box.owner = what.name;
    box.shape = what.shape;
    for (const Rectangle& r : shard_rectangles(what, part_.grid.tp_ranks(),
                                               books_.at.tp_rank, in_shard)) {
      box.first = {r.first_row, r.first_col};
      box.count = {r.num_rows, r.num_cols};
      box.first.resize(what.shape.size());
      box.count.resize(what.shape.size());
      box.elements = r.elements();
      boxes_.push_back(box);
      box.at += box.elements;
      box.parameter += box.elements;
    }
  }

  // A frozen tensor has no masters and states; the copy that forward and
  // backward use is all there is.
  void add_frozen(int32_t t) {
    const FlatLayout& layout = books_.layout.parameters;
    StateBox box;
    box.given = keeps_first_copy(part_, rank_, t);
    for (const ExtentCopy& piece : layout.pieces[index(t)]) {
      box.at = layout.offset_of(t, piece);
      add_run(t, piece.source(), box);
    }
  }

  // Returns the weights that the rule updates: the parameters themselves if
  // they are fp32, otherwise the masters.
  StateBox weights_at(int32_t t, int64_t parameter, int64_t master) const {
    StateBox box;
    box.buffer =
        is_rounded() ? StateBuffer::kMasters : StateBuffer::kParameters;
    box.at = is_rounded() ? master : parameter;
    box.parameter = parameter;
    box.given = gives_shard(t);
    return box;
  }

  void add_weights(const KeptMatrix& matrix) {
    const int32_t t = tensor_of(matrix);
    for (const Piece& piece : matrix.pieces)
      add_run(t, {piece.in_shard, piece.elements()},
              weights_at(t, piece.parameter, piece.kept));
  }

  void add_shard_states(size_t k) {
    const KeptMatrix& matrix = books_.kept.matrices[k];
    StateBox box;
    box.owner = name_of(matrix);
    box.shape = matrix.dims;
    box.buffer = StateBuffer::kStates;
    box.given = gives_shard(tensor_of(matrix));
    for (const KeptState& state : books_.updates.with_shard[k])
      for (const Piece& piece : matrix.pieces) {
        box.state = state.fact->name;
        box.first = {piece.first_row, piece.first_col};
        box.count = {piece.num_rows, piece.num_cols};
        box.at = state.first + piece.kept - matrix.kept.first;
        box.elements = piece.elements();
        if (box.elements > 0) boxes_.push_back(box);
      }
  }

  // If every plane repeats an update, the first plane provides the states.
  void add_owner_states(const UpdateBatch& batch) {
    for (size_t i = 0; i < batch.members.size(); ++i) {
      const KeptMatrix& matrix = books_.kept.matrices[index(batch.members[i])];
      const bool repeated = part_.owners[index(matrix.matrix)].empty();
      StateBox box;
      box.owner = name_of(matrix);
      box.buffer = StateBuffer::kStates;
      box.given =
          gives_states(tensor_of(matrix)) && (!repeated || books_.at.t == 0);
      for (size_t s = 0; s < batch.owned.size(); ++s) {
        const KeptState& state = batch.owned[s];
        box.state = state.fact->name;
        box.elements = state.fact->elements();
        box.shape = box.count = state.fact->shape;
        box.first.assign(box.shape.size(), 0);
        box.at = state.first + static_cast<int64_t>(i) * box.elements;
        if (batch.blocks[i] >= 0) put_in_matrix(batch.in_matrix[i][s], box);
        if (box.elements > 0) boxes_.push_back(box);
      }
    }
  }

  // Each member provides its part of the matrix's states; a state that all
  // members keep is provided by one of them.
  void add_team_states(const SharedStates& states) {
    const KeptMatrix& matrix = books_.kept.matrices[index(states.kept)];
    for (size_t s = 0; s < states.own.size(); ++s) {
      StateBox box;
      box.owner = name_of(matrix);
      box.buffer = StateBuffer::kStates;
      box.given = gives_states(tensor_of(matrix)) && states.given[s];
      box.count = states.own[s].fact->shape;
      box.elements = states.own[s].fact->elements();
      box.at = states.own[s].first;
      put_in_matrix(states.in_matrix[s], box);
      if (box.elements > 0) boxes_.push_back(box);
    }
  }

  // A block's state is a box of the matrix's.
  static void put_in_matrix(const BlockState& state, StateBox& box) {
    box.state = state.name;
    box.shape = state.shape;
    box.first = state.first;
    CANZONA_CHECK(box.count.size() == box.shape.size() &&
                      box.first.size() == box.shape.size(),
                  "a box of ", box.state, " of ", box.owner, " has ",
                  box.count.size(), " numbers from ", box.first.size(), ", of ",
                  box.shape.size());
    for (size_t d = 0; d < box.shape.size(); ++d)
      CANZONA_CHECK(
          box.first[d] >= 0 && box.first[d] + box.count[d] <= box.shape[d],
          "a box of ", box.state, " of ", box.owner, " leaves its dimension ",
          d);
  }

  void add_elements(const KeptElements& elements) {
    const int32_t t = elements.tensor;
    add_run(t, elements.in_shard,
            weights_at(t, elements.parameter,
                       books_.kept.num_in_matrices + elements.kept));
    StateBox box;
    box.buffer = StateBuffer::kStates;
    box.given = gives_shard(t);
    box.state = "exp_avg";
    box.at = books_.updates.exp_avg + elements.kept;
    add_run(t, elements.in_shard, box);
    box.state = "exp_avg_sq";
    box.at = books_.updates.exp_avg_sq + elements.kept;
    add_run(t, elements.in_shard, box);
  }

  const PlanPart& part_;
  int32_t rank_;
  const RankBooks& books_;
  std::vector<StateBox> boxes_;
};

}  // namespace

std::string StateBox::name() const {
  return state.empty() ? cat("model/", owner)
                       : cat("optim/", state, "/", owner);
}

std::vector<StateBox> state_boxes(const PlanPart& part, int32_t rank,
                                  const RankBooks& books) {
  return StateLister(part, rank, books).list();
}

std::vector<Rectangle> shard_rectangles(const Tensor& tensor, int32_t tp,
                                        int32_t t, const Extent& in_shard) {
  std::vector<Rectangle> rectangles;
  const Matrix whole{0, -1, 0, tensor.rows(), tensor.cols()};
  for (const Route& r : routes_of(tensor, whole, tp)) {
    if (r.t != t) continue;
    const Extent all{r.shard_row * r.num_cols, r.elements()};
    const Extent run = all.meet(in_shard);
    if (run.count > 0)
      append_run(r, {run.first - all.first, run.count}, rectangles);
  }
  return rectangles;
}

}  // namespace canzona
