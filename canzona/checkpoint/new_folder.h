// A folder that appears by one rename, complete or not at all.
//
//   NewFolder folder("out/model", "canzona ckpt export");
//   folder.require_space(bytes);
//   write_file(folder.path() + "/config.json", text);
//   folder.commit();
//
// Until commit() it is called NAME.canzona-part. Beside it NAME.lock is held,
// so that what a killed process left is known to be nobody's, and removed.
// Without commit() nothing stays. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/base/files.h"
#include "canzona/checkpoint/file_system.h"

namespace canzona {

// The folders of a path that were not there: made for what is about to be
// written into them, and removed again if it is not.
//
//   MissingFolders made("runs/qwen/ckpt");
//   write_into("runs/qwen/ckpt");
//   made.keep();
//
// One thread.
class MissingFolders {
 public:
  // UsageError or StorageError names the folder that cannot be made.
  explicit MissingFolders(const std::string& path);
  // Without keep(): removes those that are empty.
  ~MissingFolders();
  MissingFolders(const MissingFolders&) = delete;
  MissingFolders& operator=(const MissingFolders&) = delete;

  // They stay, and their names are on disk.
  void keep();

 private:
  MissingFolders() = default;

  std::vector<std::string> made_;  // the outermost first
};

class NewFolder {
 public:
  // Makes the folders above it. UsageError if the path is there already and not
  // an empty folder, or if another process, which `owner` says of itself,
  // writes to it.
  NewFolder(const std::string& path, const std::string& owner);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // The folder that files are written to until commit().
  std::string path() const { return parent_.path() + "/" + temporary(); }
  // StorageError, with both numbers, if less than `bytes` are free.
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
