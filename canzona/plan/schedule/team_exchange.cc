#include "canzona/plan/schedule/team_exchange.h"

#include "canzona/base/check.h"
#include "canzona/base/index.h"

namespace canzona {
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
      : shared_(shared), own_(shared.place) {
    for (auto* list : {&out_.table.send_bytes, &out_.table.send_offsets,
                       &out_.table.receive_bytes, &out_.table.receive_offsets})
      list->assign(index(num_planes), 0);
    out_.table.empty = false;
  }

  void send(int32_t to, const Extent& bytes) {
    set(out_.table.send_bytes, out_.table.send_offsets, to, bytes);
  }
  void receive(int32_t from, const Extent& bytes) {
    set(out_.table.receive_bytes, out_.table.receive_offsets, from, bytes);
  }
  TeamExchange make(const Extent& source, const Extent& target) {
    out_.source = source;
    out_.target = target;
    return std::move(out_);
  }

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
  TeamExchange out_;
};

}  // namespace

TeamRoom team_room(const SharedMatrix& shared) {
  TeamRoom room;
  if (!shared.is_member()) return room;
  const TeamPieces pieces(shared);
  const auto take = [&](int64_t bytes) {
    constexpr int64_t kBorder = 64;
    const int64_t first = room.bytes;
    room.bytes += (bytes + kBorder - 1) / kBorder * kBorder;
    return first;
  };
  const StripFacts& facts = shared.facts;
  room.own_norms = take(pieces.norms());
  room.norms = take(pieces.norms() * shared.size());
  room.sums = take(facts.sum_elements * kBytesPerFp32);
  room.pieces = take(pieces.sum(shared.place).count * shared.size());
  room.own_total = take(pieces.total(shared.place).count);
  room.total =
      take(shared.is_head() ? facts.sum_elements * facts.rounded_bytes : 0);
  room.passed = take(pieces.factor(shared.place).count);
  room.factor = take(facts.factor_bytes);
  room.strips = take(shared.own.elements() * kBytesPerFp32);
  return room;
}

TeamExchange team_exchange(const SharedMatrix& shared, int32_t num_planes,
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
  switch (purpose) {
    case Purpose::kTeamNorms:
      return fill(&TableMaker::norms, between(room.own_norms, room.norms),
                  between(room.norms, room.sums));
    case Purpose::kTeamSums:
      return fill(&TableMaker::sums, between(room.sums, room.pieces),
                  between(room.pieces, room.own_total));
    case Purpose::kTeamTotals:
      return fill(&TableMaker::totals, between(room.own_total, room.total),
                  between(room.total, room.passed));
    case Purpose::kTeamFactors:
      return fill(&TableMaker::factors, between(room.factor, room.strips),
                  between(room.passed, room.factor));
    case Purpose::kTeamPasses:
      return fill(&TableMaker::passes, between(room.passed, room.factor),
                  between(room.factor, room.strips));
    default:
      CANZONA_CHECK(false, "no exchange of a team");
  }
}

}  // namespace canzona
