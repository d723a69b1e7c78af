#include "canzona/checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>  // renameat
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::checkpoint {
namespace {

// Interrupted calls are made again.
template <class Call>
auto restarted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

[[noreturn]] void lose_file(const std::string& path, const std::string& why) {
  throw DataLost(cat(quoted(path, 300), " ", why));
}

[[noreturn]] void lose_by_errno(const std::string& path) {
  const int code = errno;
  if (code == ENOENT) lose_file(path, "is missing");
  if (code == ELOOP)
    lose_file(path, "is a symbolic link, which is not followed");
  lose_file(path,
            cat("cannot be read: ", std::generic_category().message(code)));
}

[[noreturn]] void fail_writing(const std::string& path) {
  throw_write_error(cat("cannot write ", quoted(path, 300)), errno);
}

FolderEntryKind kind_of(int folder, const char* name) {
  struct stat status {};
  if (::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
    return FolderEntryKind::kOther;
  if (S_ISREG(status.st_mode)) return FolderEntryKind::kFile;
  return S_ISDIR(status.st_mode) ? FolderEntryKind::kFolder
                                 : FolderEntryKind::kOther;
}

}  // namespace

FileSystem& FileSystem::system() {
  static FileSystem system;
  return system;
}

int FileSystem::open(int folder, const char* name, int flags) {
  return ::openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW, 0666);
}
int FileSystem::close(int file) { return ::close(file); }
ssize_t FileSystem::write(int file, const void* bytes, size_t count) {
  return ::write(file, bytes, count);
}
ssize_t FileSystem::read(int file, void* bytes, size_t count, int64_t offset) {
  return ::pread(file, bytes, count, offset);
}
int FileSystem::sync(int file) { return ::fsync(file); }
int FileSystem::make_folder(int folder, const char* name) {
  return ::mkdirat(folder, name, 0777);
}
int FileSystem::rename(int folder, const char* from, const char* to) {
  return ::renameat(folder, from, folder, to);
}
int FileSystem::remove(int folder, const char* name, bool is_folder) {
  return ::unlinkat(folder, name, is_folder ? AT_REMOVEDIR : 0);
}
int64_t FileSystem::free_bytes(int folder) {
  struct statvfs status {};
  if (::fstatvfs(folder, &status) != 0) return -1;
  return static_cast<int64_t>(status.f_bavail) *
         static_cast<int64_t>(status.f_frsize);
}

InputFile::InputFile(InputFile&& other) noexcept
    : system_(other.system_),
      path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      size_(other.size_) {}

InputFile::~InputFile() {
  if (file_ >= 0) system_->close(file_);
}

void InputFile::read(int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = restarted(
        [&] { return system_->read(file_, to.data(), to.size(), offset); });
    if (got < 0) lose_by_errno(path_);
    if (got == 0)
      lose_file(path_, cat("ends at byte ", offset, ", ", to.size(),
                           " bytes before what is read of it"));
    to = to.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : system_(other.system_),
      path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)) {}

OutputFile::~OutputFile() {
  if (file_ >= 0) system_->close(file_);
}

void OutputFile::fail() const { fail_writing(path_); }

void OutputFile::write(std::string_view bytes) {
  CANZONA_CHECK(file_ >= 0, path_, " is written to after finish()");
  while (!bytes.empty()) {
    const ssize_t done = restarted(
        [&] { return system_->write(file_, bytes.data(), bytes.size()); });
    if (done < 0) fail();
    bytes.remove_prefix(static_cast<size_t>(done));
    unstarted_ += done;
  }
#ifdef __linux__
  // Starts writeback early so that the disk works meanwhile; this is only a
  // hint, so the result is ignored.
  constexpr int64_t kBegin = 32 << 20;
  if (unstarted_ >= kBegin) {
    ::sync_file_range(file_, 0, 0, SYNC_FILE_RANGE_WRITE);
    unstarted_ = 0;
  }
#endif
}

void OutputFile::finish() {
  CANZONA_CHECK(file_ >= 0, path_, " is finished twice");
  if (restarted([&] { return system_->sync(file_); }) != 0) fail();
  // An interrupted close() has closed the file.
  if (system_->close(std::exchange(file_, -1)) != 0 && errno != EINTR) fail();
}

Folder Folder::open(const std::string& path, FileSystem& system) {
  if (path.find('\0') != std::string::npos)
    throw UsageError(cat("no folder ", quoted(path), ": a NUL in the name"));
  const int folder = restarted(
      [&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0)
    throw UsageError(cat("cannot open the folder ", quoted(path, 300), ": ",
                         std::generic_category().message(errno)));
  return {system, path, folder};
}

Folder::Folder(Folder&& other) noexcept
    : system_(other.system_),
      path_(std::move(other.path_)),
      folder_(std::exchange(other.folder_, -1)) {}

Folder::~Folder() {
  if (folder_ >= 0) system_->close(folder_);
}

std::string Folder::path_of(const std::string& name) const {
  return path_ + "/" + name;
}

int64_t Folder::free_bytes() const {
  const int64_t bytes = system_->free_bytes(folder_);
  if (bytes < 0) fail_writing(path_);
  return bytes;
}

std::vector<FolderEntry> Folder::entries() const {
  // Uses a descriptor of its own, because the stream moves its position.
  const int copy = restarted([&] {
    return ::openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  });
  if (copy < 0) lose_by_errno(path_);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy),
                                                   &::closedir);
  if (stream == nullptr) {
    ::close(copy);
    lose_by_errno(path_);
  }
  std::vector<FolderEntry> entries;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    entries.push_back({name, kind_of(folder_, entry->d_name)});
    errno = 0;
  }
  if (errno != 0) lose_by_errno(path_);
  std::ranges::sort(entries, {}, &FolderEntry::name);
  return entries;
}

Folder Folder::open_folder(const std::string& name) const {
  const int folder = restarted([&] {
    return system_->open(folder_, name.c_str(), O_RDONLY | O_DIRECTORY);
  });
  // The system reports a link like a file that is not a folder.
  if (folder < 0 && errno == ENOTDIR)
    lose_file(path_of(name), "is not a folder, or is a symbolic link");
  if (folder < 0) lose_by_errno(path_of(name));
  return {*system_, path_of(name), folder};
}

InputFile Folder::open_file(const std::string& name) const {
  const std::string path = path_of(name);
  // Without O_NONBLOCK a pipe would block until somebody writes to it.
  const int file = restarted([&] {
    return system_->open(folder_, name.c_str(), O_RDONLY | O_NONBLOCK);
  });
  if (file < 0) lose_by_errno(path);
  InputFile input(*system_, path, file, 0);
  struct stat status {};
  if (::fstat(file, &status) != 0) lose_by_errno(path);
  if (!S_ISREG(status.st_mode)) lose_file(path, "is not a regular file");
  input.size_ = status.st_size;
  return input;
}

std::string Folder::read_file(const std::string& name,
                              int64_t max_bytes) const {
  const InputFile file = open_file(name);
  if (file.size() > max_bytes)
    lose_file(file.path(),
              cat("has ", file.size(), " bytes, the limit is ", max_bytes));
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

OutputFile Folder::create(const std::string& name) const {
  const int file = restarted([&] {
    return system_->open(folder_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL);
  });
  if (file < 0) fail_writing(path_of(name));
  return {*system_, path_of(name), file};
}

Folder Folder::make_folder(const std::string& name) const {
  if (restarted([&] { return system_->make_folder(folder_, name.c_str()); }) !=
      0)
    fail_writing(path_of(name));
  return open_folder(name);
}

void Folder::rename(const std::string& from, const std::string& to) const {
  if (restarted([&] {
        return system_->rename(folder_, from.c_str(), to.c_str());
      }) != 0)
    throw_write_error(
        cat("cannot rename ", quoted(path_of(from), 300), " to ", quoted(to)),
        errno);
}

void Folder::remove_file(const std::string& name) const {
  if (restarted(
          [&] { return system_->remove(folder_, name.c_str(), false); }) != 0 &&
      errno != ENOENT)
    throw_write_error(cat("cannot remove ", quoted(path_of(name), 300)), errno);
}

void Folder::remove_all(const FolderEntry& entry) const {
  if (entry.kind != FolderEntryKind::kFolder) return remove_file(entry.name);
  const Folder folder = open_folder(entry.name);
  for (const FolderEntry& file : folder.entries())
    folder.remove_file(file.name);
  if (restarted([&] {
        return system_->remove(folder_, entry.name.c_str(), true);
      }) != 0 &&
      errno != ENOENT)
    throw_write_error(cat("cannot remove ", quoted(folder.path(), 300)), errno);
}

void Folder::sync() const {
  if (restarted([&] { return system_->sync(folder_); }) != 0)
    fail_writing(path_);
}

void check_component(std::string_view name, std::string_view what) {
  constexpr size_t kMaxBytes = 200;
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return c < 0x80 &&
           (std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-');
  });
  if (!name.empty() && name.size() <= kMaxBytes && plain && name[0] != '.')
    return;
  throw UsageError(cat(what, " ", quoted(name),
                       " is not a plain name: expected letters, digits, '.', "
                       "'_' and '-', without a leading dot"));
}

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
    if (code == 0) {
      made_.push_back(folder.string());
      continue;
    }
    // A link that leads nowhere exists; why it is no folder says more.
    std::error_code reason;
    if (!std::filesystem::is_directory(folder, reason))
      throw_write_error(
          cat("cannot make the folder ", quoted(folder.string(), 300)),
          code == EEXIST && reason ? reason.value() : code);
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
  throw UsageError(
      cat(quoted(parent_.path() + "/" + name_, 300),
          " already exists and is not an empty folder; choose another one"));
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

}  // namespace canzona::checkpoint
