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
//
//   try {
//     Mesh mesh = parse_mesh("dp=2,xp=4");
//   } catch (const UsageError& error) {
//     log(error.what());   // "mesh: unknown axis 'xp', expected dp, tp, pp, …"
//   }
//
// Errors of files, DataLost and StorageError, are in base/files.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace canzona {

// The program's exit statuses tell a caller who has to act; docs/errors.md
// lists them. Only cli/main.cc maps errors to statuses.
struct ExitStatus {
  static constexpr int kDone = 0;
  static constexpr int kFailed = 1;
  static constexpr int kUsage = 2;
  static constexpr int kDataLost = 3;
  static constexpr int kPeerLost = 4;  // worth starting again
  static constexpr int kNumerical = 5;
  static constexpr int kStorage = 6;
  static constexpr int kInterrupted = 130;  // 128 + SIGINT, as in shells
  static constexpr int kTerminated = 143;   // 128 + SIGTERM
};

// Ranks, tensors and elements are numbered with signed integers; vectors are
// indexed with unsigned ones.
inline size_t index(int64_t number) { return static_cast<size_t>(number); }

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
