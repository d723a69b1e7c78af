// Files of checkpoints, below one folder that stays open.
//
// FileSystem is the system's calls and nothing else, so that a test can let any
// of them fail, or stop the process at it. Folder and the two kinds of files
// are what the rest of the room uses: names are single components, links are
// never followed, interrupted calls are made again, and every other failure is
// an error that names the file:
//
//   StorageError, UsageError   while writing (file_errors.h)
//   DataLost                   while reading: missing, no regular file, shorter
//                              than it was, not readable
//
// One thread at a time per object; InputFile::read() from any.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace canzona {

// As the calls of POSIX that they are named after: below 0 with errno set.
// `folder` is an open folder, `name` a component in it.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  static FileSystem& system();

  // O_CLOEXEC and O_NOFOLLOW are added.
  virtual int open(int folder, const char* name, int flags);
  virtual int close(int file);
  virtual ssize_t write(int file, const void* bytes, size_t count);
  virtual ssize_t read(int file, void* bytes, size_t count, int64_t offset);
  virtual int sync(int file);
  virtual int make_folder(int folder, const char* name);
  virtual int rename(int folder, const char* from, const char* to);
  virtual int remove(int folder, const char* name, bool is_folder);
  virtual int64_t free_bytes(int folder);
};

// A file that is read. Any thread may read.
class InputFile {
 public:
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // All of these bytes; DataLost if they are not there.
  void read(int64_t offset, std::span<std::byte> to) const;

 private:
  friend class Folder;
  InputFile(FileSystem& system, std::string path, int file, int64_t size)
      : system_(&system), path_(std::move(path)), file_(file), size_(size) {}

  FileSystem* system_;
  std::string path_;
  int file_;
  int64_t size_;
};

// A new file. It counts as written when finish() has returned.
class OutputFile {
 public:
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void write(std::string_view bytes);
  // On disk, and closed. After a failure nobody knows what is on disk: it is
  // not tried again, the file is lost.
  void finish();

 private:
  friend class Folder;
  OutputFile(FileSystem& system, std::string path, int file)
      : system_(&system), path_(std::move(path)), file_(file) {}
  [[noreturn]] void fail() const;

  FileSystem* system_;
  std::string path_;
  int file_;
  int64_t unstarted_ = 0;  // bytes since the disk was last asked to begin
};

enum class FolderEntryKind {
  kFile,
  kFolder,
  kOther
};  // other: links, pipes, …

struct FolderEntry {
  std::string name;
  FolderEntryKind kind = FolderEntryKind::kOther;
};

class Folder {
 public:
  // UsageError if there is no such folder. Links in `path` are followed: it is
  // the user's.
  static Folder open(const std::string& path,
                     FileSystem& system = FileSystem::system());
  Folder(Folder&& other) noexcept;
  Folder& operator=(Folder&&) = delete;
  ~Folder();

  const std::string& path() const { return path_; }
  FileSystem& system() const { return *system_; }
  int64_t free_bytes() const;

  // By name. DataLost if it cannot be read.
  std::vector<FolderEntry> entries() const;
  // DataLost, for a folder below, or a file, that cannot be opened.
  Folder open_folder(const std::string& name) const;
  InputFile open_file(const std::string& name) const;
  // A whole file of at most `max_bytes`, else DataLost.
  std::string read_file(const std::string& name, int64_t max_bytes) const;

  // The name must be new.
  OutputFile create(const std::string& name) const;
  Folder make_folder(const std::string& name) const;
  // Over what has the new name: a file, or an empty folder.
  void rename(const std::string& from, const std::string& to) const;
  void remove_file(const std::string& name) const;
  // An entry of ours and what is in it, folders one deep.
  void remove_all(const FolderEntry& entry) const;
  // Names in this folder are on disk.
  void sync() const;

 private:
  Folder(FileSystem& system, std::string path, int folder)
      : system_(&system), path_(std::move(path)), folder_(folder) {}
  std::string path_of(const std::string& name) const;

  FileSystem* system_;
  std::string path_;
  int folder_;
};

// UsageError unless it may be one component of a path: not empty, not longer
// than 200 bytes, letters, digits, '.', '_' and '-' alone, no leading dot.
void check_component(std::string_view name, std::string_view what);

}  // namespace canzona
