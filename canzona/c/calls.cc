#include "canzona/c/calls.h"

#include <exception>
#include <new>
#include <string>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/c/canzona.h"

namespace canzona {
namespace {

struct KeptError {
  std::string text;
  // Used instead of the text if there was no memory for one.
  const char* plain = nullptr;
  int32_t kind = CANZONA_NO_ERROR;

  void set(int32_t its_kind, const char* its_text) noexcept {
    kind = its_kind;
    plain = nullptr;
    try {
      text = its_text;
    } catch (...) {
      plain = "out of memory while an error was being told";
    }
  }
};

thread_local KeptError kept;

}  // namespace

void keep_error() noexcept {
  try {
    throw;
  } catch (const UsageError& error) {
    kept.set(CANZONA_USAGE_ERROR, error.what());
  } catch (const NumericalError& error) {
    kept.set(CANZONA_NUMERICAL_ERROR, error.what());
  } catch (const std::bad_alloc&) {
    kept.set(CANZONA_MEMORY_ERROR, "out of memory");
  } catch (const std::exception& error) {
    kept.set(CANZONA_INTERNAL_ERROR, error.what());
  } catch (...) {
    kept.set(CANZONA_INTERNAL_ERROR, "an exception of an unknown type");
  }
}

const char* kept_error() noexcept {
  return kept.plain != nullptr ? kept.plain : kept.text.c_str();
}

int32_t kept_error_kind() noexcept { return kept.kind; }

void require_argument(const void* argument, const char* function,
                      const char* name) {
  if (argument == nullptr)
    throw UsageError(cat(function, ": ", name, " is NULL"));
}

std::string_view text_argument(const char* text, int64_t length,
                               const char* function, const char* name) {
  require_argument(text, function, name);
  if (length < 0)
    throw UsageError(cat(function, ": the length of ", name, " is ", length,
                         ", expected 0 or more"));
  return {text, static_cast<size_t>(length)};
}

}  // namespace canzona
