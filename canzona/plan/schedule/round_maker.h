// Lays out one round of a rank in its slot, whoever stores the matrices: W,
// what this rank computes, by the rank that stores it, and S, what others
// compute of its pieces, by owner. What follows from there is up to a subclass:
// rounds.cc, for our own layouts, and storage/storage_rounds.cc, for given
// storage.
//
// Made from the plan alone; no memory is touched. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona::plan {

class RoundMaker {
 public:
  virtual ~RoundMaker() = default;
  RoundMaker(const RoundMaker&) = delete;
  RoundMaker& operator=(const RoundMaker&) = delete;

 protected:
  // The part of a matrix that one rank computes: all of it, its strips if a
  // team shares it, or one block.
  struct Share {
    int32_t matrix = 0;
    Rectangle within;
    int32_t number = 0;  // among the shares of the matrix
    int32_t block = -1;
    bool is_alone = true;
  };
  using Shares = std::vector<Share>;

  // The order of the fields of pieces in a block: those of a piece follow each
  // other, or those of all pieces follow each other field by field, so that
  // updates, in the place of the first field, are contiguous.
  enum class Fields { kByPiece, kByBlock };

  RoundMaker(int32_t self, Fields fields) : self_(self), fields_(fields) {}

  // Returns what a rank stores of a matrix, in the same order on every rank.
  virtual std::vector<Rectangle> pieces(int32_t matrix, int32_t rank) const = 0;
  virtual int64_t num_fields(int32_t matrix) const = 0;
  // Returns the number of a matrix among those that this rank keeps.
  virtual int32_t kept_of(int32_t matrix) const = 0;

  void begin();
  // Adds a matrix of the round and what each of its owners computes.
  void add_matrix(int32_t matrix, const std::vector<MatrixShare>& shares);
  void add_team(SharedMatrix team);
  // The shares of a rank in the order of matrices.
  const Shares& shares_of(int32_t owner) const;
  // Makes room for what this rank computes alone.
  void begin_computed();
  // Moves what this rank computes into the round.
  void finish_computed();

  // Called with a share, the part of it that a piece has, the number of the
  // piece, its element of the slot, and the stride of its fields.
  using Put = std::function<void(const Share&, const Rectangle&, int32_t,
                                 int64_t, int64_t)>;
  // Places what `holder` stores of the shares from element `first` on; returns
  // the end. Updates have one field.
  int64_t place(const Shares& shares, int32_t holder, bool is_update,
                int64_t first, const Put& put) const;
  // Places a block of W; the rank's own pieces are prepared there if
  // `in_place`.
  int64_t place_whole(const Shares& mine, int32_t holder, bool in_place,
                      int64_t first);
  // Places a block of S.
  int64_t place_sent(const Shares& shares, int64_t first);

  void add_fields(const Share& share, const Rectangle& part, int64_t at,
                  int64_t stride);
  void add_update(const Share& share, const Rectangle& part, int64_t at,
                  int64_t stride = 0);
  void add_piece(const Share& share, const Rectangle& part, int32_t piece,
                 int64_t at, int64_t stride,
                 std::vector<SlotPiece>& list) const;

  const int32_t self_;
  Round round_;
  // This rank computes these: alone, by matrix and block, and in teams.
  std::map<std::pair<int32_t, int32_t>, SlotMatrix> alone_;
  std::map<int32_t, SharedMatrix> teams_;

 private:
  std::vector<SlotRectangle>& list_for(
      const Share& share, Rectangle& part,
      std::vector<SlotRectangle> SlotMatrix::*of_alone,
      std::vector<SlotRectangle> SharedMatrix::*of_team);

  const Fields fields_;
  std::map<int32_t, Shares> by_owner_;
};

}  // namespace canzona::plan
