// What a rank is about to do, compared with every other rank before it does it:
// ranks that call different things would mix up each other's bytes.
//
//   check.compare(exchange, announcement, label);   // UsageError names both
//
// One thread at a time, the communicator's.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/comm/call.h"
#include "canzona/comm/exchange.h"

namespace canzona {

// What all ranks must agree on: one thing each, and for an all-to-all the bytes
// of every pair.
struct Announcement {
  Operation operation = Operation::kBarrier;
  int64_t variant = 0;  // reduction or root
  int64_t total = 0;
  std::span<const int64_t> counts = {};
  std::span<const int64_t> to = {};
  std::span<const int64_t> from = {};
};

class SignatureCheck {
 public:
  // Without `enabled` nothing is reserved and compare() is not to be called.
  SignatureCheck(int num_ranks, bool enabled);

  bool enabled() const { return !mine_.empty(); }
  void compare(Exchange& exchange, const Announcement& announcement,
               int64_t sequence, const Label& label);

 private:
  // As it travels.
  struct Signature {
    int64_t operation = 0;
    int64_t sequence = 0;
    int64_t variant = 0;
    int64_t total = 0;
    int64_t counts = 0;  // a hash
    int64_t to_you = 0;
    int64_t from_you = 0;
    Label label;
  };

  static std::string describe(const Signature& signature);
  static bool agree(const Signature& mine, const Signature& theirs);

  std::vector<Signature> mine_;    // what each peer is told
  std::vector<Signature> theirs_;  // what each peer said
};

}  // namespace canzona
