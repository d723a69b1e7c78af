#include "canzona/saving/staging.h"

#include <sched.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "canzona/base/error.h"

namespace canzona::saving {
namespace {

// Large enough to be worth a thread's start, small enough for even shares of
// large boxes.
constexpr int64_t kStagedPiece = 1 << 20;  // elements
// More threads than memory channels do not help.
constexpr int kMostCopyThreads = 16;

// Calls work(0) … work(count − 1), none of which may throw.
template <class Work>
void share_pieces(int64_t count, int threads, const Work& work) {
  std::atomic<int64_t> next = 0;
  const auto run = [&] {
    for (int64_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> others;
  const int64_t wanted = std::min<int64_t>(count, threads);
  for (int64_t i = 1; i < wanted; ++i) others.emplace_back(run);
  run();
}

// The copy is not read soon, so it bypasses the caches with non-temporal
// stores, and full lines are not read before they are written.
void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__x86_64__)
  constexpr size_t kLine = 64;
  const size_t to_line = -reinterpret_cast<uintptr_t>(to) % kLine;
  const size_t head = std::min(bytes, to_line);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* line = reinterpret_cast<__m128i*>(to + at);
    for (int i = 0; i < 4; ++i)
      _mm_stream_si128(line + i, _mm_loadu_si128(source + i));
  }
  _mm_sfence();
  std::memcpy(to + at, from + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace

StagingMemory::StagingMemory(int64_t elements, int threads)
    : memory_(host_memory().allocate(elements *
                                     static_cast<int64_t>(sizeof(float)))),
      elements_(elements),
      threads_(threads) {
  const int64_t pieces = (elements + kStagedPiece - 1) / kStagedPiece;
  share_pieces(pieces, threads_, [&](int64_t i) {
    const int64_t first = i * kStagedPiece;
    std::ranges::fill(part(first, std::min(kStagedPiece, elements - first)),
                      0.0F);
  });
}

std::span<float> StagingMemory::part(int64_t first, int64_t count) const {
  auto* values = reinterpret_cast<float*>(memory_.get());
  return std::span(values, index(elements_))
      .subspan(index(first), index(count));
}

void StagingMemory::copy(const std::vector<StagedCopy>& copies) const {
  std::vector<StagedCopy> pieces;
  for (const StagedCopy& all : copies)
    for (int64_t done = 0; done < std::ssize(all.from); done += kStagedPiece)
      pieces.push_back(
          {all.from.subspan(
               index(done),
               index(std::min(std::ssize(all.from) - done, kStagedPiece))),
           all.to + done});
  share_pieces(std::ssize(pieces), threads_, [&](int64_t i) {
    const StagedCopy& piece = pieces[index(i)];
    const std::span<float> to = part(piece.to, std::ssize(piece.from));
    copy_past_caches(std::as_writable_bytes(to).data(),
                     std::as_bytes(piece.from).data(), to.size_bytes());
  });
}

int copy_threads(int64_t ranks_here) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return 1;
  const auto share =
      static_cast<int>(CPU_COUNT(&usable) / std::max<int64_t>(ranks_here, 1));
  return std::clamp(share, 1, kMostCopyThreads);
}

}  // namespace canzona::saving
