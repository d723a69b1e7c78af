// Strips: the long side of a matrix, cut so that several ranks can share its
// work. Where the cuts are follows from the side alone, so every rank and every
// plan has the same.
//
//   const int strips = strips_that_fit(25600, 8);              // 8
//   const std::vector<int64_t> at = strip_borders(25600, strips);
//   // strip s is [at[s], at[s + 1])
//
// Pure; any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "canzona/linalg/memory.h"
#include "canzona/linalg/stages.h"
#include "canzona/rules/facts.h"

namespace canzona {

// Strips are 1, 2, 4 or 8, so that equal shares of them are subtrees of the
// binary tree in which their sums are added.
inline constexpr int kMostStrips = 8;
// Borders lie at multiples of it: whole tiles of every device.
inline constexpr int64_t kStripUnit = 64;

// Returns the borders of `strips` strips of a side: strips + 1 numbers from 0
// to side, the inner ones the multiples of 64 nearest to side·i/strips (of two
// equally near ones the larger). No strip is empty if they fit.
std::vector<int64_t> strip_borders(int64_t side, int strips);
// One of them.
int64_t strip_border(int64_t side, int strips, int i);

// Returns the largest of 1, 2, 4 and 8 that is not above `wanted` and has
// side >= 64·strips; at least 1.
int strips_that_fit(int64_t side, int wanted);

// Returns the width of the widest of them.
int64_t widest_strip(int64_t side, int strips);

// The transform of one matrix whose strips (strips.h) come one by one, and
// whose update leaves so.
//
//   auto transform = rule.by_strips(engine, {1024, 8192});
//   transform->begin(arena);
//   for (int s = 0; s < strips; ++s)
//     transform->sum(s, matrix);         // strip s of it is there
//   transform->iterate();                // all strips are
//   for (int s = 0; s < strips; ++s)
//     transform->multiply(s, update);    // strip s of it is there then
//
// The update has the bits that Rule::transform gives. Matrix and update are
// memory of the engine, rows one after another, like those of a batch of one;
// the matrix stays until iterate has returned. One thread at a time uses a
// transform; it may be used again for each step, without allocating.

class StripTransform {
 public:
  virtual ~StripTransform() = default;

  // Takes memory for one matrix, which is used until the last strip is
  // multiplied. Requires an open scope of the arena.
  virtual void begin(Arena& arena) = 0;
  // Strips come in any order.
  virtual void sum(int strip, ConstRun matrix) = 0;
  virtual void iterate() = 0;
  virtual void multiply(int strip, Run update) = 0;
};

// The transform of one matrix by the members of a team, each with equally many
// neighbouring strips of it (strips.h). A member is one of these; who carries
// what it hands out to the others is not known here.
//
//   auto own = rule.share(engine, arena, {5120, 25600}, {.members = 4,
//                                                        .place = 1});
//   own->load(piece, parts);               // then all members get all parts
//   if (!own->normalize(all, parts))       // all of them, or none
//     …                                    // exchange once more and again
//   for (int s = 0; s < own->segments(); ++s) {
//     own->sum(s, sums);                   // added up over members by the tree
//     own->round(s, sums, count, rounded); // each a part of the total
//     own->iterate(s, rounded, factor);    // the head; all get the factor
//     own->multiply(s, factor, out);       // out is there after the last one
//   }
//
// The pieces of all members, one after another along the long side, have the
// bits that Rule::transform gives on the whole matrix. All memory but pieces is
// laid out by the rule, is memory of the engine, and begins at multiples of 16
// bytes; sums and rounded sums may be cut anywhere. Calls are issued to the
// engine like those of a rule, and may be repeated (Engine::repeat). One thread
// at a time uses a transform; it may be used again for each step, without
// allocating.

// A member's place in a team of 1, 2, 4 or 8, which follows the order of
// strips.
struct TeamSeat {
  int members = 1;
  int place = 0;
  bool head = false;
};

class SharedTransform {
 public:
  virtual ~SharedTransform() = default;

  // This member's strips as they lie in the matrix, contiguous here: all rows
  // of some columns of a wide matrix, or some rows of a tall one.
  virtual MatrixShape piece() const = 0;
  virtual int segments() const = 0;        // StripFacts::segments
  virtual int64_t part_bytes() const = 0;  // of one member's parts of the norm
  virtual int64_t sum_elements() const = 0;       // StripFacts::sum_elements
  virtual int64_t bytes_per_sum() const = 0;      // of an element: 4, or 8
  virtual int64_t bytes_per_rounded() const = 0;  // of an element, rounded
  virtual int64_t factor_bytes() const = 0;       // StripFacts::factor_bytes

  // `piece` is what Rule::prepare wrote, gathered. It stays until normalize has
  // returned true.
  virtual void load(ConstRun piece, std::byte* parts) = 0;
  // `all` are the parts of all members in order. False on all members alike, at
  // most once: `parts` are written anew and must be exchanged again.
  virtual bool normalize(const std::byte* all, std::byte* parts) = 0;
  virtual void sum(int segment, std::byte* sums) = 0;
  // `count` elements of the total, wherever they lie in it.
  virtual void round(int segment, const std::byte* sums, int64_t count,
                     std::byte* rounded) = 0;
  // Requires a head. `rounded` is the whole total.
  virtual void iterate(int segment, const std::byte* rounded,
                       std::byte* factor) = 0;
  // In the last segment the piece's update is written to `out`.
  virtual void multiply(int segment, const std::byte* factor, Run out) = 0;
};

}  // namespace canzona
