// What moves for one matrix in one step: routes with ranks and bytes. Matrices
// are those of the whole plan, ranks those of the world.
//
//   Moves moves = moves_of(plan, matrix);
//   for (const MovedPiece& piece : moves.pieces) …
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/report/terminal_style.h"

namespace canzona {

// A rectangle of the matrix, on the rank that stores it.
struct MovedPiece {
  int32_t rank = 0;
  Route route;
  Bytes gather;   // to one owner; none if the owner has it already
  Bytes scatter;  // back
};

struct Moves {
  std::vector<MovedPiece> pieces;  // of the home that has the owner
  Bytes gather;                    // sum over pieces
  Bytes scatter;
  std::string algorithm;  // that the rule runs on this shape
};

Moves moves_of(const Plan& plan, int32_t matrix);

std::string moves_text(const Plan& plan, int32_t matrix, const Ink& ink);
void write_moves(JsonWriter& out, const Plan& plan, int32_t matrix);

}  // namespace canzona
