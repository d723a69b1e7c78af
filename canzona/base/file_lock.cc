#include "canzona/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "canzona/base/file_errors.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

int open_lock(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// True unless somebody else holds it.
bool try_flock(int fd) {
  int result = -1;
  do {
    result = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0 || errno != EWOULDBLOCK;
}

// False if the owner before us has removed the file after we had opened it.
bool is_still_at(const std::string& path, int fd) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// Best effort: the lock counts, its words are for people.
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

}  // namespace canzona
