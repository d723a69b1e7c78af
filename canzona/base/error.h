// Errors of Canzona, by who must act:
//
//   UsageError      the caller's mistake: a flag, a file, a shape, a mesh.
//                   Exit 2.
//   NumericalError  the data's: a factor that is not finite, a decomposition
//                   that failed too often. Exit 5.
//   InternalError   a broken invariant of ours: please report it. Exit 1.
//   PeerLost        another rank is gone or late: worth restarting. Exit 4.
//
// A message names the operation, the thing, what was expected and what came.
// Only cli/main.cc knows the exit codes.
#pragma once

#include <stdexcept>
#include <string>

namespace canzona {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class UsageError : public Error {
 public:
  using Error::Error;
};

class NumericalError : public Error {
 public:
  using Error::Error;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

class PeerLost : public Error {
 public:
  using Error::Error;
};

}  // namespace canzona
