// Failures of files that are nobody's mistake, beside those of error.h:
//
//   StorageError  what was to be written did not reach its disk: it is full, a
//                 quota or a limit is reached, the device is broken. Exit 6.
//   DataLost      a file that was whole when it was opened got shorter, or can
//                 no longer be read. Exit 3.
#pragma once

#include <string>

#include "canzona/base/error.h"

namespace canzona {

class StorageError : public Error {
 public:
  using Error::Error;
};

class DataLost : public Error {
 public:
  using Error::Error;
};

// Whether this errno speaks of the storage behind a path, not of the path.
bool is_storage_error(int code);

// StorageError or UsageError, with the system's words for this errno.
[[noreturn]] void throw_write_error(const std::string& operation, int code);

}  // namespace canzona
