// Units as types, so that bytes can never be compared with flops.
//
//   Elements count{1024};
//   Bytes wire = count * kBytesPerFp32;            // does not compile
//   Bytes wire{count.value() * kBytesPerFp32};     // says what it does
//
// Values are 64-bit integers; sums, differences and products with a plain
// number are checked and throw UsageError on overflow, because sizes come from
// files. Quantities are trivially copyable.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace canzona {

// For exact products of two 64-bit counts, as in a share a·b/c.
__extension__ using Int128 = __int128;

// Checked arithmetic on 64-bit integers; throws UsageError naming `what` on
// overflow.
int64_t checked_add(int64_t a, int64_t b, const char* what);
int64_t checked_sub(int64_t a, int64_t b, const char* what);
int64_t checked_mul(int64_t a, int64_t b, const char* what);

std::string quantity_text(int64_t value, const char* unit);
std::ostream& print_text(std::ostream& out, const std::string& text);

template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(int64_t value) : value_(value) {}

  constexpr int64_t value() const { return value_; }

  Quantity& operator+=(Quantity other) {
    value_ = checked_add(value_, other.value_, Tag::kName);
    return *this;
  }
  Quantity& operator-=(Quantity other) {
    value_ = checked_sub(value_, other.value_, Tag::kName);
    return *this;
  }
  friend Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend Quantity operator*(Quantity a, int64_t factor) {
    return Quantity(checked_mul(a.value_, factor, Tag::kName));
  }
  friend Quantity operator*(int64_t factor, Quantity a) { return a * factor; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  // "12 bytes", for cat() and for the messages of tests.
  friend std::string to_text(Quantity q) {
    return quantity_text(q.value_, Tag::kName);
  }
  friend std::ostream& operator<<(std::ostream& out, Quantity q) {
    return print_text(out, to_text(q));
  }

 private:
  int64_t value_ = 0;
};

struct BytesTag {
  static constexpr const char* kName = "bytes";
};
struct FlopsTag {
  static constexpr const char* kName = "flops";
};
struct ElementsTag {
  static constexpr const char* kName = "elements";
};
struct TicksTag {
  static constexpr const char* kName = "ticks";
};

using Bytes = Quantity<BytesTag>;
using Flops = Quantity<FlopsTag>;
using Elements = Quantity<ElementsTag>;
// A plan balances ticks: integers, so that every machine gets the same plan.
// One tick is one flop, one element or one picosecond; a plan says which.
using Ticks = Quantity<TicksTag>;

inline constexpr int64_t kBytesPerFp32 = 4;
inline constexpr int64_t kBytesPerBf16 = 2;

}  // namespace canzona
