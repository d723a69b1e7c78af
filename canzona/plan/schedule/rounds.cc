#include "canzona/plan/schedule/rounds.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/plan/schedule/round_maker.h"
#include "canzona/plan/schedule/routes.h"

namespace canzona {
using namespace plan;
namespace {

// Blocks of one area, one per plane.
struct Blocks {
  explicit Blocks(int32_t tp) : counts(index(tp), 0), firsts(index(tp), 0) {}

  std::vector<int64_t> counts;  // elements of one field
  std::vector<int64_t> firsts;  // in the slot
};

// The rounds of one rank of a home, whose planes are its ranks.
class HomeRounds : public RoundMaker {
 public:
  HomeRounds(const PlanPart& plan, const Coordinates& at, const Kept& kept,
             int fields, TeamTable& teams)
      : RoundMaker(at.t, Fields::kByBlock),
        plan_(plan),
        tp_(plan.grid.tp),
        kept_(kept),
        num_fields_(fields),
        sharing_(teams) {}

  Round make(const std::vector<int32_t>& members) {
    begin();
    wholes_ = shards_ = {Blocks(tp_), Blocks(tp_)};
    any_[0] = any_[1] = repeats_ = false;
    for (const int32_t k : members) add_member(k);
    CANZONA_CHECK(
        !repeats_ || std::ranges::all_of(
                         members, [&](int32_t k) { return owners(k).empty(); }),
        "a round of matrices with and without owners");
    begin_computed();
    int64_t end = 0;
    for (const size_t g : {kCut, kUncut}) end = place_wholes(g, end);
    wholes_area_ = {0, end};
    for (const size_t g : {kCut, kUncut}) end = place_shards(g, end);
    shards_area_ = {wholes_area_.count, end - wholes_area_.count};
    place_updates();
    make_cut_tables();
    make_uncut_tables();
    finish_computed();
    choose_segments();
    round_.members = members;
    round_.applied = round_.prepared;
    round_.num_elements = end;
    return std::move(round_);
  }

 private:
  // Matrices that tensor parallelism cuts, and others.
  static constexpr size_t kCut = 0, kUncut = 1;

  std::span<const int32_t> owners(int32_t k) const {
    return plan_.owners[index(matrix(k).matrix)];
  }
  const KeptMatrix& matrix(int32_t k) const { return kept_.matrices[index(k)]; }

  std::vector<Rectangle> pieces(int32_t matrix, int32_t plane) const override {
    std::vector<Route> routes;
    append_routes(plan_, matrix, plane, routes);
    return {routes.begin(), routes.end()};
  }
  int64_t num_fields(int32_t) const override { return num_fields_; }
  int32_t kept_of(int32_t m) const override {
    return static_cast<int32_t>(
        std::ranges::lower_bound(kept_.matrices, m, {}, &KeptMatrix::matrix) -
        kept_.matrices.begin());
  }
  bool is_cut(int32_t m) const { return matrix(kept_of(m)).cut; }

  // If every rank repeats the update, each is its owner.
  void add_member(int32_t k) {
    const KeptMatrix& of = matrix(k);
    any_[of.cut ? kCut : kUncut] = true;
    const size_t m = index(of.matrix);
    if (owners(k).empty()) {
      repeats_ = true;
      return add_matrix(
          of.matrix,
          {{self_, plan_.costs[m], {{0, of.dims[0], 0, of.dims[1]}}, {}}});
    }
    add_matrix(of.matrix, sharing_.shares(m));
    if (!sharing_.is_team(m)) return;
    const auto planes = owners(k);
    SharedMatrix team =
        sharing_.shared_matrix(m, {planes.begin(), planes.end()}, self_);
    team.kept = k;
    add_team(std::move(team));
  }

  Shares shares_in(size_t group, int32_t owner) const {
    Shares out;
    for (const Share& share : shares_of(owner))
      if (is_cut(share.matrix) == (group == kCut)) out.push_back(share);
    return out;
  }

  // Pieces that the rank has itself are last. If every rank repeats the update,
  // they are gathered, too.
  int64_t place_wholes(size_t group, int64_t at) {
    const Shares mine = shares_in(group, self_);
    Blocks& blocks = wholes_[group];
    std::ranges::fill(blocks.firsts, at);
    const auto place_from = [&](int32_t plane) {
      blocks.firsts[index(plane)] = at;
      at = place_whole(mine, plane, plane == self_ && !repeats_, at);
      blocks.counts[index(plane)] =
          (at - blocks.firsts[index(plane)]) / num_fields_;
    };
    for (int32_t plane = 0; plane < tp_; ++plane)
      if (plane != self_ && (group == kCut || same_tp_rank(plane)))
        place_from(plane);
    place_from(self_);
    return at;
  }

  // S has one block per owner; matrices that every rank computes share one.
  int64_t place_shards(size_t group, int64_t at) {
    Blocks& blocks = shards_[group];
    std::ranges::fill(blocks.firsts, at);
    for (int32_t plane = 0; plane < tp_; ++plane) {
      const bool moves = plane == self_ ? repeats_ : !repeats_;
      if (!moves) continue;
      blocks.firsts[index(plane)] = at;
      at = place_sent(shares_in(group, plane), at);
      blocks.counts[index(plane)] =
          (at - blocks.firsts[index(plane)]) / num_fields_;
    }
    if (repeats_) {
      std::ranges::fill(blocks.counts, blocks.counts[index(self_)]);
      std::ranges::fill(blocks.firsts, blocks.firsts[index(self_)]);
    }
    return at;
  }

  // Updates take the place of the first field, in W if they are scattered and
  // in S if all ranks repeat them. If every rank stores and computes the whole
  // matrix, nothing moves.
  void place_updates() {
    for (auto& [key, one] : alone_) {
      if (repeats_)
        for (const SlotPiece& piece : round_.prepared)
          if (piece.kept == one.kept) one.updates.push_back(piece);
      const bool is_here =
          repeats_ && !matrix(one.kept).cut && plan_.grid.places == 1;
      if (is_here) one.rectangles = one.updates;
      if (!repeats_) one.updates = one.rectangles;
    }
    for (auto& [m, team] : teams_) team.updates = team.rectangles;
  }

  void choose_segments() {
    std::vector<int64_t> work;
    for (const SlotMatrix& computed : round_.computed)
      work.push_back(
          sharing_.cost(index(matrix(computed.kept).matrix), computed.block)
              .every_step.value());
    const std::vector<int32_t> segments =
        spread_over_segments(work, round_.num_segments());
    for (size_t i = 0; i < segments.size(); ++i)
      round_.computed[i].segment = segments[i];
  }

  bool same_tp_rank(int32_t plane) const {
    return plan_.grid.tp_rank_of(plane) == plan_.grid.tp_rank_of(self_);
  }
  // Returns the blocks that are received: all but this rank's own, which is
  // already in place.
  Blocks moved(Blocks whole) const {
    if (!repeats_) whole.counts[index(self_)] = 0;
    return whole;
  }

  void make_cut_tables() {
    const Blocks wholes = moved(wholes_[kCut]);
    round_.gather[0] = gathers(shards_[kCut], wholes);
    round_.gather[0].empty = !any_[kCut];
    round_.scatter[0] = scatters(wholes, shards_[kCut]);
    round_.scatter[0].empty = !any_[kCut] || repeats_;
  }

  // For gradients the planes of the owner's tp rank send; updates go to the
  // planes of all tp ranks.
  void make_uncut_tables() {
    const Blocks& wholes = wholes_[kUncut];
    Blocks sent = shards_[kUncut];
    Blocks updates = wholes;
    const Mesh& grid = plan_.grid;
    for (int32_t p = 0; p < tp_; ++p) {
      if (!same_tp_rank(p)) sent.counts[index(p)] = 0;
      const size_t from =
          index(grid.plane(grid.place_of(p), grid.tp_rank_of(self_)));
      updates.counts[index(p)] = p == self_ ? 0 : wholes.counts[from];
      updates.firsts[index(p)] = wholes.firsts[from];
    }
    round_.gather[1] = gathers(sent, moved(wholes));
    round_.gather[1].empty = !any_[kUncut] || grid.places == 1;
    round_.scatter[1] = scatters(updates, shards_[kUncut]);
    round_.scatter[1].empty = !any_[kUncut] || repeats_;
  }

  ExchangeTable gathers(const Blocks& shards, const Blocks& wholes) const {
    return table(shards, shards_area_, wholes, wholes_area_, num_fields_);
  }
  ExchangeTable scatters(const Blocks& wholes, const Blocks& shards) const {
    return table(wholes, wholes_area_, shards, shards_area_, 1);
  }
  static ExchangeTable table(const Blocks& send, const Extent& source,
                             const Blocks& receive, const Extent& target,
                             int64_t fields) {
    const auto bytes = [](std::vector<int64_t> elements, int64_t from,
                          int64_t times) {
      for (int64_t& e : elements) e = (e - from) * times * kBytesPerFp32;
      return elements;
    };
    const auto in_bytes = [](const Extent& area) {
      return Extent{area.first * kBytesPerFp32, area.count * kBytesPerFp32};
    };
    return {in_bytes(source),
            in_bytes(target),
            bytes(send.counts, 0, fields),
            bytes(send.firsts, source.first, 1),
            bytes(receive.counts, 0, fields),
            bytes(receive.firsts, target.first, 1)};
  }

  const PlanPart& plan_;
  const int32_t tp_;
  const Kept& kept_;
  const int64_t num_fields_;
  TeamTable& sharing_;
  // By kCut and kUncut.
  std::vector<Blocks> wholes_, shards_;
  bool any_[2] = {false, false};
  bool repeats_ = false;
  Extent wholes_area_, shards_area_;
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
    rounds.push_back(HomeRounds(plan, at, kept, num_fields, teams).make(some));
  return rounds;
}

}  // namespace canzona
