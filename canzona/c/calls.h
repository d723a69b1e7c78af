// Shared by all functions of canzona.h: exceptions do not escape, the error's
// text is kept per thread, and invalid arguments are named.
//
//   int canzona_step_end(canzona_step* step) {
//     return status_of([&] { step_of(step)->end(); });
//   }
//   const char* canzona_plan_json(canzona_plan* plan) {
//     return result_of([&] { return plan_of(plan)->json(); });
//   }
//
// Any thread may call.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace canzona {

// Stores the current exception for the calling thread.
void keep_error() noexcept;
const char* kept_error() noexcept;
int32_t kept_error_kind() noexcept;

// Calls `work`; returns 0, or -1 if it threw.
template <class Work>
int status_of(Work&& work) noexcept {
  try {
    std::forward<Work>(work)();
    return 0;
  } catch (...) {
    keep_error();
    return -1;
  }
}

// Returns the pointer that `work` returns, or null if it threw.
template <class Work>
auto result_of(Work&& work) noexcept -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    keep_error();
    return nullptr;
  }
}

// Throws UsageError "<function>: <argument> is NULL".
void require_argument(const void* argument, const char* function,
                      const char* name);
// Returns the text; throws UsageError if it is NULL or its length is negative.
std::string_view text_argument(const char* text, int64_t length,
                               const char* function, const char* name);

}  // namespace canzona
