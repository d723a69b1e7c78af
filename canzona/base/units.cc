#include "canzona/base/units.h"

#include <ostream>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

[[noreturn]] void refuse(int64_t a, char operation, int64_t b,
                         const char* what) {
  throw UsageError(cat(what, ": ", a, " ", operation, " ", b,
                       " does not fit in a 64-bit integer"));
}

}  // namespace

std::string quantity_text(int64_t value, const char* unit) {
  return cat(value, ' ', unit);
}

std::ostream& print_text(std::ostream& out, const std::string& text) {
  return out << text;
}

int64_t checked_add(int64_t a, int64_t b, const char* what) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) refuse(a, '+', b, what);
  return result;
}

int64_t checked_sub(int64_t a, int64_t b, const char* what) {
  int64_t result = 0;
  if (__builtin_sub_overflow(a, b, &result)) refuse(a, '-', b, what);
  return result;
}

int64_t checked_mul(int64_t a, int64_t b, const char* what) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) refuse(a, '*', b, what);
  return result;
}

}  // namespace canzona
