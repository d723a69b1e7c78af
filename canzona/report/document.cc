#include "canzona/report/document.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "canzona/report/shown_plan.h"

namespace canzona::report {
namespace {

void write_members(JsonWriter& out, const Members& members) {
  out.begin_object();
  for (const auto& [key, value] : members) value.write(out.member(key));
  out.end_object();
}

std::string without_colours(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t code = std::min(text.find('\x1b', at), text.size());
    out += text.substr(at, code - at);
    at = std::min(text.find('m', code), text.size() - 1) + 1;
  }
  return out;
}

}  // namespace

Value::Value(std::nullptr_t) : write_([](JsonWriter& out) { out.null(); }) {}

Value::Value(std::string text)
    : write_([text = std::move(text)](JsonWriter& out) { out.value(text); }) {}

Value::Value(Members members)
    : write_([members = std::move(members)](JsonWriter& out) {
        write_members(out, members);
      }) {}

Value::Value(std::initializer_list<Member> members) : Value(Members(members)) {}

Cell as_bytes(int64_t bytes) { return {bytes, human_bytes(bytes)}; }
Cell as_bytes(double bytes) { return {bytes, bytes_text(bytes)}; }
Cell as_seconds(double seconds) { return {seconds, human_seconds(seconds)}; }
Cell as_count(int64_t count) { return {count, grouped(count)}; }
Cell as_ratio(double ratio) {
  return {ratio, toned(tone_of_ratio(ratio), ratio_text(ratio))};
}

Row& Row::add(Field field) {
  if (!field.heading.empty()) {
    columns_ += field.heading.front();
    header_.push_back(field.heading.substr(1));
    cells_.push_back(std::move(field.text));
  }
  return field.key.empty() ? *this
                           : set(std::move(field.key), std::move(field.value));
}

Row& Row::set(std::string key, Value value) {
  members_.push_back({std::move(key), std::move(value)});
  return *this;
}

Listing Listing::by_name() {
  Listing out;
  out.by_name_ = true;
  return out;
}

Row& Listing::add(std::string name, std::vector<Field> fields) {
  Row& row = rows_.emplace_back();
  row.name_ = std::move(name);
  for (Field& field : fields) row.add(std::move(field));
  return row;
}

Value Listing::value() const {
  Members members;
  std::vector<Value> list;
  for (const Row& row : rows_)
    if (by_name_)
      members.push_back({row.name_, row.members_});
    else if (!row.members_.empty())
      list.emplace_back(row.members_);
  return by_name_ ? Value(std::move(members)) : Value(std::move(list));
}

Document& Document::text(std::string text) {
  if (!text.empty()) blocks_.push_back({std::move(text)});
  return *this;
}

Document& Document::heading(std::string_view bold, std::string_view rest) {
  return text(cat(toned(Tone::kBold, bold), rest, "\n"));
}

Document& Document::title(std::string_view words) {
  return text(cat("\n", toned(Tone::kBold, words), "\n"));
}

Document& Document::line(std::string_view words, size_t further_indent) {
  return text(cat(
      "  ", wrap(words, kPageWidth - further_indent, further_indent), "\n"));
}

Document& Document::note(std::string_view words) {
  return text(
      cat("  ", toned(Tone::kDim, wrap(words, kPageWidth - 2, 2)), "\n"));
}

Document& Document::labelled(Field field, size_t column) {
  text(report::labelled(Ink(true), field.heading, field.text, column));
  return field.key.empty() ? *this
                           : set(std::move(field.key), std::move(field.value));
}

Document& Document::table(std::string key, const Listing& rows,
                          std::string_view if_empty, size_t indent) {
  std::optional<Table> table;
  size_t count = 0;
  for (const Row& row : rows.rows_) {
    if (row.cells_.empty()) continue;
    if (!table) table.emplace(row.columns_);
    if (count == 0 && !join(row.header_, "").empty())
      table->header(row.header_);
    if (count++ < rows.limit_) table->row(row.cells_);
  }
  if (table) blocks_.push_back({std::move(*table), indent});
  if (!table && !if_empty.empty()) line(if_empty);
  left_out(count - std::min(count, rows.limit_));
  return key.empty() ? *this : set(std::move(key), rows.value());
}

Document& Document::left_out(size_t number) {
  return number == 0 ? *this : note(cat("… and ", number, " more, in JSON"));
}

Document& Document::refusals(std::string_view title, const Refusals& refused) {
  if (!refused.empty()) this->title(title);
  for (const auto& [name, why] : refused)
    text(cat(toned(Tone::kPoor, "  " + name), ": ",
             wrap(printable(why), kPageWidth - 4, 4), "\n"));
  return *this;
}

Document& Document::set(std::string key, Value value) {
  members_.push_back({std::move(key), std::move(value)});
  return *this;
}

Document& Document::add(Document part) {
  std::ranges::move(part.members_, std::back_inserter(members_));
  return add_text(std::move(part));
}

Document& Document::add(std::string key, Document part) {
  set(std::move(key), std::move(part.members_));
  return add_text(std::move(part));
}

Document& Document::add_text(Document part) {
  std::ranges::move(part.blocks_, std::back_inserter(blocks_));
  return *this;
}

std::string print_text(const Document& document, const Ink& ink) {
  std::string out;
  for (const Document::Block& block : document.blocks_) {
    const auto* table = std::get_if<Table>(&block.content);
    out += table != nullptr ? table->text(ink, block.indent)
                            : std::get<std::string>(block.content);
  }
  return ink.colour() ? out : without_colours(out);
}

std::string to_json(const Document& document, int indent) {
  JsonWriter out(indent);
  const Members& members = document.members_;
  if (members.size() == 1 && members.front().key.empty())
    members.front().value.write(out);
  else
    write_members(out, members);
  return indent > 0 ? out.take() + "\n" : out.take();
}

std::string toned(Tone tone, std::string_view text) {
  return Ink(true)(tone, text);
}

}  // namespace canzona::report
