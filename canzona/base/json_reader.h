// Reads untrusted JSON, as a tree or as a stream of events. For a tree, size,
// depth and number of values are bounded before anything is built, duplicate
// keys and invalid UTF-8 are refused, and numbers are 64-bit integers or finite
// doubles.
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

// Throws UsageError, naming the nearest known key, if `object` is not an object
// or has a key that is not in `known`.
void require_known_keys(const Json& object,
                        std::initializer_list<const char*> known,
                        std::string_view where);

// Reads long containers of an untrusted JSON text value by value, so that they
// are never in memory as a whole:
//
//   Json rest = parse_json(text, {.what = file},
//                          {{"model", "vocab", [&](std::string&& name,
//                                                  Json&& value) { … }}});
//
// parse_json() makes the same promises, except that the caller
// checks such a container for duplicate keys.

// A container that is a member of a member of the root.
struct StreamedContainer {
  std::string outer;
  std::string inner;
  // Receives each value as soon as it is complete, with its key ("" in an
  // array). The container stays in the tree without its values.
  std::function<void(std::string&& key, Json&& value)> take;
};

Json parse_json(std::string_view text, const JsonLimits& limits,
                const std::vector<StreamedContainer>& streamed);

// Reads large JSON as a stream of events, straight into records: no tree is
// built, so memory stays near that of the records. Depth is bounded, numbers
// are 64-bit integers, and invalid UTF-8 is refused (by the lexer).
//
//   struct Names : JsonEvents { … void on_key(std::string& key) override; … };
//   Names names("list.json");
//   names.read(text);
//
// A reader derives from JsonEvents and overrides five functions. It must refuse
// duplicate keys itself, because only it knows which keys it keeps. One thread
// at a time.
class JsonEvents : private nlohmann::json_sax<nlohmann::json> {
 public:
  ~JsonEvents() override = default;

  // UsageError names the file and the position.
  void read(std::string_view text);

 protected:
  explicit JsonEvents(std::string file) : file_(std::move(file)) {}

  [[noreturn]] void refuse(const std::string& problem) const;
  const std::string& file() const { return file_; }

  // The number of containers around the event, including the container that
  // opens or closes.
  int depth() const { return depth_; }

  // Strings may be moved from. `bracket` is '{' or '['.
  virtual void on_open(char bracket) = 0;
  virtual void on_close() = 0;
  virtual void on_key(std::string& key) = 0;
  virtual void on_string(std::string& text) = 0;
  virtual void on_integer(int64_t number) = 0;
  // Called for null, true, false, or a number that is not a 64-bit integer.
  virtual void on_other(std::string_view kind);

 private:
  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(int64_t number) override;
  bool number_unsigned(uint64_t number) override;
  bool number_float(double number, const std::string& text) override;
  bool string(std::string& text) override;
  bool binary(nlohmann::json::binary_t& bytes) override;
  bool start_object(size_t size) override;
  bool key(std::string& key) override;
  bool end_object() override;
  bool start_array(size_t size) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception& error) override;

  bool open(char bracket);
  bool close();

  std::string file_;
  int depth_ = 0;
};

}  // namespace canzona
