// Reads untrusted JSON. Size, depth and number of values are bounded before
// anything is built, duplicate keys and invalid UTF-8 are refused, and numbers
// are 64-bit integers or finite doubles.
//
//   Json config = parse_json(text, {.what = "config.json"});
//   int64_t hidden =
//       get_integer(config, "hidden_size", 1, kMaxDim, "config.json");
//
// Throws UsageError with `what` and the position.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace canzona {

using Json = nlohmann::json;

struct JsonLimits {
  std::string what = "JSON";
  int64_t max_bytes = 64 << 20;
  int max_depth = 32;
  int64_t max_values = 1'000'000;
  // Bounds the values in memory at a time, without those that have left it (see
  // StreamedContainer).
  int64_t max_held = std::numeric_limits<int64_t>::max();
};

Json parse_json(std::string_view text, const JsonLimits& limits);

// Members of an object, checked. `where` names the object in messages.
const Json& get_member(const Json& object, const char* key,
                       std::string_view where);
int64_t get_integer(const Json& object, const char* key, int64_t low,
                    int64_t high, std::string_view where);
double get_number(const Json& object, const char* key, std::string_view where);
std::string get_string(const Json& object, const char* key,
                       std::string_view where);
bool get_bool(const Json& object, const char* key, std::string_view where);
// A list of at most `most` integers of 64 bits.
std::vector<int64_t> get_integers(const Json& object, const char* key,
                                  size_t most, std::string_view where);

// Throws UsageError, naming the nearest known key, if `object` is not an object
// or has a key that is not in `known`.
void require_known_keys(const Json& object,
                        std::initializer_list<const char*> known,
                        std::string_view where);

// Reads long containers of an untrusted JSON text value by value, so that they
// are never in memory as a whole:
//
//   Json rest = parse_json(text, {.what = file},
//                          {{{"model", "vocab"}, [&](std::string&& name,
//                                                    Json&& value) { … }}});
//
// parse_json() makes the same promises, except that the caller
// checks such a container for duplicate keys.

struct StreamedContainer {
  // The keys that lead to it from the root: none for the root itself, at most
  // two.
  std::vector<std::string> path;
  // Receives each value as soon as it is complete, with its key ("" in an
  // array). The container stays in the tree without its values.
  std::function<void(std::string&& key, Json&& value)> take;
};

Json parse_json(std::string_view text, const JsonLimits& limits,
                const std::vector<StreamedContainer>& streamed);

}  // namespace canzona
