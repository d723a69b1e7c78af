// The messages of one operation on a transport: sends and receives that
// complete by a deadline or throw an error that names the missing ranks.
//
//   exchange.begin(operation, sequence, label, deadline);
//   exchange.receive(peer, arrival);
//   exchange.send(peer, piece);
//   exchange.finish();
//
// Throws PeerLost if a peer is late, gone, or has aborted. One thread at a
// time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/comm/call.h"
#include "canzona/comm/transport.h"

namespace canzona {

class Exchange {
 public:
  // `name` is the group's. `known_as` are the ranks' numbers in the original
  // group, by which errors name them; if empty, their own numbers.
  Exchange(std::unique_ptr<Transport> transport, std::string name,
           std::vector<int> known_as = {})
      : transport_(std::move(transport)),
        name_(std::move(name)),
        known_as_(std::move(known_as)),
        tokens_(static_cast<size_t>(transport_->size())),
        is_slow_(tokens_.size()) {}

  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }
  const std::string& name() const { return name_; }
  // The deadline of the current operation.
  Deadline deadline() const { return deadline_; }

  void begin(Operation operation, int64_t sequence, const Label& label,
             std::chrono::nanoseconds time);

  // Empty messages are not sent, because the receiver knows the size.
  void send(int to, std::span<const std::byte> data);
  void receive(int from, std::span<std::byte> data);
  // The same for ranks that read each other's memory (transport.h);
  // `wire_bytes` count as sent.
  void show(int to, std::span<const std::byte> data, int64_t wire_bytes);
  void look(int from, int64_t bytes, const std::byte** where);
  // Waits for everything sent and received since the last call.
  void finish();

  // Exchanges a single byte with every peer and waits for it.
  void meet();

  // Marks the operation as completely issued.
  void end() {
    if (transport_->lane() != nullptr)
      transport_->watch({operation_, sequence_, label_, time_});
  }

  // Counts messages to another node as slow from now on: a node has this many
  // consecutive ranks, as numbered by known_as(). 0: none are slow.
  void set_ranks_per_node(int ranks_per_node);

  // Bytes sent since begin(), without those of checks and meetings.
  const SentBytes& sent() const { return sent_; }
  void forget_sent() { sent_ = {}; }
  // Counts bytes that a library sends on our behalf.
  void count_sent(int to, int64_t bytes) {
    sent_.all += bytes;
    if (is_slow_[static_cast<size_t>(to)]) sent_.slow += bytes;
  }

  int known_as(int rank) const {
    return known_as_.empty() ? rank : known_as_[static_cast<size_t>(rank)];
  }
  // "rank 1 of world: all_gather_v #7 'layers.3 gather 7'".
  std::string where() const;

 private:
  [[noreturn]] void throw_late();
  [[noreturn]] void throw_lost();
  bool is_lost();
  // Returns the peers that have not begun this operation, as errors name them.
  std::vector<int> absent() const;

  std::unique_ptr<Transport> transport_;
  std::string name_;
  std::vector<int> known_as_;
  std::vector<std::byte> tokens_;  // received by a meeting
  Operation operation_ = Operation::kBarrier;
  int64_t sequence_ = 0;
  Label label_;
  std::chrono::nanoseconds time_{0};
  Deadline deadline_;
  std::vector<bool> is_slow_;  // by rank: on another node
  SentBytes sent_;
};

// An Announcement says what a rank is about to do. Ranks compare theirs before
// they do it, because ranks that call different operations would mix up each
// other's bytes.
//
//   check.compare(exchange, announcement, label);   // UsageError names both
//
// Used by one thread at a time, the communicator's.

// All ranks must agree on these values, and in an all-to-all every pair on its
// bytes.
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
  // Unless `enabled`, nothing is reserved and compare() must not be called.
  SignatureCheck(int num_ranks, bool enabled);

  bool enabled() const { return !mine_.empty(); }
  void compare(Exchange& exchange, const Announcement& announcement,
               int64_t sequence, const Label& label);

 private:
  // The form on the wire.
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

  std::vector<Signature> mine_;    // sent to each peer
  std::vector<Signature> theirs_;  // received from each peer
};

}  // namespace canzona
