// Accesses the files of checkpoints below one folder that stays open.
//
// FileSystem wraps the system calls and nothing else, so that a test can make
// any of them fail or stop the process there. The rest of the room uses Folder
// and the two kinds of files: names are single path components, links are never
// followed, interrupted calls are retried, and every other failure is an error
// that names the file:
//
//   StorageError, UsageError   while writing (base/files.h)
//   DataLost                   while reading: missing, no regular file, shorter
//                              than it was, not readable
//
// One thread at a time per object; any thread may call InputFile::read().
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/files.h"
#include "canzona/base/rooms.h"

namespace canzona::checkpoint {

// These behave as the POSIX calls that they are named after: below 0 with errno
// set. `folder` is an open folder, `name` a component in it.
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

// A file opened for reading. Any thread may read.
class InputFile {
 public:
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Reads exactly these bytes; throws DataLost if they are not there.
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

// A new file. Its contents are durable only after finish().
class OutputFile {
 public:
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void write(std::string_view bytes);
  // Syncs and closes the file. After a failure the state on disk is unknown, so
  // the file is lost and the sync is not retried.
  void finish();

 private:
  friend class Folder;
  OutputFile(FileSystem& system, std::string path, int file)
      : system_(&system), path_(std::move(path)), file_(file) {}
  [[noreturn]] void fail() const;

  FileSystem* system_;
  std::string path_;
  int file_;
  int64_t unstarted_ = 0;  // bytes since the last writeback hint
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
  // Throws UsageError if there is no such folder. Links in `path` are followed,
  // because the user chose it.
  static Folder open(const std::string& path,
                     FileSystem& system = FileSystem::system());
  Folder(Folder&& other) noexcept;
  Folder& operator=(Folder&&) = delete;
  ~Folder();

  const std::string& path() const { return path_; }
  FileSystem& system() const { return *system_; }
  int64_t free_bytes() const;

  // Returns the entries by name. Throws DataLost if the folder cannot be read.
  std::vector<FolderEntry> entries() const;
  // Throw DataLost for a subfolder or a file that cannot be opened.
  Folder open_folder(const std::string& name) const;
  InputFile open_file(const std::string& name) const;
  // Reads a whole file of at most `max_bytes`; otherwise throws DataLost.
  std::string read_file(const std::string& name, int64_t max_bytes) const;

  // The name must be new.
  OutputFile create(const std::string& name) const;
  Folder make_folder(const std::string& name) const;
  // Replaces what has the new name: a file, or an empty folder.
  void rename(const std::string& from, const std::string& to) const;
  void remove_file(const std::string& name) const;
  // Removes an entry of ours with its contents, one level deep.
  void remove_all(const FolderEntry& entry) const;
  // Makes the names in this folder durable.
  void sync() const;

 private:
  Folder(FileSystem& system, std::string path, int folder)
      : system_(&system), path_(std::move(path)), folder_(folder) {}
  std::string path_of(const std::string& name) const;

  FileSystem* system_;
  std::string path_;
  int folder_;
};

// Throws UsageError unless the name can be a path component: 1 to 200 bytes of
// letters, digits, '.', '_' and '-', without a leading dot.
void check_component(std::string_view name, std::string_view what);

// Creates a folder that appears by one rename, complete or not at all.
//
//   NewFolder folder("out/model", "canzona ckpt export");
//   folder.require_space(bytes);
//   write_file(folder.path() + "/config.json", text);
//   folder.commit();
//
// Until commit() it is called NAME.canzona-part. NAME.lock is held beside it,
// so that remains of a killed process are recognized and removed. Without
// commit() nothing remains. One thread at a time.

// Creates the missing folders of a path, and removes them again if nothing was
// written into them.
//
//   MissingFolders made("runs/qwen/ckpt");
//   write_into("runs/qwen/ckpt");
//   made.keep();
//
// One thread at a time.
class MissingFolders {
 public:
  // UsageError or StorageError names the folder that cannot be made.
  explicit MissingFolders(const std::string& path);
  // Unless keep() was called, removes those that are empty.
  ~MissingFolders();
  MissingFolders(const MissingFolders&) = delete;
  MissingFolders& operator=(const MissingFolders&) = delete;

  // Keeps the folders and makes their names durable.
  void keep();

 private:
  MissingFolders() = default;

  std::vector<std::string> made_;  // the outermost first
};

class NewFolder {
 public:
  // Creates the parent folders. Throws UsageError if the path exists and is not
  // an empty folder, or if another process writes to it; the message has that
  // process's `owner`.
  NewFolder(const std::string& path, const std::string& owner);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // The folder that files are written to until commit().
  std::string path() const { return parent_.path() + "/" + temporary(); }
  // Throws StorageError, with both numbers, if less than `bytes` are free.
  void require_space(int64_t bytes) const;
  void commit();

 private:
  void require_empty(const FolderEntry& entry) const;
  std::string temporary() const { return name_ + ".canzona-part"; }
  std::string lock_path() const {
    return parent_.path() + "/" + name_ + ".lock";
  }

  std::string name_;
  MissingFolders above_;
  Folder parent_;
  std::optional<FileLock> lock_;
  bool is_there_ = false;
};

}  // namespace canzona::checkpoint
