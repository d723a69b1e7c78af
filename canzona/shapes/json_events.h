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
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace canzona {

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
