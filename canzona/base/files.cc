#include "canzona/base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>   // rename
#include <cstdlib>  // realpath
#include <system_error>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona {

// Owns an open file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (is_open()) ::close(fd_);
  }

  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  // Some file systems report a failed write only on close. A close() that is
  // interrupted has still closed the file.
  bool close() {
    return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR;
  }

 private:
  int fd_;
};

// Outside the anonymous namespace because FileWriter has one as a member.
struct FreshFile {
  std::string path;
  Descriptor descriptor;
};

namespace {

// Throws UsageError with the system's text for errno.
[[noreturn]] void fail(const std::string& operation) {
  const int code = errno;
  throw UsageError(cat(operation, ": ", std::generic_category().message(code)));
}

[[noreturn]] void fail_to_write(const std::string& operation) {
  throw_write_error(operation, errno);
}

std::string reading(const std::string& path, std::string_view what) {
  return cat("cannot read ", what, " ", quoted(path));
}

std::string writing(const std::string& path) {
  return cat("cannot write ", quoted(path));
}

// The system would silently use the part before the NUL.
void refuse_nul(const std::string& path, const std::string& operation) {
  if (path.find('\0') == std::string::npos) return;
  throw UsageError(cat(operation, ": the name contains a NUL"));
}

Descriptor open_descriptor(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return Descriptor(fd);
}

struct OpenFile {
  Descriptor descriptor;
  int64_t size;
};

OpenFile open_regular(const std::string& path, std::string_view what) {
  refuse_nul(path, reading(path, what));
  // Without O_NONBLOCK a pipe would block until somebody writes to it.
  Descriptor file = open_descriptor(path, O_RDONLY | O_NONBLOCK);
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) {
    fail(reading(path, what));
  }
  if (!S_ISREG(status.st_mode)) {
    throw UsageError(cat(reading(path, what), ": not a regular file"));
  }
  return {std::move(file), int64_t{status.st_size}};
}

// Returns up to `count` bytes from `offset`; fewer if the file ends before.
std::string read_at(const Descriptor& file, int64_t offset, int64_t count,
                    const std::string& operation) {
  std::string bytes(static_cast<size_t>(count), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(file.get(), bytes.data() + done, bytes.size() - done,
                offset + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(operation);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

void write_all(const Descriptor& file, std::string_view contents,
               const std::string& operation) {
  while (!contents.empty()) {
    const ssize_t done = ::write(file.get(), contents.data(), contents.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_to_write(operation);
    contents.remove_prefix(static_cast<size_t>(done));
  }
}

// Returns the file that a symbolic link points to, so that the link itself
// stays.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(
      ::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : path;
}

// A new name survives a crash only once its folder is synced. Some file systems
// do not support that, so this is best effort.
void sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  const Descriptor open = open_descriptor(folder, O_RDONLY | O_DIRECTORY);
  if (open.is_open()) (void)!::fsync(open.get());
}

// Returns a file that did not exist before, even if a process with the same pid
// left one behind: in containers the pid is always the same. The name has the
// pid and a counter over threads and calls.
FreshFile make_beside(const std::string& target, const std::string& operation) {
  static std::atomic<unsigned> counter{0};
  constexpr int kMaxLeftBehind = 100'000;
  for (int i = 0; i < kMaxLeftBehind; ++i) {
    std::string path = cat(target, ".", ::getpid(), ".", counter++, ".tmp");
    Descriptor file = open_descriptor(path, O_WRONLY | O_CREAT | O_EXCL);
    if (file.is_open()) return {std::move(path), std::move(file)};
    if (errno != EEXIST) fail_to_write(operation);
  }
  fail_to_write(operation);
}

}  // namespace

bool is_storage_error(int code) {
  constexpr std::array kCodes = {ENOSPC, EDQUOT, EFBIG, EIO, EMFILE, ENFILE};
  return std::ranges::find(kCodes, code) != kCodes.end();
}

void throw_write_error(const std::string& operation, int code) {
  const std::string words =
      cat(operation, ": ", std::generic_category().message(code));
  if (is_storage_error(code)) throw StorageError(words);
  throw UsageError(words);
}

std::string read_file(const std::string& path, int64_t max_bytes,
                      std::string_view what) {
  const OpenFile file = open_regular(path, what);
  if (file.size > max_bytes) {
    throw UsageError(cat(reading(path, what), ": it has ", file.size,
                         " bytes, the limit is ", max_bytes));
  }
  return read_at(file.descriptor, 0, file.size, reading(path, what));
}

std::string read_file_range(const std::string& path, int64_t offset,
                            int64_t count, std::string_view what) {
  CANZONA_CHECK(offset >= 0 && count >= 0, "range ", offset, " + ", count,
                " of ", quoted(path));
  const OpenFile file = open_regular(path, what);
  const int64_t left = std::max(file.size - offset, int64_t{0});
  return read_at(file.descriptor, offset, std::min(count, left),
                 reading(path, what));
}

int64_t file_size(const std::string& path, std::string_view what) {
  return open_regular(path, what).size;
}

FileReader::FileReader(const std::string& path, std::string_view what)
    : path_(path) {
  OpenFile file = open_regular(path, what);
  size_ = file.size;
  fd_ = file.descriptor.release();
}

FileReader::~FileReader() { ::close(fd_); }

void FileReader::read(int64_t offset, std::span<std::byte> to) const {
  const auto count = static_cast<int64_t>(to.size());
  CANZONA_CHECK(offset >= 0 && count <= size_ && offset <= size_ - count,
                "bytes ", offset, " + ", count, " of ", size_, " of ",
                quoted(path_));
  while (!to.empty()) {
    const ssize_t got = ::pread(fd_, to.data(), to.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) lose(got < 0 ? errno : 0);
    to = to.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

void FileReader::lose(int code) const {
  if (code != 0)
    throw DataLost(cat(quoted(path_), " can no longer be read: ",
                       std::generic_category().message(code)));
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  throw DataLost(cat(quoted(path_), ": expected ", size_,
                     " bytes as when it was opened, found ",
                     known ? int64_t{status.st_size} : int64_t{0},
                     ": it was cut short while in use"));
}

// The file lies beside its final path and is removed unless it is renamed.
class FileWriter::TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : operation_(writing(path)),
        target_(resolved(path)),
        file_(make_beside(target_, operation_)) {
    struct stat old {};
    // Best effort: a new file with default permissions is better than none.
    if (::stat(target_.c_str(), &old) == 0)
      (void)!::fchmod(file_.descriptor.get(), old.st_mode & 07777);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!renamed_) ::unlink(file_.path.c_str());
  }

  void write(std::string_view bytes) {
    write_all(file_.descriptor, bytes, operation_);
  }

  void put_in_place() {
    while (::fsync(file_.descriptor.get()) != 0)
      if (errno != EINTR) fail_to_write(operation_);
    if (!file_.descriptor.close()) fail_to_write(operation_);
    while (::rename(file_.path.c_str(), target_.c_str()) != 0)
      if (errno != EINTR) fail_to_write(operation_);
    renamed_ = true;
    sync_folder_of(target_);
  }

 private:
  std::string operation_;
  std::string target_;
  FreshFile file_;
  bool renamed_ = false;
};

FileWriter::FileWriter(const std::string& path) {
  refuse_nul(path, writing(path));
  struct stat old {};
  if (::stat(path.c_str(), &old) == 0 && !S_ISREG(old.st_mode)) {
    throw UsageError(cat(writing(path), S_ISDIR(old.st_mode)
                                            ? ": it is a folder"
                                            : ": not a regular file"));
  }
  file_ = std::make_unique<TemporaryFile>(path);
}

FileWriter::~FileWriter() = default;
FileWriter::FileWriter(FileWriter&&) noexcept = default;
FileWriter& FileWriter::operator=(FileWriter&&) noexcept = default;

void FileWriter::write(std::string_view bytes) {
  CANZONA_CHECK(file_ != nullptr, "written to after finish()");
  file_->write(bytes);
}

void FileWriter::finish() {
  CANZONA_CHECK(file_ != nullptr, "finish() called twice");
  file_->put_in_place();
  file_.reset();
}

namespace {

// Renaming onto a device such as /dev/stdout would replace the device.
bool is_device(const std::string& path) {
  struct stat old {};
  return ::stat(path.c_str(), &old) == 0 && !S_ISREG(old.st_mode) &&
         !S_ISDIR(old.st_mode);
}

Descriptor open_device(const std::string& path) {
  Descriptor device = open_descriptor(path, O_WRONLY);
  if (!device.is_open()) fail_to_write(writing(path));
  return device;
}

}  // namespace

void write_file(const std::string& path, std::string_view contents) {
  refuse_nul(path, writing(path));
  if (is_device(path)) {
    write_all(open_device(path), contents, writing(path));
    return;
  }
  FileWriter file(path);
  file.write(contents);
  file.finish();
}

void check_writable(const std::string& path) {
  refuse_nul(path, writing(path));
  if (is_device(path)) return;
  const FileWriter attempt(path);
}

namespace {

int open_lock(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// Returns true unless somebody else holds the lock.
bool try_flock(int fd) {
  int result = -1;
  do {
    result = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0 || errno != EWOULDBLOCK;
}

// Returns false if the previous owner removed the file after we opened it.
bool is_still_at(const std::string& path, int fd) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// Best effort: the lock is what counts; its text is for people.
void write_owner(int fd, std::string_view owner) {
  if (::ftruncate(fd, 0) == 0)
    (void)!::pwrite(fd, owner.data(), owner.size(), 0);
}

}  // namespace

std::optional<FileLock> FileLock::take(const std::string& path,
                                       std::string_view owner) {
  while (true) {
    const int fd = open_lock(path, O_RDWR | O_CREAT);
    if (fd < 0) throw_write_error(cat("cannot write ", quoted(path)), errno);
    FileLock lock(path, fd);
    if (!try_flock(fd)) {
      lock.path_.clear();  // not ours to remove
      return std::nullopt;
    }
    if (is_still_at(path, fd)) {
      write_owner(fd, owner);
      return lock;
    }
    lock.path_.clear();
  }
}

std::string FileLock::holder(const std::string& path) {
  const int fd = open_lock(path, O_RDONLY | O_NONBLOCK);
  if (fd < 0) return "";
  std::array<char, 256> text{};
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  ::close(fd);
  return {text.data(), static_cast<size_t>(count > 0 ? count : 0)};
}

FileLock::FileLock(FileLock&& other) noexcept
    : path_(std::exchange(other.path_, "")),
      fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  if (!path_.empty()) ::unlink(path_.c_str());
  ::close(fd_);
}

namespace {

std::filesystem::file_type kind_of(const std::filesystem::path& path) {
  std::error_code reason;
  const auto kind = std::filesystem::status(path, reason).type();
  if (kind == std::filesystem::file_type::none)
    throw UsageError(cat("cannot access ", quoted(path.string(), 300), ": ",
                         reason.message()));
  return kind;
}

}  // namespace

bool is_there(const std::filesystem::path& path) {
  return kind_of(path) != std::filesystem::file_type::not_found;
}

bool is_folder(const std::filesystem::path& path) {
  return kind_of(path) == std::filesystem::file_type::directory;
}

}  // namespace canzona
