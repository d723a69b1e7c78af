#include "canzona/plan/schedule/team_schedule.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/rules/strips.h"

namespace canzona {
using namespace plan;

bool has_teams(const PlanPart& part) {
  for (size_t m = 0; m < part.matrices.size(); ++m)
    if (part.owners[m].size() > 1) return true;
  return false;
}

bool has_teams(const Plan& plan) {
  return std::any_of(plan.parts.begin(), plan.parts.end(),
                     [](const PlanPart& part) { return has_teams(part); });
}

Rectangle strips_of_member(MatrixShape shape, int strips, int32_t size,
                           int32_t member) {
  const int64_t rows = shape.rows, cols = shape.cols;
  const std::vector<int64_t> borders =
      strip_borders(std::max(rows, cols), strips);
  const int64_t first = borders[index(int64_t{member} * strips / size)];
  const int64_t end = borders[index((int64_t{member} + 1) * strips / size)];
  if (rows > cols) return {first, end - first, 0, cols};
  return {0, rows, first, end - first};
}

Rectangle assembled_by(MatrixShape shape, const StripFacts& facts, int32_t size,
                       int32_t member) {
  if (!facts.has_helper())
    return strips_of_member(shape, facts.strips, size, member);
  return member == 0 ? Rectangle{0, shape.rows, 0, shape.cols} : Rectangle{};
}

Rectangle meet(const Rectangle& a, const Rectangle& b) {
  const Extent rows =
      Extent{a.first_row, a.num_rows}.meet({b.first_row, b.num_rows});
  const Extent cols =
      Extent{a.first_col, a.num_cols}.meet({b.first_col, b.num_cols});
  return {rows.first, rows.count, cols.first, cols.count};
}

std::vector<int64_t> elements_within(const PlanPart& part, int32_t matrix,
                                     std::span<const Rectangle> within) {
  std::vector<int64_t> out(index(part.grid.tp), 0);
  for (const Route& route : routes_of(part, matrix))
    for (const Rectangle& rectangle : within)
      out[index(route.t)] += meet(route, rectangle).elements();
  return out;
}

std::vector<int32_t> nodes_for_teams(const PlanPart& part) {
  std::vector<int32_t> out;
  int32_t number = -1;
  const auto same_node = [&](int32_t a, int32_t b) {
    for (int32_t replica = 0; replica < part.num_replicas(); ++replica)
      if (part.node_of(rank_in_part(part, a, replica)) !=
          part.node_of(rank_in_part(part, b, replica)))
        return false;
    return true;
  };
  for (int32_t r = 0; r < part.grid.world(); ++r) {
    if (r % part.grid.tp == 0 || !same_node(r - 1, r)) ++number;
    out.push_back(number);
  }
  return out;
}

int64_t MatrixShare::elements() const {
  int64_t sum = 0;
  for (const Rectangle& rectangle : rectangles) sum += rectangle.elements();
  return sum;
}

// A list that is too long or too short is none of a valid plan.
std::vector<MatrixShare> shares_of_blocks(const MatrixBlocks& blocks,
                                          const MatrixCost& whole,
                                          std::span<const int32_t> owners) {
  const auto count = std::min<int64_t>(std::ssize(owners), blocks.count());
  std::vector<MatrixShare> out;
  std::map<int32_t, size_t> number_of;  // a rank
  for (int32_t b = 0; b < count; ++b) {
    const auto [at, is_new] =
        number_of.try_emplace(owners[index(b)], out.size());
    if (is_new) out.emplace_back().t = owners[index(b)];
    MatrixShare& share = out[at->second];
    const MatrixCost more = blocks.cost(whole, b);
    share.cost.every_step += more.every_step;
    share.cost.refresh += more.refresh;
    share.rectangles.push_back(blocks.at(b));
    share.blocks.push_back(b);
  }
  return out;
}

const MatrixBlocks& MatrixSharing::blocks(MatrixShape shape) {
  const auto found = blocks_.find(shape);
  if (found != blocks_.end()) return found->second;
  return blocks_.emplace(shape, MatrixBlocks(*rule_, shape)).first->second;
}

std::vector<MatrixShare> MatrixSharing::shares(
    MatrixShape shape, const MatrixCost& cost,
    std::span<const int32_t> owners) {
  if (is_in_blocks(shape, owners))
    return shares_of_blocks(blocks(shape), cost, owners);
  std::vector<MatrixShare> out;
  const int32_t size = team_size(shape, owners);
  const TeamSize every_step = team(shape, cost, size);
  const TeamSize more = costs_.refresh(shape, cost, size);
  for (const int32_t t : owners) {
    const auto member = static_cast<int32_t>(out.size());
    out.push_back({t,
                   {Ticks(team_ticks(every_step, member)),
                    Ticks(team_ticks(more, member))},
                   {rectangle(shape, size, member)},
                   {}});
  }
  return out;
}

TeamSize MatrixSharing::team(MatrixShape shape, const MatrixCost& cost,
                             int32_t size) {
  if (size == 1) return whole_matrix(cost.every_step.value());
  const auto key = std::pair(shape, size);
  auto found = known_.find(key);
  if (found == known_.end())
    found = known_.emplace(key, costs_.team(shape, cost, size)).first;
  return found->second;
}

Rectangle MatrixSharing::rectangle(MatrixShape shape, int32_t size,
                                   int32_t member) {
  if (size == 1) return {0, shape.rows, 0, shape.cols};
  return assembled_by(shape, costs_.strips(shape), size, member);
}

MatrixSharing& TeamTable::sharing(size_t /*matrix*/) {
  if (!sharing_)
    sharing_ = std::make_unique<MatrixSharing>(
        make_rule_facts(part_.rule, part_.rule_options), part_.cost_basis,
        part_.options.links);
  return *sharing_;
}

std::vector<MatrixShare> ShareTable::shares(size_t matrix) {
  const MatrixShape whole = shape(matrix);
  if (owners(matrix).size() == 1)
    return {{owners(matrix)[0],
             whole_cost(matrix),
             {{0, whole.rows, 0, whole.cols}},
             {}}};
  return sharing(matrix).shares(shape(matrix), whole_cost(matrix),
                                owners(matrix));
}

SharedMatrix ShareTable::shared_matrix(size_t matrix,
                                       std::vector<int32_t> planes,
                                       int32_t self) {
  SharedMatrix out;
  out.matrix = static_cast<int32_t>(matrix);
  const MatrixShape whole = shape(matrix);
  out.shape = {whole.rows, whole.cols};
  out.phase = phase(matrix);
  out.members = std::move(planes);
  out.facts = strips(matrix);
  const auto found = std::ranges::find(out.members, self);
  if (found == out.members.end()) return out;
  out.member = static_cast<int32_t>(found - out.members.begin());
  out.own = rectangle(matrix, out.member);
  return out;
}

bool has_strips_shared(const PlanPart& part) {
  TeamTable teams(part);
  for (size_t m = 0; m < part.owners.size(); ++m)
    if (teams.is_team(m)) return true;
  return false;
}

TeamSize ShareTable::of(size_t matrix) {
  const int32_t ranks = size(matrix);
  if (ranks == 1) return whole_matrix(whole_cost(matrix).every_step.value());
  return sharing(matrix).team(shape(matrix), whole_cost(matrix), ranks);
}

namespace {

// Bytes of what the members of a team exchange.
struct TeamPieces {
  explicit TeamPieces(const SharedMatrix& shared)
      : facts(shared.facts), size(shared.size()) {}

  int64_t norms() const { return facts.norm_bytes * facts.strips / size; }
  Extent sum(int32_t member) const {
    return times(even_extent(facts.sum_elements, size, member), kBytesPerFp32);
  }
  Extent total(int32_t member) const {
    return times(even_extent(facts.sum_elements, size, member),
                 facts.rounded_bytes);
  }
  // The head has none.
  Extent factor(int32_t member) const {
    if (member == 0) return {};
    return even_extent(facts.factor_bytes, size - 1, member - 1);
  }
  static Extent times(const Extent& elements, int64_t bytes) {
    return {elements.first * bytes, elements.count * bytes};
  }

  const StripFacts& facts;
  int32_t size;
};

// Fills the table of one exchange, member by member.
class TableMaker {
 public:
  TableMaker(const SharedMatrix& shared, int32_t num_planes)
      : shared_(shared), own_(shared.member) {
    for (auto* list : {&out_.send_bytes, &out_.send_offsets,
                       &out_.receive_bytes, &out_.receive_offsets})
      list->assign(index(num_planes), 0);
    out_.empty = false;
  }

  void send(int32_t to, const Extent& bytes) {
    set(out_.send_bytes, out_.send_offsets, to, bytes);
  }
  void receive(int32_t from, const Extent& bytes) {
    set(out_.receive_bytes, out_.receive_offsets, from, bytes);
  }
  ExchangeTable make(const Extent& source, const Extent& target) {
    out_.source = source;
    out_.target = target;
    return std::move(out_);
  }

  void triangle(const TeamPieces& pieces, int32_t i) {
    const Extent all{0, pieces.facts.sum_elements * kBytesPerFp32};
    if (shared_.is_head() && i > 0) send(i, all);
    if (!shared_.is_head() && i == 0) receive(i, all);
  }
  void found(const TeamPieces& pieces, int32_t i) {
    const Extent all{0, pieces.facts.factor_bytes};
    if (!shared_.is_head() && i == 0) send(i, all);
    if (shared_.is_head() && i > 0) receive(i, all);
  }
  void nothing(const TeamPieces&, int32_t) {}
  void norms(const TeamPieces& pieces, int32_t i) {
    const int64_t each = pieces.norms();
    send(i, {0, each});
    receive(i, {each * i, each});
  }
  void sums(const TeamPieces& pieces, int32_t i) {
    const Extent own = pieces.sum(own_);
    send(i, pieces.sum(i));
    receive(i, {own.count * i, own.count});
  }
  void totals(const TeamPieces& pieces, int32_t i) {
    if (i == 0) send(i, {0, pieces.total(own_).count});
    if (shared_.is_head()) receive(i, pieces.total(i));
  }
  void factors(const TeamPieces& pieces, int32_t i) {
    if (shared_.is_head()) send(i, pieces.factor(i));
    if (i == 0) receive(i, {0, pieces.factor(own_).count});
  }
  void passes(const TeamPieces& pieces, int32_t i) {
    if (i == 0 || shared_.is_head()) return;
    send(i, {0, pieces.factor(own_).count});
    receive(i, pieces.factor(i));
  }

 private:
  void set(std::vector<int64_t>& bytes, std::vector<int64_t>& offsets,
           int32_t member, const Extent& extent) const {
    const size_t plane = index(shared_.members[index(member)]);
    bytes[plane] = extent.count;
    offsets[plane] = extent.count > 0 ? extent.first : 0;
  }

  const SharedMatrix& shared_;
  const int32_t own_;
  ExchangeTable out_;
};

}  // namespace

TeamRoom team_room(const SharedMatrix& shared) {
  TeamRoom room;
  if (!shared.is_member()) return room;
  const auto take = [&](int64_t bytes) {
    constexpr int64_t kBorder = 64;
    const int64_t first = room.bytes;
    room.bytes += (bytes + kBorder - 1) / kBorder * kBorder;
    return first;
  };
  const StripFacts& facts = shared.facts;
  if (facts.has_helper()) {
    const int64_t triangle = facts.sum_elements * kBytesPerFp32;
    room.sums = take(shared.is_head() ? triangle : 0);
    room.pieces = take(shared.is_head() ? 0 : triangle);
    room.own_total = room.total = room.passed = room.bytes;
    room.factor = take(facts.factor_bytes);
    room.strips = take(shared.own.elements() * kBytesPerFp32);
    return room;
  }
  const TeamPieces pieces(shared);
  room.own_norms = take(pieces.norms());
  room.norms = take(pieces.norms() * shared.size());
  room.sums = take(facts.sum_elements * kBytesPerFp32);
  room.pieces = take(pieces.sum(shared.member).count * shared.size());
  room.own_total = take(pieces.total(shared.member).count);
  room.total =
      take(shared.is_head() ? facts.sum_elements * facts.rounded_bytes : 0);
  room.passed = take(pieces.factor(shared.member).count);
  room.factor = take(facts.factor_bytes);
  room.strips = take(shared.own.elements() * kBytesPerFp32);
  return room;
}

ExchangeTable team_exchange(const SharedMatrix& shared, int32_t num_planes,
                            Purpose purpose) {
  TableMaker maker(shared, num_planes);
  if (!shared.is_member()) return maker.make({}, {});
  const TeamPieces pieces(shared);
  const TeamRoom room = team_room(shared);
  const auto between = [](int64_t first, int64_t end) {
    return Extent{first, end - first};
  };
  const auto fill = [&](auto exchange, const Extent& from, const Extent& to) {
    for (int32_t i = 0; i < shared.size(); ++i) (maker.*exchange)(pieces, i);
    return maker.make(from, to);
  };
  const bool helped = shared.facts.has_helper();
  const Extent factor = between(room.factor, room.strips);
  if (helped && purpose == Purpose::kTeamFactors)
    return fill(&TableMaker::found, shared.is_head() ? Extent{} : factor,
                shared.is_head() ? factor : Extent{});
  if (helped && purpose != Purpose::kTeamSums)
    return fill(&TableMaker::nothing, {}, {});
  switch (purpose) {
    case Purpose::kTeamNorms:
      return fill(&TableMaker::norms, between(room.own_norms, room.norms),
                  between(room.norms, room.sums));
    case Purpose::kTeamSums:
      return fill(helped ? &TableMaker::triangle : &TableMaker::sums,
                  between(room.sums, room.pieces),
                  between(room.pieces, room.own_total));
    case Purpose::kTeamTotals:
      return fill(&TableMaker::totals, between(room.own_total, room.total),
                  between(room.total, room.passed));
    case Purpose::kTeamFactors:
      return fill(&TableMaker::factors, factor,
                  between(room.passed, room.factor));
    case Purpose::kTeamPasses:
      return fill(&TableMaker::passes, between(room.passed, room.factor),
                  factor);
    default:
      CANZONA_CHECK(false, "no exchange of a team");
  }
}

bool takes_part(const SharedMatrix& shared, EntryKind stage) {
  if (!shared.is_member()) return false;
  if (!shared.facts.has_helper())
    return shared.is_head() || stage != EntryKind::kIterate;
  if (shared.is_head()) return stage != EntryKind::kRoundSum;
  return stage == EntryKind::kLoadStrips || stage == EntryKind::kIterate;
}

bool is_exchanged(const StripFacts& facts, Purpose purpose, bool with_factors) {
  switch (purpose) {
    case Purpose::kTeamNorms:
      return facts.norm_bytes > 0;
    case Purpose::kTeamSums:
      return !facts.has_helper() || with_factors;
    case Purpose::kTeamTotals:
      return !facts.has_helper();
    case Purpose::kTeamFactors:
      return with_factors;
    default:
      return with_factors && !facts.has_helper();
  }
}

bool is_idle(const StripFacts& facts, EntryKind stage, Purpose purpose,
             int64_t elements) {
  switch (stage) {
    case EntryKind::kAllToAll:
      return !is_exchanged(facts, purpose, true);
    case EntryKind::kScaleStrips:
      return facts.norm_bytes == 0;
    default:
      return elements == 0;
  }
}

namespace {

class OrderMaker {
 public:
  explicit OrderMaker(std::span<const int32_t> segments)
      : segments_(segments) {}

  // Every rank of the home walks the same list: a stage of compute waits for
  // exchanges before it alone, and exchanges come in the same order everywhere,
  // so that the first stage which is not done yet can always be.
  std::vector<TransformStage> make() {
    for (const EntryKind kind :
         {EntryKind::kLoadStrips, EntryKind::kScaleStrips})
      for (int32_t i = 0; i < std::ssize(segments_); ++i) {
        add(kind, i, 0);
        add(Purpose::kTeamNorms, i, 0);
      }
    for (int32_t s = 0; s < num_segments(segments_); ++s) add_segment(s);
    return std::move(out_);
  }

 private:
  // Heads iterate before they go on with their own matrices, which the others
  // do while they wait for factors.
  void add_segment(int32_t s) {
    each(s, EntryKind::kSumStrips, Purpose::kTeamSums);
    each(s, EntryKind::kRoundSum, Purpose::kTeamTotals);
    each(s, EntryKind::kIterate, Purpose::kTeamFactors);
    each(s, [&](int32_t i) { add(Purpose::kTeamPasses, i, s); });
    add(EntryKind::kTransform, -1, s);
    each(s, [&](int32_t i) { add(EntryKind::kMultiplyStrips, i, s); });
  }

  template <class Add>
  void each(int32_t segment, const Add& add_one) {
    for (int32_t i = 0; i < std::ssize(segments_); ++i)
      if (segment < segments_[index(i)]) add_one(i);
  }
  void each(int32_t segment, EntryKind kind, Purpose then) {
    each(segment, [&](int32_t i) {
      add(kind, i, segment);
      add(then, i, segment);
    });
  }

  void add(EntryKind kind, int32_t shared, int32_t segment) {
    out_.push_back({kind, Purpose::kNone, shared, segment});
  }
  void add(Purpose purpose, int32_t shared, int32_t segment) {
    out_.push_back({EntryKind::kAllToAll, purpose, shared, segment});
  }

  std::span<const int32_t> segments_;
  std::vector<TransformStage> out_;
};

}  // namespace

std::vector<TransformStage> transform_order(std::span<const int32_t> segments) {
  return OrderMaker(segments).make();
}

int32_t num_segments(std::span<const int32_t> segments) {
  int32_t most = 1;
  for (const int32_t count : segments) most = std::max(most, count);
  return most;
}

std::vector<int32_t> spread_over_segments(std::span<const int64_t> work,
                                          int32_t segments) {
  double all = 0, before = 0;
  for (const int64_t each : work) all += static_cast<double>(each);
  std::vector<int32_t> out;
  for (const int64_t each : work) {
    out.push_back(all > 0
                      ? std::min(static_cast<int32_t>(before / all * segments),
                                 segments - 1)
                      : 0);
    before += static_cast<double>(each);
  }
  return out;
}

}  // namespace canzona
