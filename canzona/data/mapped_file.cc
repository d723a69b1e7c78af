#include "canzona/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

[[noreturn]] void fail(const std::string& path) {
  const int code = errno;
  throw UsageError(cat("cannot map the tokens ", quoted(path), ": ",
                       std::generic_category().message(code)));
}

// Maps what is open at `fd`, which stays the caller's.
const std::byte* map_bytes(int fd, size_t size, const std::string& path) {
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) fail(path);
  return static_cast<const std::byte*>(at);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  file_size(path, "the tokens");  // refuses what is no regular file
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) fail(path);
  struct stat status {};
  try {
    if (::fstat(fd, &status) != 0) fail(path);
    size_ = static_cast<size_t>(status.st_size);
    if (size_ > 0) data_ = map_bytes(fd, size_, path);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace canzona
