// Strips: the long side of a matrix, cut so that several ranks can share its
// work. The borders depend on the side alone, so they are the same on every
// rank and in every plan.
//
//   const int strips = strips_that_fit(25600, 8);              // 8
//   const std::vector<int64_t> at = strip_borders(25600, strips);
//   // strip s is [at[s], at[s + 1])
//
// Pure; any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/linalg/stages.h"
#include "canzona/rules/facts.h"

namespace canzona::rules {

// The number of strips is 1, 2, 4 or 8, so that equal shares are subtrees of
// the binary tree that adds their sums.
inline constexpr int kMostStrips = 8;
// Borders are multiples of this: whole tiles on every device.
inline constexpr int64_t kStripUnit = 64;

// Returns the borders of `strips` strips of a side: strips + 1 numbers from 0
// to side, the inner ones the multiples of 64 nearest to side·i/strips (the
// larger one on a tie). No strip is empty if they fit.
std::vector<int64_t> strip_borders(int64_t side, int strips);
// Returns border i.
int64_t strip_border(int64_t side, int strips, int i);

// Returns the border at which the strips of a member of a team begin; for
// member = members, where those of the last one end.
int64_t seat_border(int64_t side, int strips, int members, int member);

// Returns the largest of 1, 2, 4 and 8 that is not above `wanted` and has
// side >= 64·strips; at least 1.
int strips_that_fit(int64_t side, int wanted);

// Returns the width of the widest strip.
int64_t widest_strip(int64_t side, int strips);

// The transform of one matrix by the members of a team. Each member has an
// object of this type and equally many adjacent strips of the
// matrix. The caller carries data between members.
//
//   auto own = rule.share(engine, arena, {5120, 25600}, {.members = 4,
//                                                        .member = 1});
//   own->begin({step, phase, states});     // if the rule keeps states
//   own->load(piece, parts);               // then all-gather the parts
//   if (!own->normalize(all, parts))       // all members agree
//     …                                    // all-gather again and repeat
//   for (int s = 0; s < own->segments(); ++s) {
//     own->sum(s, sums);                   // reduced over members by the tree
//     own->round(s, sums, count, rounded); // each member a part of the total
//     own->iterate(s, rounded, factor);    // head only; broadcasts the factor
//     own->multiply(s, factor, out);       // `out` is written by the last one
//   }
//
// The pieces of all members, concatenated along the long side, are
// bit-identical to Rule::transform on the whole matrix. All memory except the
// pieces is laid out by the rule, is memory of the engine and is aligned to 16
// bytes; sums and rounded sums may be split anywhere. Calls are issued to the
// engine like those of a rule, and may be repeated (Engine::repeat). A
// transform is used by one thread at a time; it can be reused for every step
// without allocating.

// A member of a team of 1, 2, 4 or 8. Members are numbered in the order of
// their strips.
struct TeamSeat {
  int members = 1;
  int member = 0;
  bool head = false;
};

// The step of a matrix that a team shares.
struct SharedStep {
  int64_t step = 1;  // counted from 1
  int phase = 0;
  // Those of RuleFacts::team_states, in its order.
  std::span<const Run> states{};
};

class SharedTransform {
 public:
  virtual ~SharedTransform() = default;

  // The shape of this member's strips, contiguous here: all rows of some
  // columns of a wide matrix, or some rows of a tall one.
  virtual MatrixShape piece() const = 0;
  virtual int segments() const = 0;        // StripFacts::segments
  virtual int64_t part_bytes() const = 0;  // of one member's parts of the norm
  virtual int64_t sum_elements() const = 0;       // StripFacts::sum_elements
  virtual int64_t bytes_per_sum() const = 0;      // per element: 4, or 8
  virtual int64_t bytes_per_rounded() const = 0;  // per rounded element
  virtual int64_t factor_bytes() const = 0;       // StripFacts::factor_bytes

  // Called before load. States must stay valid until the last multiply.
  virtual void begin(const SharedStep& step) { static_cast<void>(step); }
  // `piece` holds the gathered output of Rule::prepare. It must stay valid
  // until normalize has returned true; until the last multiply, which may write
  // the update there, if the rule keeps states.
  virtual void load(ConstRun piece, std::byte* parts) = 0;
  // `all` holds the parts of all members in order. Returns false on all members
  // alike, at most once; `parts` have then been rewritten and must be exchanged
  // again.
  virtual bool normalize(const std::byte* all, std::byte* parts) = 0;
  virtual void sum(int segment, std::byte* sums) = 0;
  // `count` elements of the total, from anywhere in it.
  virtual void round(int segment, const std::byte* sums, int64_t count,
                     std::byte* rounded) = 0;
  // Head only. `rounded` is the whole total.
  virtual void iterate(int segment, const std::byte* rounded,
                       std::byte* factor) = 0;
  // The last segment writes the piece's update to `out`.
  virtual void multiply(int segment, const std::byte* factor, Run out) = 0;
};

}  // namespace canzona::rules
