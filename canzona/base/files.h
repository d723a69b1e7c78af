// Files, read with a limit and written whole or not at all, and locks on them.
//
//   std::string text = read_file("config.json", 64 << 20, "the configuration");
//   write_file("plan.json", text);
//
// Only regular files are read: a pipe or a device has no size to check. Any
// thread may call these. Whatever is written throws StorageError if the disk is
// full or broken, UsageError if the path cannot be right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "canzona/base/error.h"

namespace canzona {

// Failures of files that are nobody's mistake, beside those of error.h:
//
//   StorageError  what was to be written did not reach its disk: it is full, a
//                 quota or a limit is reached, the device is broken. Exit 6.
//   DataLost      a file that was whole when it was opened got shorter, or can
//                 no longer be read. Exit 3.
class StorageError : public Error {
 public:
  using Error::Error;
};

class DataLost : public Error {
 public:
  using Error::Error;
};

// True if this errno speaks of the storage behind a path, not of the path.
bool is_storage_error(int code);

// StorageError or UsageError, with the system's words for this errno.
[[noreturn]] void throw_write_error(const std::string& operation, int code);

// The contents of a regular file of at most `max_bytes`; UsageError names the
// file, the limit and the size otherwise. `what` says what it was wanted for.
std::string read_file(const std::string& path, int64_t max_bytes,
                      std::string_view what);

// The first `count` bytes at `offset` (fewer at the end of the file).
std::string read_file_range(const std::string& path, int64_t offset,
                            int64_t count, std::string_view what);

// The size in bytes of a regular file.
int64_t file_size(const std::string& path, std::string_view what);

// A file that stays open, to be read piece by piece. Any thread may read.
class FileReader {
 public:
  // UsageError like read_file().
  FileReader(const std::string& path, std::string_view what);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened
  // The bytes at `offset`, all of which lay inside when it was opened.
  // DataLost, with both sizes, if the file is shorter now or cannot be read.
  void read(int64_t offset, std::span<std::byte> to) const;

 private:
  // `code`: the system's, 0 where the file has ended.
  [[noreturn]] void lose(int code) const;

  std::string path_;
  int fd_;
  int64_t size_;
};

// Writes beside `path` and renames, so that a reader sees the old file or the
// new one. A link keeps pointing to its file; a device is written directly.
// UsageError if the folder does not exist or cannot be written.
void write_file(const std::string& path, std::string_view contents);

// UsageError if write_file() could not even begin: for paths that are wanted
// much later. Leaves nothing.
void check_writable(const std::string& path);

// The same for a regular file that comes piece by piece: without finish()
// nothing of it stays.
//
//   FileWriter file("model.safetensors");
//   for (…) file.write(bytes);
//   file.finish();
//
// One thread at a time.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(FileWriter&&) noexcept;
  FileWriter& operator=(FileWriter&&) noexcept;

  void write(std::string_view bytes);
  // On disk, and in its place; the folder, too, so that a machine which loses
  // power has the new file under its name.
  void finish();

 private:
  class TemporaryFile;
  std::unique_ptr<TemporaryFile> file_;
};

// A lock that a process holds while it works in a folder. The system frees it
// when the process ends, however it ends: a file that was left behind locks
// nothing.
//
//   std::optional<FileLock> lock = FileLock::take(folder + "/canzona.lock",
//   "me"); if (!lock) refuse(FileLock::holder(folder + "/canzona.lock"));
//
// The file is made when the lock is taken and removed when it is given back. It
// holds what the owner says of itself. On a file system without locks (some
// network mounts) every take() succeeds.

class FileLock {
 public:
  // Empty if another process, or another FileLock of this one, holds it.
  // UsageError if the file cannot be made.
  static std::optional<FileLock> take(const std::string& path,
                                      std::string_view owner);
  // Returns what the owner said of itself; "" if there is no such file.
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
