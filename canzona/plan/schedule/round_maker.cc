#include "canzona/plan/schedule/round_maker.h"

#include <algorithm>

#include "canzona/base/error.h"

namespace canzona::plan {

void RoundMaker::begin() {
  round_ = {};
  alone_.clear();
  teams_.clear();
  by_owner_.clear();
}

void RoundMaker::add_matrix(int32_t matrix,
                            const std::vector<MatrixShare>& shares) {
  int32_t number = 0;
  for (const MatrixShare& share : shares)
    for (size_t r = 0; r < share.rectangles.size(); ++r)
      by_owner_[share.t].push_back(
          {matrix, share.rectangles[r], number++,
           share.blocks.empty() ? -1 : share.blocks[r],
           shares.size() == 1 && share.rectangles.size() == 1});
}

void RoundMaker::add_team(SharedMatrix team) {
  const int32_t matrix = team.matrix;
  teams_.emplace(matrix, std::move(team));
}

const RoundMaker::Shares& RoundMaker::shares_of(int32_t owner) const {
  static const Shares none;
  const auto found = by_owner_.find(owner);
  return found == by_owner_.end() ? none : found->second;
}

void RoundMaker::begin_computed() {
  for (const Share& share : shares_of(self_)) {
    if (teams_.contains(share.matrix)) continue;
    SlotMatrix& one = alone_[{share.matrix, share.block}];
    one.kept = kept_of(share.matrix);
    one.block = share.block;
    one.own = share.within;
  }
}

void RoundMaker::finish_computed() {
  for (auto& [key, one] : alone_) round_.computed.push_back(std::move(one));
  for (auto& [matrix, team] : teams_) round_.shared.push_back(std::move(team));
}

int64_t RoundMaker::place(const Shares& shares, int32_t holder, bool is_update,
                          int64_t first, const Put& put) const {
  const auto visit = [&](const auto& use) {
    for (const Share& share : shares) {
      const std::vector<Rectangle> stored = pieces(share.matrix, holder);
      for (size_t p = 0; p < stored.size(); ++p)
        if (const Rectangle part = meet(stored[p], share.within);
            part.elements() > 0)
          use(share, part, static_cast<int32_t>(p));
    }
  };
  int64_t count = 0, at = first, most_fields = 1;
  if (fields_ == Fields::kByBlock)
    visit([&](const Share& share, const Rectangle& part, int32_t) {
      count += part.elements();
      most_fields = num_fields(share.matrix);
    });
  visit([&](const Share& share, const Rectangle& part, int32_t p) {
    const int64_t elements = part.elements();
    const bool by_piece = fields_ == Fields::kByPiece;
    put(share, part, p, at, by_piece ? elements : count);
    at +=
        by_piece && !is_update ? elements * num_fields(share.matrix) : elements;
  });
  if (fields_ == Fields::kByPiece || is_update) return at;
  return first + count * most_fields;
}

int64_t RoundMaker::place_whole(const Shares& mine, int32_t holder,
                                bool in_place, int64_t first) {
  return place(mine, holder, false, first,
               [&](const Share& share, const Rectangle& part, int32_t piece,
                   int64_t at, int64_t stride) {
                 add_fields(share, part, at, stride);
                 if (in_place)
                   add_piece(share, part, piece, at, stride, round_.prepared);
               });
}

int64_t RoundMaker::place_sent(const Shares& shares, int64_t first) {
  return place(shares, self_, false, first,
               [&](const Share& share, const Rectangle& part, int32_t piece,
                   int64_t at, int64_t stride) {
                 add_piece(share, part, piece, at, stride, round_.prepared);
               });
}

// Makes `part` relative to a block; returns the list for it.
std::vector<SlotRectangle>& RoundMaker::list_for(
    const Share& share, Rectangle& part,
    std::vector<SlotRectangle> SlotMatrix::*of_alone,
    std::vector<SlotRectangle> SharedMatrix::*of_team) {
  if (const auto team = teams_.find(share.matrix); team != teams_.end())
    return team->second.*of_team;
  part.first_row -= share.within.first_row;
  part.first_col -= share.within.first_col;
  return alone_.at({share.matrix, share.block}).*of_alone;
}

void RoundMaker::add_fields(const Share& share, const Rectangle& part,
                            int64_t at, int64_t stride) {
  Rectangle own = part;
  list_for(share, own, &SlotMatrix::rectangles, &SharedMatrix::rectangles)
      .push_back({own, at, stride});
}

void RoundMaker::add_update(const Share& share, const Rectangle& part,
                            int64_t at, int64_t stride) {
  Rectangle own = part;
  list_for(share, own, &SlotMatrix::updates, &SharedMatrix::updates)
      .push_back({own, at, stride});
}

// A piece that lies at one place, or a part of one that is sent to several
// owners, whose parts come in the order of the shares.
void RoundMaker::add_piece(const Share& share, const Rectangle& part,
                           int32_t piece, int64_t at, int64_t stride,
                           std::vector<SlotPiece>& list) const {
  const int32_t kept = kept_of(share.matrix);
  if (share.is_alone) {
    list.push_back({{part, at, stride}, kept, piece});
    return;
  }
  const auto known = std::ranges::find_if(list, [&](const SlotPiece& one) {
    return one.kept == kept && one.piece == piece;
  });
  if (known != list.end()) {
    known->parts.push_back({part, at, stride});
    return;
  }
  const Rectangle whole = pieces(share.matrix, self_)[index(piece)];
  list.push_back({{whole, -1, 0}, kept, piece, {{part, at, stride}}});
}

}  // namespace canzona::plan
