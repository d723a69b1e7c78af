#include "canzona/comm/transport.h"

#include <type_traits>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

using Clock = std::chrono::steady_clock;

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  words.reserve(ranks.size());
  for (int rank : ranks) words.push_back(std::to_string(rank));
  return cat(ranks.size() == 1 ? "rank " : "ranks ", join(words, ", "));
}

}  // namespace

void Exchange::set_ranks_per_node(int ranks_per_node) {
  const auto node = [&](int rank) { return known_as(rank) / ranks_per_node; };
  for (int peer = 0; peer < transport_->size(); ++peer)
    is_slow_[static_cast<size_t>(peer)] =
        ranks_per_node > 0 && node(peer) != node(transport_->rank());
}

void Exchange::begin(Operation operation, int64_t sequence, const Label& label,
                     std::chrono::nanoseconds time) {
  operation_ = operation;
  sequence_ = sequence;
  label_ = label;
  time_ = time;
  transport_->pass_gate(name_, operation, label_.view());
  deadline_ = deadline_after(time);
  sent_ = {};
  transport_->enter(sequence);
  if (transport_->is_aborted()) throw_lost();
}

void Exchange::send(int to, std::span<const std::byte> data) {
  if (data.empty()) return;
  count_sent(to, static_cast<int64_t>(data.size()));
  transport_->post_send(to, data);
}

void Exchange::receive(int from, std::span<std::byte> data) {
  if (!data.empty()) transport_->post_receive(from, data);
}

void Exchange::show(int to, std::span<const std::byte> data,
                    int64_t wire_bytes) {
  if (data.empty()) return;
  count_sent(to, wire_bytes);
  transport_->post_show(to, data, wire_bytes);
}

void Exchange::look(int from, int64_t bytes, const std::byte** where) {
  if (bytes > 0) transport_->post_look(from, bytes, where);
}

void Exchange::finish() {
  while (!transport_->poll()) {
    if (is_lost()) {
      // A peer may have done its part and failed after that.
      if (transport_->poll()) return;
      throw_lost();
    }
    if (Clock::now() >= deadline_) throw_late();
    transport_->pause(deadline_);
  }
}

void Exchange::meet() {
  static constexpr std::array<std::byte, 1> kToken{};
  const SentBytes sent = sent_;
  const int size = transport_->size();
  transport_->set_of_host(true);
  for (int step = 1; step < size; ++step)
    send((transport_->rank() + step) % size, kToken);
  for (int step = 1; step < size; ++step)
    receive((transport_->rank() + size - step) % size,
            std::span(tokens_).subspan(static_cast<size_t>(step), 1));
  finish();
  transport_->set_of_host(false);
  sent_ = sent;
}

std::string Exchange::where() const {
  std::string text = cat("rank ", known_as(transport_->rank()), " of ", name_,
                         ": ", to_string(operation_), " #", sequence_);
  if (!label_.view().empty()) text += cat(" ", quoted(label_.view()));
  return text;
}

bool Exchange::is_lost() {
  return transport_->is_aborted() || transport_->lost_peer() >= 0;
}

// The rank that gave up first may have waited for this one while this one
// waited for a third: that one is the culprit, and only this rank knows it.
void Exchange::throw_lost() {
  if (transport_->is_aborted()) {
    std::string reason = transport_->abort_reason();
    const std::vector<int> missing = absent();
    if (!missing.empty() &&
        reason.find(ranks_text(missing)) == std::string::npos)
      reason += cat(" (", ranks_text(missing), " had not arrived here)");
    throw PeerLost(cat(where(), " given up: ", reason));
  }
  throw PeerLost(
      cat(where(), ": rank ", known_as(transport_->lost_peer()), " has left"));
}

std::vector<int> Exchange::absent() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < transport_->size(); ++peer)
    if (!transport_->has_entered(peer, sequence_))
      ranks.push_back(known_as(peer));
  return ranks;
}

// A peer that we wait for may itself be waiting for the missing one.
void Exchange::throw_late() {
  const std::vector<int> missing = absent();
  std::vector<int> pending;
  for (int peer = 0; peer < transport_->size(); ++peer)
    if (transport_->is_pending(peer)) pending.push_back(known_as(peer));
  const std::string allowed =
      human_seconds(std::chrono::duration<double>(time_).count());
  if (!missing.empty())
    throw PeerLost(cat(where(), ": ", ranks_text(missing),
                       " did not arrive within ", allowed));
  throw PeerLost(cat(where(), ": all ranks arrived, but messages with ",
                     ranks_text(pending), " did not complete within ",
                     allowed));
}

namespace {

int64_t hash_of(std::span<const int64_t> counts) {
  uint64_t hash = counts.size();
  for (const int64_t count : counts)
    hash = bits_at(hash, static_cast<uint64_t>(count));
  return static_cast<int64_t>(hash);
}

int64_t at(std::span<const int64_t> values, size_t i) {
  return values.empty() ? 0 : values[i];
}

}  // namespace

SignatureCheck::SignatureCheck(int num_ranks, bool enabled)
    : mine_(enabled ? static_cast<size_t>(num_ranks) : 0),
      theirs_(mine_.size()) {
  static_assert(std::is_trivially_copyable_v<Signature>);
}

void SignatureCheck::compare(Exchange& exchange,
                             const Announcement& announcement, int64_t sequence,
                             const Label& label) {
  const int rank = exchange.transport().rank();
  const Signature common{
      .operation = static_cast<int64_t>(announcement.operation),
      .sequence = sequence,
      .variant = announcement.variant,
      .total = announcement.total,
      .counts = hash_of(announcement.counts),
      .label = label};
  exchange.transport().set_of_host(true);
  for (size_t peer = 0; peer < mine_.size(); ++peer) {
    if (std::cmp_equal(peer, rank)) continue;
    mine_[peer] = common;
    mine_[peer].to_you = at(announcement.to, peer);
    mine_[peer].from_you = at(announcement.from, peer);
    exchange.send(static_cast<int>(peer),
                  std::as_bytes(std::span(&mine_[peer], 1)));
    exchange.receive(static_cast<int>(peer),
                     std::as_writable_bytes(std::span(&theirs_[peer], 1)));
  }
  exchange.finish();
  exchange.transport().set_of_host(false);
  exchange.forget_sent();
  for (size_t peer = 0; peer < mine_.size(); ++peer) {
    if (std::cmp_equal(peer, rank) || agree(mine_[peer], theirs_[peer]))
      continue;
    throw UsageError(cat(exchange.where(), ": the ranks disagree: rank ",
                         exchange.known_as(rank), " calls ",
                         describe(mine_[peer]), ", rank ",
                         exchange.known_as(static_cast<int>(peer)), " calls ",
                         describe(theirs_[peer])));
  }
}

bool SignatureCheck::agree(const Signature& mine, const Signature& theirs) {
  return mine.operation == theirs.operation &&
         mine.sequence == theirs.sequence && mine.variant == theirs.variant &&
         mine.total == theirs.total && mine.counts == theirs.counts &&
         mine.to_you == theirs.from_you && mine.from_you == theirs.to_you &&
         mine.label.view() == theirs.label.view();
}

std::string SignatureCheck::describe(const Signature& signature) {
  const auto operation = static_cast<Operation>(signature.operation);
  std::string text = cat(to_string(operation), " #", signature.sequence, " ",
                         quoted(signature.label.view()), " (");
  switch (operation) {
    case Operation::kReduceScatter:
    case Operation::kAllReduce:
      text += cat(to_string(static_cast<Reduction>(signature.variant)), ", ");
      break;
    case Operation::kBroadcast:
      text += cat("root ", signature.variant, ", ");
      break;
    case Operation::kAllToAll:
      return text + cat(signature.to_you, " bytes there, ", signature.from_you,
                        " bytes back)");
    default:
      break;
  }
  return text + cat("size ", signature.total, ", hash of counts ",
                    static_cast<uint64_t>(signature.counts) % 100000, ")");
}

}  // namespace canzona
