#include "canzona/checkpoint/new_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

std::filesystem::path without_last_slash(const std::string& path) {
  std::filesystem::path out(path);
  if (!out.has_filename() && out != out.root_path()) out = out.parent_path();
  return out;
}

std::string last_name(const std::string& path) {
  std::string name = without_last_slash(path).filename().string();
  if (name.empty() || name == "." || name == "..")
    throw UsageError(
        cat(quoted(path, 300), ": expected the name of a new folder"));
  return name;
}

std::string parent_folder(const std::string& path) {
  const std::string parent = without_last_slash(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

// Delegates to the other constructor, so that a failure runs the destructor.
MissingFolders::MissingFolders(const std::string& path) : MissingFolders() {
  std::filesystem::path folder;
  for (const std::filesystem::path& name : without_last_slash(path)) {
    folder /= name;
    const int code = ::mkdir(folder.c_str(), 0777) == 0 ? 0 : errno;
    if (code == 0)
      made_.push_back(folder.string());
    else if (!std::filesystem::is_directory(folder))
      throw_write_error(
          cat("cannot make the folder ", quoted(folder.string(), 300)), code);
  }
}

MissingFolders::~MissingFolders() {
  for (; !made_.empty(); made_.pop_back()) ::rmdir(made_.back().c_str());
}

void MissingFolders::keep() {
  for (const std::string& folder : made_)
    Folder::open(parent_folder(folder)).sync();
  made_.clear();
}

NewFolder::NewFolder(const std::string& path, const std::string& owner)
    : name_(last_name(path)),
      above_(parent_folder(path)),
      parent_(Folder::open(parent_folder(path))),
      lock_(FileLock::take(lock_path(), owner)) {
  if (!lock_)
    throw UsageError(cat(quoted(path, 300), " is being written by ",
                         printable(FileLock::holder(lock_path()))));
  for (const FolderEntry& entry : parent_.entries()) {
    if (entry.name == name_) require_empty(entry);
    if (entry.name == temporary()) parent_.remove_all(entry);
  }
  parent_.make_folder(temporary());
  is_there_ = true;
}

NewFolder::~NewFolder() {
  if (!is_there_) return;
  try {
    parent_.remove_all({temporary(), FolderEntryKind::kFolder});
  } catch (const Error&) {  // the next one removes it
  }
}

void NewFolder::require_empty(const FolderEntry& entry) const {
  if (entry.kind == FolderEntryKind::kFolder &&
      parent_.open_folder(entry.name).entries().empty())
    return;
  throw UsageError(cat(quoted(parent_.path() + "/" + name_, 300),
                       " is there already and not an empty folder; choose "
                       "another one"));
}

void NewFolder::require_space(int64_t bytes) const {
  const int64_t free = parent_.free_bytes();
  if (bytes <= free) return;
  throw StorageError(cat(quoted(parent_.path(), 300), " has ",
                         human_bytes(free), " free, but ", human_bytes(bytes),
                         " are needed for ", quoted(name_)));
}

void NewFolder::commit() {
  parent_.open_folder(temporary()).sync();
  parent_.rename(temporary(), name_);
  is_there_ = false;
  parent_.sync();
  above_.keep();
}

}  // namespace canzona
