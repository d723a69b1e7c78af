// Checks of our own invariants. They stay on in every build, print both sides
// and throw InternalError. For the caller's mistakes use UsageError.
//
//   CANZONA_CHECK(home < num_homes, "home of tensor ", name);
//   CANZONA_CHECK_EQ(cuts.size(), num_homes + 1, "cuts of bucket ", b);
//
// The arguments after the condition are joined by cat(), and only if the check
// fails.
#pragma once

#include <concepts>
#include <string>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

[[noreturn]] inline void check_failed(const char* file, int line,
                                      const char* what,
                                      const std::string& detail) {
  throw InternalError(
      cat(file, ":", line, ": check failed: ", what, ": ", detail));
}

// Returns left == right, comparing integers by value whatever their signedness
// and width.
template <class Left, class Right>
constexpr bool check_equal(const Left& left, const Right& right) {
  if constexpr (std::integral<Left> && std::integral<Right> &&
                sizeof(Left) > 1 && sizeof(Right) > 1) {
    return std::cmp_equal(left, right);
  } else {
    return left == right;
  }
}

}  // namespace canzona

#define CANZONA_CHECK(condition, ...)                         \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      ::canzona::check_failed(__FILE__, __LINE__, #condition, \
                              ::canzona::cat(__VA_ARGS__));   \
  } while (false)

#define CANZONA_CHECK_EQ(left, right, ...)                                 \
  do {                                                                     \
    const auto& canzona_left = (left);                                     \
    const auto& canzona_right = (right);                                   \
    if (!::canzona::check_equal(canzona_left, canzona_right)) [[unlikely]] \
      ::canzona::check_failed(                                             \
          __FILE__, __LINE__, #left " == " #right,                         \
          ::canzona::cat(canzona_left, " vs ", canzona_right, " ",         \
                         ::canzona::cat(__VA_ARGS__)));                    \
  } while (false)
