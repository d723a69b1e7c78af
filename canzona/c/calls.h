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

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"

namespace canzona::c {

// Handles of the C interface are numbers that look like pointers and are never
// reused: one that was freed, or is of another kind, is recognized and refused
// instead of dereferenced.
//
//   Handles<PlanHandle> plans("plan");
//   void* handle = plans.add(std::make_unique<PlanHandle>(…));
//   plans.get(handle, "canzona_plan_json")->json();
//   plans.remove(handle);
//
// After fork(), the child has none of its parent's handles, because their
// threads and locks do not exist there; their objects stay in the child's
// memory untouched. Any thread may call. An object lives on while it is in use
// even if its handle is removed meanwhile.

// Counts handles of all kinds in this process and its ancestors.
int64_t new_handle_number();
// The last number given before this process was forked; 0 if it was not.
int64_t last_inherited_number();

template <class Object>
class Handles {
 public:
  explicit Handles(const char* what) : what_(what) {}

  void* add(std::shared_ptr<Object> object) {
    const int64_t number = new_handle_number();
    Table& table = this->table();
    const std::lock_guard lock(table.mutex);
    table.objects.emplace(number, std::move(object));
    // Aligned like a pointer, and never null.
    return reinterpret_cast<void*>(static_cast<uintptr_t>(number) << 4);
  }

  // Throws UsageError naming the function if there is no such handle.
  std::shared_ptr<Object> get(const void* handle, const char* function) {
    std::shared_ptr<Object> object = find(handle);
    if (object == nullptr) refuse(handle, function);
    return object;
  }

  // Does nothing if there is no such handle.
  void remove(const void* handle) {
    std::shared_ptr<Object> last;  // destroyed after the lock is released
    Table& table = this->table();
    const std::lock_guard lock(table.mutex);
    const auto at = table.objects.find(number_of(handle));
    if (at == table.objects.end()) return;
    last = std::move(at->second);
    table.objects.erase(at);
  }

 private:
  struct Table {
    int64_t inherited = last_inherited_number();
    std::mutex mutex;
    std::map<int64_t, std::shared_ptr<Object>> objects;
  };

  static int64_t number_of(const void* handle) {
    const auto value = reinterpret_cast<uintptr_t>(handle);
    return (value & 15) == 0 ? static_cast<int64_t>(value >> 4) : 0;
  }

  // A forked child gets a new table, because its parent's may be locked; the
  // objects in that one are not destroyed.
  Table& table() {
    Table* table = table_.load();
    if (table == nullptr || table->inherited != last_inherited_number()) {
      auto fresh = std::make_unique<Table>();
      if (table_.compare_exchange_strong(table, fresh.get()))
        return *fresh.release();
    }
    return *table;
  }

  std::shared_ptr<Object> find(const void* handle) {
    Table& table = this->table();
    const std::lock_guard lock(table.mutex);
    const auto at = table.objects.find(number_of(handle));
    return at == table.objects.end() ? nullptr : at->second;
  }

  [[noreturn]] void refuse(const void* handle, const char* function) const {
    const int64_t number = number_of(handle);
    if (handle == nullptr)
      throw UsageError(cat(function, ": the ", what_, " is NULL"));
    if (number > 0 && number <= last_inherited_number())
      throw UsageError(cat(function, ": this ", what_,
                           " was made before the process was forked; make a "
                           "new one in the child"));
    throw UsageError(cat(function, ": no such ", what_,
                         "; it was freed, or is a handle of another kind"));
  }

  const char* what_;
  std::atomic<Table*> table_{nullptr};  // lives as long as the process
};

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

// Devices as callers name them: "cpu", "cuda" (the first one), "cuda:3".
struct NamedDevice {
  bool is_cuda = false;
  int number = 0;

  // The argument for CurrentCudaDevice.
  int gpu() const { return is_cuda ? number : -1; }
};
// UsageError names what came and what was expected.
NamedDevice read_device(std::string_view name);

// Makes an engine of that GPU, which becomes the thread's current one. Its work
// is issued to `stream`; its scratch comes from `scratch`, or is its own if
// that is null.
std::unique_ptr<Engine> cuda_engine_of(const NamedDevice& device, void* stream,
                                       Memory* scratch);

// Makes an engine that describes that device.
std::unique_ptr<Engine> engine_of(std::string_view device);

}  // namespace canzona::c
