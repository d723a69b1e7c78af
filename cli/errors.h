// Failures that only the program has, in addition to canzona/base/error.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/files.h"

namespace canzona::cli {

// Thrown for a plan that is not valid, with all violations.
class ViolationsFound : public Error {
 public:
  ViolationsFound(const std::string& what, std::vector<std::string> violations)
      : Error(what), violations_(std::move(violations)) {}
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::vector<std::string> violations_;
};

// Thrown for a plan that is valid except for the memory cap: the caller must
// change the cap, so it is a mistake in the request. Each violation names what
// it concerns.
class CapExceeded : public UsageError {
 public:
  CapExceeded(const std::string& what, std::vector<std::string> violations)
      : UsageError(what), violations_(std::move(violations)) {}
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::vector<std::string> violations_;
};

// Thrown when the reader of our output has closed the pipe, which is not an
// error of ours.
class ClosedPipe : public Error {
 public:
  ClosedPipe() : Error("the reader of the output has gone") {}
};

}  // namespace canzona::cli
