// Says what is at a path, reads files up to a size limit, writes them whole or
// not at all, and locks them.
//
//   if (!is_folder(run)) throw UsageError(cat("no folder ", quoted(run)));
//   std::string text = read_file("config.json", 64 << 20, "the configuration");
//   write_file("plan.json", text);
//
// Only regular files are read: a pipe or a device has no size to check. Any
// thread may call these. Functions that write throw StorageError if the disk is
// full or broken, and UsageError if the path cannot be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "canzona/base/error.h"

namespace canzona {

// File failures that are not the caller's mistake, in addition to error.h:
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

// Returns true if this errno is about the storage behind a path rather than the
// path itself.
bool is_storage_error(int code);

// Throws StorageError or UsageError with the system's text for this errno.
[[noreturn]] void throw_write_error(const std::string& operation, int code);

// Returns the contents of a regular file of at most `max_bytes`; otherwise
// throws UsageError with the file, the limit and the size. `what` says what the
// file is for.
std::string read_file(const std::string& path, int64_t max_bytes,
                      std::string_view what);

// Returns `count` bytes from `offset`, or fewer at the end of the file.
std::string read_file_range(const std::string& path, int64_t offset,
                            int64_t count, std::string_view what);

// Returns the size of a regular file in bytes.
int64_t file_size(const std::string& path, std::string_view what);

// A file that stays open, to be read piece by piece. Any thread may read.
class FileReader {
 public:
  // Throws UsageError like read_file().
  FileReader(const std::string& path, std::string_view what);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when the file was opened
  // Reads the bytes at `offset`, which must have been inside the file when it
  // was opened. Throws DataLost, with both sizes, if the file is shorter now or
  // cannot be read.
  void read(int64_t offset, std::span<std::byte> to) const;

 private:
  // `code` is the errno, or 0 if the file has ended.
  [[noreturn]] void lose(int code) const;

  std::string path_;
  int fd_;
  int64_t size_;
};

// Writes beside `path` and renames, so that a reader sees the old file or the
// new one. A symbolic link keeps pointing to its target; a device is written
// directly. Throws UsageError if the folder does not exist or cannot be
// written.
void write_file(const std::string& path, std::string_view contents);

// Throws UsageError if write_file() could not even begin; meant for paths that
// are written much later. Leaves no file behind.
void check_writable(const std::string& path);

// Writes a regular file piece by piece, as write_file() does: without finish()
// nothing of it remains.
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
  // Syncs the file and its folder and renames it into place, so that the new
  // file is there under its name even after a power loss.
  void finish();

 private:
  class TemporaryFile;
  std::unique_ptr<TemporaryFile> file_;
};

// A lock that a process holds while it works in a folder. The system releases
// it however the process ends, so a lock file that is left behind locks
// nothing.
//
//   const std::string path = folder + "/canzona.lock";
//   std::optional<FileLock> lock = FileLock::take(path, "me");
//   if (!lock) refuse(FileLock::holder(path));
//
// The file is created when the lock is taken and removed when it is released.
// It contains the owner's description of itself. On a file system without locks
// (some network mounts) every take() succeeds.
class FileLock {
 public:
  // Returns nothing if another process, or another FileLock of this one, holds
  // the lock. Throws UsageError if the file cannot be created.
  static std::optional<FileLock> take(const std::string& path,
                                      std::string_view owner);
  // Returns the owner's description of itself, or "" if there is no such file.
  static std::string holder(const std::string& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

// Says what is at a path. Links are followed. What the system does not tell is
// not taken for absence: these throw UsageError with path and reason if a
// folder on the way may not be entered, a name is too long or links lead in a
// circle.

bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

}  // namespace canzona
