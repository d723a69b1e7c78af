// The order in which terms of several ranks, or of several strips of a matrix,
// are added: a balanced binary tree, neighbours first, with an odd one carried
// up.
//
//   7 terms:  ((0 + 1) + (2 + 3)) + ((4 + 5) + 6)
//
// Terms come one by one, and only as many sums are kept as there are bits set
// in their number. The caller holds num_sums(count) of them; the whole is left
// in sum 0.
//
//   TreeOrder::add(
//       count, [&](int term, int sum) { … },  // sets the sum to the term
//       [&](int to, int from) { … });         // adds sum `from` to sum `to`
#pragma once

#include <bit>

namespace canzona {

struct TreeOrder {
  // Returns how many sums are in use at most while `count` terms are added.
  static constexpr int num_sums(int count) {
    return std::bit_width(static_cast<unsigned>(count - 1)) + 1;
  }
  // Returns the sum that a term is formed in.
  static constexpr int index(int term) {
    return std::popcount(static_cast<unsigned>(term));
  }
  // Returns where the sum that ends with this term is left: the sums behind it
  // have been added to it.
  static constexpr int last(int term) { return index(term + 1) - 1; }

  template <class Form, class Add>
  static void add(int count, const Form& form, const Add& join) {
    for (int term = 0; term < count; ++term) {
      int sum = index(term);
      form(term, sum);
      for (; sum > last(term); --sum) join(sum - 1, sum);
    }
    for (int sum = index(count) - 1; sum > 0; --sum) join(sum - 1, sum);
  }
};

}  // namespace canzona
