// A file system in which one call, or every call from one on, fails: for tests
// that make each call of an operation fail in turn.
//
//   for (int64_t k = 1;; ++k) {
//     FaultyFileSystem faulty(k, Fault::error(ENOSPC));
//     … work with it …
//     if (faulty.calls() < k) break;        // it was never reached
//   }
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "canzona/checkpoint/file_system.h"

namespace canzona::checkpoint {

struct Fault {
  enum Kind { kNone, kError, kShortWrite, kKill } kind = kNone;
  int code = 0;
  bool for_ever = false;    // every later call, too
  bool after = false;       // kKill: after the call was made
  bool syncs_only = false;  // count only calls of sync()
  static Fault error(int code) { return {kError, code}; }
};

class FaultyFileSystem : public FileSystem {
 public:
  FaultyFileSystem(int64_t call, Fault fault) : call_(call), fault_(fault) {}
  int64_t calls() const { return calls_; }

  int open(int folder, const char* name, int flags) override {
    return with_fault([&] { return FileSystem::open(folder, name, flags); });
  }
  int close(int file) override {
    // The file is closed, whatever the call returns.
    if (!begins(false)) {
      FileSystem::close(file);
      return -1;
    }
    return ends(FileSystem::close(file));
  }
  ssize_t write(int file, const void* bytes, size_t count) override {
    const bool is_short = fault_.kind == Fault::kShortWrite &&
                          (calls_ + 1 == call_ || fault_.for_ever);
    return with_fault([&] {
      return FileSystem::write(file, bytes, is_short ? (count + 1) / 2 : count);
    });
  }
  // No test cuts the power, so there is no need to wait for the disk.
  int sync(int /*file*/) override { return begins(true) ? ends(0) : -1; }
  int make_folder(int folder, const char* name) override {
    return with_fault([&] { return FileSystem::make_folder(folder, name); });
  }
  int rename(int folder, const char* from, const char* to) override {
    return with_fault([&] { return FileSystem::rename(folder, from, to); });
  }
  int remove(int folder, const char* name, bool is_folder) override {
    return with_fault(
        [&] { return FileSystem::remove(folder, name, is_folder); });
  }
  int64_t free_bytes(int folder) override {
    return free_ >= 0 ? free_ : FileSystem::free_bytes(folder);
  }
  void set_free_bytes(int64_t bytes) { free_ = bytes; }

 private:
  template <class Call>
  auto with_fault(const Call& call) -> decltype(call()) {
    if (!begins(false)) return -1;
    return ends(call());
  }
  // Returns false if the call must fail instead of being made.
  bool begins(bool is_sync) {
    if (fault_.syncs_only && !is_sync) return true;
    ++calls_;
    hit_ = calls_ == call_ || (fault_.for_ever && calls_ > call_);
    if (hit_ && fault_.kind == Fault::kKill && !fault_.after)
      ::kill(::getpid(), SIGKILL);
    if (!hit_ || fault_.kind != Fault::kError) return true;
    errno = fault_.code;
    return false;
  }
  template <class Result>
  Result ends(Result result) {
    if (hit_ && fault_.kind == Fault::kKill) ::kill(::getpid(), SIGKILL);
    return result;
  }

  int64_t call_;
  Fault fault_;
  int64_t calls_ = 0;
  int64_t free_ = -1;
  bool hit_ = false;
};

}  // namespace canzona::checkpoint
