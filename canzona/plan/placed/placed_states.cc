#include "canzona/plan/placed/placed_states.h"

#include <algorithm>
#include <utility>

#include "canzona/base/check.h"

namespace canzona {
namespace {

class PlacedStatesMaker {
 public:
  explicit PlacedStatesMaker(PlacedDraft& draft)
      : draft_(draft), plan_(draft.plan), rank_(draft.rank), out_(draft.out) {}

  void make() {
    count_storage();
    find_kept_states();
    add_shard_states();
    add_elements();
    add_local();
  }

 private:
  void count_storage() {
    out_.counted.resize(plan_.tensors.size());
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      const auto& stored = plan_.tensors[t].stored;
      int64_t at = 0;
      for (const Box& box : stored[index(rank_)]) {
        bool first = true;
        for (size_t r = 0; first && r < index(rank_); ++r)
          first = std::ranges::find(stored[r], box) == stored[r].end();
        if (first) out_.counted[t].push_back({at, box.elements()});
        at += box.elements();
      }
    }
  }

  // True if this rank brings a matrix's states with the shard up to date.
  bool keeps_states_of(int32_t m) const {
    const PlacedMatrix& it = draft_.matrix(m);
    if (!plan_.options.share_states ||
        draft_.facts_of_matrix(m).applies_to_states())
      return true;
    const PlacedClass& c =
        plan_.classes[index(plan_.class_of[index(it.tensor)])];
    return PlacedDraft::line_of(c, it.owner) == PlacedDraft::line_of(c, rank_);
  }
  bool keeps_states_of_elements(const PlacedElements& it) const {
    const PlacedClass& c =
        plan_.classes[index(plan_.class_of[index(it.tensor)])];
    return PlacedDraft::line_of(c, rank_) == it.line;
  }

  // By tensor, the parts of its storage whose states this rank keeps.
  void find_kept_states() {
    kept_.resize(plan_.tensors.size());
    std::vector<bool> done(plan_.tensors.size());
    for (const PlacedElements& it : plan_.elements) {
      done[index(it.tensor)] = true;
      if (keeps_states_of_elements(it))
        kept_[index(it.tensor)] = {
            {0, stored_elements(plan_, it.tensor, rank_)}};
    }
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t)
      if (!done[index(t)] && draft_.is_element_wise(t))
        kept_[index(t)] = {{0, stored_elements(plan_, t, rank_)}};
    for (int32_t m = 0; m < std::ssize(plan_.matrices); ++m) {
      if (!keeps_states_of(m)) continue;
      for (const PlacedPiece& piece : placed_pieces(plan_, m, rank_))
        add_kept(kept_[index(draft_.matrix(m).tensor)],
                 {piece.at, piece.elements()});
    }
  }
  static void add_kept(std::vector<Extent>& kept, Extent next) {
    if (!kept.empty() && kept.back().end() == next.first)
      kept.back().count += next.count;
    else if (next.count > 0)
      kept.push_back(next);
  }

  // Of the rank's box; flat if it has several.
  std::vector<int64_t> stored_shape(int32_t t) const {
    const std::vector<Box>& boxes = draft_.tensor(t).stored[index(rank_)];
    if (boxes.size() == 1) return boxes[0].count;
    return {stored_elements(plan_, t, rank_)};
  }

  // A matrix's facts, or, of an element-wise rule, those of a row.
  std::vector<StateFact> state_facts(int32_t t) const {
    if (draft_.is_element_wise(t)) return draft_.facts_of(t).states({1, 1});
    const int32_t m = plan_.first_matrix[index(t)];
    if (m == plan_.first_matrix[index(t) + 1]) return {};
    return draft_.facts_of(t).tensor_states(
        {draft_.matrix(m).rows, draft_.matrix(m).cols});
  }

  void add_shard_states() {
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) {
      const int64_t elements = stored_elements(plan_, t, rank_);
      if (elements == 0 || kept_[index(t)].empty()) continue;
      for (const StateFact& fact : state_facts(t)) {
        if (fact.lives != Lives::kWithShard) continue;
        CANZONA_CHECK(fact.initially == Initially::kZero, "state ", fact.name);
        out_.states_of[index(t)].push_back(
            static_cast<int32_t>(out_.states.size()));
        out_.states.push_back({.name = fact.name,
                               .tensor = t,
                               .shape = stored_shape(t),
                               .memory = draft_.add_memory(elements),
                               .kept = kept_[index(t)]});
      }
    }
  }

  void add_elements() {
    std::vector<bool> shared(plan_.tensors.size());
    for (const PlacedElements& it : plan_.elements)
      shared[index(it.tensor)] = true;
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) {
      const int64_t count = stored_elements(plan_, t, rank_);
      if (draft_.is_element_wise(t) && !shared[index(t)] && count > 0)
        out_.elements.push_back({t, count});
    }
  }

  void add_local() {
    std::vector<OwnedMatrix> owned;
    for (int32_t m = 0; m < std::ssize(plan_.matrices); ++m) {
      if (draft_.matrix(m).round >= 0 || draft_.matrix(m).owner != rank_)
        continue;
      OwnedMatrix& one = owned.emplace_back();
      one.matrix = m;
      one.pieces = placed_pieces(plan_, m, rank_);
    }
    out_.local = draft_.batches_of(std::move(owned));
  }

  PlacedDraft& draft_;
  const PlacedPlan& plan_;
  const int32_t rank_;
  PlacedSchedule& out_;
  std::vector<std::vector<Extent>> kept_;  // by tensor
};

}  // namespace

void add_placed_states(PlacedDraft& draft) { PlacedStatesMaker(draft).make(); }

}  // namespace canzona
