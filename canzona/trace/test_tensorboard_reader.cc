#include "canzona/trace/test_tensorboard_reader.h"

#include <cstring>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::trace {
namespace {

// Computed bit by bit, by polynomial division.
uint32_t checksum(std::string_view bytes) {
  uint32_t remainder = 0xFFFFFFFF;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t next = (static_cast<unsigned char>(c) >> bit) & 1;
      const bool divides = ((remainder ^ next) & 1) != 0;
      remainder >>= 1;
      if (divides) remainder ^= 0x82F63B78;
    }
  }
  return remainder ^ 0xFFFFFFFF;
}

// Returns the CRC for a stored value.
uint32_t unmasked(uint32_t stored) {
  const uint32_t turned = stored - 0xA282EAD8;
  return (turned << 15) | (turned >> 17);
}

class Bytes {
 public:
  Bytes(std::string_view bytes, std::string where)
      : bytes_(bytes), where_(std::move(where)) {}

  bool empty() const { return at_ == bytes_.size(); }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) refuse("it ends too soon");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  template <class Number>
  Number fixed() {
    const std::string_view run = take(sizeof(Number));
    uint64_t bits = 0;
    for (size_t i = run.size(); i-- > 0;)
      bits = bits << 8 | static_cast<unsigned char>(run[i]);
    Number number;
    if constexpr (sizeof(Number) == 4) {
      const auto half = static_cast<uint32_t>(bits);
      std::memcpy(&number, &half, sizeof number);
    } else {
      std::memcpy(&number, &bits, sizeof number);
    }
    return number;
  }

  uint64_t varint() {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      number |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return number;
    }
    refuse("a number of more than 64 bits");
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw UsageError(cat(where_, ": ", why, " near byte ", at_));
  }
  const std::string& where() const { return where_; }

 private:
  std::string_view bytes_;
  std::string where_;
  uint64_t at_ = 0;
};

// Parses a message field by field: fields of the given kinds go to `use`,
// others are skipped.
template <class Use>
void for_each_field(Bytes message, const Use& use) {
  while (!message.empty()) {
    const uint64_t key = message.varint();
    const uint64_t number = key >> 3;
    switch (key & 7) {
      case 0:
        use(number, "integer", message.varint(), 0.0, std::string_view{});
        break;
      case 1:
        use(number, "double", uint64_t{0}, message.fixed<double>(),
            std::string_view{});
        break;
      case 2:
        use(number, "bytes", uint64_t{0}, 0.0, message.take(message.varint()));
        break;
      case 5:
        use(number, "float", uint64_t{0},
            static_cast<double>(message.fixed<float>()), std::string_view{});
        break;
      default:
        message.refuse(cat("a field of unknown kind ", key & 7));
    }
  }
}

void read_value(std::string_view bytes, const std::string& where,
                BoardEvent& event) {
  std::string tag;
  float value = 0;
  for_each_field(Bytes(bytes, where),
                 [&](uint64_t field, std::string_view kind, uint64_t,
                     double number, std::string_view run) {
                   if (field == 1 && kind == "bytes") tag = run;
                   if (field == 2 && kind == "float")
                     value = static_cast<float>(number);
                 });
  event.scalars[tag] = value;
}

BoardEvent read_event(std::string_view bytes, const std::string& where) {
  BoardEvent event;
  const auto value = [&](uint64_t field, std::string_view kind, uint64_t,
                         double, std::string_view run) {
    if (field == 1 && kind == "bytes") read_value(run, where, event);
  };
  const auto session = [&](uint64_t field, std::string_view kind,
                           uint64_t whole, double, std::string_view) {
    event.is_start = field == 1 && kind == "integer" && whole == 1;
  };
  for_each_field(Bytes(bytes, where),
                 [&](uint64_t field, std::string_view kind, uint64_t whole,
                     double number, std::string_view run) {
                   if (field == 1 && kind == "double") event.wall_time = number;
                   if (field == 2 && kind == "integer")
                     event.step = static_cast<int64_t>(whole);
                   if (field == 3 && kind == "bytes") event.file_version = run;
                   if (field == 5 && kind == "bytes")
                     for_each_field(Bytes(run, where), value);
                   if (field == 7 && kind == "bytes")
                     for_each_field(Bytes(run, where), session);
                 });
  return event;
}

void require_checksum(const Bytes& file, std::string_view bytes,
                      uint32_t stored) {
  if (checksum(bytes) != unmasked(stored)) file.refuse("wrong checksum");
}

}  // namespace

std::vector<BoardEvent> read_events(std::string_view bytes,
                                    const std::string& file) {
  Bytes records(bytes, printable(file));
  std::vector<BoardEvent> events;
  while (!records.empty()) {
    const std::string_view length = records.take(8);
    require_checksum(records, length, records.fixed<uint32_t>());
    const std::string_view event =
        records.take(Bytes(length, records.where()).fixed<uint64_t>());
    require_checksum(records, event, records.fixed<uint32_t>());
    events.push_back(
        read_event(event, cat(records.where(), " event ", events.size())));
  }
  return events;
}

}  // namespace canzona::trace
