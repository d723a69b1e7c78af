#include "canzona/shapes/json_events.h"

#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr int kMaxDepth = 32;

}  // namespace

void JsonEvents::read(std::string_view text) {
  depth_ = 0;
  nlohmann::json::sax_parse(
      text.data(), text.data() + text.size(),
      static_cast<nlohmann::json_sax<nlohmann::json>*>(this));
}

void JsonEvents::refuse(const std::string& problem) const {
  throw UsageError(cat(printable(file_), ": ", problem));
}

void JsonEvents::on_other(std::string_view kind) {
  refuse(cat("unexpected ", kind));
}

bool JsonEvents::open(char bracket) {
  if (++depth_ > kMaxDepth) {
    refuse(cat("nested more than ", kMaxDepth, " deep"));
  }
  on_open(bracket);
  return true;
}

bool JsonEvents::close() {
  on_close();
  --depth_;
  return true;
}

bool JsonEvents::null() {
  on_other("null");
  return true;
}

bool JsonEvents::boolean(bool value) {
  on_other(value ? "true" : "false");
  return true;
}

bool JsonEvents::number_integer(int64_t number) {
  on_integer(number);
  return true;
}

bool JsonEvents::number_unsigned(uint64_t number) {
  if (number > uint64_t{std::numeric_limits<int64_t>::max()}) {
    on_other("a number of more than 64 bits");
  } else {
    on_integer(static_cast<int64_t>(number));
  }
  return true;
}

bool JsonEvents::number_float(double, const std::string& text) {
  on_other(cat("number ", printable(text, 40)));
  return true;
}

bool JsonEvents::string(std::string& text) {
  on_string(text);
  return true;
}

bool JsonEvents::binary(nlohmann::json::binary_t&) {
  refuse("unexpected bytes");
}

bool JsonEvents::start_object(size_t) { return open('{'); }

bool JsonEvents::key(std::string& key) {
  on_key(key);
  return true;
}

bool JsonEvents::end_object() { return close(); }
bool JsonEvents::start_array(size_t) { return open('['); }
bool JsonEvents::end_array() { return close(); }

bool JsonEvents::parse_error(size_t position, const std::string&,
                             const nlohmann::json::exception& error) {
  refuse(cat("invalid JSON at byte ", position, ": ",
             printable(error.what(), 200)));
}

}  // namespace canzona
