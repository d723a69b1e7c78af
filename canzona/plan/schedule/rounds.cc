#include "canzona/plan/schedule/rounds.h"

#include <algorithm>
#include <map>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona {
namespace {

// Blocks of one area, one per plane.
struct Blocks {
  explicit Blocks(int32_t tp) : counts(index(tp), 0), firsts(index(tp), 0) {}

  void close(int64_t first, int fields) {
    for (size_t p = 0; p < counts.size(); ++p) {
      firsts[p] = first;
      first += counts[p] * fields;
    }
    end = first;
  }

  std::vector<int64_t> counts;  // elements of one field
  std::vector<int64_t> firsts;  // in the slot
  int64_t end = 0;
};

class RoundMaker {
 public:
  RoundMaker(const PlanPart& plan, const Coordinates& at, const Kept& kept,
             int fields, TeamTable& teams)
      : plan_(plan),
        t_(at.t),
        tp_(plan.grid.tp),
        kept_(kept),
        fields_(fields),
        teams_(teams),
        whole_cut_(tp_),
        whole_uncut_(tp_),
        shard_cut_(tp_),
        shard_uncut_(tp_) {}

  Round make(const std::vector<int32_t>& members) {
    for (int32_t k : members) count(k);
    whole_cut_.close(0, fields_);
    whole_uncut_.close(whole_cut_.end, fields_);
    shard_cut_.close(whole_uncut_.end, fields_);
    shard_uncut_.close(shard_cut_.end, fields_);
    round_.shards_at = whole_uncut_.end;
    round_.num_elements = shard_uncut_.end;
    std::vector<int64_t> pieces[2], wholes[2];  // used so far, uncut and cut
    for (auto* used : {&pieces[0], &pieces[1], &wholes[0], &wholes[1]})
      used->assign(index(tp_), 0);
    size_t next_shared = 0;
    for (int32_t k : members) {
      const bool cut = matrix(k).cut;
      if (in_blocks(k)) {
        place_blocks(k, pieces[cut ? 1 : 0], wholes[cut ? 1 : 0]);
        continue;
      }
      if (is_shared(k)) {
        place_shared(k, round_.shared[next_shared++], pieces[cut ? 1 : 0],
                     wholes[cut ? 1 : 0]);
        continue;
      }
      place_pieces(k, pieces[cut ? 1 : 0]);
      if (computes(k)) place_whole(k, wholes[cut ? 1 : 0]);
    }
    make_tables(members);
    choose_segments();
    round_.members = members;
    return std::move(round_);
  }

 private:
  bool repeated(int32_t k) const { return owners(k).empty(); }
  bool is_shared(int32_t k) const { return owners(k).size() > 1; }
  bool in_blocks(int32_t k) const {
    return teams_.is_in_blocks(index(matrix(k).matrix));
  }
  std::span<const int32_t> owners(int32_t k) const {
    return plan_.owners[index(matrix(k).matrix)];
  }
  const KeptMatrix& matrix(int32_t k) const { return kept_.matrices[index(k)]; }
  // S has one block per owner; matrices that every rank computes share the
  // first.
  int32_t owner(int32_t k) const { return repeated(k) ? 0 : owners(k)[0]; }
  bool computes(int32_t k) const { return repeated(k) || owners(k)[0] == t_; }
  // True if this rank's pieces lie where it assembles the matrix, because it is
  // the owner.
  bool in_place(int32_t k) const { return !repeated(k) && computes(k); }
  // True if every rank stores and computes the whole matrix, so that nothing
  // moves.
  bool is_here(int32_t k) const {
    return repeated(k) && !matrix(k).cut && plan_.grid.places == 1;
  }

  // Returns the routes into the part of a matrix that this rank assembles,
  // which are also those of its updates.
  std::vector<Route> arriving(int32_t k) const {
    const int32_t m = matrix(k).matrix;
    const Tensor& tensor =
        plan_.model.tensors[index(plan_.matrices[index(m)].tensor)];
    std::vector<Route> routes;
    for (int32_t t = 0; t < tp_; ++t)
      if (sends_to(plan_.grid, tensor, t, t_))
        append_routes(plan_, m, t, routes);
    return routes;
  }

  void count(int32_t k) {
    if (in_blocks(k)) return count_blocks(k);
    if (is_shared(k)) return count_shared(k);
    const KeptMatrix& m = matrix(k);
    if (!in_place(k))
      (m.cut ? shard_cut_ : shard_uncut_).counts[index(owner(k))] +=
          m.kept.count;
    any_cut_ |= m.cut;
    any_uncut_ |= !m.cut;
    repeats_ |= repeated(k);
    if (!computes(k)) return;
    Blocks& whole = m.cut ? whole_cut_ : whole_uncut_;
    arriving_.push_back(arriving(k));
    for (const Route& r : arriving_.back())
      whole.counts[index(r.t)] += r.elements();
  }

  // Returns how a team shares matrix `k`.
  SharedMatrix share(int32_t k) {
    const KeptMatrix& m = matrix(k);
    SharedMatrix out;
    out.kept = k;
    out.matrix = m.matrix;
    out.members.assign(owners(k).begin(), owners(k).end());
    out.facts = teams_.strips(index(m.matrix));
    const auto found = std::ranges::find(out.members, t_);
    if (found == out.members.end()) return out;
    out.member = static_cast<int32_t>(found - out.members.begin());
    out.own = strips_of(out, out.member);
    return out;
  }
  Rectangle strips_of(const SharedMatrix& shared, int32_t member) const {
    return teams_.rectangle(index(shared.matrix), member);
  }

  void count_shared(int32_t k) {
    const KeptMatrix& m = matrix(k);
    (m.cut ? any_cut_ : any_uncut_) = true;
    SharedMatrix shared = share(k);
    Blocks& shard = m.cut ? shard_cut_ : shard_uncut_;
    for (const Piece& piece : m.pieces)
      for (int32_t i = 0; i < shared.size(); ++i)
        if (i != shared.member)
          shard.counts[index(shared.members[index(i)])] +=
              meet(piece, strips_of(shared, i)).elements();
    if (shared.is_member()) {
      Blocks& whole = m.cut ? whole_cut_ : whole_uncut_;
      for (const Route& r : arriving(k)) {
        const Rectangle own = meet(r, shared.own);
        if (own.elements() == 0) continue;
        whole.counts[index(r.t)] += own.elements();
        // The rectangle holds the plane until the beginning of its block is
        // known.
        shared.rectangles.push_back({own, r.t, 0});
      }
    }
    round_.shared.push_back(std::move(shared));
  }

  // Determines from where this rank sends its pieces to members and where it
  // receives its own strips.
  void place_shared(int32_t k, SharedMatrix& shared,
                    std::vector<int64_t>& in_shards,
                    std::vector<int64_t>& in_wholes) {
    const KeptMatrix& m = matrix(k);
    const Blocks& whole = m.cut ? whole_cut_ : whole_uncut_;
    const Blocks& shard = m.cut ? shard_cut_ : shard_uncut_;
    for (size_t p = 0; p < m.pieces.size(); ++p) {
      SlotPiece piece{{m.pieces[p], 0, 0}, k, static_cast<int32_t>(p)};
      for (int32_t i = 0; i < shared.size(); ++i) {
        const Rectangle part = meet(m.pieces[p], strips_of(shared, i));
        if (part.elements() == 0) continue;
        const Blocks& blocks = i == shared.member ? whole : shard;
        const size_t to = index(shared.members[index(i)]);
        piece.parts.push_back(
            {part, blocks.firsts[to] + in_shards[to], blocks.counts[to]});
        in_shards[to] += part.elements();
      }
      round_.pieces.push_back(std::move(piece));
    }
    for (SlotRectangle& r : shared.rectangles) {
      const size_t from = index(r.at);
      r.at = whole.firsts[from] + in_wholes[from];
      r.field_stride = whole.counts[from];
      in_wholes[from] += r.elements();
    }
    shared.updates = shared.rectangles;
  }

  // Calls visit(part of `within`, block) for every block that meets it.
  template <class Visit>
  void each_block(int32_t k, const Rectangle& within, const Visit& visit) {
    const MatrixBlocks& blocks = teams_.blocks(index(matrix(k).matrix));
    for (int32_t b = 0; b < blocks.count(); ++b)
      if (const Rectangle part = meet(within, blocks.at(b));
          part.elements() > 0)
        visit(part, b);
  }

  void count_blocks(int32_t k) {
    const KeptMatrix& m = matrix(k);
    (m.cut ? any_cut_ : any_uncut_) = true;
    Blocks& shard = m.cut ? shard_cut_ : shard_uncut_;
    Blocks& whole = m.cut ? whole_cut_ : whole_uncut_;
    for (const Piece& piece : m.pieces)
      each_block(k, piece, [&](const Rectangle& part, int32_t b) {
        const int32_t to = owners(k)[index(b)];
        if (to != t_) shard.counts[index(to)] += part.elements();
      });
    for (const Route& r : arriving(k))
      each_block(k, r, [&](const Rectangle& part, int32_t b) {
        if (owners(k)[index(b)] == t_)
          whole.counts[index(r.t)] += part.elements();
      });
  }

  // Determines from where this rank sends its pieces to owners and where it
  // receives its own blocks. Sender and receiver visit pieces, and the blocks
  // of each, in the same order.
  void place_blocks(int32_t k, std::vector<int64_t>& in_shards,
                    std::vector<int64_t>& in_wholes) {
    const KeptMatrix& m = matrix(k);
    const Blocks& whole = m.cut ? whole_cut_ : whole_uncut_;
    const Blocks& shard = m.cut ? shard_cut_ : shard_uncut_;
    for (size_t p = 0; p < m.pieces.size(); ++p) {
      SlotPiece piece{{m.pieces[p], 0, 0}, k, static_cast<int32_t>(p)};
      each_block(k, m.pieces[p], [&](const Rectangle& part, int32_t b) {
        const size_t to = index(owners(k)[index(b)]);
        const Blocks& blocks = owners(k)[index(b)] == t_ ? whole : shard;
        piece.parts.push_back(
            {part, blocks.firsts[to] + in_shards[to], blocks.counts[to]});
        in_shards[to] += part.elements();
      });
      round_.pieces.push_back(std::move(piece));
    }
    std::map<int32_t, SlotMatrix> own = own_blocks(k);
    for (const Route& r : arriving(k))
      each_block(k, r, [&](Rectangle part, int32_t b) {
        const auto found = own.find(b);
        if (found == own.end()) return;
        part.first_row -= found->second.own.first_row;
        part.first_col -= found->second.own.first_col;
        int64_t& used = in_wholes[index(r.t)];
        found->second.rectangles.push_back(
            {part, whole.firsts[index(r.t)] + used, whole.counts[index(r.t)]});
        used += part.elements();
      });
    for (auto& [b, block] : own) {
      block.updates = block.rectangles;
      round_.computed.push_back(std::move(block));
    }
  }
  std::map<int32_t, SlotMatrix> own_blocks(int32_t k) {
    std::map<int32_t, SlotMatrix> own;
    const MatrixBlocks& blocks = teams_.blocks(index(matrix(k).matrix));
    for (int32_t b = 0; b < blocks.count(); ++b)
      if (owners(k)[index(b)] == t_) {
        own[b].kept = k;
        own[b].block = b;
        own[b].own = blocks.at(b);
      }
    return own;
  }

  void place_pieces(int32_t k, std::vector<int64_t>& all_used) {
    const KeptMatrix& m = matrix(k);
    const Blocks& whole = m.cut ? whole_cut_ : whole_uncut_;
    const Blocks& shard = m.cut ? shard_cut_ : shard_uncut_;
    const Blocks& blocks = in_place(k) ? whole : shard;
    const size_t o = index(owner(k));
    int64_t& used = all_used[o];
    for (size_t p = 0; p < m.pieces.size(); ++p) {
      round_.pieces.push_back(
          {{m.pieces[p], blocks.firsts[o] + used, blocks.counts[o]},
           k,
           static_cast<int32_t>(p)});
      used += m.pieces[p].elements();
    }
  }

  // Routes are sorted by plane, and so are blocks.
  void place_whole(int32_t k, std::vector<int64_t>& used) {
    const KeptMatrix& m = matrix(k);
    const Blocks& blocks = m.cut ? whole_cut_ : whole_uncut_;
    SlotMatrix out;
    out.kept = k;
    out.own = {0, m.dims[0], 0, m.dims[1]};
    for (const Route& r : arriving_[next_whole_++]) {
      const size_t p = index(r.t);
      out.rectangles.push_back(
          {r, blocks.firsts[p] + used[p], blocks.counts[p]});
      used[p] += r.elements();
    }
    if (is_here(k)) out.rectangles = own_rectangles(k);
    out.updates = repeated(k) ? own_rectangles(k) : out.rectangles;
    round_.computed.push_back(std::move(out));
  }

  // Returns the pieces of matrix `k` in S, which were placed last.
  std::vector<SlotRectangle> own_rectangles(int32_t k) const {
    std::vector<SlotRectangle> out;
    for (const SlotPiece& piece : round_.pieces)
      if (piece.kept == k) out.push_back(piece);
    return out;
  }

  void choose_segments() {
    std::vector<int64_t> work;
    for (const SlotMatrix& computed : round_.computed)
      work.push_back(
          teams_.cost(index(matrix(computed.kept).matrix), computed.block)
              .every_step.value());
    const std::vector<int32_t> segments =
        spread_over_segments(work, round_.num_segments());
    for (size_t i = 0; i < segments.size(); ++i)
      round_.computed[i].segment = segments[i];
  }

  bool same_tp_rank(size_t plane) const {
    return plan_.grid.tp_rank_of(static_cast<int32_t>(plane)) ==
           plan_.grid.tp_rank_of(t_);
  }

  void make_tables(const std::vector<int32_t>& members) {
    CANZONA_CHECK(
        !repeats_ || std::all_of(members.begin(), members.end(),
                                 [&](int32_t k) { return repeated(k); }),
        "a round of matrices with and without owners");
    make_cut_tables();
    make_uncut_tables();
  }

  // If every rank repeats the update, each receives the same pieces.
  Blocks sent_pieces(Blocks shard) const {
    if (!repeats_) return shard;
    std::fill(shard.counts.begin(), shard.counts.end(), shard.counts[0]);
    std::fill(shard.firsts.begin(), shard.firsts.end(), shard.firsts[0]);
    return shard;
  }
  // Returns the blocks that are received: all but this rank's own, which is
  // already in place.
  Blocks moved(Blocks whole) const {
    if (!repeats_) whole.counts[index(t_)] = 0;
    return whole;
  }

  void make_cut_tables() {
    const int64_t s = round_.shards_at;
    round_.gather[0] =
        table(sent_pieces(shard_cut_), s, moved(whole_cut_), 0, fields_);
    round_.gather[0].empty = !any_cut_;
    round_.scatter[0] = table(moved(whole_cut_), 0, shard_cut_, s, 1);
    round_.scatter[0].empty = !any_cut_ || repeats_;
  }

  // For gradients the planes of the owner's tp rank send; updates go to the
  // planes of all tp ranks.
  void make_uncut_tables() {
    const int64_t s = round_.shards_at;
    Blocks sent = sent_pieces(shard_uncut_);
    for (size_t p = 0; p < sent.counts.size(); ++p)
      if (!same_tp_rank(p)) sent.counts[p] = 0;
    round_.gather[1] = table(sent, s, moved(whole_uncut_), 0, fields_);
    round_.gather[1].empty = !any_uncut_ || plan_.grid.places == 1;
    Blocks updates = whole_uncut_;
    const Mesh& grid = plan_.grid;
    for (int32_t p = 0; p < tp_; ++p) {
      const size_t from =
          index(grid.plane(grid.place_of(p), grid.tp_rank_of(t_)));
      updates.counts[index(p)] = p == t_ ? 0 : whole_uncut_.counts[from];
      updates.firsts[index(p)] = whole_uncut_.firsts[from];
    }
    round_.scatter[1] = table(updates, 0, shard_uncut_, s, 1);
    round_.scatter[1].empty = !any_uncut_ || repeats_;
  }

  // `send_at` and `receive_at` are the offsets of the two areas in the slot.
  static ExchangeTable table(const Blocks& send, int64_t send_at,
                             const Blocks& receive, int64_t receive_at,
                             int fields) {
    const auto bytes = [](std::vector<int64_t> elements, int64_t from,
                          int64_t times) {
      for (int64_t& e : elements) e = (e - from) * times * kBytesPerFp32;
      return elements;
    };
    return {bytes(send.counts, 0, fields), bytes(send.firsts, send_at, 1),
            bytes(receive.counts, 0, fields),
            bytes(receive.firsts, receive_at, 1)};
  }

  const PlanPart& plan_;
  int32_t t_, tp_;
  const Kept& kept_;
  int fields_;
  TeamTable& teams_;
  Blocks whole_cut_, whole_uncut_, shard_cut_, shard_uncut_;
  bool any_cut_ = false, any_uncut_ = false, repeats_ = false;
  std::vector<std::vector<Route>> arriving_;  // of whole matrices
  size_t next_whole_ = 0;                     // of these
  Round round_;
};

}  // namespace

int32_t Round::num_segments() const {
  int32_t most = 1;
  for (const SharedMatrix& of : shared)
    most = std::max(most, of.facts.segments);
  return most;
}

std::vector<Round> make_rounds(const PlanPart& plan, const Coordinates& at,
                               const Kept& kept, int num_fields) {
  if (plan.grid.tp == 1) return {};
  std::vector<std::vector<int32_t>> members;
  for (size_t k = 0; k < kept.matrices.size(); ++k) {
    const auto m = index(kept.matrices[k].matrix);
    const size_t round = index(plan.micro_group[m]);
    if (members.size() <= round) members.resize(round + 1);
    members[round].push_back(static_cast<int32_t>(k));
  }
  TeamTable teams(plan);
  std::vector<Round> rounds;
  for (const std::vector<int32_t>& some : members)
    rounds.push_back(RoundMaker(plan, at, kept, num_fields, teams).make(some));
  return rounds;
}

}  // namespace canzona
