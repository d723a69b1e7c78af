// Files, read with a limit and written whole or not at all.
//
//   std::string text = read_file("config.json", 64 << 20, "the configuration");
//   write_file("plan.json", text);
//
// Only regular files are read: a pipe or a device has no size to check. Any
// thread may call these.
#pragma once

#include <cstdint>
#include <memory>
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

// Writes beside `path` and renames, so that a reader sees the old file or the
// new one. A link keeps pointing to its file; a device is written directly.
// UsageError if the folder does not exist or cannot be written.
void write_file(const std::string& path, std::string_view contents);

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
  // On disk, and in its place.
  void finish();

 private:
  class TemporaryFile;
  std::unique_ptr<TemporaryFile> file_;
};

}  // namespace canzona
