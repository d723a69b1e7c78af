// Failures that only the program knows, beside those of canzona/base/error.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/files.h"

namespace canzona::cli {

// A plan that breaks its promises. All violations, not the first.
class ViolationsFound : public Error {
 public:
  ViolationsFound(const std::string& what, std::vector<std::string> violations)
      : Error(what), violations_(std::move(violations)) {}
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::vector<std::string> violations_;
};

// A plan that holds its promises but for the cap on memory: the cap is what the
// caller must change, so it is a mistake in the request. Each violation names
// what it concerns.
class CapExceeded : public UsageError {
 public:
  CapExceeded(const std::string& what, std::vector<std::string> violations)
      : UsageError(what), violations_(std::move(violations)) {}
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::vector<std::string> violations_;
};

// Thrown when the reader of our output has closed the pipe, which is no failure
// of ours.
class ClosedPipe : public Error {
 public:
  ClosedPipe() : Error("the reader of the output has gone") {}
};

}  // namespace canzona::cli
