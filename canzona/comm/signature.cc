#include "canzona/comm/signature.h"

#include <type_traits>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/comm/reduction.h"

namespace canzona {
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
  exchange.forget_sent();
  for (size_t peer = 0; peer < mine_.size(); ++peer) {
    if (std::cmp_equal(peer, rank) || agree(mine_[peer], theirs_[peer]))
      continue;
    throw UsageError(cat(exchange.where(), ": the ranks disagree: rank ", rank,
                         " calls ", describe(mine_[peer]), ", rank ", peer,
                         " calls ", describe(theirs_[peer])));
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
