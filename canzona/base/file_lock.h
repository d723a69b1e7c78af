// A lock that a process holds while it works in a folder. The system frees it
// when the process ends, however it ends: a file that was left behind locks
// nothing.
//
//   std::optional<FileLock> lock = FileLock::take(folder + "/canzona.lock",
//   "me"); if (!lock) refuse(FileLock::holder(folder + "/canzona.lock"));
//
// The file is made when the lock is taken and removed when it is given back. It
// holds what the owner says of itself. Where the file system has no locks
// (some network mounts), every take() succeeds.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace canzona {

class FileLock {
 public:
  // Empty if another process, or another FileLock of this one, holds it.
  // UsageError if the file cannot be made.
  static std::optional<FileLock> take(const std::string& path,
                                      std::string_view owner);
  // What the owner said of itself; "" if there is no such file.
  static std::string holder(const std::string& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

}  // namespace canzona
