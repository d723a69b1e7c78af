#include "canzona/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>   // rename
#include <cstdlib>  // realpath
#include <memory>
#include <system_error>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// An open file; closed at the end of its life.
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
  // Some file systems report a failed write only here.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

// UsageError with the system's words for errno.
[[noreturn]] void fail(const std::string& operation) {
  const int code = errno;
  throw UsageError(cat(operation, ": ", std::generic_category().message(code)));
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
  throw UsageError(cat(operation, ": a NUL in the name"));
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

// Up to `count` bytes from `offset`; fewer if the file ends before.
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
    if (done < 0) fail(operation);
    contents.remove_prefix(static_cast<size_t>(done));
  }
}

// The file a link points to, so that the link itself stays.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(
      ::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : path;
}

}  // namespace

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

// Beside its final place; removed unless it was renamed.
class FileWriter::TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : operation_(writing(path)),
        target_(resolved(path)),
        path_(free_path(target_)),
        file_(open_descriptor(path_, O_WRONLY | O_CREAT | O_EXCL)) {
    if (!file_.is_open()) fail(operation_);
    struct stat old {};
    // Best effort: a new file with default rights is better than none.
    if (::stat(target_.c_str(), &old) == 0)
      (void)!::fchmod(file_.get(), old.st_mode & 07777);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!renamed_) ::unlink(path_.c_str());
  }

  void write(std::string_view bytes) { write_all(file_, bytes, operation_); }

  void put_in_place() {
    if (::fsync(file_.get()) != 0) fail(operation_);
    if (!file_.close()) fail(operation_);
    renamed_ = ::rename(path_.c_str(), target_.c_str()) == 0;
    if (!renamed_) fail(operation_);
  }

 private:
  // Processes differ in their number, threads and calls in the counter.
  static std::string free_path(const std::string& target) {
    static std::atomic<unsigned> counter{0};
    return cat(target, ".", ::getpid(), ".", counter++, ".tmp");
  }

  std::string operation_;
  std::string target_;
  std::string path_;
  Descriptor file_;
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

void write_file(const std::string& path, std::string_view contents) {
  refuse_nul(path, writing(path));
  struct stat old {};
  const bool exists = ::stat(path.c_str(), &old) == 0;
  // Renaming onto a device such as /dev/stdout would replace the device.
  if (exists && !S_ISREG(old.st_mode) && !S_ISDIR(old.st_mode)) {
    const Descriptor device = open_descriptor(path, O_WRONLY);
    if (!device.is_open()) fail(writing(path));
    write_all(device, contents, writing(path));
    return;
  }
  FileWriter file(path);
  file.write(contents);
  file.finish();
}

}  // namespace canzona
