// Files, read with a limit and written whole or not at all.
//
//   std::string text = read_file("config.json", 64 << 20, "the configuration");
//   write_file("plan.json", text);
//
// Only regular files are read: a pipe or a device has no size to check. Any
// thread may call these. Whatever is written throws StorageError if the disk is
// full or broken (file_errors.h), UsageError if the path cannot be right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace canzona {

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

}  // namespace canzona
