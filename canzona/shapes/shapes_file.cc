#include <bitset>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/shapes/json_events.h"
#include "canzona/shapes/read_model.h"
#include "canzona/shapes/records.h"
#include "canzona/shapes/shapes_file.h"

namespace canzona {
namespace {

const std::vector<std::string>& shape_fields() {
  static const std::vector<std::string> names = {"name", "shape", "tp", "role"};
  return names;
}

enum ShapeField {
  kNameField,
  kShapeField,
  kTpField,
  kRoleField,
  kNumShapeFields
};

// [{"name": "x", "shape": [2, 3], "tp": "rows"}, …]: depth 1 is the list, 2 an
// entry, 3 its shape.
class ShapesReader : public JsonEvents {
 public:
  explicit ShapesReader(const std::string& file) : JsonEvents(file) {}

  TensorRecords take() { return std::move(records_); }

 private:
  void on_open(char bracket) override {
    if (depth() == 1 && bracket == '[') return;
    if (depth() == 2 && bracket == '{') return begin_entry();
    if (depth() == 3 && bracket == '[' && field_ == kShapeField) return;
    refuse(cat(where(), ": unexpected '", bracket, "'"));
  }

  void on_close() override {
    if (depth() == 2) end_entry();
  }

  void on_key(std::string& key) override {
    size_t field = 0;
    while (field < kNumShapeFields && shape_fields()[field] != key) ++field;
    if (field == kNumShapeFields) {
      refuse(cat(where(), ": unknown key ", quoted(key),
                 did_you_mean(key, shape_fields()), ", known are ",
                 join(shape_fields(), ", ")));
    }
    if (seen_[field]) refuse(cat(where(), ": key '", key, "' comes twice"));
    seen_[field] = true;
    field_ = static_cast<ShapeField>(field);
  }

  void on_string(std::string& text) override {
    if (depth() == 2 && field_ == kNameField) {
      record_.name = std::move(text);
    } else if (depth() == 2 && field_ == kTpField) {
      record_.cut = word(text, parse_cut);
    } else if (depth() == 2 && field_ == kRoleField) {
      record_.role = word(text, parse_role);
    } else {
      refuse(cat(where(), ": unexpected string ", quoted(text)));
    }
  }

  void on_integer(int64_t number) override {
    if (depth() != 3) refuse(cat(where(), ": unexpected number ", number));
    if (record_.shape.size() == size_t{kMaxDims}) {
      refuse(cat(where(), ": more than ", kMaxDims, " dimensions"));
    }
    record_.shape.push_back(number);
  }

  void on_other(std::string_view kind) override {
    refuse(cat(where(), ": unexpected ", kind));
  }

  void begin_entry() {
    if (records_.size() == size_t{kMaxTensors}) {
      refuse(cat("more than ", kMaxTensors, " tensors"));
    }
    record_ = {};
    seen_.reset();
    field_ = kNumShapeFields;
  }

  void end_entry() {
    for (const ShapeField required : {kNameField, kShapeField}) {
      if (seen_[required]) continue;
      refuse(cat(where(), ": key '", shape_fields()[required], "' is missing"));
    }
    check_record(record_, file());
    record_.shape.shrink_to_fit();
    records_.push_back(std::move(record_));
  }

  template <class Value>
  Value word(const std::string& text, Value (*parse)(std::string_view)) const {
    try {
      return parse(text);
    } catch (const UsageError& error) {
      refuse(cat(where(), ": ", error.what()));
    }
  }

  std::string where() const {
    if (depth() < 2) return "list of shapes";
    std::string text = cat("entry ", records_.size() + 1);
    if (!record_.name.empty()) text += cat(" (", quoted(record_.name), ")");
    return text;
  }

  TensorRecords records_;
  TensorRecord record_;
  std::bitset<kNumShapeFields> seen_;
  ShapeField field_ = kNumShapeFields;
};

}  // namespace

TensorRecords read_shapes(std::string_view json, const std::string& file) {
  ShapesReader reader(file);
  reader.read(json);
  return reader.take();
}

Model model_from_shapes(std::string_view json, const std::string& name) {
  return model_from_records(read_shapes(json, name), {.name = name});
}

}  // namespace canzona
