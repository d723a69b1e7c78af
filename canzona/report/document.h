// A view written once: what a command shows, as text for people and as JSON for
// programs. A figure stands in one place, with its key in JSON, its heading,
// its value and its text.
//
//   Document out;
//   out.heading("Links", " of a cluster").set("world", 8);
//   Listing levels;
//   for (const LinkLevel& level : cluster.levels) {
//     Row& row = levels.add({{"name", "<level", level.name},
//                            {"ranks", ">ranks", as_count(level.ranks)}});
//     row.set("latency_seconds", level.latency_seconds);  // JSON alone
//   }
//   out.table("levels", levels);
//   std::cout << (json ? to_json(out) : print_text(out, ink));
//
// Texts may have colours (toned()), which print_text() removes where they are
// not wanted. Plain values, except those that are functions: what such a value
// refers to must outlive the document.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/terminal.h"

namespace canzona::report {

struct Member;
using Members = std::vector<Member>;

// A value of JSON: null, a truth, a number, a text, a list, an object, or what
// a function writes as one value.
class Value {
 public:
  Value(std::nullptr_t);
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(std::string text);
  Value(Members members);
  Value(std::initializer_list<Member> members);
  template <class T>
  requires std::is_arithmetic_v<T> Value(T number)
      : write_([number](JsonWriter& out) { out.value(number); }) {}
  template <std::ranges::range List>
  requires(!std::ranges::view<List> &&
           !std::convertible_to<List, std::string_view>) Value(List list)
      : write_([list = std::move(list)](JsonWriter& out) {
          out.begin_array();
          for (const auto& item : list) {
            if constexpr (requires { out.value(item); })
              out.value(item);
            else
              Value(item).write(out);
          }
          out.end_array();
        }) {}
  template <std::invocable<JsonWriter&> Write>
  Value(Write write) : write_(std::move(write)) {}

  void write(JsonWriter& out) const { write_(out); }

 private:
  std::function<void(JsonWriter&)> write_;
};

struct Member {
  std::string key;
  Value value;
};

// A value and what people read instead of it.
struct Cell {
  Value value;
  std::string text;
};

Cell as_bytes(int64_t bytes);
Cell as_bytes(double bytes);  // an average
Cell as_seconds(double seconds);
Cell as_count(int64_t count);  // "1,234"
Cell as_ratio(double ratio);   // coloured: its best value is 1

// A figure. Without a key it is text alone. The heading of a column starts with
// its alignment, as in Table: "<name", ">bytes".
struct Field {
  Field(std::string name, std::string head, Value v, std::string shown)
      : key(std::move(name)),
        heading(std::move(head)),
        value(std::move(v)),
        text(std::move(shown)) {}
  Field(std::string name, std::string head, Cell cell)
      : Field(std::move(name), std::move(head), std::move(cell.value),
              std::move(cell.text)) {}
  template <class T>
  requires std::is_arithmetic_v<T> Field(std::string name, std::string head,
                                         T number)
      : Field(std::move(name), std::move(head), number, cat(number)) {}
  Field(std::string name, std::string head, std::string_view words)
      : Field(std::move(name), std::move(head), words, printable(words)) {}

  std::string key;
  std::string heading;
  Value value;
  std::string text;
};

// One line of a table, and an object.
class Row {
 public:
  Row& add(Field field);
  Row& set(std::string key, Value value);  // JSON alone

 private:
  friend class Listing;
  friend class Document;

  std::string name_;
  std::string columns_;
  std::vector<std::string> header_, cells_;
  Members members_;
};

// A table for people, with headings of its first row; in JSON a list of
// objects, or an object of them if rows have names. People see the first
// `limit` rows, programs all.
class Listing {
 public:
  explicit Listing(size_t limit = SIZE_MAX) : limit_(limit) {}
  // A Listing whose rows have names, even if there are none.
  static Listing by_name();

  Row& add(std::vector<Field> fields = {}) {
    return add("", std::move(fields));
  }
  Row& add(std::string name, std::vector<Field> fields);

  bool empty() const { return rows_.empty(); }
  Value value() const;

 private:
  friend class Document;

  size_t limit_;
  bool by_name_ = false;
  std::vector<Row> rows_;
};

using Refusals = std::vector<std::pair<std::string, std::string>>;

class Document {
 public:
  // Text alone: as it is; a bold word and a line; a bold line after an empty
  // one; an indented paragraph, plain or dim.
  Document& text(std::string text);
  Document& heading(std::string_view bold, std::string_view rest = "");
  Document& title(std::string_view text);
  Document& line(std::string_view text, size_t further_indent = 2);
  Document& note(std::string_view text);

  // A line "  label     text", and a member.
  Document& labelled(Field field, size_t column);
  // A table, or `if_empty` as a line; and a member, unless `key` is empty.
  Document& table(std::string key, const Listing& rows,
                  std::string_view if_empty = "", size_t indent = 2);
  // The last line of a list that shows only its beginning: "  … and 12 more, in
  // JSON"; nothing if `number` is 0.
  Document& left_out(size_t number);
  // What is missing from the tables, with reasons, under a title; nothing if
  // nothing is.
  Document& refusals(std::string_view title, const Refusals& refused);

  // JSON alone. A single member without a key is the whole document.
  Document& set(std::string key, Value value);

  // Another document: its text and members; its members as one object of this
  // one; its text alone.
  Document& add(Document part);
  Document& add(std::string key, Document part);
  Document& add_text(Document part);
  // Its members as one object.
  Value value() const { return members_; }

 private:
  friend std::string print_text(const Document& document, const Ink& ink);
  friend std::string to_json(const Document& document, int indent);

  struct Block {
    std::variant<std::string, Table> content;
    size_t indent = 0;  // of a table
  };

  std::vector<Block> blocks_;
  Members members_;
};

std::string print_text(const Document& document, const Ink& ink);
// With an indent on lines of its own, with 0 in one line for a page.
std::string to_json(const Document& document, int indent = 2);

// Colours text of a document.
std::string toned(Tone tone, std::string_view text);

}  // namespace canzona::report
