#include "canzona/c/handles.h"

#include <pthread.h>

namespace canzona {
namespace {

std::atomic<int64_t> handle_numbers{0};
std::atomic<int64_t> inherited_number{0};

void note_fork() { inherited_number = handle_numbers.fetch_add(1) + 1; }

}  // namespace

int64_t new_handle_number() {
  static const int registered = pthread_atfork(nullptr, nullptr, note_fork);
  if (registered != 0)
    throw InternalError("handles cannot be told from those of a parent");
  return ++handle_numbers;
}

int64_t last_inherited_number() { return inherited_number; }

}  // namespace canzona
