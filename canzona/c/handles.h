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
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

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

}  // namespace canzona
