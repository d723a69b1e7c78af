#include "canzona/c/calls.h"

#include <pthread.h>

#include <exception>
#include <new>
#include <string>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/c/canzona.h"
#include "canzona/linalg/cuda_device.h"

namespace canzona::c {
namespace {

std::atomic<int64_t> handle_numbers{0};
std::atomic<int64_t> inherited_number{0};

void note_fork() { inherited_number = handle_numbers.fetch_add(1) + 1; }

}  // namespace

int64_t new_handle_number() {
  static const int registered = pthread_atfork(nullptr, nullptr, note_fork);
  if (registered != 0)
    throw InternalError(
        "handles cannot be distinguished from those of a parent process");
  return ++handle_numbers;
}

int64_t last_inherited_number() { return inherited_number; }

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
      plain = "out of memory while reporting an error";
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

NamedDevice read_device(std::string_view name) {
  constexpr std::string_view kNumbered = "cuda:";
  if (name == "cpu") return {};
  if (name == "cuda") return {true, 0};
  if (name.starts_with(kNumbered))
    return {true, static_cast<int>(parse_integer(name.substr(kNumbered.size()),
                                                 0, 1023, "the GPU's number"))};
  throw UsageError(cat("device ", quoted(name), ": expected cpu or cuda:N",
                       did_you_mean(name, {"cpu", "cuda:0"})));
}

std::unique_ptr<Engine> cuda_engine_of(const NamedDevice& device, void* stream,
                                       Memory* scratch) {
  // A caller's default stream is NULL, which for an engine means a stream of
  // its own.
  return make_cuda_engine(device.number,
                          stream == nullptr ? default_cuda_stream() : stream,
                          scratch);
}

std::unique_ptr<Engine> engine_of(std::string_view device) {
  const NamedDevice named = read_device(device);
  return named.is_cuda ? cuda_engine_of(named, nullptr, nullptr)
                       : make_cpu_engine();
}

}  // namespace canzona::c
