// What counts as text: a file without a NUL among its first 64 KiB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

namespace canzona {

inline constexpr size_t kLookedAt = 64 << 10;

// The place of the first NUL among the bytes that are looked at.
inline std::optional<size_t> find_nul(std::span<const std::byte> bytes) {
  const auto head = bytes.first(std::min(bytes.size(), kLookedAt));
  const auto nul = std::ranges::find(head, std::byte{0});
  if (nul == head.end()) return std::nullopt;
  return static_cast<size_t>(nul - head.begin());
}

}  // namespace canzona
