#include "canzona/runtime/digest/rank_digest.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/runtime/gradients.h"
#include "canzona/runtime/rank_values.h"

namespace canzona::runtime {

uint64_t name_seed(std::string_view name) {
  constexpr size_t kDigits = 16;
  constexpr int kHexadecimal = 16;
  const std::string digits = sha256_hex(name).substr(0, kDigits);
  return std::strtoull(digits.c_str(), nullptr, kHexadecimal);
}

void LogicalDigest::add(uint64_t seed, int64_t first,
                        std::span<const uint32_t> bits) {
  uint64_t low = 0, high = 0;
  for (size_t i = 0; i < bits.size(); ++i) {
    const uint64_t place = bits_at(seed, static_cast<uint64_t>(first) + i);
    low += bits_at(place, bits[i]);
    high += bits_at(~place, bits[i]);
  }
  words_[0] += low;
  words_[1] += high;
}

void LogicalDigest::add(uint64_t seed, int64_t first,
                        std::span<const float> values) {
  add(seed, first,
      std::span(reinterpret_cast<const uint32_t*>(values.data()),
                values.size()));
}

std::string LogicalDigest::text() const {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx",
                static_cast<unsigned long long>(words_[1]),
                static_cast<unsigned long long>(words_[0]));
  return text;
}

namespace {

// Adds values in an engine's memory to digests. The engine hashes them in place
// if it can; otherwise they are downloaded and hashed by this rank's share of
// the machine's cores, as if all ranks ran on it.
class Hasher {
 public:
  explicit Hasher(Rank& rank)
      : engine_(rank.engine),
        num_threads_(std::clamp<int64_t>(
            std::thread::hardware_concurrency() / rank.groups.control().size(),
            1, 16)) {}

  LogicalDigest digest(const std::byte* from, int64_t element_bytes,
                       uint64_t seed, const NumberRows& rows) {
    LogicalDigest digest;
    if (const auto sums =
            sum_hashes(engine_, from, element_bytes, seed, rows)) {
      std::ranges::copy(*sums, digest.words().begin());
      return digest;
    }
    const std::span<const uint32_t> bits = downloaded(
        from, element_bytes, (rows.rows - 1) * rows.row_stride + rows.count);
    if (rows.rows == 1) return run_digest(seed, rows.first, bits);
    for (int64_t row = 0; row < rows.rows; ++row)
      digest.add(seed,
                 static_cast<int64_t>(rows.first) + row * rows.stream_stride,
                 bits.subspan(index(row * rows.row_stride), index(rows.count)));
    return digest;
  }

 private:
  // Digest of a tensor's elements from `first` on.
  LogicalDigest run_digest(uint64_t seed, uint64_t first,
                           std::span<const uint32_t> bits) const {
    constexpr int64_t kLeast = int64_t{1} << 20;  // per thread
    const int64_t all = std::ssize(bits);
    const int64_t threads = std::clamp(all / kLeast, int64_t{1}, num_threads_);
    std::vector<LogicalDigest> parts(index(threads));
    const auto hash = [&](int64_t i) {
      const int64_t from = all * i / threads, to = all * (i + 1) / threads;
      parts[index(i)].add(seed, static_cast<int64_t>(first) + from,
                          bits.subspan(index(from), index(to - from)));
    };
    {
      std::vector<std::jthread> others;
      for (int64_t i = 1; i < threads; ++i) others.emplace_back(hash, i);
      hash(0);
    }
    for (int64_t i = 1; i < threads; ++i) parts[0].add(parts[index(i)]);
    return parts[0];
  }

  std::span<const uint32_t> downloaded(const std::byte* from,
                                       int64_t element_bytes, int64_t count) {
    if (std::ssize(bits_) < count) bits_.resize(index(count));
    auto* to = reinterpret_cast<std::byte*>(bits_.data());
    const std::span<uint32_t> bits(bits_.data(), index(count));
    if (element_bytes == 4) {
      engine_.download(to, from, count * element_bytes);
      return bits;
    }
    // Downloads into the second half, from which each number is widened in
    // place.
    std::byte* halves = to + count * element_bytes;
    engine_.download(halves, from, count * element_bytes);
    for (int64_t i = 0; i < count; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, halves + i * element_bytes, sizeof(half));
      bits[index(i)] = half;
    }
    return bits;
  }

  Engine& engine_;
  const int64_t num_threads_;
  std::vector<uint32_t> bits_;
};

// Digest of some elements of a tensor's shard, at their positions in the whole
// tensor.
LogicalDigest piece_digest(Rank& rank, Hasher& hasher, int32_t t,
                           const ExtentCopy& piece) {
  const Tensor& tensor = rank.tensor(t);
  const std::byte* memory =
      rank.store.parameter(rank.layout.parameters.offset_of(t, piece));
  const int64_t each = rank.store.parameter_bytes();
  std::vector<ExtentCopy> runs;
  for (const ExtentCopy& whole :
       logical_runs(tensor, rank.part.grid.tp_ranks(), rank.at.tp_rank)) {
    const ExtentCopy run = whole.from_within(piece.source());
    if (run.count > 0) runs.push_back(run);
  }
  LogicalDigest digest;
  for_number_rows(runs, [&](int64_t from, const NumberRows& rows) {
    digest.add(hasher.digest(memory + (from - piece.from) * each, each,
                             name_seed(tensor.name), rows));
  });
  return digest;
}

// The parameters of dense tensors (or of experts) on this rank: all of them,
// and those that it counts in the digest of all ranks.
struct OwnParameters {
  LogicalDigest all, counted;
};
OwnParameters own_parameters(Rank& rank, bool of_experts) {
  OwnParameters own;
  Hasher hasher(rank);
  const FlatLayout& layout = rank.layout.parameters;
  for (const RankBucket& bucket : layout.buckets) {
    if (bucket.of_experts != of_experts) continue;
    for (int32_t t : rank.part.buckets[index(bucket.bucket)].tensors) {
      LogicalDigest digest;
      for (const ExtentCopy& piece : layout.pieces[index(t)])
        digest.add(piece_digest(rank, hasher, t, piece));
      own.all.add(digest);
      if (rank.counts_shard(t)) own.counted.add(digest);
    }
  }
  return own;
}

// Checks that every home holds the same parameters as the first.
void require_same(Rank& rank, bool of_experts, LogicalDigest mine) {
  const auto all = from_all<uint64_t>(rank.groups.control(), mine.words());
  const int32_t first =
      first_with_parameters(rank.part, rank.world_rank, of_experts);
  if (!std::ranges::equal(all[index(first)], mine.words()))
    throw InternalError(cat("rank ", rank.known_as, " and rank ",
                            rank.part.rank_in_whole(first), " hold different ",
                            rank.prefix, of_experts ? "expert" : "dense",
                            " parameters"));
}

}  // namespace

LogicalDigest digest_parameters(Rank& rank) {
  LogicalDigest digest;
  for (const bool of_experts : {false, true}) {
    const OwnParameters own = own_parameters(rank, of_experts);
    require_same(rank, of_experts, own.all);
    if (first_with_parameters(rank.part, rank.world_rank, of_experts) ==
        rank.world_rank)
      digest.add(own.counted);
  }
  return digest;
}

namespace {

// Rows of a box, by their positions in the whole tensor. A stack of matrices is
// always stored whole.
NumberRows rows_of(const StateBox& box) {
  if (box.count == box.shape) return {.count = box.elements};
  if (box.shape.size() < 2)
    return {.first = static_cast<uint64_t>(box.first[0]),
            .count = box.count[0]};
  // Boxes span all dims after the second.
  int64_t inner = 1;
  for (size_t d = 2; d < box.shape.size(); ++d) inner *= box.shape[d];
  const int64_t first = box.first[0] * box.shape[1] + box.first[1];
  return {.first = static_cast<uint64_t>(first * inner),
          .count = box.count[1] * inner,
          .rows = box.count[0],
          .stream_stride = box.shape[1] * inner,
          .row_stride = box.count[1] * inner};
}

}  // namespace

// Weights that are the parameters themselves are digested as parameters.
LogicalDigest digest_states(Rank& rank) {
  LogicalDigest digest;
  Hasher hasher(rank);
  for (const StateBox& box : boxes_of(rank)) {
    if (!box.given || box.buffer == StateBuffer::kParameters) continue;
    const bool master = box.buffer == StateBuffer::kMasters;
    const Arena::Scope scope(rank.engine.arena());
    digest.add(hasher.digest(
        memory_of(rank, box), kBytesPerFp32,
        name_seed(cat(box.owner, "/", master ? "master" : box.state)),
        rows_of(box)));
  }
  return digest;
}

}  // namespace canzona::runtime
