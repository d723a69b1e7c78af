// A file as bytes in memory, read from disk when they are looked at: files of
// terabytes need no memory of their own.
//
//   MappedFile file("corpus.bin");
//   std::span<const std::byte> bytes = file.bytes();
//
// Bytes live as long as the object. Any thread may read them. A file that is
// cut short while it is mapped ends the process: the system knows no other way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace canzona {

class MappedFile {
 public:
  // UsageError if it is no regular file or cannot be read.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  int64_t size() const { return static_cast<int64_t>(size_); }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;  // null where the file is empty
  size_t size_ = 0;
};

}  // namespace canzona
