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
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/base/files.h"
#include "canzona/checkpoint/file_system.h"

namespace canzona {

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

}  // namespace canzona
