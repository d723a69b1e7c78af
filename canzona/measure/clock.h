// Clocks for measurements. A thread's CPU time is not affected by other load on
// the machine; several threads can only be timed by wall time.
#pragma once

#include <time.h>

namespace canzona {

inline double seconds_on(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}
inline double thread_cpu_seconds() {
  return seconds_on(CLOCK_THREAD_CPUTIME_ID);
}
inline double wall_seconds() { return seconds_on(CLOCK_MONOTONIC); }

// Returns the seconds that `work` takes: CPU time if a single thread does it.
template <class Work>
double seconds_of(int num_threads, const Work& work) {
  const auto now = num_threads == 1 ? thread_cpu_seconds : wall_seconds;
  const double start = now();
  work();
  return now() - start;
}

}  // namespace canzona
