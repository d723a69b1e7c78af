#include "canzona/trace/tensorboard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "canzona/base/files.h"
#include "canzona/base/text.h"

namespace canzona::trace {
namespace {

// CRC-32C (Castagnoli), a byte at a time.
constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes)
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

// A record stores this instead of the CRC itself, because a CRC over bytes that
// contain their own CRC is meaningless.
uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

template <class Unsigned>
void append_fixed(std::string& out, Unsigned number) {
  for (size_t i = 0; i < sizeof number; ++i)
    out += static_cast<char>(number >> (8 * i) & 0xFF);
}

void append_varint(std::string& out, uint64_t number) {
  while (number >= 0x80) {
    out += static_cast<char>(number | 0x80);
    number >>= 7;
  }
  out += static_cast<char>(number);
}

// Protocol buffers' wire format: a field is its number and wire type, then its
// value.
enum WireKind : uint64_t { kVarint = 0, kEightBytes = 1, kRun = 2, kFour = 5 };

void append_key(std::string& out, uint64_t field, WireKind kind) {
  append_varint(out, field << 3 | kind);
}
void append_double(std::string& out, uint64_t field, double value) {
  append_key(out, field, kEightBytes);
  append_fixed(out, std::bit_cast<uint64_t>(value));
}
void append_float(std::string& out, uint64_t field, float value) {
  append_key(out, field, kFour);
  append_fixed(out, std::bit_cast<uint32_t>(value));
}
void append_integer(std::string& out, uint64_t field, int64_t value) {
  append_key(out, field, kVarint);
  append_varint(out, static_cast<uint64_t>(value));
}
void append_run(std::string& out, uint64_t field, std::string_view bytes) {
  append_key(out, field, kRun);
  append_varint(out, bytes.size());
  out += bytes;
}

// Fields of tensorflow's Event, SessionLog, Summary and Summary.Value.
enum EventField {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSessionLog = 7
};
enum SessionLogField { kStatus = 1 };
constexpr int64_t kStart = 1;  // of a status
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };

std::string summary_of(const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    append_run(value, kTag, scalar.tag);
    append_float(value, kSimpleValue, static_cast<float>(scalar.value));
    append_run(summary, kValue, value);
  }
  return summary;
}

constexpr std::string_view kEventsName = "events.out.tfevents.";

// Returns the second in the name of an event file; -1 for other names.
int64_t second_of_name(std::string_view name) {
  if (!name.starts_with(kEventsName)) return -1;
  name.remove_prefix(kEventsName.size());
  int64_t second = -1;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), second);
  const bool is_whole =
      error == std::errc() && end != name.data() + name.size() && *end == '.';
  return is_whole ? second : -1;
}

}  // namespace

std::vector<Scalar> scalars_of(const StepMetrics& metrics) {
  std::vector<Scalar> scalars = {
      {"loss/train", metrics.loss},
      {"optimizer/grad_norm", metrics.grad_norm},
      {"optimizer/learning_rate", metrics.lr},
      {"speed/tokens_per_second", metrics.tokens_per_second},
      {"speed/optimizer_ms", metrics.optimizer_ms},
      {"speed/comm_ms", metrics.comm_ms},
      {"speed/hidden_fraction", metrics.hidden_fraction},
      {"memory/bytes", static_cast<double>(metrics.memory_bytes)},
  };
  if (metrics.largest_logit)
    scalars.push_back({"attention/largest_logit", *metrics.largest_logit});
  if (metrics.flops_per_second)
    scalars.push_back({"speed/flops_per_second", *metrics.flops_per_second});
  if (metrics.mfu) scalars.push_back({"speed/mfu", *metrics.mfu});
  if (metrics.eval_loss)
    for (Scalar& scalar : evaluation_scalars(*metrics.eval_loss))
      scalars.push_back(std::move(scalar));
  return scalars;
}

std::vector<Scalar> evaluation_scalars(double eval_loss) {
  return {{"loss/eval", eval_loss},
          {"loss/perplexity", perplexity_of(eval_loss)}};
}

std::string events_path(const std::string& folder, int64_t seconds_since_1970,
                        std::string_view host) {
  std::string name(host.substr(0, 64));
  for (char& c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                       (c >= 'A' && c <= 'Z') || c == '-' || c == '.';
    if (!plain) c = '_';
  }
  if (name.empty()) name = "host";
  return cat(folder, "/", kEventsName, seconds_since_1970, ".", name);
}

std::string next_events_path(const std::string& folder,
                             int64_t seconds_since_1970,
                             std::string_view host) {
  constexpr int64_t kMostSeconds = 9'999'999'999;  // names keep their length
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (const int64_t second = second_of_name(entry.path().filename().string());
        second < kMostSeconds)
      seconds_since_1970 = std::max(seconds_since_1970, second + 1);
  return events_path(folder, seconds_since_1970, host);
}

TensorBoardWriter::TensorBoardWriter(const std::string& path, double wall_time,
                                     int64_t first_step)
    : path_(path), file_(path, std::ios::binary | std::ios::trunc) {
  if (!file_)
    throw_write_error(cat("cannot write TensorBoard's events ", quoted(path_)),
                      errno);
  std::string event;
  append_double(event, kWallTime, wall_time);
  append_run(event, kFileVersion, "brain.Event:2");
  write_record(event);
  write_start(first_step, wall_time);
}

// The first start in a folder is that of the run; each later one removes what
// earlier files tell of its step and those after it.
void TensorBoardWriter::write_start(int64_t first_step, double wall_time) {
  std::string status;
  append_integer(status, kStatus, kStart);
  std::string event;
  append_double(event, kWallTime, wall_time);
  append_integer(event, kStep, first_step);
  append_run(event, kSessionLog, status);
  write_record(event);
}

void TensorBoardWriter::add(int64_t step, double wall_time,
                            const std::vector<Scalar>& scalars) {
  std::string event;
  append_double(event, kWallTime, wall_time);
  append_integer(event, kStep, step);
  append_run(event, kSummary, summary_of(scalars));
  write_record(event);
}

void TensorBoardWriter::write_record(std::string_view event) {
  std::string record;
  append_fixed(record, uint64_t{event.size()});
  append_fixed(record, masked_crc(record));
  record += event;
  append_fixed(record, masked_crc(event));
  errno = 0;
  file_.write(record.data(), static_cast<std::streamsize>(record.size()));
  file_.flush();
  const int code = errno;
  if (!file_)
    throw StorageError(cat(
        "cannot write TensorBoard's events ", quoted(path_, 300), ": ",
        code == 0 ? "unknown reason" : std::generic_category().message(code)));
}

}  // namespace canzona::trace
