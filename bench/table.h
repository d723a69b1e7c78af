// Tables of the benchmark programs: aligned text, or with --json one object per
// table on a line of its own.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_writer.h"

namespace canzona::bench {

class Table {
 public:
  Table(std::string title, std::vector<std::string> columns)
      : title_(std::move(title)), columns_(std::move(columns)) {}

  // `label` fills the first column, `values` the others.
  void add(std::string label, std::vector<double> values) {
    rows_.push_back({std::move(label), std::move(values)});
  }

  void print(bool json) const {
    json ? print_json() : print_text();
    std::fflush(stdout);
  }

 private:
  struct Row {
    std::string label;
    std::vector<double> values;
  };

  void print_text() const {
    std::printf("\n%s\n  %-34s", title_.c_str(), columns_.front().c_str());
    for (size_t i = 1; i < columns_.size(); ++i) {
      std::printf("  %14s", columns_[i].c_str());
    }
    std::printf("\n");
    for (const Row& row : rows_) {
      std::printf("  %-34s", row.label.c_str());
      for (double v : row.values) std::printf("  %14.4f", v);
      std::printf("\n");
    }
  }

  void print_json() const {
    JsonWriter out;
    out.begin_object().field("table", title_);
    out.member("rows").begin_array();
    for (const Row& row : rows_) {
      out.begin_object().field(columns_.front(), row.label);
      for (size_t i = 0; i < row.values.size(); ++i) {
        out.field(columns_[i + 1], row.values[i]);
      }
      out.end_object();
    }
    out.end_array().end_object();
    std::printf("%s\n", out.text().c_str());
  }

  std::string title_;
  std::vector<std::string> columns_;
  std::vector<Row> rows_;
};

inline bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") return true;
  }
  return false;
}

// The exit status of a program that does this, and prints what went wrong.
template <class Run>
int run_or_tell(const Run& run) {
  try {
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}

// Serves as `main` of a program with tables, and prints what went wrong.
inline int run_program(int argc, char** argv, void (*run)(bool json)) {
  return run_or_tell([&] { run(wants_json(argc, argv)); });
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace canzona::bench
