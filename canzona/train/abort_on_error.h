// Wakes ranks that wait for one that has failed, before anything on this one
// waits for them: the last member, or variable, of what is left by an
// exception.
#pragma once

#include <exception>

#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"

namespace canzona {

class AbortOnError {
 public:
  explicit AbortOnError(Communicator& world) : world_(world) {}
  ~AbortOnError() {
    if (std::uncaught_exceptions() > exceptions_)
      world_.abort(cat("rank ", world_.rank(), " failed in training"));
  }
  AbortOnError(const AbortOnError&) = delete;
  AbortOnError& operator=(const AbortOnError&) = delete;

 private:
  Communicator& world_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace canzona
