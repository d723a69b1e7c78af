// Translates the options of a fixture to those of our rules.
//
//   Translation ours = translate(fixture, "gram");
//   auto rule = make_rule(fixture.rule, ours.options, DType::kFp64);
//
// Every option of the fixture is translated, known to affect only rounding, or
// refused: Unsupported names it. Throws UsageError if the file is invalid.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "tests/conformance/fixture.h"
#include "canzona/rules/facts.h"

namespace canzona::tests {

struct Translation {
  RuleOptions options;
  std::vector<double> learning_rates;  // by step
};
// `form` is Muon's newton_schulz, `device` that of rules that take one.
Translation translate(const Fixture& fixture, const std::string& form,
                      const std::string& device = "cpu");

// Returns the heights of the row blocks that the fixture treats as matrices of
// their own; one if it is not cut.
std::vector<int64_t> row_blocks(const Fixture& fixture);

// Returns Muon's options for a fixture of Newton–Schulz as a function;
// precision is fp64, fp32 or bf16.
RuleOptions translate_newton_schulz(const Fixture& fixture,
                                    const std::string& precision,
                                    const std::string& form,
                                    const std::string& device = "cpu");

// Reads the options of a fixture and tracks which were read: any other is
// unknown to Canzona.
//
//   OptionReader from(fixture);
//   RuleOptions to;
//   to["momentum"] = from.number("muon.momentum");
//   from.require("muon.flatten", "none");
//   from.ignore("ema_form");          // affects only rounding
//   from.finish();
//
// Numbers are returned as text that reads back equal, rounded to fp32 if the
// reference holds its scalars in that.

// A fixture asks for something that Canzona does not do: "shampoo.kl=true".
class Unsupported : public Error {
 public:
  using Error::Error;
};

// Returns what `make` makes; options that our rules refuse are unsupported, not
// a fault of the file.
template <class Make>
auto supported(const Make& make) {
  try {
    return make();
  } catch (const UsageError& error) {
    throw Unsupported(error.what());
  }
}

// Returns the shortest text that reads back as this number.
std::string exact_text(double value);

class OptionReader {
 public:
  explicit OptionReader(const Fixture& fixture);

  bool has(const std::string& key) const;
  // Throws UsageError if the option is missing or of another type.
  double real(const std::string& key);
  std::vector<double> reals(const std::string& key);
  std::string number(const std::string& key) { return exact_text(real(key)); }
  // Returns a number that is not a scalar of the arithmetic: a count, a
  // tolerance.
  std::string count(const std::string& key);
  bool boolean(const std::string& key);
  std::string on_off(const std::string& key) {
    return boolean(key) ? "on" : "off";
  }
  // Returns "off" also if the option is missing.
  std::string on_or_off(const std::string& key) {
    return has(key) ? on_off(key) : "off";
  }
  std::string word(const std::string& key);
  // Returns our word for the option's.
  using Words = std::initializer_list<std::pair<const char*, const char*>>;
  std::string word(const std::string& key, Words words);
  const Json& value(const std::string& key);

  bool is(const std::string& key, const Json& expected);

  // Throws Unsupported unless the option is missing or has this value.
  void require(const std::string& key, const Json& expected);
  void ignore(std::initializer_list<const char*> keys);
  [[noreturn]] void unsupported(const std::string& key) const;
  // Throws Unsupported if an option is left.
  void finish() const;

 private:
  [[noreturn]] void refuse(const std::string& key, const char* expected) const;

  const Fixture& fixture_;
  bool fp32_scalars_ = false;
  std::set<std::string> asked_;
};

// The translations of each rule; translate() combines them.

// Translates weight_decay and decay_form; decoupled decay refers to the
// learning rate of the step.
void translate_decay(OptionReader& from, RuleOptions& to);

void translate_muon(OptionReader& from, const Fixture& fixture,
                    const std::string& form, RuleOptions& to);
void translate_adamw(OptionReader& from, RuleOptions& to);
void translate_soap(OptionReader& from, const Fixture& fixture,
                    RuleOptions& to);
void translate_shampoo(OptionReader& from, const Fixture& fixture,
                       RuleOptions& to);
// Translates how Shampoo's inverse roots are taken.
void translate_root(OptionReader& from, RuleOptions& to);

}  // namespace canzona::tests
