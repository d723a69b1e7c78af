#include "canzona/base/json_reader.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// Walks over the text and records how far the parser has come.
class TrackedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackedIterator(const char* at, const char** furthest)
      : at_(at), furthest_(furthest) {}

  reference operator*() const { return *at_; }
  TrackedIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  TrackedIterator operator++(int) {
    TrackedIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const TrackedIterator& other) const {
    return at_ == other.at_;
  }
  bool operator!=(const TrackedIterator& other) const = default;

 private:
  const char* at_;
  const char** furthest_;
};

// Builds the tree value by value and stops at the first violation.
class TreeBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  TreeBuilder(const JsonLimits& limits,
              const std::vector<StreamedContainer>& streamed, const char* begin,
              const char* const* at)
      : limits_(limits), streamed_(streamed), begin_(begin), at_(at) {}

  Json take() { return std::move(root_); }

  // These are the parser's events. All return true, because violations throw.
  bool null() { return add(nullptr); }
  bool boolean(bool truth) { return add(truth); }
  bool number_integer(number_integer_t number) { return add(number); }
  bool number_unsigned(number_unsigned_t number) { return add(number); }
  bool number_float(number_float_t number, const string_t& /*text*/) {
    return add(number);
  }
  bool string(string_t& text) { return add(std::move(text)); }
  bool binary(binary_t& bytes) { return add(std::move(bytes)); }
  bool start_object(size_t /*size*/) { return open(Json::object()); }
  bool start_array(size_t /*size*/) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(string_t& name);
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& error);

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw UsageError(
        cat(limits_.what, ": ", why, " near byte ", *at_ - begin_));
  }

  Json* place(Json value);
  bool add(Json value) {
    place(std::move(value));
    return hand_over();
  }
  bool open(Json container);
  bool close() {
    open_.pop_back();
    return hand_over();
  }
  const StreamedContainer* streamed_here() const;
  bool hand_over();

  const JsonLimits& limits_;
  const std::vector<StreamedContainer>& streamed_;
  const char* begin_;
  const char* const* at_;
  Json root_;
  // A container from the root to here.
  struct Open {
    Json* container;
    int64_t num_held;  // with the container itself
  };
  std::vector<Open> open_;
  Json* member_ = nullptr;           // whose key was read last
  std::array<std::string, 2> keys_;  // read last, one and two below the root
  int64_t num_values_ = 0;
  int64_t num_held_ = 0;  // of them in the tree
};

// Pointers into arrays and objects stay valid: a container only grows after
// all that was open inside it is closed.
Json* TreeBuilder::place(Json value) {
  if (++num_values_ > limits_.max_values) {
    refuse(cat("more than ", limits_.max_values, " values"));
  }
  if (++num_held_ > limits_.max_held) {
    refuse(cat("more than ", limits_.max_held, " values in one place"));
  }
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  Json& parent = *open_.back().container;
  if (parent.is_array()) {
    parent.push_back(std::move(value));
    return &parent.back();
  }
  *member_ = std::move(value);
  return member_;
}

bool TreeBuilder::open(Json container) {
  if (static_cast<int64_t>(open_.size()) >= limits_.max_depth) {
    refuse(cat("nested deeper than ", limits_.max_depth));
  }
  Json* placed = place(std::move(container));
  open_.push_back({placed, num_held_});
  return true;
}

// Returns the streamed container that is the innermost open one, or null.
const StreamedContainer* TreeBuilder::streamed_here() const {
  const auto found = std::ranges::find_if(streamed_, [&](const auto& one) {
    if (one.path.size() + 1 != open_.size()) return false;
    for (size_t i = 0; i < one.path.size(); ++i)
      if (!open_[i].container->is_object() || keys_[i] != one.path[i])
        return false;
    return true;
  });
  return found == streamed_.end() ? nullptr : &*found;
}

// Takes the value that was completed last out of the tree if it is streamed.
bool TreeBuilder::hand_over() {
  const StreamedContainer* streamed = streamed_here();
  if (streamed == nullptr) return true;
  Json& container = *open_.back().container;
  if (container.is_array()) {
    streamed->take("", std::move(container.back()));
    container.get_ref<Json::array_t&>().clear();
  } else {
    auto& members = container.get_ref<Json::object_t&>();
    auto member = members.extract(members.begin());
    streamed->take(std::move(member.key()), std::move(member.mapped()));
  }
  num_held_ = open_.back().num_held;
  return true;
}

bool TreeBuilder::key(string_t& name) {
  if (open_.size() <= keys_.size()) keys_[open_.size() - 1] = name;
  const auto [member, is_new] = open_.back().container->emplace(name, nullptr);
  if (!is_new) refuse(cat("the key ", quoted(name), " comes twice"));
  member_ = &*member;
  return true;
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: why" names
// the parser's internals; users get the part after the bracket.
bool TreeBuilder::parse_error(size_t position, const std::string& /*token*/,
                              const nlohmann::detail::exception& error) {
  std::string_view why = error.what();
  if (const size_t end = why.find("] "); end != std::string_view::npos) {
    why.remove_prefix(end + 2);
  }
  throw UsageError(cat(limits_.what, ": not valid JSON at byte ", position,
                       ": ", printable(why)));
}

// Returns a value as messages show it.
std::string shown(const Json& value) {
  if (value.is_structured()) return cat("an ", value.type_name());
  return printable(value.dump(), 120);
}

[[noreturn]] void refuse_member(std::string_view where, const char* key,
                                const Json& value,
                                const std::string& expected) {
  throw UsageError(cat(where, ": ", quoted(key), " is ", shown(value),
                       ", expected ", expected));
}

// A number above 2^63 is unsigned and would wrap around.
bool fits_int64(const Json& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() &&
           value.get<uint64_t>() >
               uint64_t{std::numeric_limits<int64_t>::max()});
}

void require_object(const Json& object, std::string_view where) {
  if (object.is_object()) return;
  throw UsageError(cat(where, ": expected an object, got ", shown(object)));
}

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits) {
  return parse_json(text, limits, {});
}

Json parse_json(std::string_view text, const JsonLimits& limits,
                const std::vector<StreamedContainer>& streamed) {
  if (static_cast<uint64_t>(text.size()) >
      static_cast<uint64_t>(limits.max_bytes)) {
    throw UsageError(cat(limits.what, ": ", text.size(),
                         " bytes of JSON, the limit is ", limits.max_bytes));
  }
  const char* begin = text.data();
  const char* furthest = begin;
  TreeBuilder builder(limits, streamed, begin, &furthest);
  Json::sax_parse(TrackedIterator(begin, &furthest),
                  TrackedIterator(begin + text.size(), &furthest), &builder);
  return builder.take();
}

const Json& get_member(const Json& object, const char* key,
                       std::string_view where) {
  require_object(object, where);
  const auto member = object.find(key);
  if (member == object.end()) {
    throw UsageError(cat(where, ": ", quoted(key), " is missing"));
  }
  return *member;
}

int64_t get_integer(const Json& object, const char* key, int64_t low,
                    int64_t high, std::string_view where) {
  const Json& value = get_member(object, key, where);
  if (fits_int64(value)) {
    const auto number = value.get<int64_t>();
    if (number >= low && number <= high) return number;
  }
  refuse_member(where, key, value, cat("an integer from ", low, " to ", high));
}

double get_number(const Json& object, const char* key, std::string_view where) {
  const Json& value = get_member(object, key, where);
  if (!value.is_number()) refuse_member(where, key, value, "a number");
  return value.get<double>();
}

std::string get_string(const Json& object, const char* key,
                       std::string_view where) {
  const Json& value = get_member(object, key, where);
  if (!value.is_string()) refuse_member(where, key, value, "a text");
  return value.get<std::string>();
}

bool get_bool(const Json& object, const char* key, std::string_view where) {
  const Json& value = get_member(object, key, where);
  if (!value.is_boolean()) refuse_member(where, key, value, "true or false");
  return value.get<bool>();
}

std::vector<int64_t> get_integers(const Json& object, const char* key,
                                  size_t most, std::string_view where) {
  const Json& value = get_member(object, key, where);
  if (!value.is_array()) refuse_member(where, key, value, "a list of integers");
  if (value.size() > most)
    throw UsageError(cat(where, ": ", quoted(key), " has ", value.size(),
                         " numbers, expected at most ", most));
  std::vector<int64_t> numbers;
  numbers.reserve(value.size());
  for (const Json& number : value) {
    if (!fits_int64(number))
      refuse_member(where, key, number, "a list of integers of 64 bits");
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

void require_known_keys(const Json& object,
                        std::initializer_list<const char*> known,
                        std::string_view where) {
  require_object(object, where);
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [key, value] : object.items()) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      throw UsageError(
          cat(where, ": unknown key ", quoted(key), did_you_mean(key, names)));
    }
  }
}

}  // namespace canzona
