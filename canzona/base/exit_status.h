// The program's exit statuses tell a caller who has to act; docs/errors.md
// lists them. Only cli/main.cc maps errors to statuses; a launcher reads those
// of its child processes.
#pragma once

namespace canzona {

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

}  // namespace canzona
