// What the program exits with, by who must act; docs/errors.md has the table.
// Only cli/main.cc turns errors into them, and a launcher reads them from its
// children.
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
  static constexpr int kInterrupted = 130;  // as shells count: 128 and SIGINT
  static constexpr int kTerminated = 143;   // 128 and SIGTERM
};

}  // namespace canzona
